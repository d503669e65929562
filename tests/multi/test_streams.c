/* Streams serve all communicators of a process, and events order streams. */
#include "multi.h"

#define COUNT 3000
#define BYTES (COUNT * sizeof(int))
#define MARK 3 /* the signal by which tests hold streams */

/* A communicator, a child of all its ranks, and streams that the parent made. */
struct pair {
    ceclComm_t parent, child;
    ceclStream_t stream, other;
    int *in, *gathered, *sums; /* memory of the parent; `sums`: memory of the child */
};

static struct pair p;

static int pair_open(void **state)
{
    p = (struct pair){.parent = multi_comm(NULL)};
    multi_ok(p.parent, ceclCommSplit(p.parent, 0, 0, &p.child, NULL));
    p.stream = multi_stream(p.parent);
    p.other = multi_stream(p.parent);
    p.in = multi_alloc(p.parent, BYTES);
    p.gathered = multi_alloc(p.parent, (size_t)multi_nranks * BYTES);
    p.sums = multi_alloc(p.child, (size_t)multi_nranks * BYTES);
    return 0;
}

static int pair_close(void **state)
{
    multi_ok(NULL, ceclCommDestroy(p.child));
    multi_ok(NULL, ceclCommDestroy(p.parent));
    return 0;
}

#define TEST_WITH_PAIR(name) TEST_BETWEEN(name, pair_open, pair_close)

static int value(int seed, int rank, int i)
{
    return seed * 100000 + rank * 7 + i;
}

static void fill(int seed)
{
    int host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = value(seed, multi_rank, i);
    multi_put(p.parent, p.in, host, BYTES);
}

/* The parent gathers, and the child sums what was gathered, which is right only if the calls run in this order. */
static void enqueue(ceclStream_t stream)
{
    multi_ok(p.parent, ceclAllGather(p.in, p.gathered, COUNT, ceclInt, p.parent, stream));
    multi_ok(p.child, ceclAllReduce(p.gathered, p.sums, (size_t)multi_nranks * COUNT, ceclInt,
                                    ceclSum, p.child, stream));
}

static void check(int seed)
{
    int *host = malloc((size_t)multi_nranks * BYTES);
    assert_non_null(host);
    multi_get(p.child, host, p.sums, (size_t)multi_nranks * BYTES);
    for (int r = 0; r < multi_nranks; r++)
        for (int i = 0; i < COUNT; i++)
            if (host[r * COUNT + i] != multi_nranks * value(seed, r, i))
                fail_msg("rank %d: element %d of rank %d: %d, %d expected", multi_rank, i, r,
                         host[r * COUNT + i], multi_nranks * value(seed, r, i));
    free(host);
}

static void hold(ceclComm_t comm, ceclStream_t stream)
{
    const ceclSignalWait_t wait = {multi_rank, MARK, 1};
    multi_ok(comm, ceclWaitSignal(1, &wait, comm, stream));
}

static void let_go(ceclComm_t comm, ceclStream_t by)
{
    multi_ok(comm, ceclSignal(multi_rank, MARK, comm, by));
}

/* Reads the word of the parent's memory to which streams copy. */
static int read_word(void)
{
    int word = 0;
    ceclStream_t stream = multi_stream(p.parent);
    multi_ok(p.parent, ceclMemcpyAsync(p.parent, &word, p.in, sizeof(word), stream));
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, stream));
    multi_ok(p.parent, ceclStreamDestroy(p.parent, stream));
    return word;
}

static int seven = 7, eight = 8; /* written to the word by copies */

static void write_word(ceclComm_t comm, const int *word, ceclStream_t stream)
{
    multi_ok(comm, ceclMemcpyAsync(comm, p.in, word, sizeof(*word), stream));
}

TEST_WITH_PAIR(a_parents_calls_go_to_a_stream_of_its_child)
{
    ceclStream_t stream = multi_stream(p.child);
    fill(4);
    enqueue(stream);
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, stream));
    check(4);
    multi_ok(p.parent, ceclStreamDestroy(p.parent, stream));
    if (!multi_on_gpus(p.child)) /* CUDA cannot tell that a stream is destroyed */
        multi_refused(p.child, ceclStreamSynchronize(p.child, stream), ceclInvalidArgument,
                      "destroyed?");
}

TEST_WITH_PAIR(a_graph_captures_calls_of_two_communicators)
{
    ceclGraph_t graph;
    multi_ok(p.parent, ceclStreamBeginCapture(p.parent, p.stream));
    enqueue(p.stream);
    multi_ok(p.child, ceclStreamEndCapture(p.child, p.stream, &graph));
    for (int seed = 1; seed < 6; seed++) {
        fill(seed);
        multi_ok(p.parent, ceclGraphLaunch(graph, seed % 2 ? p.stream : p.other));
        multi_ok(p.child, ceclStreamSynchronize(p.child, seed % 2 ? p.stream : p.other));
        check(seed);
        fill(seed + 10); /* between launches, the same calls without a graph */
        enqueue(p.other);
        multi_ok(p.child, ceclStreamSynchronize(p.child, p.other));
        check(seed + 10);
    }
    multi_ok(NULL, ceclGraphDestroy(graph));
}

/* The child's calls end first, because the parent's end waits for all that its streams hold. */
TEST_BETWEEN(a_stream_ends_with_its_maker_after_the_calls_of_others, pair_open, NULL)
{
    int *in, *out, host[COUNT], sum;
    in = multi_alloc(p.child, BYTES);
    out = multi_alloc(p.child, BYTES);
    for (int i = 0; i < COUNT; i++)
        host[i] = multi_rank + i;
    multi_put(p.child, in, host, BYTES);
    for (int i = 0; i < 10; i++)
        multi_ok(p.child, ceclAllReduce(in, out, COUNT, ceclInt, ceclSum, p.child, p.stream));
    multi_ok(NULL, ceclCommDestroy(p.parent));
    multi_get(p.child, host, out, BYTES);
    sum = multi_nranks * (multi_nranks - 1) / 2;
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(host[i], sum + multi_nranks * i);
    if (!multi_on_gpus(p.child))
        multi_refused(p.child, ceclBarrier(p.child, p.stream), ceclInvalidArgument, "destroyed?");
    multi_ok(NULL, ceclCommDestroy(p.child));
}

TEST_WITH_PAIR(a_child_has_the_default_stream_of_its_parent)
{
    fill(0);
    const int before = read_word();
    hold(p.parent, 0);
    write_word(p.child, &seven, 0);
    multi_pause_ms(20);
    assert_int_equal(read_word(), before);
    let_go(p.parent, p.stream);
    multi_ok(p.child, ceclStreamSynchronize(p.child, 0));
    assert_int_equal(read_word(), 7);
}

static ceclEvent_t new_event(void)
{
    ceclEvent_t event = NULL;
    multi_ok(p.parent, ceclEventCreate(p.parent, &event));
    assert_non_null(event);
    return event;
}

/* Checks that `other` holds back a write until `stream` is let go. */
static void check_order(int before)
{
    write_word(p.child, &seven, p.other);
    multi_pause_ms(20);
    assert_int_equal(read_word(), before);
    ceclStream_t by = multi_stream(p.parent);
    let_go(p.parent, by);
    multi_ok(p.child, ceclStreamSynchronize(p.child, p.other));
    assert_int_equal(read_word(), 7);
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, p.stream));
}

/* After the wait is enqueued, the event is recorded on another stream, and destroyed. */
TEST_WITH_PAIR(a_wait_keeps_what_the_event_marked)
{
    const ceclEvent_t event = new_event();
    ceclStream_t free_stream = multi_stream(p.parent);
    fill(0);
    const int before = read_word();
    hold(p.parent, p.stream);
    multi_ok(p.parent, ceclEventRecord(p.parent, event, p.stream));
    multi_ok(p.parent, ceclStreamWaitEvent(p.parent, p.other, event));
    multi_ok(p.parent, ceclEventRecord(p.parent, event, free_stream));
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, free_stream));
    multi_ok(p.parent, ceclEventDestroy(p.parent, event));
    check_order(before);
}

TEST_WITH_PAIR(an_event_that_is_recorded_again_marks_the_new_work_alone)
{
    const ceclEvent_t event = new_event();
    fill(0);
    hold(p.parent, p.stream);
    multi_ok(p.parent, ceclEventRecord(p.parent, event, p.stream));
    write_word(p.parent, &eight, p.other);
    multi_ok(p.parent, ceclEventRecord(p.parent, event, p.other));
    ceclStream_t third = multi_stream(p.parent);
    multi_ok(p.parent, ceclStreamWaitEvent(p.parent, third, event));
    write_word(p.parent, &seven, third);
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, third)); /* p.stream is still held */
    assert_int_equal(read_word(), 7);
    let_go(p.parent, third);
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, p.stream));
    multi_ok(p.parent, ceclEventDestroy(p.parent, event));
}

TEST_WITH_PAIR(an_event_that_was_never_recorded_holds_nothing)
{
    const ceclEvent_t event = new_event();
    hold(p.parent, p.stream);
    multi_ok(p.parent, ceclStreamWaitEvent(p.parent, p.other, event));
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, p.other));
    let_go(p.parent, p.other);
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, p.stream));
    multi_ok(p.parent, ceclEventDestroy(p.parent, event));
}

/* Another communicator makes the event and the stream, and ends before this one waits for the event. */
TEST_WITH_COMM(an_event_outlives_its_communicator_and_its_stream)
{
    ceclComm_t maker = multi_comm(NULL);
    ceclEvent_t event;
    ceclStream_t stream = multi_stream(maker);
    multi_ok(maker, ceclEventCreate(maker, &event));
    multi_ok(maker, ceclBarrier(maker, stream));
    multi_ok(maker, ceclEventRecord(maker, event, stream));
    multi_ok(NULL, ceclCommDestroy(maker));
    ceclStream_t own = multi_stream(comm);
    multi_ok(comm, ceclStreamWaitEvent(comm, own, event));
    multi_ok(comm, ceclBarrier(comm, own));
    multi_ok(comm, ceclStreamSynchronize(comm, own));
    multi_ok(comm, ceclEventDestroy(comm, event));
}

TEST_WITH_PAIR(what_is_no_event_or_no_stream_is_refused_by_name)
{
    const ceclEvent_t event = new_event(), gone = new_event();
    multi_ok(p.parent, ceclEventDestroy(p.parent, gone));
    multi_ok(p.parent, ceclStreamDestroy(p.parent, p.stream));
    if (!multi_on_gpus(p.parent)) { /* CUDA cannot tell that a stream is destroyed */
        multi_refused(p.parent, ceclEventRecord(p.parent, event, p.stream), ceclInvalidArgument,
                      "stream");
        multi_refused(p.parent, ceclStreamWaitEvent(p.parent, p.stream, event), ceclInvalidArgument,
                      "stream");
    }
    multi_refused(p.parent, ceclEventRecord(p.parent, gone, p.other), ceclInvalidArgument,
                  "no event of this process");
    multi_refused(p.parent, ceclStreamWaitEvent(p.parent, p.other, gone), ceclInvalidArgument,
                  "no event of this process");
    multi_refused(p.parent, ceclEventDestroy(p.parent, gone), ceclInvalidArgument,
                  "no event of this process");
    multi_ok(p.parent, ceclEventDestroy(p.parent, event));
}

/* CUDA captures an event. The host device has no graph of several streams, and says so. */
TEST_WITH_PAIR(an_event_is_captured_on_gpus_and_refused_on_the_host_device)
{
    const ceclEvent_t fork = new_event(), join = new_event();
    ceclGraph_t graph;
    const bool on_gpus = multi_on_gpus(p.parent);
    fill(0);
    multi_ok(p.parent, ceclStreamBeginCapture(p.parent, p.stream));
    if (on_gpus) {
        multi_ok(p.parent, ceclEventRecord(p.parent, fork, p.stream));
        multi_ok(p.parent, ceclStreamWaitEvent(p.parent, p.other, fork));
        write_word(p.parent, &seven, p.other);
        multi_ok(p.parent, ceclEventRecord(p.parent, join, p.other));
        multi_ok(p.parent, ceclStreamWaitEvent(p.parent, p.stream, join));
    } else {
        multi_refused(p.parent, ceclEventRecord(p.parent, fork, p.stream), ceclInvalidUsage,
                      "captures a graph");
        multi_refused(p.parent, ceclStreamWaitEvent(p.parent, p.stream, fork), ceclInvalidUsage,
                      "captures a graph");
        write_word(p.parent, &seven, p.stream); /* the capture goes on */
    }
    multi_ok(p.parent, ceclStreamEndCapture(p.parent, p.stream, &graph));
    multi_ok(p.parent, ceclGraphLaunch(graph, p.stream));
    multi_ok(p.parent, ceclStreamSynchronize(p.parent, p.stream));
    assert_int_equal(read_word(), 7);
    multi_ok(NULL, ceclGraphDestroy(graph));
    multi_ok(p.parent, ceclEventDestroy(p.parent, fork));
    multi_ok(p.parent, ceclEventDestroy(p.parent, join));
}
