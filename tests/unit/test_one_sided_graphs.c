/* One-sided calls that graphs capture, on the host device: each launch sends and takes its own signals. */
#include "one_sided.h"

#define LAUNCHES 1500
#define BLOCK 700
#define FREE 1 /* signal numbers: "the memory may be written", "the memory has been written" */
#define FULL 2

static ceclStream_t streams[RANKS];
static unsigned char patterns[4][BLOCK], came[LAUNCHES][BLOCK];

static int next(int rank)
{
    return (rank + 1) % RANKS;
}
static int before(int rank)
{
    return (rank + RANKS - 1) % RANKS;
}

static ceclGraph_t captured(int rank, ceclStream_t stream,
                            void (*make)(int rank, ceclStream_t stream))
{
    ceclGraph_t graph = NULL;
    OK(ceclStreamBeginCapture(comms[rank], stream));
    make(rank, stream);
    OK(ceclStreamEndCapture(comms[rank], stream, &graph));
    return graph;
}

/* ---- a ring: each rank puts the current contents of its buffer into the next rank's memory */

static unsigned char inputs[RANKS][BLOCK];

static void pass_on(int rank, ceclStream_t stream)
{
    OK(ceclSignal(before(rank), FREE, comms[rank], stream));
    wait_for(rank, next(rank), FREE, 1, stream);
    OK(ceclPutSignal(inputs[rank], BLOCK, ceclUint8, next(rank), window[rank], 64, FULL,
                     comms[rank], stream));
    wait_for(rank, before(rank), FULL, 1, stream);
}

static void each_launch_brings_what_is_there_then(void **state)
{
    ceclGraph_t graphs[RANKS];
    for (int i = 0; i < 4; i++)
        fill(patterns[i], BLOCK, i);
    for (int r = 0; r < RANKS; r++) {
        streams[r] = stream_of(r);
        graphs[r] = captured(r, streams[r], pass_on);
    }
    for (int launch = 0; launch < LAUNCHES; launch++)
        for (int r = 0; r < RANKS; r++) {
            OK(ceclMemcpyAsync(comms[r], inputs[r], patterns[(launch + r) % 4], BLOCK, streams[r]));
            OK(ceclGraphLaunch(graphs[r], streams[r]));
            if (r == 0)
                OK(ceclMemcpyAsync(comms[r], came[launch], memory[r] + 64, BLOCK, streams[r]));
        }
    for (int r = 0; r < RANKS; r++) {
        OK(ceclGraphDestroy(graphs[r]));
        end(r, streams[r]);
    }
    for (int launch = 0; launch < LAUNCHES; launch++)
        assert_memory_equal(came[launch], patterns[(launch + RANKS - 1) % 4], BLOCK);
}

/* ---- two graphs of one rank, on two streams, that send signals of one number and put to different places */

#define SECOND 2048 /* where the second graph's put writes */

static const unsigned char erased[BLOCK];
static unsigned char came_second[LAUNCHES][BLOCK];

static void put_first(int rank, ceclStream_t stream)
{
    wait_for(rank, 1, FREE, 1, stream);
    OK(ceclPutSignal(patterns[0], BLOCK, ceclUint8, 1, window[rank], 0, FULL, comms[rank], stream));
}

static void put_second(int rank, ceclStream_t stream)
{
    wait_for(rank, 1, FREE, 1, stream);
    OK(ceclPut(patterns[1], BLOCK, ceclUint8, 1, window[rank], SECOND, comms[rank], stream));
    OK(ceclSignal(1, FULL, comms[rank], stream));
}

static void take(int rank, ceclStream_t stream)
{
    OK(ceclSignal(0, FREE, comms[rank], stream));
    wait_for(rank, 0, FULL, 1, stream);
}

static void signals_of_graphs_keep_the_order_of_their_launches(void **state)
{
    const ceclStream_t one = stream_of(0), other = stream_of(0), taker = stream_of(1);
    memcpy(memory[1], erased, BLOCK);
    memcpy(memory[1] + SECOND, erased, BLOCK);
    ceclGraph_t first = captured(0, one, put_first), second = captured(0, other, put_second),
                taking = captured(1, taker, take);
    for (int launch = 0; launch < LAUNCHES; launch++) {
        OK(launch % 3 == 0 ? ceclGraphLaunch(second, other) : ceclGraphLaunch(first, one));
        OK(ceclGraphLaunch(taking, taker));
        OK(ceclMemcpyAsync(comms[1], came[launch], memory[1], BLOCK, taker));
        OK(ceclMemcpyAsync(comms[1], came_second[launch], memory[1] + SECOND, BLOCK, taker));
        OK(ceclMemcpyAsync(comms[1], memory[1], erased, BLOCK, taker));
        OK(ceclMemcpyAsync(comms[1], memory[1] + SECOND, erased, BLOCK, taker));
    }
    OK(ceclGraphDestroy(first));
    OK(ceclGraphDestroy(second));
    OK(ceclGraphDestroy(taking));
    end(0, one);
    end(0, other);
    end(1, taker);
    for (int launch = 0; launch < LAUNCHES; launch++) {
        assert_memory_equal(came[launch], launch % 3 == 0 ? erased : patterns[0], BLOCK);
        assert_memory_equal(came_second[launch], launch % 3 == 0 ? patterns[1] : erased, BLOCK);
    }
}

/* ---- many signals, some of which are taken at once */

static void send_three(int rank, ceclStream_t stream)
{
    for (int i = 0; i < 3; i++)
        OK(ceclSignal(2, 7, comms[rank], stream));
}

static void take_from_all(int rank, ceclStream_t stream)
{
    const ceclSignalWait_t waits[] = {{0, 7, 2}, {1, 7, 3}, {3, 7, 3}, {0, 7, 1}};
    OK(ceclWaitSignal(4, waits, comms[rank], stream));
    OK(ceclGet(to, BLOCK, ceclUint8, 3, window[rank], 0, comms[rank], stream));
}

/* Calls outside graphs have their own signals, even with the same numbers. */
static void a_wait_takes_as_many_as_it_says(void **state)
{
    ceclGraph_t graphs[RANKS];
    fill(memory[3], BLOCK, 9);
    for (int r = 0; r < RANKS; r++) {
        streams[r] = stream_of(r);
        graphs[r] = captured(r, streams[r], r == 2 ? take_from_all : send_three);
    }
    for (int launch = 0; launch < 200; launch++) {
        for (int r = 0; r < RANKS; r++)
            OK(ceclGraphLaunch(graphs[r], streams[r]));
        OK(ceclSignal(2, 7, comms[launch % 2], streams[launch % 2]));
        wait_for(2, launch % 2, 7, 1, streams[2]);
    }
    for (int r = 0; r < RANKS; r++) {
        OK(ceclGraphDestroy(graphs[r]));
        end(r, streams[r]);
    }
    expect(to, BLOCK, 9);
}

/* ---- refused calls */

static void a_graph_holds_its_window_and_its_memory(void **state)
{
    ceclWindow_t kept[RANKS];
    unsigned char *shared[RANKS], *local[RANKS];
    const ceclStream_t stream = stream_of(0);
    ceclGraph_t graph = NULL;
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ceclMemAlloc(comms[r], (void **)&shared[r], 4096));
        OK(ceclMemAlloc(comms[r], (void **)&local[r], 4096));
    }
    OK(ceclGroupEnd());
    share(shared, 4096, kept);
    OK(ceclStreamBeginCapture(comms[0], stream));
    OK(ceclPut(local[0], 10, ceclUint8, 1, kept[0], 0, comms[0], stream));
    OK(ceclStreamEndCapture(comms[0], stream, &graph));
    struct sharing s[RANKS];
    for (int r = 0; r < RANKS; r++)
        s[r] = (struct sharing){.window = &kept[r]};
    together(s);
    assert_non_null(strstr(s[0].words, "a graph holds a captured call that copies to it"));
    REFUSED(ceclMemFree(comms[0], local[0]), ceclInvalidUsage, "captured one-sided call");
    OK(ceclGraphDestroy(graph));
    end_windows(kept, ceclSuccess, "");
    for (int r = 0; r < RANKS; r++) {
        OK(ceclMemFree(comms[r], local[r]));
        OK(ceclMemFree(comms[r], shared[r]));
    }
    end(0, stream);
}

#define LARGE (4 << 20)

/* Takes freed host memory of the size of a window's description. Fills it with the number of the pool's
 * window, so that a description that is read after it was freed looks like one of the pool. */
static void take_freed_memory(uint64_t *taken[64])
{
    for (size_t i = 0; i < 64; i++) {
        taken[i] = malloc(64 + 16 * (i % 4));
        assert_non_null(taken[i]);
        for (size_t word = 0; word < 8; word++)
            taken[i][word] = 2;
    }
}

/* The graph does not hold the description of the put's own buffer, which the program may deregister. */
static void a_graph_outlives_the_registration_of_its_buffer(void **state)
{
    const ceclStream_t stream = stream_of(0);
    unsigned char *registered, *large[RANKS], *other[RANKS];
    uint64_t *taken[64];
    ceclWindow_t whole[RANKS];
    ceclRegistration_t registration;
    ceclGraph_t graph = NULL;
    const int fd = memfd_create("registered", 0);
    assert_int_equal(ftruncate(fd, LARGE), 0);
    registered = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(registered, MAP_FAILED);
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ceclMemAlloc(comms[r], (void **)&other[r], 4096));
        OK(ceclMemAlloc(comms[r], (void **)&large[r], LARGE));
    }
    OK(ceclGroupEnd());
    share(large, LARGE, whole);
    OK(ceclCommRegister(comms[0], registered, LARGE, &registration));
    OK(ceclStreamBeginCapture(comms[0], stream));
    OK(ceclPut(registered, LARGE, ceclUint8, 1, whole[0], 0, comms[0], stream));
    OK(ceclStreamEndCapture(comms[0], stream, &graph));
    OK(ceclCommDeregister(comms[0], registration));
    take_freed_memory(taken);
    for (int r = 0; r < RANKS; r++)
        OK(ceclMemFree(comms[r], other[r]));
    for (int i = 0; i < 64; i++)
        free(taken[i]);
    OK(ceclGraphDestroy(graph));
    end_windows(whole, ceclSuccess, "");
    for (int r = 0; r < RANKS; r++)
        OK(ceclMemFree(comms[r], large[r]));
    end(0, stream);
    munmap(registered, LARGE);
    close(fd);
}

static void what_cannot_be_captured_is_refused(void **state)
{
    const ceclSignalWait_t many = {1, 0, 257}, bad = {1, 64, 1};
    const ceclStream_t stream = stream_of(0);
    ceclGraph_t graph = NULL;
    OK(ceclStreamBeginCapture(comms[0], stream));
    REFUSED(ceclWaitSignal(1, &many, comms[0], stream), ceclInvalidArgument,
            "257 signals in total; at most 256 expected");
    REFUSED(ceclWaitSignal(1, &bad, comms[0], stream), ceclInvalidArgument, "signal 64");
    REFUSED(ceclPut(from, 1, ceclUint8, RANKS, window[0], 0, comms[0], stream), ceclInvalidArgument,
            "peer 4");
    OK(ceclStreamEndCapture(comms[0], stream, &graph));
    OK(ceclGraphLaunch(graph, stream)); /* the graph is empty */
    OK(ceclGraphDestroy(graph));
    end(0, stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_launch_brings_what_is_there_then),
        cmocka_unit_test(signals_of_graphs_keep_the_order_of_their_launches),
        cmocka_unit_test(a_wait_takes_as_many_as_it_says),
        cmocka_unit_test(a_graph_holds_its_window_and_its_memory),
        cmocka_unit_test(a_graph_outlives_the_registration_of_its_buffer),
        cmocka_unit_test(what_cannot_be_captured_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, close_all);
}
