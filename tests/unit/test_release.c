/* Pending work of a communicator that fails: its waits end, its memory is freed, and no peer takes its data as valid.
 * Ranks are threads of this process, or child processes if a rank must stop or die. */
#include "../forked.h"
#include "../prompt.h"
#include "../with_cmocka.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "comm/comm.h"
#include "sm/reduce.h"
#include "util/clock.h"

#define RANKS 2
#include "comms.h"

#define SOON_MS (PROMPT * 1000)

struct meeting {
    struct forked_id id;
    _Atomic int joined, done;
};

/* Joins in a child, which exits if this fails. */
static ceclComm_t meet(struct meeting *meeting, int rank, char **buffer, size_t bytes)
{
    ceclComm_t comm;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the alarm does not end a stopped rank */
    alarm(200);
    if (ceclCommInitRank(&comm, RANKS, forked_meet(&meeting->id, rank), rank) != ceclSuccess ||
        ceclMemAlloc(comm, (void **)buffer, bytes) != ceclSuccess)
        _exit(101);
    meeting->joined++;
    while (meeting->joined < RANKS)
        usleep(1000);
    return comm;
}

static pid_t children[RANKS];

static int exit_code(int rank)
{
    int status = -1;
    const pid_t child = children[rank];
    assert_int_equal(waitpid(child, &status, 0), child);
    children[rank] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static void end_children(void)
{
    for (int i = 0; i < RANKS; i++) {
        if (children[i] > 0) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
        children[i] = 0;
    }
}

/* Replaces the host device's function (by the linker, see CMakeLists.txt): a thread's batch number `fail_at` fails. */
static _Thread_local int batches, fail_at;
static _Atomic bool lose_batches; /* batches do nothing, on every thread */
WRAPPED(ceclResult_t, host_copies,
        (struct cecl_device * dev, ceclStream_t work, const struct cecl_batch *batch))
{
    if (++batches == fail_at)
        return cecl_fail(ceclUnhandledCudaError, "a driver's failure");
    return lose_batches ? ceclSuccess : __real_host_copies(dev, work, batch);
}

/* Replaces the host device's waits for words and writes of words (by the linker). */
static _Thread_local bool refuse_memops;
WRAPPED(ceclResult_t, host_memops,
        (struct cecl_device * dev, ceclStream_t work, const struct cecl_memop *ops, size_t count))
{
    if (refuse_memops)
        return cecl_fail(ceclUnhandledCudaError, "a driver's failure");
    return __real_host_memops(dev, work, ops, count);
}

/* Replaces reads of words (by the linker): CUDA may delay them while the program frees memory. */
static _Atomic bool hold_reads, reads_are_held;
WRAPPED(ceclResult_t, host_words_read,
        (struct cecl_device * dev, const uint32_t *words, size_t count, uint32_t *out))
{
    while (hold_reads) {
        reads_are_held = true;
        usleep(1000);
    }
    reads_are_held = false;
    return __real_host_words_read(dev, words, count, out);
}

/* Replaces the watchdog's writes of device words (by the linker): CUDA may delay one while streams wait. */
static _Atomic bool hold_writes; /* delays rank 0's writes */
static ceclComm_t holds;
static const struct cecl_device *holds_on;
WRAPPED(ceclResult_t, host_words_release,
        (struct cecl_device * dev, uint32_t *words, size_t count, uint32_t value))
{
    while (hold_writes && dev == holds_on && !cecl_flags_idle(&holds->engine.flags))
        usleep(1000);
    return __real_host_words_release(dev, words, count, value);
}

/* Replaces the host's arithmetic (by the linker), to delay reductions. */
enum hold { NO_HOLD, HOLD_A_WHILE, HOLD_FOREVER };
static _Atomic enum hold hold;
static _Atomic int held, held_over; /* delayed reductions; how many of them have gone on */
WRAPPED(void, cecl_reduce_host, (const struct cecl_reduction *reduction))
{
    held += hold != NO_HOLD;
    if (hold != NO_HOLD)
        usleep(300000); /* meanwhile the main lane gets as far as it can */
    if (hold == HOLD_FOREVER)
        raise(SIGSTOP);
    __real_cecl_reduce_host(reduction);
    held_over += hold != NO_HOLD;
}

/* Stops this process when its flag at rank 0 has advanced by `phases`. */
static void *stop_after(void *argument)
{
    ceclComm_t comm = argument;
    const _Atomic uint32_t *flag =
        (_Atomic uint32_t *)cecl_flags_word(&comm->engine.flags, 0, comm->rank, 0);
    uint16_t last = (uint16_t)(*flag >> 16);
    for (uint32_t phases = 0; phases < 33500;) {
        const uint16_t now = (uint16_t)(*flag >> 16);
        phases += (uint16_t)(now - last);
        last = now;
    }
    raise(SIGSTOP);
    return NULL;
}

#define MISSED 4 /* exit code: the watching thread was too late to stop rank 1 */

static int stop_deep_inside(void)
{
    const size_t block = 40000 * (size_t)4096; /* two phases for each chunk */
    struct meeting *meeting = shared_memory(sizeof(struct meeting));
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            char *buffer;
            pthread_t watcher;
            ceclComm_t comm = meet(meeting, r, &buffer, RANKS * block);
            if (r == 1 && pthread_create(&watcher, NULL, stop_after, comm) != 0)
                _exit(3);
            if (ceclAlltoAll(buffer, buffer, block, ceclInt8, comm, NULL) != ceclSuccess)
                _exit(1);
            const ceclResult_t result = ceclStreamSynchronize(comm, NULL);
            if (result == ceclSuccess)
                _exit(MISSED);
            if (result == ceclTimeout && strstr(ceclGetLastError(comm), "rank 1"))
                _exit(0);
            fprintf(stderr, "rank %d: %d: %s\n", r, (int)result, ceclGetLastError(comm));
            _exit(2);
        }
    const int code = exit_code(0);
    end_children();
    munmap(meeting, sizeof(*meeting));
    return code;
}

static int calm(void **state);

/* A peer that is more than half a cycle of flags inside a call must not look as if it had not begun. */
TEST_BETWEEN(a_peer_that_stops_deep_inside_a_call_is_noticed, NULL, calm)
{
    int code = MISSED;
    setenv("CECL_STAGING_BYTES", "4096", 1);
    setenv("CECL_SM_POLICY", "allow", 1);
    setenv("CECL_TIMEOUT_MS", "3000", 1);
    for (int i = 0; i < 5 && code == MISSED; i++)
        code = stop_deep_inside();
    assert_int_equal(code, 0);
}

/* Both main lanes have reached the same phase: only flags of the side lane show which rank is late. */
TEST_BETWEEN(a_peer_that_stops_in_its_side_lane_is_noticed, NULL, calm)
{
    const size_t block = 10 * (size_t)4096;
    struct meeting *meeting = shared_memory(sizeof(struct meeting));
    setenv("CECL_STAGING_BYTES", "4096", 1);
    setenv("CECL_TIMEOUT_MS", "3000", 1);
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            char *buffer;
            ceclOptions_t push = CECL_OPTIONS_INITIALIZER;
            push.direction = CECL_DIRECTION_PUSH;
            ceclComm_t comm = meet(meeting, r, &buffer, RANKS * block);
            hold = r == 1 ? HOLD_FOREVER : NO_HOLD;
            if (ceclSetOptions(comm, &push) != ceclSuccess ||
                ceclReduceScatter(buffer, buffer + (size_t)r * block, block, ceclInt8, ceclSum,
                                  comm, NULL) != ceclSuccess)
                _exit(1);
            const ceclResult_t result = ceclStreamSynchronize(comm, NULL);
            _exit(result == ceclTimeout && strstr(ceclGetLastError(comm), "rank 1") ? 0 : 2);
        }
    assert_int_equal(exit_code(0), 0);
    munmap(meeting, sizeof(*meeting));
}

/* Whether a call that waits for rank 1 fails with the error that rank 1 has died. */
static bool hears_of_a_death(ceclComm_t comm, char *buffer)
{
    ceclResult_t result = ceclAllGather(buffer, buffer, 4, ceclInt8, comm, NULL);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(comm, NULL);
    return result == ceclRemoteError && strstr(ceclGetLastError(comm), "rank 1 ended unexpectedly");
}

/* As if a thread freed memory: it waits for the call, and the driver blocks all reads of device memory meanwhile. */
TEST_BETWEEN(a_death_is_noticed_while_the_driver_is_held_up, NULL, calm)
{
    struct meeting *meeting = shared_memory(sizeof(struct meeting));
    setenv("CECL_TIMEOUT_MS", "0", 1);
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            char *buffer;
            ceclComm_t comm = meet(meeting, r, &buffer, 4096);
            if (r == 1) {
                usleep(1000000); /* meanwhile rank 0's watchdog blocks in a read */
                _exit(0);
            }
            hold_reads = true;
            _exit(hears_of_a_death(comm, buffer) ? 0 : 1);
        }
    const int64_t start = cecl_now_ms();
    assert_int_equal(exit_code(0), 0);
    assert_true(cecl_now_ms() - start < SOON_MS);
    assert_int_equal(exit_code(1), 0);
    munmap(meeting, sizeof(*meeting));
}

/* All ranks are stopped for longer than the time limit, while rank 0 waits for rank 1. */
TEST_BETWEEN(no_time_passes_while_all_ranks_stand_still, NULL, calm)
{
    struct meeting *meeting = shared_memory(sizeof(struct meeting));
    setenv("CECL_TIMEOUT_MS", "4000", 1);
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            char *buffer;
            ceclComm_t comm = meet(meeting, r, &buffer, 4096);
            while (r == 1 && !meeting->done)
                usleep(1000);
            ceclResult_t result = ceclAllGather(buffer + r, buffer, 1, ceclInt8, comm, NULL);
            if (result == ceclSuccess)
                result = ceclStreamSynchronize(comm, NULL);
            if (result != ceclSuccess)
                fprintf(stderr, "rank %d: %d: %s\n", r, (int)result, ceclGetLastError(comm));
            meeting->done++;
            while (meeting->done < 1 + RANKS) /* the peer must not hear of this rank's end */
                usleep(1000);
            _exit(result != ceclSuccess);
        }
    while (meeting->joined < RANKS)
        usleep(1000);
    usleep(1200000); /* by now rank 0 waits, and its watchdog has seen it */
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(kill(children[r], SIGSTOP), 0);
    usleep(5000000);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(kill(children[r], SIGCONT), 0);
    usleep(500000); /* the watchdogs look before rank 1 comes */
    meeting->done++;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(exit_code(r), 0);
    munmap(meeting, sizeof(*meeting));
}

static char *buffers[RANKS];

/* Joins and allocates in one group: ranks on threads of their own might wait longer than a short time limit. */
static void open_ranks(size_t bytes, const char *timeout_ms)
{
    setenv("CECL_TIMEOUT_MS", timeout_ms, 1);
    open_all(NULL);
    allocate_all(buffers, bytes);
}

static void close_ranks(void)
{
    hold_reads = false;
    hold_writes = false;
    for (int r = 0; r < RANKS; r++)
        (void)ceclCommAbort(comms[r]); /* refused if ended */
}

/* Makes rank 0's call fail after its first signals were enqueued. */
static void fail_in_the_middle(void)
{
    batches = 0;
    fail_at = 2; /* the first batch writes flags */
    assert_int_equal(ceclAllGather(buffers[0], buffers[0], 100, ceclInt8, comms[0], NULL),
                     ceclUnhandledCudaError);
    fail_at = 0;
}

TEST_BETWEEN(a_call_that_fails_in_the_middle_holds_no_stream, NULL, calm)
{
    open_ranks(4096, "0");
    fail_in_the_middle();
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclUnhandledCudaError);
    OK(comms[0]->dev->ops->stream_query(comms[0]->dev, NULL));
}

TEST_BETWEEN(a_group_that_fails_in_the_middle_returns_the_error, NULL, calm)
{
    open_ranks(4096, "0");
    OK(ceclGroupStart());
    OK(ceclAllGather(buffers[0], buffers[0], 100, ceclInt8, comms[0], NULL));
    batches = 0;
    fail_at = 2;
    assert_int_equal(ceclGroupEnd(), ceclUnhandledCudaError);
    fail_at = 0;
}

TEST_BETWEEN(a_call_that_fails_in_the_middle_may_be_destroyed, NULL, calm)
{
    open_ranks(4096, "0");
    fail_in_the_middle();
    assert_int_equal(ceclCommDestroy(comms[0]), ceclUnhandledCudaError);
}

/* When work on the call's stream has ended, no lane uses the buffers, though the side lane's stream may end later. */
TEST_BETWEEN(a_call_that_fails_in_the_middle_leaves_no_side_lane_behind, NULL, calm)
{
    const size_t block = 10 * (size_t)4096;
    ceclOptions_t push = CECL_OPTIONS_INITIALIZER;
    push.direction = CECL_DIRECTION_PUSH;
    setenv("CECL_STAGING_BYTES", "4096", 1);
    open_ranks(RANKS * block, "0");
    OK(ceclSetOptions(comms[0], &push));
    hold = HOLD_A_WHILE;
    batches = 0;
    held = held_over = 0;
    fail_at = 7; /* after flags, two chunks with flags each, and the first chunk's reduction */
    assert_int_equal(
        ceclReduceScatter(buffers[0], buffers[0], block, ceclInt8, ceclSum, comms[0], NULL),
        ceclUnhandledCudaError);
    fail_at = 0;
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclUnhandledCudaError);
    assert_true(held > 0);
    assert_int_equal(held_over, held);
    struct cecl_device *dev = comms[0]->dev;
    ceclResult_t side = ceclInProgress;
    for (int ms = 0; ms < SOON_MS && side == ceclInProgress; ms++) {
        side = dev->ops->stream_query(dev, comms[0]->engine.side);
        usleep(1000);
    }
    OK(side);
    assert_int_equal(held_over, held);
}

static ceclResult_t gather_on(ceclStream_t stream)
{
    const ceclResult_t result =
        ceclAllGather(buffers[0], buffers[0], 100, ceclInt8, comms[0], stream);
    if (result == ceclSuccess)
        OK(ceclAllGather(buffers[1] + 100, buffers[1], 100, ceclInt8, comms[1], NULL));
    return result;
}

/* The device refuses the call's first command: to wait for the previous call, made on another stream. If the call then
 * looked pending, the watchdog would blame a peer, and no memory would be freed. */
TEST_BETWEEN(a_call_that_fails_before_it_begins_leaves_nothing_pending, NULL, calm)
{
    ceclStream_t other;
    open_ranks(4096, "5000");
    OK(ceclStreamCreate(comms[0], &other));
    OK(gather_on(NULL));
    finish_all(NULL);
    const struct cecl_flags *flags = &comms[0]->engine.flags;
    const uint32_t before[] = {flags->target[CECL_LANE_MAIN], flags->target[CECL_LANE_SIDE],
                               flags->epoch[CECL_LANE_MAIN], flags->epoch[CECL_LANE_SIDE]};
    refuse_memops = true;
    assert_int_equal(gather_on(other), ceclUnhandledCudaError);
    refuse_memops = false;
    const uint32_t after[] = {flags->target[CECL_LANE_MAIN], flags->target[CECL_LANE_SIDE],
                              flags->epoch[CECL_LANE_MAIN], flags->epoch[CECL_LANE_SIDE]};
    assert_memory_equal(after, before, sizeof(before));
    assert_true(cecl_flags_idle(flags));
}

TEST_BETWEEN(the_first_error_stays, NULL, calm)
{
    ceclResult_t async = ceclSuccess;
    open_ranks(4096, "0");
    fail_in_the_middle();
    cecl_comm_set_async(comms[0], ceclTimeout, "what came of it");
    OK(ceclCommRevoke(comms[0]));
    OK(ceclCommGetAsyncError(comms[0], &async));
    assert_int_equal(async, ceclUnhandledCudaError);
    assert_string_equal(ceclGetLastError(comms[0]), "a driver's failure");
}

TEST_BETWEEN(flags_on_the_host_are_released_without_the_driver, NULL, calm)
{
    setenv("CECL_FLAGS", "host", 1);
    for (int op = 0; op < 2; op++) {
        open_ranks(4096, "300");
        assert_int_equal(comms[0]->engine.flags.on_host, true);
        holds = comms[0];
        holds_on = comms[0]->dev;
        hold_writes = true;
        hold_reads = true;
        const ceclResult_t result =
            op == 0 ? ceclAllGather(buffers[0], buffers[0], 4, ceclInt8, comms[0], NULL)
                    : ceclRecv(buffers[0], 4, ceclInt8, 1, comms[0], NULL);
        OK(result);
        assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclTimeout);
        assert_non_null(strstr(ceclGetLastError(comms[0]), "waited for rank 1"));
        assert_true(cecl_flags_idle(&comms[0]->engine.flags));
        close_ranks();
    }
}

TEST_BETWEEN(flags_are_on_the_host_where_hardware_queues_are_few, NULL, calm)
{
    static const char *const queues[] = {"1", "7", "8", "32", "many"};
    for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues[i], 1);
        open_ranks(4096, "300");
        const bool few = atoi(queues[i]) == 1 || atoi(queues[i]) == 7;
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(comms[r]->engine.flags.on_host, few);
        close_ranks();
    }
}

/* Copies between the GPUs are lost. Init must notice: no call would ever count as begun, nor its time limit pass. */
TEST_BETWEEN(flags_that_do_not_arrive_fail_the_init, NULL, calm)
{
    lose_batches = true;
    assert_int_equal(ceclCommInitAll(comms, RANKS, NULL), ceclUnhandledCudaError);
    lose_batches = false;
    assert_non_null(strstr(ceclGetLastError(NULL), "did not arrive"));
}

TEST_BETWEEN(peers_hear_why_a_call_failed, NULL, calm)
{
    open_ranks(4096, "0");
    fail_in_the_middle();
    (void)!ceclAllGather(buffers[1] + 100, buffers[1], 100, ceclInt8, comms[1], NULL);
    assert_int_equal(ceclStreamSynchronize(comms[1], NULL), ceclRemoteError);
    assert_non_null(strstr(ceclGetLastError(comms[1]), "rank 0 gave up: a driver's failure"));
}

/* How many phases the flag of `writer` at `holder` has advanced since `first`. */
static int phases_told(int holder, int writer, uint32_t first)
{
    const struct cecl_flags *flags = &comms[holder]->engine.flags;
    const uint32_t flag = *(_Atomic uint32_t *)cecl_flags_word(flags, holder, writer, 0);
    return (int16_t)(uint16_t)((flag >> 16) - (first & 0xffff));
}

/* Three chunks: rank 0 signals its arrival and gives up; its released stream runs the remaining signals. */
TEST_BETWEEN(a_released_stream_tells_peers_nothing, NULL, calm)
{
    const size_t block = 3 * (size_t)4096;
    setenv("CECL_STAGING_BYTES", "4096", 1);
    setenv("CECL_SM_POLICY", "allow", 1);
    open_ranks(RANKS * block, "1000");
    const uint32_t first = comms[0]->engine.flags.epoch[CECL_LANE_MAIN];
    OK(ceclAlltoAll(buffers[0], buffers[0], block, ceclInt8, comms[0], NULL));
    for (int i = 0; i < 50000 && phases_told(1, 0, first) < 1; i++)
        usleep(100);
    assert_int_equal(phases_told(1, 0, first), 1);
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclTimeout);
    assert_true(cecl_flags_idle(&comms[0]->engine.flags));
    assert_true(phases_told(1, 0, first) <= 1);
}

/* Without the watchdog: a thread that asks for errors reads what a peer has sent. */
TEST_BETWEEN(who_asks_hears_of_a_failure, NULL, calm)
{
    ceclResult_t async = ceclSuccess;
    open_ranks(4096, "5000");
    cecl_watch_stop(comms[1]);
    OK(ceclCommGetAsyncError(comms[1], &async));
    OK(async);
    OK(ceclCommRevoke(comms[0]));
    OK(ceclCommAbort(comms[0]));
    OK(ceclCommGetAsyncError(comms[1], &async));
    assert_int_equal(async, ceclRemoteError);
    assert_int_equal(ceclStreamSynchronize(comms[1], NULL), ceclRemoteError);
}

TEST_BETWEEN(a_call_times_out_while_the_driver_is_held_up, NULL, calm)
{
    open_ranks(4096, "300");
    hold_reads = true;
    OK(ceclAllGather(buffers[0], buffers[0], 4, ceclInt8, comms[0], NULL));
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclTimeout);
    assert_non_null(strstr(ceclGetLastError(comms[0]), "pending on rank 0: ceclAllGather"));
    assert_non_null(strstr(ceclGetLastError(comms[0]), "cudaFree"));
}

static void await_held_read(void)
{
    while (!reads_are_held)
        usleep(1000);
}

static ceclResult_t async_within(ceclComm_t comm, int ms)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < ms / 10 && result == ceclSuccess; i++) {
        usleep(10000);
        (void)!ceclCommGetAsyncError(comm, &result);
    }
    return result;
}

TEST_BETWEEN(a_peer_that_leaves_is_noticed_while_the_driver_is_held_up, NULL, calm)
{
    open_ranks(4096, "0");
    hold_reads = true;
    OK(ceclAllGather(buffers[0], buffers[0], 4, ceclInt8, comms[0], NULL));
    await_held_read();
    OK(ceclCommDestroy(comms[1]));
    assert_int_equal(async_within(comms[0], SOON_MS), ceclRemoteError);
    assert_non_null(strstr(ceclGetLastError(comms[0]), "rank 1 has left"));
}

TEST_BETWEEN(a_peer_that_leaves_in_order_fails_nothing, NULL, calm)
{
    open_ranks(4096, "0");
    hold = HOLD_A_WHILE; /* delays the host's arithmetic */
    OK_EACH(ceclAllReduce(buffers[r], buffers[r], 1000, ceclInt8, ceclSum, comms[r], NULL));
    OK(ceclCommDestroy(comms[1]));
    OK(ceclStreamSynchronize(comms[0], NULL));
    OK(ceclCommDestroy(comms[0]));
}

/* The worker is blocked in the driver, and its memory cannot be freed before it returns. */
TEST_BETWEEN(a_worker_that_the_driver_keeps_does_not_hold_up_an_end, NULL, calm)
{
    open_ranks(4096, "0");
    hold_reads = true;
    OK(ceclAllGather(buffers[0], buffers[0], 4, ceclInt8, comms[0], NULL));
    await_held_read();
    OK(ceclAllGather(buffers[1] + 4, buffers[1], 4, ceclInt8, comms[1], NULL));
    const int64_t start = cecl_now_ms();
    OK(ceclCommDestroy(comms[0]));
    assert_in_range(cecl_now_ms() - start, 5000, 30000);
    OK(ceclAllGather(buffers[1] + 4, buffers[1], 4, ceclInt8, comms[1], NULL));
    assert_int_equal(async_within(comms[1], SOON_MS),
                     ceclRemoteError); /* the goodbye has arrived */
}

/* As on a GPU after a small call's kernel gave up: the call has ended, with invalid output. A thread that asks for
 * errors, one that finalizes, and the watchdog hear of it. */
TEST_BETWEEN(all_hear_of_a_kernel_that_gave_up_and_on_whom, NULL, calm)
{
    enum { ASKS, FINALIZES, WATCHES, WAYS };
    for (int way = 0; way < WAYS; way++) {
        ceclResult_t async = ceclSuccess;
        open_ranks(4096, way == WATCHES ? "200" : "5000");
        if (way != WATCHES)
            cecl_watch_stop(comms[0]);
        if (way == ASKS)
            assert_true(comms[0]->engine.small_timeout_ns > UINT64_C(5000000000));
        *(_Atomic uint32_t *)comms[0]->engine.flags.late = 1 + 1; /* waited for rank 1 */
        if (way == FINALIZES)
            assert_int_equal(ceclCommFinalize(comms[0]), ceclTimeout);
        for (int i = 0; way == WATCHES && i < 1000 && comms[1]->async_result == ceclSuccess; i++)
            usleep(5000);
        OK(ceclCommGetAsyncError(comms[0], &async));
        assert_int_equal(async, ceclTimeout);
        assert_non_null(strstr(ceclGetLastError(comms[0]), "waited for rank 1 for more than"));
        assert_non_null(strstr(ceclGetLastError(comms[0]), "did its stream reach it?"));
        if (way == WATCHES)
            assert_int_equal(comms[1]->async_result, ceclRemoteError);
        close_ranks();
    }
}

/* A peer that gave up may have ended this rank's calls by wrong flags, but it sent its reason before. */
TEST_BETWEEN(finalize_hears_of_a_peer_that_gave_up, NULL, calm)
{
    open_ranks(4096, "5000");
    cecl_watch_stop(comms[0]);
    OK(ceclCommRevoke(comms[1]));
    OK(ceclCommAbort(comms[1]));
    assert_int_equal(ceclCommFinalize(comms[0]), ceclRemoteError);
}

TEST_BETWEEN(destroy_beside_work_without_end_fails_nobody_else, NULL, calm)
{
    static uint32_t never; /* the stream waits for it for ever */
    const struct cecl_memop wait = {&never, 1, CECL_MEMOP_WAIT};
    ceclResult_t async = ceclSuccess;
    open_ranks(4096, "300");
    struct cecl_device *dev = comms[0]->dev;
    OK(dev->ops->memops(dev, NULL, &wait, 1));
    assert_int_equal(ceclCommDestroy(comms[0]), ceclTimeout);
    OK(ceclCommGetAsyncError(comms[1], &async));
    OK(async);
    OK(ceclCommDestroy(comms[1]));
}

TEST_BETWEEN(more_calls_than_flags_can_tell_are_released, NULL, calm)
{
    open_ranks(4096, "300");
    for (int i = 0; i < 20000; i++)
        if (ceclAllGather(buffers[0], buffers[0], 100, ceclInt8, comms[0], NULL) != ceclSuccess)
            break; /* the timeout came first */
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclTimeout);
    assert_int_equal(ceclCommDestroy(comms[0]), ceclTimeout);
}

TEST_BETWEEN(a_call_of_more_phases_than_flags_can_tell_is_released, NULL, calm)
{
    const size_t block = 9000 * (size_t)4096;
    setenv("CECL_STAGING_BYTES", "4096", 1);
    open_ranks(RANKS * block, "300");
    OK(ceclAlltoAll(buffers[0], buffers[0], block, ceclInt8, comms[0], NULL));
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclTimeout);
}

static void wait_for_copies_in(ceclResult_t (*end)(ceclComm_t))
{
    const size_t bytes = (size_t)64 << 20;
    char *host = malloc(bytes);
    assert_non_null(host);
    open_ranks(bytes, "60000");
    memset(buffers[0], 7, bytes);
    host[bytes - 1] = 0;
    for (int i = 0; i < 4; i++)
        OK(ceclMemcpyAsync(comms[0], host, buffers[0], bytes, NULL));
    OK(end(comms[0]));
    assert_int_equal(host[bytes - 1], 7);
    if (end == ceclCommFinalize)
        OK(ceclCommDestroy(comms[0]));
    OK(ceclCommDestroy(comms[1]));
    free(host);
}

TEST_BETWEEN(destroy_and_finalize_wait_for_copies, NULL, calm)
{
    wait_for_copies_in(ceclCommDestroy);
    wait_for_copies_in(ceclCommFinalize);
}

TEST_BETWEEN(a_destroyed_handle_is_refused, NULL, calm)
{
    int count;
    open_ranks(4096, "5000");
    OK_EACH(ceclCommDestroy(comms[r]));
    assert_int_equal(ceclCommDestroy(comms[0]), ceclInvalidArgument);
    assert_int_equal(ceclCommAbort(comms[1]), ceclInvalidArgument);
    assert_int_equal(ceclCommCount(comms[1], &count), ceclInvalidArgument);
    assert_non_null(strstr(ceclGetLastError(NULL), "destroyed before?"));
    for (int i = 0; i < 70; i++) { /* the handle's memory serves others meanwhile */
        ceclComm_t alone;
        OK(ceclCommInitAll(&alone, 1, NULL));
        OK(ceclCommDestroy(alone));
    }
    assert_int_equal(ceclCommCount(comms[1], &count), ceclInvalidArgument);
}

TEST_BETWEEN(the_librarys_own_memory_is_nobodys, NULL, calm)
{
    void *peer;
    open_ranks(4096, "5000");
    const struct cecl_engine *engine = &comms[0]->engine;
    const uint64_t rows = (uint64_t)(engine->flags.counters[CECL_LANE_MAIN].words -
                                     (char *)cecl_pool_at(&comms[0]->pool, 0, 0));
    const uint64_t own[] = {rows, engine->flags.values_offset, engine->flags.pads_offset,
                            engine->flags.slices_offset, engine->staging_offset};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        char *at = cecl_pool_at(&comms[0]->pool, 0, own[i]);
        assert_int_equal(ceclMemFree(comms[0], at), ceclInvalidArgument);
        assert_int_equal(ceclGetPeerPointer(comms[0], at, 1, &peer), ceclInvalidArgument);
        assert_int_equal(ceclAllGather(at, at, 4, ceclInt8, comms[0], NULL), ceclInvalidUsage);
    }
    char *peers = cecl_pool_at(&comms[0]->pool, 1, own[0]);
    assert_int_equal(ceclAllGather(peers, buffers[0], 4, ceclInt8, comms[0], NULL),
                     ceclInvalidUsage);
}

static int calm(void **state)
{
    close_ranks();
    end_children();
    return 0;
}

int main(void)
{
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_DEBUG", "none", 1);
    return tests_run_apart();
}
