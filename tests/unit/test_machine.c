/* What programs do to their threads: their rounding modes do not reach results, and a cancelled thread leaves nothing
 * locked. Ranks of one process, on the host device. */
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

#include "../threads_alive.h"
#include "../with_cmocka.h"

#define RANKS 2
#include "comms.h"

static ceclStream_t streams[RANKS];

/* Rank 0's stream is made by a thread that rounds down, rank 1's by one that rounds up and flushes subnormal numbers. */
static int open_ranks(void **state)
{
    fenv_t before;
    open_all(state);
    fegetenv(&before);
    fesetround(FE_DOWNWARD);
    OK(ceclStreamCreate(comms[0], &streams[0]));
    fesetround(FE_UPWARD);
#ifdef __SSE__
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
    OK(ceclStreamCreate(comms[1], &streams[1]));
    fesetenv(&before);
    return 0;
}

static int close_ranks(void **state)
{
    OK_EACH(ceclStreamDestroy(comms[r], streams[r]));
    return close_all(state);
}

static void reduce(float (*in)[4], float (*out)[4])
{
    OK(ceclGroupStart());
    OK_EACH(ceclAllReduce(in[r], out[r], 4, ceclFloat32, ceclSum, comms[r], streams[r]));
    OK(ceclGroupEnd());
    finish_all(streams);
}

/* Sums whose lowest bit depends on the direction of rounding, and a sum of subnormal numbers. */
TEST_BETWEEN(sums_do_not_depend_on_the_programs_rounding, open_ranks, close_ranks)
{
    float in[RANKS][4] = {{1, 1, -1, 0x1p-140f}, {0x1p-25f, -0x1p-26f, -0x1p-25f, 0x1p-141f}},
          out[RANKS][4];
    const float right[4] = {1, 1, -1, 0x1.8p-140f};
    reduce(in, out);
    for (int r = 0; r < RANKS; r++)
        assert_memory_equal(out[r], right, sizeof(right));
}

struct waiter {
    pthread_t thread;
    ceclResult_t (*call)(ceclComm_t);
    _Atomic int tid;
};

static ceclResult_t synchronize(ceclComm_t comm)
{
    return ceclStreamSynchronize(comm, streams[0]);
}

static void *wait_in_call(void *argument)
{
    struct waiter *waiter = argument;
    waiter->tid = (int)syscall(SYS_gettid);
    (void)!waiter->call(comms[0]);
    pthread_testcancel();
    return NULL;
}

/* A thread is cancelled in a call that waits for rank 1. Then rank 1 comes. */
static void cancel_amid(ceclResult_t (*call)(ceclComm_t))
{
    static int words[RANKS][RANKS];
    struct waiter waiter = {.call = call};
    void *result;
    OK(ceclAllGather(&words[0][0], words[0], 1, ceclInt32, comms[0], streams[0]));
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_in_call, &waiter), 0);
    assert_true(thread_falls_asleep(&waiter.tid));
    assert_int_equal(pthread_cancel(waiter.thread), 0);
    usleep(10000);
    OK(ceclAllGather(&words[1][1], words[1], 1, ceclInt32, comms[1], streams[1]));
    assert_int_equal(pthread_join(waiter.thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
}

TEST_BETWEEN(a_thread_that_is_cancelled_keeps_no_stream_locked, open_ranks, close_ranks)
{
    cancel_amid(synchronize);
    OK(ceclStreamSynchronize(comms[0], streams[0]));
}

TEST_BETWEEN(a_thread_that_is_cancelled_is_not_inside_the_communicator, open_ranks, close_ranks)
{
    ceclCallStats_t stats;
    cancel_amid(ceclCommFinalize);
    OK(ceclCallStats(comms[0], &stats));
    OK(ceclStreamSynchronize(comms[1], streams[1]));
}
