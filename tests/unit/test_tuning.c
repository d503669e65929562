/* Thresholds: which row applies, and messages for invalid files (tests/multi/test_tuning_file.c uses good ones). */
#include <sys/stat.h>

#include "../with_cmocka.h"

#include "plan/tuning.h"

#define HEAD CECL_TUNING_HEADER "\n"
#define OK(expr) assert_int_equal((expr), ceclSuccess)

static ceclResult_t parse(const char *text, struct cecl_tuning_file *file)
{
    return cecl_tuning_parse("f", text, strlen(text), file);
}

static uint64_t value_of(const struct cecl_tuning_file *file, enum cecl_threshold which,
                         enum cecl_tuning_device device, int nranks)
{
    struct cecl_tuning tuning;
    cecl_tuning_resolve(file, device, nranks, &tuning);
    return cecl_tuning_get(&tuning, which);
}

TEST(every_threshold_has_a_value_everywhere)
{
    for (int t = 0; t < CECL_TUNE_COUNT; t++)
        for (int d = 0; d < CECL_TUNING_DEVICES; d++)
            for (int n = 1; n <= 70000; n += n < 20 ? 1 : 997)
                assert_non_null(cecl_tuning_row_of(NULL, (enum cecl_threshold)t,
                                                   (enum cecl_tuning_device)d, n));
}

TEST(built_in_values_lie_in_their_own_ranges)
{
    for (size_t i = 0; i < cecl_tuning_nrows; i++) {
        const struct cecl_tuning_row *row = &cecl_tuning_rows[i];
        assert_in_range(row->value, cecl_thresholds[row->which].least,
                        cecl_thresholds[row->which].most);
    }
}

TEST(every_row_has_words)
{
    for (int t = 0; t < CECL_TUNE_COUNT; t++) {
        assert_true(strlen(cecl_thresholds[t].name) <= 42);
        assert_true(strlen(cecl_thresholds[t].decision) > 20);
        for (int other = 0; other < t; other++)
            assert_string_not_equal(cecl_thresholds[t].name, cecl_thresholds[other].name);
    }
    for (size_t i = 0; i < cecl_tuning_nrows; i++)
        assert_true(strlen(cecl_tuning_rows[i].evidence) > 10);
}

/* The first row that fits is used, so readers of the table must see all rows of a threshold together. */
TEST(rows_of_a_threshold_stand_together_in_order)
{
    for (size_t i = 1; i < cecl_tuning_nrows; i++)
        assert_in_range(cecl_tuning_rows[i].which - cecl_tuning_rows[i - 1].which, 0, 1);
}

TEST(the_first_row_that_fits_ranks_and_device_holds)
{
    const enum cecl_threshold small = CECL_TUNE_SMALL_ALL_REDUCE_MAX_BYTES,
                              staging = CECL_TUNE_STAGING_MAX_BYTES;
    assert_int_equal(value_of(NULL, small, CECL_TUNING_CUDA, 2), 512 << 10);
    assert_int_equal(value_of(NULL, small, CECL_TUNING_CUDA, 3), 256 << 10);
    assert_int_equal(value_of(NULL, small, CECL_TUNING_HOST, 2), 4 << 10);
    assert_int_equal(value_of(NULL, staging, CECL_TUNING_CUDA, 5), 192 << 20);
    assert_int_equal(value_of(NULL, staging, CECL_TUNING_CUDA, 6), 64 << 20);
    assert_int_equal(value_of(NULL, staging, CECL_TUNING_HOST, 6), 256 << 10);
}

TEST(unequal_values_have_unequal_hashes)
{
    struct cecl_tuning a = cecl_tuning_default(CECL_TUNING_HOST, 4), b = a;
    assert_true(cecl_tuning_hash(&a, 1) == cecl_tuning_hash(&b, 1));
    assert_true(cecl_tuning_hash(&a, 1) >= 0);
    b.value[CECL_TUNE_COUNT - 1]++;
    assert_true(cecl_tuning_hash(&a, 1) != cecl_tuning_hash(&b, 1));
}

TEST(a_files_row_comes_before_the_built_in_ones)
{
    struct cecl_tuning_file file;
    const enum cecl_threshold sms = CECL_TUNE_REDUCTION_READING_SMS,
                              small = CECL_TUNE_SMALL_ALL_REDUCE_MAX_BYTES,
                              spread = CECL_TUNE_BROADCAST_SPREAD_MIN_BYTES;
    OK(parse("# written by hand\n\n" HEAD "reduction.reading_sms 3-5 any 12 # so\n"
             "\treduction.reading_sms\t6-*\tany\t6\r\n"
             "small.all_reduce.max_bytes * host 3KiB\n"
             "broadcast.spread_min_bytes * any never",
             &file));
    assert_int_equal(file.nrows, 4);
    assert_int_equal(value_of(&file, sms, CECL_TUNING_CUDA, 2), 8);
    assert_int_equal(value_of(&file, sms, CECL_TUNING_CUDA, 3), 12);
    assert_int_equal(value_of(&file, sms, CECL_TUNING_HOST, 5), 12);
    assert_int_equal(value_of(&file, sms, CECL_TUNING_CUDA, 1024), 6);
    assert_int_equal(value_of(&file, small, CECL_TUNING_HOST, 4), 3072);
    assert_int_equal(value_of(&file, small, CECL_TUNING_CUDA, 4), 256 << 10);
    assert_true(value_of(&file, spread, CECL_TUNING_CUDA, 4) == CECL_TUNING_NEVER);
    cecl_tuning_forget(&file);
}

TEST(ranks_and_values_up_to_their_limits_are_read)
{
    const enum cecl_threshold sms = CECL_TUNE_REDUCTION_READING_SMS;
    struct cecl_tuning_file file;
    OK(parse(HEAD "reduction.reading_sms 3 any 1024\n"
                  "reduction.reading_sms 4-1024 cuda 7\n"
                  "reduction.reading_sms 4-1024 host 6\n",
             &file));
    assert_int_not_equal(value_of(&file, sms, CECL_TUNING_HOST, 2), 1024);
    assert_int_equal(value_of(&file, sms, CECL_TUNING_HOST, 3), 1024);
    assert_int_equal(value_of(&file, sms, CECL_TUNING_CUDA, 1024), 7);
    assert_int_equal(value_of(&file, sms, CECL_TUNING_HOST, 1024), 6);
    cecl_tuning_forget(&file);
}

TEST(bad_lines_are_refused_with_their_number)
{
    static const struct {
        const char *text, *line, *found, *expected;
    } cases[] = {
        {"", "f:1:", "\"\"", "the first line " CECL_TUNING_HEADER},
        {"# only this\n", "f:2:", "\"\"", "the first line " CECL_TUNING_HEADER},
        {"cecl-tuning 2\n", "f:1:", "cecl-tuning 2", "the first line " CECL_TUNING_HEADER},
        {"reduction.reading_sms * any 8\n", "f:1:", "reduction.reading_sms", "the first line"},
        {HEAD "\n# x\nreduction.reeding_sms * any 8\n", "f:4:", "\"reduction.reeding_sms\"",
         "cecl_info --tuning"},
        {HEAD "small.max_bytes * any 8\n", "f:2:", "small.max_bytes", "cecl_info --tuning"},
        {HEAD "reduction.reading_sms * any\n", "f:2:", "reduction.reading_sms", "four words"},
        {HEAD "reduction.reading_sms * any 8 8\n", "f:2:", "8 8", "four words"},
        {HEAD "reduction.reading_sms 0 any 8\n", "f:2:", "\"0\"", "ranks as 2, 3-8, 6-* or *"},
        {HEAD "reduction.reading_sms 1025 any 8\n", "f:2:", "\"1025\"", "ranks as"},
        {HEAD "reduction.reading_sms 8-3 any 8\n", "f:2:", "\"8-3\"", "ranks as"},
        {HEAD "reduction.reading_sms 3- any 8\n", "f:2:", "\"3-\"", "ranks as"},
        {HEAD "reduction.reading_sms -3 any 8\n", "f:2:", "\"-3\"", "ranks as"},
        {HEAD "reduction.reading_sms 3-8x any 8\n", "f:2:", "\"3-8x\"", "ranks as"},
        {HEAD "reduction.reading_sms ** any 8\n", "f:2:", "\"**\"", "ranks as"},
        {HEAD "reduction.reading_sms * gpu 8\n", "f:2:", "\"gpu\"", "any, cuda or host"},
        {HEAD "reduction.reading_sms * any 0\n", "f:2:", "\"0\"", "1 to 1024"},
        {HEAD "reduction.reading_sms * any 1025\n", "f:2:", "\"1025\"", "1 to 1024"},
        {HEAD "reduction.reading_sms * any 1KiB\n", "f:2:", "\"1KiB\"", "a whole number"},
        {HEAD "reduction.reading_sms * any never\n", "f:2:", "\"never\"", "1 to 1024"},
        {HEAD "reduction.reading_sms * any -8\n", "f:2:", "\"-8\"", "1 to 1024"},
        {HEAD "small.all_reduce.max_bytes * any 65MiB\n", "f:2:", "\"65MiB\"", "0 to 64MiB"},
        {HEAD "small.all_reduce.max_bytes * any 1K\n", "f:2:", "\"1K\"", "KiB, MiB or GiB"},
        {HEAD "small.all_reduce.max_bytes * any 1.5MiB\n", "f:2:", "\"1.5MiB\"", "bytes"},
        {HEAD "all_reduce.staged_min_bytes * any 18446744073709551616\n",
         "f:2:", "\"18446744073709551616\"", "0 to any, or never"},
        {HEAD "all_reduce.staged_min_bytes * any 17179869184GiB\n", "f:2:", "\"17179869184GiB\"",
         "bytes"},
        {HEAD "reduction.reading_sms 2 any 8\nreduction.reading_sms 2 any 9\n",
         "f:3:", "reduction.reading_sms", "line 2 has it"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cecl_tuning_file file;
        assert_int_equal(parse(cases[i].text, &file), ceclInvalidArgument);
        assert_null(file.rows);
        if (!strstr(cecl_message(), cases[i].line) || !strstr(cecl_message(), cases[i].found) ||
            !strstr(cecl_message(), cases[i].expected))
            fail_msg("case %zu: \"%s\" lacks %s, %s or %s", i, cecl_message(), cases[i].line,
                     cases[i].found, cases[i].expected);
    }
}

static void file_is_refused(const char *path, const char *words)
{
    struct cecl_tuning_file file;
    assert_int_equal(cecl_tuning_read(path, &file), ceclInvalidArgument);
    assert_non_null(strstr(cecl_message(), words));
}

TEST(files_that_cannot_be_read_to_their_end_are_refused)
{
    char path[] = "/tmp/cecl_tuning_XXXXXX";
    const int fd = mkstemp(path);
    file_is_refused("/nowhere/at/all", "CECL_TUNING=/nowhere/at/all: No such file");
    file_is_refused("/", "CECL_TUNING=/: a directory: ");
    file_is_refused("/dev/zero", "=/dev/zero: a device: ");
    /* Files like /proc/kmsg may be endless, so their size is limited. */
    assert_int_equal(ftruncate(fd, (1 << 20) + 1), 0);
    file_is_refused(path, "at most");
    close(fd);
    unlink(path);
    /* Opening a pipe would wait for a writer. */
    assert_int_equal(mkfifo(path, 0600), 0);
    file_is_refused(path, ": a pipe: a file of thresholds expected");
    unlink(path);
}
