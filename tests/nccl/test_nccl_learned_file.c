/* The file that CECL_NCCL_LEARNED names: rows are read as they were written, even with many
 * writers at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    struct cecl_nccl_verdict row = {.setup = {.nranks = 8, .nccl = 22809, .cecl = "0.1.0"},
                                    .subject = subject,
                                    .way = "with_sms",
                                    .before_us = 78200,
                                    .after_us = 69700,
                                    .gain = -109};
    cecl_nccl_setup_name(&row.setup, "NVIDIA H200 #1");
    return row;
}

static void append(uint64_t subject)
{
    const struct cecl_nccl_verdict row = verdict_of(subject);
    char text[CECL_NCCL_ROW_BYTES];
    cecl_nccl_verdict_text(&row, text);
    assert_int_equal(cecl_nccl_rows_append(path, text), ceclSuccess);
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

static void a_bad_line_is_named_with_what_was_expected(void **state)
{
    struct cecl_nccl_rows rows;
    begin_with("cecl-learned 1\n\n# words\nverdict H200 4 22809 0.1.0 zz nccl 1 2 3\n");
    assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclInvalidArgument);
    assert_non_null(strstr(cecl_message(), "line 4: verdict H200"));
    assert_non_null(strstr(cecl_message(), "verdict GPU ranks NCCL cecl period"));
    begin_with("cecl-learned 1\ngains H200 4 22809 0.1.0 all_gather any plain 1 2 3\n");
    assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclInvalidArgument);
    begin_with("cecl-tuning 1\n");
    assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclInvalidArgument);
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
}

/* Each writer finds the file empty, or with an unfinished line. */
static void writers_at_once_lose_nothing(void **state)
{
    struct cecl_nccl_rows rows;
    begin_with("");
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            for (int i = 0; i < LINES; i++)
                append((uint64_t)(w * LINES + i));
            _exit(0);
        }
    for (int w = 0, status; w < WRITERS; w++)
        assert_true(wait(&status) > 0 && status == 0);
    assert_int_equal(cecl_nccl_rows_read(path, &rows), ceclSuccess);
    assert_int_equal(rows.nverdicts, WRITERS * LINES);
    cecl_nccl_rows_forget(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_as_written),
        cmocka_unit_test(a_bad_line_is_named_with_what_was_expected),
        cmocka_unit_test(the_nearest_row_says_what_differs),
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
