/* The file that CECL_NCCL_LEARNED names: rows are read as they were written, even with many
 * writers at once. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../with_cmocka.h"

#include "nccl/learned_file.h"

enum { WRITERS = 4, LINES = 200 };
static char path[] = "/tmp/cecl_learned_XXXXXX";

static void begin_with(const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static struct cecl_nccl_verdict verdict_of(uint64_t subject)
{
    struct cecl_nccl_verdict row = {
        .setup = {.nranks = 8, .nodes = {1, 8, 8}, .nccl = 22809, .cecl = "0.1.0"},
        .subject = subject,
        .way = "with_sms",
        .before_us = 78200,
        .after_us = 69700,
        .gain = -109};
    cecl_nccl_setup_name(&row.setup, "NVIDIA H200 #1");
    return row;
}

static ceclResult_t try_append(uint64_t subject)
{
    const struct cecl_nccl_verdict row = verdict_of(subject);
    char text[CECL_NCCL_ROW_BYTES];
    cecl_nccl_verdict_text(&row, text);
    return cecl_nccl_rows_append(path, text);
}

static void append(uint64_t subject)
{
    assert_int_equal(try_append(subject), ceclSuccess);
}

static size_t size_of_file(void)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return (size_t)status.st_size;
}

/* As if the disk had room for so many bytes of the next row. The signal's default action ends the process. */
static ceclResult_t append_with_room(size_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = size_of_file() + bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
    const ceclResult_t result = try_append(0);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_FSIZE, &limit);
    return result;
}

static void expect_rows(size_t nverdicts, size_t nskipped)
{
    struct cecl_nccl_rows rows;
    assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclSuccess);
    assert_int_equal(rows.nverdicts, nverdicts);
    assert_int_equal(rows.nskipped, nskipped);
    cecl_nccl_rows_forget(&rows);
}

static void rows_come_back_as_written(void **state)
{
    struct cecl_nccl_rows rows;
    const struct cecl_nccl_verdict row = verdict_of(UINT64_C(0xf000000000000001));
    const struct cecl_nccl_gain gain = {.setup = row.setup,
                                        .op = CECL_NCCL_OP_ncclAlltoAll,
                                        .type = CECL_NCCL_BFLOAT16,
                                        .on_windows = true,
                                        .least = 4096,
                                        .most = (size_t)1 << 40};
    char text[CECL_NCCL_ROW_BYTES];
    begin_with(""); /* treated like a missing file */
    append(row.subject);
    append(row.subject);
    cecl_nccl_gain_text(&gain, text);
    assert_int_equal(cecl_nccl_rows_append(path, text), ceclSuccess);
    assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclSuccess);
    assert_int_equal(rows.nverdicts, 1);
    assert_int_equal(rows.ngains, 1);
    assert_string_equal(rows.verdicts[0].setup.gpu, "NVIDIA_H200__1");
    assert_memory_equal(&rows.verdicts[0], &row, sizeof(row));
    assert_true(cecl_nccl_setup_is(&rows.gains[0].setup, &gain.setup));
    assert_int_equal(rows.gains[0].op, gain.op);
    assert_int_equal(rows.gains[0].type, gain.type);
    assert_true(rows.gains[0].on_windows);
    assert_int_equal(rows.gains[0].least, gain.least);
    assert_int_equal(rows.gains[0].most, gain.most);
    cecl_nccl_rows_forget(&rows);
}

static void the_first_bad_line_is_named_with_what_was_expected(void **state)
{
    struct cecl_nccl_rows rows;
    begin_with("cecl-learned 1\n\n# words\nverdict H200 4 22809 0.1.0 zz nccl 1 2 3\n"
               "gains H200 4 22809 0.1.0 all_gather any plain 1 2 3\n");
    append(1);
    assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclSuccess);
    assert_int_equal(rows.nverdicts, 1);
    assert_int_equal(rows.ngains, 0);
    assert_int_equal(rows.nskipped, 2);
    assert_non_null(strstr(rows.skipped, "line 4: verdict H200"));
    assert_non_null(strstr(rows.skipped, "verdict GPU ranks NCCL cecl period"));
    cecl_nccl_rows_forget(&rows);
}

static void a_file_of_another_kind_is_refused(void **state)
{
    static const char *const texts[] = {"cecl-tuning 1\n", "cecl-tuning 1", "cecl-learned 10", "\n",
                                        "cecl-\ncecl-learned 1\n"};
    struct cecl_nccl_rows rows;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        begin_with(texts[i]);
        assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclInvalidArgument);
        assert_non_null(strstr(cecl_message(), "cecl-learned 1 expected"));
    }
    assert_int_equal(cecl_nccl_rows_read("/tmp", &rows), ceclSystemError);
}

static void a_part_of_a_row_without_room_is_skipped(void **state)
{
    begin_with("");
    assert_int_equal(append_with_room(5), ceclSystemError);
    append(1);
    expect_rows(1, 0);
    assert_int_equal(append_with_room(20), ceclSystemError);
    append(2);
    expect_rows(2, 1);
}

/* As a crash while a row is written leaves it. */
static void a_file_that_ends_anywhere_stays_usable(void **state)
{
    begin_with("");
    append(1);
    for (size_t size = size_of_file(); size-- > 0;) {
        assert_int_equal(truncate(path, (off_t)size), 0);
        append(2);
        append(3);
        struct cecl_nccl_rows rows;
        assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclSuccess);
        const struct cecl_nccl_setup setup = verdict_of(0).setup;
        assert_non_null(cecl_nccl_rows_find(&rows, &setup, 2));
        assert_non_null(cecl_nccl_rows_find(&rows, &setup, 3));
        assert_true(rows.nskipped <= 1);
        cecl_nccl_rows_forget(&rows);
        assert_int_equal(truncate(path, (off_t)size), 0);
        assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclSuccess);
        cecl_nccl_rows_forget(&rows);
    }
}

static void the_nearest_row_says_what_differs(void **state)
{
    struct cecl_nccl_verdict row = verdict_of(1);
    const struct cecl_nccl_rows rows = {.verdicts = &row, .nverdicts = 1};
    struct cecl_nccl_setup here = row.setup;
    char words[256];
    assert_false(cecl_nccl_rows_differ(&rows, &here, words, sizeof(words)));
    here.nranks = 2;
    assert_true(cecl_nccl_rows_differ(&rows, &here, words, sizeof(words)));
    assert_string_equal(words, "its rows are for 8 ranks, and this communicator has 2");
    here.nranks = 8;
    here.nodes = (struct cecl_nccl_layout){2, 3, 5};
    assert_true(cecl_nccl_rows_differ(&rows, &here, words, sizeof(words)));
    assert_string_equal(
        words, "its rows are for 1 node of 8 ranks, and this communicator has 2 nodes of 3 to 5");
}

/* The setup of 8 ranks, one digit a rank: the number of its node. */
static struct cecl_nccl_setup setup_on(const char *digits)
{
    int nodes[8];
    for (int rank = 0; rank < 8; rank++)
        nodes[rank] = digits[rank] - '0';
    return cecl_nccl_setup_make("H200", 8, nodes, 22809);
}

static void each_layout_of_nodes_has_one_text(void **state)
{
    static const char *const layouts[][3] = {
        /* two placements of ranks, and the text of both */
        {"00000000", "00000000", "8"},     {"00001111", "01010101", "8:2x4"},
        {"00112233", "01230123", "8:4x2"}, {"00011111", "00000111", "8:2x3-5"},
        {"01234567", "01234567", "8:8x1"}, {"00000012", "01222222", "8:3x1-6"}};
    const struct cecl_nccl_setup any = cecl_nccl_setup_make("H200", 8, NULL, 22809);
    enum { COUNT = sizeof(layouts) / sizeof(layouts[0]) };
    for (int i = 0; i < COUNT; i++) {
        const struct cecl_nccl_setup here = setup_on(layouts[i][0]),
                                     other = setup_on(layouts[i][1]);
        const struct cecl_nccl_verdict row = {.setup = here};
        char text[CECL_NCCL_ROW_BYTES], start[32];
        cecl_nccl_verdict_text(&row, text);
        snprintf(start, sizeof(start), "verdict H200 %s 22809 ", layouts[i][2]);
        assert_memory_equal(text, start, strlen(start));
        assert_true(cecl_nccl_setup_is(&here, &other) && cecl_nccl_setup_is(&here, &any));
        for (int k = 0; k < COUNT; k++) {
            const struct cecl_nccl_setup that = setup_on(layouts[k][0]);
            assert_int_equal(cecl_nccl_setup_is(&here, &that), i == k);
        }
    }
}

/* 4 is as in files that knew no nodes. */
static void rows_over_nodes_come_back_as_written(void **state)
{
    static const char *const good[] = {"4", "4:2x2", "4:4x1", "4:2x1-3"}, *const bad[] = {
                                                                              "four",    "4x",
                                                                              "4:",      "4:2",
                                                                              "4:1x4",   "4:2x2-2",
                                                                              "4:2x3-1", "4:2x2-",
                                                                              "4:02x2"};
    struct cecl_nccl_rows rows;
    char line[CECL_NCCL_ROW_BYTES], text[CECL_NCCL_ROW_BYTES];
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(line, sizeof(line), "verdict H200 %s 22809 0.1.0 0123456789abcdef nccl 1 2 3",
                 good[i]);
        begin_with("cecl-learned 1\n");
        assert_int_equal(cecl_nccl_rows_append(path, line), ceclSuccess);
        assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclSuccess);
        assert_int_equal(rows.nverdicts, 1);
        cecl_nccl_verdict_text(&rows.verdicts[0], text);
        assert_string_equal(text, line);
        cecl_nccl_rows_forget(&rows);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(line, sizeof(line), "gains H200 %s 22809 0.1.0 all_gather any plain 1 2", bad[i]);
        begin_with("cecl-learned 1\n");
        assert_int_equal(cecl_nccl_rows_append(path, line), ceclSuccess);
        expect_rows(0, 1);
    }
}

/* Reading must not wait for somebody who writes to the pipe. */
static void a_pipe_is_refused(void **state)
{
    struct cecl_nccl_rows rows;
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclInvalidArgument);
    assert_non_null(strstr(cecl_message(), "a pipe; a file expected"));
    unlink(path);
}

/* Each writer finds the file empty, or with an unfinished line. */
static void writers_at_once_lose_nothing(void **state)
{
    begin_with("");
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            for (int i = 0; i < LINES; i++)
                append((uint64_t)(w * LINES + i));
            _exit(0);
        }
    for (int w = 0, status; w < WRITERS; w++)
        assert_true(wait(&status) > 0 && status == 0);
    expect_rows(WRITERS * LINES, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_as_written),
        cmocka_unit_test(the_first_bad_line_is_named_with_what_was_expected),
        cmocka_unit_test(a_file_of_another_kind_is_refused),
        cmocka_unit_test(a_part_of_a_row_without_room_is_skipped),
        cmocka_unit_test(a_file_that_ends_anywhere_stays_usable),
        cmocka_unit_test(the_nearest_row_says_what_differs),
        cmocka_unit_test(each_layout_of_nodes_has_one_text),
        cmocka_unit_test(rows_over_nodes_come_back_as_written),
        cmocka_unit_test(a_pipe_is_refused),
        cmocka_unit_test(writers_at_once_lose_nothing),
    };
    const int file = mkstemp(path);
    if (file < 0)
        return 1;
    close(file);
    const int result = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return result;
}
