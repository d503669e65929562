/* Communicators that NCCL carries, seen from inside the library: the test replaces some of its functions. Two ranks on
 * pretended hosts, in one thread. */
#include <pthread.h>

#include "../with_cmocka.h"

#include "comm/comm.h"
#include "launch/launcher.h"
#include "net/net.h"
#include "util/clock.h"

#define RANKS 2
#define BYTES 64
#define OK(call) assert_int_equal(call, ceclSuccess)

static ceclComm_t comms[RANKS];
static ceclStream_t streams[RANKS];
static unsigned char *recv[RANKS];
static struct nccl replaced; /* the ranks' NCCL */

static void replace(const struct nccl *by)
{
    for (int r = 0; r < RANKS; r++) /* their threads use the table, too */
        pthread_mutex_lock(&comms[r]->net->lock);
    replaced = *by;
    for (int r = 0; r < RANKS; r++) {
        comms[r]->net->nccl = &replaced;
        pthread_mutex_unlock(&comms[r]->net->lock);
    }
}

static int open_with(int timeout_ms)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    ceclUniqueId id;
    config.timeoutMs = timeout_ms;
    OK(ceclGetUniqueId(&id));
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommInitRankConfig(&comms[r], RANKS, id, r, &config));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamCreate(comms[r], &streams[r]));
        OK(ceclMemAlloc(comms[r], (void **)&recv[r], RANKS * BYTES));
    }
    const struct nccl real = *comms[0]->net->nccl;
    replace(&real);
    return 0;
}

static int open_ranks(void **state)
{
    return open_with(60000);
}

static int open_impatient_ranks(void **state)
{
    return open_with(100);
}

static int close_ranks(void **state)
{
    for (int r = 0; r < RANKS; r++)
        if (comms[r])
            OK(ceclCommAbort(comms[r]));
    memset(comms, 0, sizeof(comms));
    return 0;
}

static void says(const char *text)
{
    if (!strstr(ceclGetLastError(NULL), text))
        fail_msg("'%s' lacks '%s'", ceclGetLastError(NULL), text);
}

static ceclResult_t gather_on_all(void)
{
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclAllGather(recv[r] + r * BYTES, recv[r], BYTES, ceclInt8, comms[r], streams[r]));
    return ceclGroupEnd();
}

/* Captures as on GPUs, whose streams capture calls. The stand-in knows no streams, so it carries the calls out at once. */
static void capture_gathers(ceclGraph_t graphs[RANKS])
{
    replaced.on_host = false;
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamBeginCapture(comms[r], streams[r]));
    OK(gather_on_all());
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamEndCapture(comms[r], streams[r], &graphs[r]));
        comms[r]->launcher->gone_ms = 20;
    }
    replaced.on_host = true;
}

TEST_BETWEEN(a_communicator_ends_soon_beside_a_living_graph, open_ranks, close_ranks)
{
    ceclGraph_t graphs[RANKS];
    ceclResult_t error;
    capture_gathers(graphs);
    assert_int_equal(ceclCommDestroy(comms[1]), ceclInvalidUsage);
    says("graphs hold 1 captured calls of the communicator");
    comms[1] = NULL;
    OK(ceclCommGetAsyncError(comms[0], &error)); /* no error, because rank 1 has said goodbye */
    assert_int_equal(error, ceclSuccess);
    for (int r = 0; r < RANKS; r++)
        OK(ceclGraphDestroy(graphs[r]));
}

#define STUCK_S 20

static _Atomic bool is_stuck, is_aborted, was_ended; /* was_ended: the abort came in time */
static nccl_result (*abort_of_nccl)(nccl_comm comm);
static nccl_comm stuck_comm; /* rank 0's */

static nccl_result start_nothing(void)
{
    return NCCL_SUCCESS;
}

static nccl_result reduce_nothing(const void *send, void *out, size_t count, int type, int op,
                                  nccl_comm comm, ceclStream_t stream)
{
    return NCCL_SUCCESS;
}

/* Like NCCL while the GPU's queue is full, returns only after an abort. */
static nccl_result end_when_aborted(void)
{
    atomic_store(&is_stuck, true);
    for (int i = 0; i < STUCK_S * 1000 && !atomic_load(&is_aborted); i++)
        usleep(1000);
    was_ended = is_aborted;
    return ceclRemoteError;
}

static nccl_result note_abort(nccl_comm comm)
{
    if (comm == stuck_comm)
        atomic_store(&is_aborted, true);
    return abort_of_nccl(comm);
}

static void *call_barrier(void *result)
{
    *(ceclResult_t *)result = ceclBarrier(comms[0], streams[0]);
    return NULL;
}

TEST_BETWEEN(an_abort_ends_a_wait_inside_nccl, open_ranks, close_ranks)
{
    pthread_t thread;
    ceclResult_t result = ceclSuccess;
    struct nccl stuck = replaced;
    abort_of_nccl = stuck.CommAbort;
    stuck_comm = comms[0]->net->comm;
    stuck.CommAbort = note_abort;
    stuck.GroupStart = start_nothing;
    stuck.AllReduce = reduce_nothing;
    stuck.GroupEnd = end_when_aborted;
    replace(&stuck);
    assert_int_equal(pthread_create(&thread, NULL, call_barrier, &result), 0);
    while (!atomic_load(&is_stuck))
        usleep(1000);
    OK(ceclCommRevoke(comms[0]));
    pthread_join(thread, NULL);
    assert_true(was_ended);
    assert_int_equal(result, ceclRemoteError);
}

TEST_BETWEEN(calls_of_one_thread_with_all_ranks_are_right, open_ranks, close_ranks)
{
    for (int r = 0; r < RANKS; r++)
        memset(recv[r] + r * BYTES, 10 + r, BYTES); /* memory of the host device is the host's */
    OK(gather_on_all());
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamSynchronize(comms[r], streams[r]));
        for (int i = 0; i < RANKS * BYTES; i++)
            assert_int_equal(recv[r][i], 10 + i / BYTES);
    }
}

/* Rank 0's stream stalls, as a GPU's stream does when its queue is full. */
TEST_BETWEEN(pending_calls_are_bounded, open_impatient_ranks, close_ranks)
{
    struct cecl_device *dev = comms[0]->dev;
    ceclResult_t result = ceclSuccess;
    uint32_t *gate;
    int calls = 0;
    OK(dev->ops->words_alloc(dev, 1, &gate));
    OK(dev->ops->memops(dev, streams[0], &(struct cecl_memop){gate, 1, CECL_MEMOP_WAIT}, 1));
    replaced.on_host = false;
    for (; calls < 1000 && result == ceclSuccess; calls++)
        result = gather_on_all();
    replaced.on_host = true;
    assert_int_not_equal(result, ceclSuccess);
    assert_in_range(calls, 1, 129);
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    OK(dev->ops->stream_synchronize(dev, streams[0]));
    dev->ops->words_free(dev, gate);
}

static nccl_result never_ready(nccl_comm comm, nccl_result *error)
{
    *error = NCCL_IN_PROGRESS;
    return NCCL_SUCCESS;
}

/* How long a group of two launches took to fail: about the time limit of 1100 ms, and 500 ms for news. */
static int64_t ms_to_fail(void)
{
    struct nccl slow = replaced;
    slow.CommGetAsyncError = never_ready;
    replace(&slow);
    const int64_t start = cecl_now_ms();
    assert_int_equal(gather_on_all(), ceclTimeout);
    return cecl_now_ms() - start;
}

/* Repeated if the machine was busy. A second time limit, or a second wait for news, would take 2100 ms or more. */
TEST_BETWEEN(all_launches_of_a_group_have_one_time_limit, open_impatient_ranks, close_ranks)
{
    int64_t ms = ms_to_fail();
    for (int i = 0; i < 10 && ms >= 2100; i++) {
        close_ranks(NULL);
        open_impatient_ranks(NULL);
        ms = ms_to_fail();
    }
    assert_true(ms < 2100);
}
