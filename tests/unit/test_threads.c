/* Ranks as threads of one process, on the host device: mixed collectives on several streams, with every
 * value checked. The thread sanitizer can see all ranks. */
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <pthread.h>
#include <signal.h>

#include "../threads_alive.h"
#include "comm/together.h"

#define RANKS 4
#define COUNT 2000
#define ROUNDS 60

struct member {
    pthread_t thread;
    ceclComm_t comm;
    ceclResult_t result;
    int wrong;
};

#define STEP(expr) \
    do { \
        if ((me->result = (expr)) != ceclSuccess) \
            return NULL; \
    } while (0)

static void *work(void *argument)
{
    struct member *me = argument;
    int rank = 0, *gathered = NULL, *exchanged = NULL;
    ceclStream_t streams[2] = {NULL};
    STEP(ceclCommUserRank(me->comm, &rank));
    STEP(ceclStreamCreate(me->comm, &streams[1]));
    for (int round = 0; round < ROUNDS; round++) {
        /* Half of the rounds grow the pool or reuse its blocks. */
        if (round % 2 == 0) {
            STEP(ceclMemAlloc(me->comm, (void **)&gathered,
                              RANKS * COUNT * sizeof(int) * (size_t)(1 + round)));
            STEP(ceclMemAlloc(me->comm, (void **)&exchanged, RANKS * COUNT * sizeof(int)));
        }
        for (int i = 0; i < COUNT; i++)
            gathered[rank * COUNT + i] = round * 1000000 + rank * 100000 + i;
        STEP(ceclAllGather(gathered + rank * COUNT, gathered, COUNT, ceclInt, me->comm,
                           streams[round % 2]));
        STEP(ceclAlltoAll(gathered, exchanged, COUNT, ceclInt, me->comm, streams[round / 2 % 2]));
        STEP(ceclStreamSynchronize(me->comm, streams[0]));
        STEP(ceclStreamSynchronize(me->comm, streams[1]));
        for (int r = 0; r < RANKS; r++)
            for (int i = 0; i < COUNT; i++) {
                me->wrong += gathered[r * COUNT + i] != round * 1000000 + r * 100000 + i;
                me->wrong += exchanged[r * COUNT + i] != round * 1000000 + rank * 100000 + i;
            }
        if (round % 2 == 1) {
            STEP(ceclMemFree(me->comm, exchanged));
            STEP(ceclMemFree(me->comm, gathered));
        }
    }
    STEP(ceclStreamDestroy(me->comm, streams[1]));
    STEP(ceclCommDestroy(me->comm));
    return NULL;
}

static void run(const char *flags, const char *direction)
{
    ceclComm_t comms[RANKS];
    struct member members[RANKS] = {0};
    setenv("CECL_FLAGS", flags, 1);
    setenv("CECL_DIRECTION", direction, 1);
    assert_int_equal(ceclCommInitAll(comms, RANKS, NULL), ceclSuccess);
    for (int r = 0; r < RANKS; r++) {
        members[r].comm = comms[r];
        assert_int_equal(pthread_create(&members[r].thread, NULL, work, &members[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(members[r].thread, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(members[r].result, ceclSuccess);
        assert_int_equal(members[r].wrong, 0);
    }
}

TEST(collectives_among_threads_are_right_with_copied_flags)
{
    run("auto", "push");
}

TEST(collectives_among_threads_are_right_with_flags_on_the_host_and_pull)
{
    run("host", "pull");
}

TEST(collectives_among_threads_are_right_in_an_urgent_communicator)
{
    setenv("CECL_URGENT", "1", 1);
    run("auto", "auto");
    unsetenv("CECL_URGENT");
}

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

TEST(a_missing_gpu_list_entry_is_refused)
{
    ceclComm_t comms[2];
    const int bad[2] = {0, -3};
    assert_int_equal(ceclCommInitAll(comms, 2, bad), ceclInvalidArgument);
    setenv("CECL_TIMEOUT_MS", "soon", 1);
    assert_int_equal(ceclCommInitAll(comms, 2, NULL), ceclInvalidArgument);
    unsetenv("CECL_TIMEOUT_MS");
}

/* With or without a GPU, the call fails: two ranks cannot both use GPU 0. */
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

/* ---- tasks of a group, each on a thread of its own */

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
