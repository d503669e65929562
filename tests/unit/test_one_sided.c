/* One-sided calls of ranks of one process, on the host device: which signals end a wait, and which operations are
 * ordered. One thread makes all ranks' calls: none waits for another rank's call. Only sharing a window needs a thread
 * for each rank. (tests/multi/test_put.c compares the bytes that arrive.) */
#include "one_sided.h"

#define MANY_STREAMS 70 /* more streams than the library has lines */

static void mark(int rank, ceclStream_t stream, _Atomic int *at)
{
    static const int one = 1;
    OK(ceclMemcpyAsync(comms[rank], (void *)(uintptr_t)at, &one, sizeof(one), stream));
}

TEST(waits_take_signals_one_by_one)
{
    _Atomic int seen[4] = {0};
    const ceclStream_t stream = stream_of(1);
    for (int i = 0; i < 3; i++)
        OK(ceclSignal(1, 9, comms[0], NULL));
    wait_for(1, 0, 9, 2, stream);
    mark(1, stream, &seen[0]);
    wait_for(1, 0, 9, 1, stream);
    mark(1, stream, &seen[1]);
    finish(1, stream);
    assert_true(seen[0] && seen[1]);
    wait_for(1, 0, 9, 1, stream); /* the fourth signal, which is not sent yet */
    mark(1, stream, &seen[2]);
    for (int i = 0; i < 5; i++) /* more signals than it waits for, but of another number */
        OK(ceclSignal(1, 8, comms[0], NULL));
    OK(ceclSignal(1, 9, comms[2], NULL)); /* another rank's signal */
    pause_ms(30);
    assert_int_equal(seen[2], 0);
    OK(ceclSignal(1, 9, comms[0], NULL));
    finish(1, stream);
    assert_int_equal(seen[2], 1);
    wait_for(1, 0, 8, 5, stream);
    wait_for(1, 2, 9, 1, stream);
    end(1, stream);
}

TEST(one_call_waits_for_signals_of_many)
{
    const ceclSignalWait_t waits[] = {{1, 5, 2}, {2, 5, 1}, {1, 5, 1}, {3, 6, 1}};
    _Atomic int seen = 0;
    OK(ceclWaitSignal(4, waits, comms[0], NULL));
    mark(0, NULL, &seen);
    OK(ceclSignal(0, 5, comms[2], NULL));
    OK(ceclSignal(0, 6, comms[3], NULL));
    OK(ceclSignal(0, 5, comms[1], NULL));
    OK(ceclSignal(0, 5, comms[1], NULL));
    pause_ms(30);
    assert_int_equal(seen, 0); /* rank 1's third signal is missing */
    OK(ceclSignal(0, 5, comms[1], NULL));
    finish(0, NULL);
    assert_int_equal(seen, 1);
}

/* The second stream could signal at once. Still, its signal is the second to arrive. */
TEST(signals_of_one_number_keep_the_order_of_the_host)
{
    const ceclStream_t first = stream_of(0), second = stream_of(0), stream = stream_of(1);
    _Atomic int seen = 0, done = 0;
    wait_for(0, 3, 20, 1, first); /* holds the first stream */
    fill(from, 100, 1);
    OK(ceclPutSignal(from, 100, ceclUint8, 1, window[0], 0, 21, comms[0], first));
    OK(ceclSignal(1, 21, comms[0], second));
    mark(0, second, &done);
    wait_for(1, 0, 21, 1, stream);
    mark(1, stream, &seen);
    pause_ms(30);
    assert_false(seen || done);
    OK(ceclSignal(0, 20, comms[3], NULL));
    finish(1, stream);
    expect(memory[1], 100, 1);
    wait_for(1, 0, 21, 1, stream);
    end(0, first);
    end(0, second);
    end(1, stream);
}

TEST(waits_on_different_streams_take_in_the_order_of_the_host)
{
    const ceclStream_t first = stream_of(1), second = stream_of(1);
    _Atomic int seen[2] = {0};
    wait_for(1, 3, 22, 1, first);
    wait_for(1, 0, 23, 1, first);
    mark(1, first, &seen[0]);
    wait_for(1, 0, 23, 1, second);
    mark(1, second, &seen[1]);
    OK(ceclSignal(1, 23, comms[0], NULL));
    pause_ms(30);
    assert_false(seen[0] || seen[1]); /* the signal is for the first wait */
    OK(ceclSignal(1, 22, comms[3], NULL));
    finish(1, first);
    assert_true(seen[0] && !seen[1]);
    OK(ceclSignal(1, 23, comms[0], NULL));
    finish(1, second);
    end(1, first);
    end(1, second);
}

/* Rank 0's gather waits for the others. Its put waits neither for the gather nor for the wait of another stream. */
TEST(calls_on_different_streams_do_not_wait_for_each_other)
{
    static int in[RANKS], out[RANKS][RANKS];
    const ceclStream_t aside = stream_of(0), waiting = stream_of(0);
    fill(from, BYTES, 5);
    OK(ceclAllGather(&in[0], out[0], 1, ceclInt32, comms[0], NULL));
    wait_for(0, 2, 30, 1, waiting);
    OK(ceclPutSignal(from, BYTES, ceclUint8, 1, window[0], 0, 31, comms[0], aside));
    wait_for(1, 0, 31, 1, NULL);
    finish(1, NULL);
    expect(memory[1], BYTES, 5);
    for (int r = 1; r < RANKS; r++)
        OK(ceclAllGather(&in[r], out[r], 1, ceclInt32, comms[r], NULL));
    for (int r = 0; r < RANKS; r++)
        finish(r, NULL);
    OK(ceclSignal(0, 30, comms[2], NULL));
    end(0, aside);
    end(0, waiting);
}

/* More streams than lines have pending calls. All end, and signals with one number keep the order of the host's calls. */
TEST(any_number_of_streams_may_make_calls)
{
    ceclStream_t streams[MANY_STREAMS];
    fill(from, MANY_STREAMS, 9);
    for (int i = 0; i < MANY_STREAMS; i++) {
        streams[i] = stream_of(0);
        wait_for(0, 1, 40, 1, streams[i]);
        OK(ceclPutSignal(&from[i], 1, ceclUint8, 2, window[0], (size_t)i, 41, comms[0],
                         streams[i]));
    }
    for (int i = 0; i < MANY_STREAMS; i++)
        OK(ceclSignal(0, 40, comms[1], NULL));
    wait_for(2, 0, 41, MANY_STREAMS, NULL);
    finish(2, NULL);
    expect(memory[2], MANY_STREAMS, 9);
    for (int i = 0; i < MANY_STREAMS; i++)
        end(0, streams[i]);
}

TESTS_BETWEEN(setup, close_all)
