/* Several ranks in one process: names and signal masks of threads, and a refused init. (tests/fuzz/fuzz_api.c: calls.) */
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <signal.h>

#include "../threads_alive.h"
#include "comm/together.h"

static bool all_have_names(void)
{
    char names[512];
    threads_name(names, sizeof(names));
    return strstr(names, "cecl-watchdog") && strstr(names, "cecl-worker") &&
           strstr(names, "cecl-stream");
}

TEST(threads_of_the_library_have_names)
{
    ceclComm_t comm;
    ceclStream_t stream;
    assert_int_equal(ceclCommInitAll(&comm, 1, NULL), ceclSuccess);
    assert_int_equal(ceclStreamCreate(comm, &stream), ceclSuccess);
    for (int i = 0; i < 5000 && !all_have_names(); i++)
        usleep(1000); /* each thread sets its name when it begins */
    assert_true(all_have_names());
    assert_int_equal(ceclCommDestroy(comm), ceclSuccess);
}

/* With or without a GPU the call fails: two ranks cannot both use GPU 0. */
TEST(cuda_without_a_gpu_for_each_rank_is_refused)
{
    ceclComm_t comms[2] = {NULL, NULL};
    const int same[2] = {0, 0};
    setenv("CECL_DEVICE", "cuda", 1);
    assert_int_equal(ceclCommInitAll(comms, 2, same), ceclInvalidUsage);
    const char *said = ceclGetLastError(NULL);
    if (!strstr(said, "no usable GPU") && !strstr(said, "are on one GPU"))
        fail_msg("said: %s", said);
    assert_null(comms[0]);
    setenv("CECL_DEVICE", "host", 1);
}

#define TASKS 4

static bool blocks[TASKS];

/* Whether the calling thread blocks a signal that programs handle. */
static ceclResult_t see_mask(void *item)
{
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    *(bool *)item = sigismember(&mask, SIGUSR1);
    return ceclSuccess;
}

static void *next_of(void *item)
{
    return item == &blocks[TASKS - 1] ? NULL : (bool *)item + 1;
}

TEST(handlers_of_the_program_run_on_its_own_threads)
{
    assert_int_equal(cecl_together(see_mask, blocks, next_of), ceclSuccess);
    assert_false(blocks[0]); /* the caller's thread */
    for (int t = 1; t < TASKS; t++)
        assert_true(blocks[t]);
}
