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

/* Which values are bad: tests/fuzz/fuzz_settings.c. */
TEST(bad_values_are_refused_with_name_value_and_range)
{
    static const struct {
        enum cecl_setting_id id;
        const char *text;
    } cases[] = {{CECL_SET_TIMEOUT_MS, "abc"},
                 {CECL_SET_POOL_BYTES, "17T"},
                 {CECL_SET_DEVICE, "auto|cuda"},
                 {CECL_SET_FLAGS, " write"},
                 {CECL_SET_CUDA_DEVICE, "65537"}};
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

TEST(an_unset_variable_without_default_leaves_the_value)
{
    int64_t value = 5;
    unsetenv("CECL_POOL_BYTES");
    assert_int_equal(cecl_setting_read(CECL_SET_POOL_BYTES, &value), ceclSuccess);
    assert_true(value == 5);
}

TEST(a_choice_is_its_position)
{
    int64_t value;
    setenv("CECL_DIRECTION", "Pull", 1);
    assert_int_equal(cecl_setting_read(CECL_SET_DIRECTION, &value), ceclSuccess);
    unsetenv("CECL_DIRECTION");
    assert_int_equal(value, 2);
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

/* The text that a process with two communicators writes to stderr. */
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

TEST(an_unknown_variable_is_warned_of_once)
{
    char said[512];
    warnings_of("CECL_TIMOUT_MS", "100", said, sizeof(said));
    assert_string_equal(said, "cecl: CECL_TIMOUT_MS has no effect: there is no such setting "
                              "(docs/env.md lists them all)\n");
    warnings_of("CECL_COLOUR", "red", said, sizeof(said));
    assert_string_equal(said, "cecl: CECL_COLOUR has no effect: there is no such setting "
                              "(docs/env.md lists them all)\n");
}

TEST(settings_and_empty_variables_are_not_warned_of)
{
    char said[512];
    warnings_of("CECL_TIMEOUT_MS", "100", said, sizeof(said));
    assert_string_equal(said, "");
    warnings_of("CECL_TIMOUT_MS", "", said, sizeof(said));
    assert_string_equal(said, "");
}
