/* One-sided calls whose peer does not do its part: every wait is bounded, and the error names the peer. Each test makes
 * its own communicator, on the host device. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../forked.h"
#include "late_peers.h"

static bool waits_for(int rank, int peer, int signal, ceclStream_t stream)
{
    const ceclSignalWait_t wait = {peer, signal, 1};
    return ceclWaitSignal(1, &wait, comms[rank], stream) == ceclSuccess;
}

static void wait_for(int rank, int peer, int signal, ceclStream_t stream)
{
    assert_true(waits_for(rank, peer, signal, stream));
}

TEST_WITHIN(SOON, a_wait_without_a_signal_names_the_peer)
{
    wait_for(0, 1, 5, NULL);
    expect_error(0, ceclTimeout, "ceclWaitSignal has waited for rank 1 for");
    assert_non_null(strstr(ceclGetLastError(comms[0]), "1 more of signal 5 awaited"));
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclTimeout);
    expect_error(2, ceclRemoteError, "rank 0 gave up");
    assert_int_equal(ceclSignal(0, 5, comms[2], NULL), ceclRemoteError);
}

/* While one wait lasts, signals with other numbers keep coming, and other calls keep ending. */
TEST_WITHIN(SOON, a_wait_has_a_time_of_its_own)
{
    ceclStream_t stream;
    ceclResult_t async = ceclSuccess;
    OK(ceclStreamCreate(comms[0], &stream));
    wait_for(0, 1, 5, stream);
    for (int i = 0; i < (SOON_MS + SLACK_MS) / 50 && async == ceclSuccess; i++) {
        if (ceclSignal(0, 6, comms[1], NULL) == ceclSuccess) {
            const ceclSignalWait_t wait = {1, 6, 1};
            (void)!ceclWaitSignal(1, &wait, comms[0], NULL);
        }
        pause_ms(50);
        OK(ceclCommGetAsyncError(comms[0], &async));
    }
    assert_int_equal(async, ceclTimeout);
    assert_non_null(strstr(ceclGetLastError(comms[0]), "signal 5"));
}

/* Work that the program enqueued before the wait may take longer than the limit. */
TEST_OF_A_LIMIT(the_time_begins_when_the_stream_comes_to_the_wait)
{
    struct cecl_device *dev = comms[0]->dev;
    uint32_t *word;
    OK(dev->ops->words_alloc(dev, 1, &word));
    const struct cecl_memop hold = {word, 1, CECL_MEMOP_WAIT};
    ceclStream_t stream;
    OK(ceclStreamCreate(comms[0], &stream));
    OK(dev->ops->memops(dev, stream, &hold, 1));
    wait_for(0, 1, 5, stream);
    must_say(cecl_watch_drain(comms[0], cecl_deadline(limit_ms + limit_ms / 3)), ceclTimeout,
             "a one-sided call is still pending after ");
    dev->ops->host_write(dev, word, 1, 1);
    pause_ms(limit_ms / 30);
    const bool held = ceclSignal(0, 5, comms[1], NULL) == ceclSuccess &&
                      ceclStreamSynchronize(comms[0], stream) == ceclSuccess;
    dev->ops->words_free(dev, word);
    return held;
}

TEST_OF_A_LIMIT(each_signal_renews_the_time)
{
    const ceclSignalWait_t wait = {1, 5, 4};
    OK(ceclWaitSignal(1, &wait, comms[0], NULL));
    bool held = true;
    for (int i = 0; i < 4 && held; i++) {
        pause_ms(limit_ms / 3);
        held = ceclSignal(0, 5, comms[1], NULL) == ceclSuccess;
    }
    return held && ceclStreamSynchronize(comms[0], NULL) == ceclSuccess;
}

/* Nothing more is needed from the rank that left: its signals have arrived. The others continue. */
TEST_WITHIN(NEVER, signals_of_a_rank_that_has_left_are_there)
{
    OK(ceclSignal(0, 5, comms[2], NULL));
    leave(2);
    const int64_t start = cecl_now_ms();
    while (!cecl_mesh_left(comms[0]->mesh, 2) && cecl_now_ms() - start < SLACK_MS)
        pause_ms(5);
    wait_for(0, 2, 5, NULL);
    OK(ceclStreamSynchronize(comms[0], NULL));
    OK(ceclSignal(1, 5, comms[0], NULL));
    wait_for(1, 0, 5, NULL);
    OK(ceclStreamSynchronize(comms[1], NULL));
    assert_int_equal(ceclSignal(2, 5, comms[0], NULL), ceclRemoteError);
    assert_non_null(strstr(ceclGetLastError(comms[0]), "rank 2 has left"));
    expect_error(1, ceclRemoteError, "rank 0 gave up: rank 2 has left");
}

TEST_WITHIN(SOON, a_pending_wait_holds_up_the_end)
{
    const int64_t start = cecl_now_ms();
    wait_for(0, 1, 5, NULL);
    assert_int_equal(ceclCommDestroy(comms[0]), ceclTimeout);
    comms[0] = NULL;
    assert_true(cecl_now_ms() - start >= SOON_MS);
}

/* If nothing were pending, the rank would leave, and the others would continue. */
TEST_WITHIN(NEVER, an_abort_with_a_call_pending_fails_the_others)
{
    ceclResult_t async = ceclSuccess;
    OK(ceclSignal(1, 5, comms[2], NULL));
    OK(ceclStreamSynchronize(comms[2], NULL));
    OK(ceclCommAbort(comms[2]));
    comms[2] = NULL;
    pause_ms(100);
    OK(ceclCommGetAsyncError(comms[1], &async));
    assert_int_equal(async, ceclSuccess);
    wait_for(0, 1, 5, NULL);
    OK(ceclCommAbort(comms[0]));
    comms[0] = NULL;
    expect_error(1, ceclRemoteError, "rank 0 gave up: ceclCommAbort was called");
}

TEST_OF_A_LIMIT(the_rank_at_the_end_of_the_waits_is_named)
{
    wait_for(0, 1, 5, NULL);
    pause_ms(limit_ms / 3); /* lets rank 0's time limit pass first */
    return waits_for(1, 2, 5, NULL) && has_error(0, ceclTimeout, "waited for rank 2 for");
}

static ceclResult_t refuse_to_join(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work)
{
    return cecl_fail(ceclUnhandledCudaError, "no join");
}

/* Rank 0's signal is on its way, but the device refuses to let the caller's stream wait for it. The refusing operations
 * stay, because the failed communicator's watchdog uses them. */
TEST_WITHIN(NEVER, a_call_whose_stream_cannot_wait_for_it_fails_the_communicator)
{
    static struct cecl_device_ops refusing;
    struct cecl_device *dev = comms[0]->dev;
    refusing = *dev->ops;
    refusing.stream_join = refuse_to_join;
    dev->ops = &refusing;
    assert_int_equal(ceclSignal(1, 5, comms[0], NULL), ceclUnhandledCudaError);
    expect_error(0, ceclUnhandledCudaError, "no join");
    expect_error(1, ceclRemoteError, "rank 0 gave up: no join");
}

TEST_WITHIN(NEVER, a_failed_communicator_ends_with_waits_pending)
{
    ceclStream_t streams[40];
    for (int i = 0; i < 40; i++) {
        OK(ceclStreamCreate(comms[0], &streams[i]));
        wait_for(0, 1, i % 3, streams[i]);
        OK(ceclSignal(2, 1, comms[0], streams[i]));
    }
    OK(ceclCommRevoke(comms[1]));
    expect_error(0, ceclRemoteError, "rank 1");
    for (int i = 0; i < 40; i++)
        assert_int_equal(ceclStreamSynchronize(comms[0], streams[i]), ceclRemoteError);
}

static ceclComm_t ending;

/* Runs at exit, after the check for pending calls. Ordinal 0 pretends a GPU, whose words cannot be read so late. */
static void signal_at_exit(void)
{
    ending->dev->ordinal = 0;
    OK(ceclSignal(0, 6, ending, NULL));
}

static _Noreturn void end_with_a_call(const ceclUniqueId *id, const _Atomic int *made, bool waits)
{
    const ceclSignalWait_t wait = {0, 5, 1};
    alarm(200);
    OK(waits ? 0 : atexit(signal_at_exit));
    while (!*made)
        pause_ms(1);
    OK(ceclCommInitRank(&ending, 2, *id, 1));
    OK(waits ? ceclWaitSignal(1, &wait, ending, NULL) : ceclSuccess);
    exit(0);
}

/* Nobody knows whether the call was carried out, so the rank sends no goodbye. */
TEST_BETWEEN(a_process_with_a_pending_or_late_call_ends_unexpectedly, NULL, teardown)
{
    for (int waits = 0; waits < 2; waits++) {
        struct {
            _Atomic int is_made;
            ceclUniqueId id;
        } *meeting = shared_memory(sizeof(*meeting));
        const pid_t child = fork();
        if (child == 0)
            end_with_a_call(&meeting->id, &meeting->is_made, waits);
        OK(ceclGetUniqueId(&meeting->id));
        meeting->is_made = 1;
        OK(ceclCommInitRank(&comms[0], 2, meeting->id, 0));
        expect_error(0, ceclRemoteError, "rank 1 ended unexpectedly");
        assert_int_equal(waitpid(child, NULL, 0), child);
        munmap(meeting, sizeof(*meeting));
        teardown(state);
    }
}
