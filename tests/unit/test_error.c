/* How errors are recorded: a message for each thread, and a name for each result. */
#include "../with_cmocka.h"
#include <pthread.h>

#include "util/error.h"

TEST(every_result_has_a_name_of_its_own)
{
    static const ceclResult_t results[] = {ceclSuccess,         ceclUnhandledCudaError,
                                           ceclSystemError,     ceclInternalError,
                                           ceclInvalidArgument, ceclInvalidUsage,
                                           ceclRemoteError,     ceclInProgress,
                                           ceclOutOfMemory,     ceclTimeout};
    const int count = (int)(sizeof(results) / sizeof(results[0]));
    for (int i = 0; i < count; i++) {
        assert_string_not_equal(ceclGetErrorString(results[i]), "unknown result");
        for (int j = 0; j < i; j++)
            assert_string_not_equal(ceclGetErrorString(results[i]), ceclGetErrorString(results[j]));
    }
    assert_string_equal(ceclGetErrorString((ceclResult_t)99), "unknown result");
    assert_string_equal(ceclGetErrorString((ceclResult_t)-1), "unknown result");
}

TEST(words_too_long_are_cut)
{
    char words[2 * CECL_MESSAGE_BYTES], kept[CECL_MESSAGE_BYTES];
    memset(words, 'x', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    assert_int_equal(cecl_fail(ceclTimeout, "%s", words), ceclTimeout);
    assert_int_equal(strlen(cecl_message()), CECL_MESSAGE_BYTES - 1);
    cecl_keep_message(kept);
    assert_string_equal(kept, cecl_message());
}

TEST(words_for_less_room_end_in_dots_if_they_are_cut)
{
    char out[10];
    cecl_shorten(out, sizeof(out), "nine fit.");
    assert_string_equal(out, "nine fit.");
    cecl_shorten(out, sizeof(out), "ten do not");
    assert_string_equal(out, "ten do...");
    cecl_shorten(out, 4, "ten do not");
    assert_string_equal(out, "...");
}

/* A message may quote its cause, the message before it. */
TEST(words_may_be_part_of_new_words)
{
    char kept[CECL_MESSAGE_BYTES];
    (void)!cecl_fail(ceclTimeout, "%d came", 3);
    (void)!cecl_fail(ceclTimeout, "a call: %s", cecl_message());
    assert_string_equal(cecl_message(), "a call: 3 came");
    cecl_keep_message(kept);
    (void)!cecl_fail(ceclSystemError, "something else");
    assert_int_equal(cecl_fail_with(ceclTimeout, kept), ceclTimeout);
    assert_string_equal(cecl_message(), "a call: 3 came");
    assert_string_equal(ceclGetLastError(NULL), "a call: 3 came");
}

static void *fail_here(void *words)
{
    (void)!cecl_fail(ceclSystemError, "%s", (const char *)words);
    return strcmp(cecl_message(), words) == 0 ? words : NULL;
}

TEST(threads_keep_their_words_to_themselves)
{
    pthread_t thread;
    void *right = NULL;
    static char words[] = "the other thread's";
    (void)!cecl_fail(ceclTimeout, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_here, words), 0);
    pthread_join(thread, &right);
    assert_non_null(right);
    assert_string_equal(cecl_message(), "mine");
}
