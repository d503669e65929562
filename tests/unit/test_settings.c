/* Settings from the environment: numbers, sizes, choices, and the messages for invalid values. */
#include "../with_cmocka.h"

#include <sys/wait.h>

#include "util/settings.h"

TEST(defaults_lie_within_their_own_ranges)
{
    for (int id = 0; id < CECL_SETTING_COUNT; id++) {
        int64_t value;
        if (strcmp(cecl_settings[id].fallback, "-") != 0)
            assert_int_equal(
                cecl_setting_parse((enum cecl_setting_id)id, cecl_settings[id].fallback, &value),
                ceclSuccess);
    }
}

TEST(names_are_sorted_and_start_with_CECL)
{
    for (int id = 0; id < CECL_SETTING_COUNT; id++) {
        assert_memory_equal(cecl_settings[id].name, "CECL_", 5);
        if (id > 0)
            assert_true(strcmp(cecl_settings[id - 1].name, cecl_settings[id].name) < 0);
    }
}

TEST(bad_values_are_refused_with_name_value_and_range)
{
    static const struct {
        enum cecl_setting_id id;
        const char *text;
    } cases[] = {{CECL_SET_TIMEOUT_MS, "abc"},
                 {CECL_SET_TIMEOUT_MS, "-1"},
                 {CECL_SET_TIMEOUT_MS, "12x"},
                 {CECL_SET_TIMEOUT_MS, "1K"},
                 {CECL_SET_POOL_BYTES, "17T"},
                 {CECL_SET_POOL_BYTES, "1"},
                 {CECL_SET_POOL_BYTES, "99999999999999999999"},
                 {CECL_SET_DEVICE, "gpu"},
                 {CECL_SET_DEVICE, "cud"},
                 {CECL_SET_DEVICE, "auto|cuda"},
                 {CECL_SET_FLAGS, " write"},
                 {CECL_SET_CUDA_DEVICE, "-1"},
                 {CECL_SET_CUDA_DEVICE, "65537"},
                 {CECL_SET_CUDA_DEVICE, "1K"},
                 {CECL_SET_CUDA_DEVICE, "0..65536"},
                 {CECL_SET_CUDA_DEVICE, "0x"},
                 {CECL_SET_CUDA_DEVICE, "by"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = 77;
        assert_int_equal(cecl_setting_parse(cases[i].id, cases[i].text, &value),
                         ceclInvalidArgument);
        assert_true(value == 77);
        assert_non_null(strstr(cecl_message(), cecl_settings[cases[i].id].name));
        assert_non_null(strstr(cecl_message(), cases[i].text));
        assert_non_null(strstr(cecl_message(), cecl_settings[cases[i].id].range));
    }
}

TEST(values_are_read_as_the_table_says)
{
    static const struct {
        enum cecl_setting_id id;
        const char *text;
        int64_t value;
    } cases[] = {{CECL_SET_POOL_BYTES, "4m", INT64_C(4) << 20},
                 {CECL_SET_POOL_BYTES, "3G", INT64_C(3) << 30},
                 {CECL_SET_POOL_BYTES, "2T", INT64_C(2) << 40},
                 {CECL_SET_SEGMENT_BYTES, "4K", 4096},
                 {CECL_SET_DIRECTION, "Pull", 2}, /* a choice is stored as its position */
                 {CECL_SET_TIMEOUT_MS, "0", 0},
                 {CECL_SET_TIMEOUT_MS, "1000", 1000},
                 {CECL_SET_CUDA_DEVICE, "7", 7},
                 {CECL_SET_CUDA_DEVICE, "current", CECL_CUDA_DEVICE_CURRENT},
                 {CECL_SET_CUDA_DEVICE, "RANK", CECL_CUDA_DEVICE_BY_RANK}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = 77;
        assert_int_equal(cecl_setting_parse(cases[i].id, cases[i].text, &value), ceclSuccess);
        assert_true(value == cases[i].value);
    }
}

TEST(an_unset_variable_without_default_leaves_the_value)
{
    int64_t value = 5;
    setenv("CECL_POOL_BYTES", "-", 1);
    assert_int_equal(cecl_setting_read(CECL_SET_POOL_BYTES, &value), ceclInvalidArgument);
    unsetenv("CECL_POOL_BYTES");
    assert_int_equal(cecl_setting_read(CECL_SET_POOL_BYTES, &value), ceclSuccess);
    assert_true(value == 5);
}

TEST(names_of_the_build_and_of_tests_are_known)
{
    assert_true(cecl_setting_is_known("CECL_TIMEOUT_MS"));
    assert_false(cecl_setting_is_known("CECL_TIMEOUT"));
    assert_true(cecl_setting_is_known("CECL_TEST_SEED"));
    assert_true(cecl_setting_is_known("CECL_CMOCKA_ROOT"));
    assert_true(cecl_setting_is_known("CECL_CUDA"));
    assert_false(cecl_setting_is_known("CECL_CUDAS"));
}

static int make_and_destroy(void)
{
    ceclComm_t comm;
    return ceclCommInitAll(&comm, 1, NULL) != ceclSuccess || ceclCommDestroy(comm) != ceclSuccess;
}

/* What a process with two communicators writes to stderr. */
static void warnings_of(const char *name, const char *value, char *said, size_t room)
{
    int ends[2];
    size_t used = 0;
    ssize_t got;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        clearenv();
        setenv(name, value, 1);
        setenv("CECL_TEST_BIG", "1", 1);
        setenv("CECL_DEVICE", "host", 1);
        _exit(make_and_destroy() || make_and_destroy());
    }
    close(ends[1]);
    while ((got = read(ends[0], said + used, room - 1 - used)) > 0)
        used += (size_t)got;
    said[used] = '\0';
    close(ends[0]);
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

#define UNKNOWN "there is no such setting (docs/env.md lists them all)\n"

TEST(only_unknown_variables_are_warned_of_and_once)
{
    static const struct {
        const char *name, *value, *said;
    } rows[] = {{"CECL_TIMOUT_MS", "100", "cecl: CECL_TIMOUT_MS has no effect: " UNKNOWN},
                {"CECL_COLOUR", "red", "cecl: CECL_COLOUR has no effect: " UNKNOWN},
                {"CECL_TIMEOUT_MS", "100", ""},
                {"CECL_TIMOUT_MS", "", ""}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char said[512];
        warnings_of(rows[i].name, rows[i].value, said, sizeof(said));
        assert_string_equal(said, rows[i].said);
    }
}

/* No communicator is made with a bad setting. This test is last: it makes the process look for unknown variables. */
TEST(init_names_a_bad_value)
{
    static const enum cecl_setting_id ids[] = {
        CECL_SET_CHECK,           CECL_SET_CUDA_DEVICE, CECL_SET_DEBUG,
        CECL_SET_DEVICE,          CECL_SET_DIRECTION,   CECL_SET_FLAGS,
        CECL_SET_MAX_SMS,         CECL_SET_NODE_SIZE,   CECL_SET_NVTX,
        CECL_SET_INIT_TIMEOUT_MS, CECL_SET_POOL_BYTES,  CECL_SET_REGISTER_ON_USE,
        CECL_SET_SEGMENT_BYTES,   CECL_SET_SHARE_GPU,   CECL_SET_SM_POLICY,
        CECL_SET_STAGING_BYTES,   CECL_SET_TIMEOUT_MS,  CECL_SET_URGENT};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        const char *name = cecl_settings[ids[i]].name;
        const char *kept = getenv(name);
        char *before = kept ? strdup(kept) : NULL;
        ceclComm_t comm;
        setenv(name, "bad!", 1);
        assert_int_equal(ceclCommInitAll(&comm, 1, NULL), ceclInvalidArgument);
        assert_non_null(strstr(ceclGetLastError(NULL), name));
        before ? setenv(name, before, 1) : unsetenv(name);
        free(before);
    }
}
