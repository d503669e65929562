/* Captured starts: a graph that captures the start of a request does in each launch what the request's calls do. The
 * graph goes on without the request. */
#include "random_call.h"

#include <stdio.h>

#define ROUNDS 3
#define STEPS 1500
#define COUNT 300
#define GRAPHS 3

static ceclComm_t comm;
static ceclStream_t stream;

static void open_all(void)
{
    comm = multi_comm(NULL);
    multi_ok(comm, ceclStreamCreate(comm, &stream));
}

static void close_all(void)
{
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    multi_ok(NULL, ceclCommDestroy(comm));
}

static ceclGraph_t capture(ceclRequest_t request)
{
    ceclGraph_t graph = NULL;
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_ok(comm, ceclStart(request, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    return graph;
}

static void launch(ceclGraph_t graph)
{
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
}

/* ---- a call of each kind, in memory of each kind */

struct bench {
    struct memory send, recv;
    struct random_slot slot;
    unsigned char *host;
    uint64_t x, y; /* equal on all ranks; of this rank alone */
};

static void open_bench(struct bench *b, enum memory_kind kind, uint64_t seed)
{
    *b = (struct bench){.x = seed, .y = seed + 77 * (uint64_t)(multi_rank + 1)};
    b->send = memory_new(comm, kind, random_room());
    b->recv = memory_new(comm, kind, random_room());
    b->host = malloc(random_room());
    b->slot.want = malloc(random_room());
    assert_true(b->host && b->slot.want);
    b->slot.call.rank = multi_rank;
    b->slot.call.nranks = multi_nranks;
    b->slot.call.stream = stream;
}

static void close_bench(struct bench *b)
{
    memory_free(comm, &b->send);
    memory_free(comm, &b->recv);
    free(b->host);
    free(b->slot.want);
}

/* Draws a call that moves data. */
static void draw(struct bench *b, enum kind kind)
{
    struct random_call *c = &b->slot.call;
    do
        random_draw_of(c, kind, &b->x);
    while (random_received(c) == 0);
    c->seed = random_next(&b->x);
    random_prepare(comm, &b->slot, &b->send, &b->recv, &b->y, b->host);
}

static void put_new_input(struct bench *b)
{
    b->slot.call.seed = random_next(&b->x);
    random_put(comm, &b->slot, b->host);
}

/* No rank has started the request, so places of it were not read when it is freed. */
static void replay_without_the_request(struct bench *b, enum kind kind)
{
    ceclRequest_t request;
    draw(b, kind);
    multi_ok(comm, random_init(comm, &b->slot.call, &request));
    ceclGraph_t graph = capture(request);
    multi_ok(comm, ceclRequestFree(request));
    for (int round = 0; round < ROUNDS; round++) {
        put_new_input(b);
        launch(graph);
        random_compare(comm, &b->slot, b->host);
    }
    multi_ok(comm, ceclGraphDestroy(graph));
}

static void each_kind_is_right_in_each_replay_without_its_request(void **state)
{
    open_all();
    for (int memory = 0; memory < MEMORY_KINDS; memory++) {
        struct bench b;
        open_bench(&b, memory_kind(memory), 20261126 + (uint64_t)memory);
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; i < 3; i++)
                replay_without_the_request(&b, (enum kind)kind);
        close_bench(&b);
    }
    close_all();
}

/* ---- in any order */

struct life {
    ceclRequest_t request;
    ceclGraph_t graphs[GRAPHS];
};

static void end_life(struct life *life)
{
    for (int g = 0; g < GRAPHS; g++)
        multi_ok(comm, ceclGraphDestroy(life->graphs[g]));
    multi_ok(comm, ceclRequestFree(life->request));
    *life = (struct life){0};
}

static void begin_life(struct bench *b, struct life *life)
{
    draw(b, (enum kind)(random_next(&b->x) % KINDS));
    multi_ok(comm, random_init(comm, &b->slot.call, &life->request));
}

/* Makes the call in one of three ways. */
static void go_on(struct bench *b, struct life *life)
{
    ceclGraph_t *graph = &life->graphs[random_next(&b->x) % GRAPHS];
    const uint64_t how = random_next(&b->x) % 3;
    put_new_input(b);
    b->slot.call.by_request = false;
    if (how == 0) {
        multi_ok(comm, ceclStart(life->request, stream));
    } else if (how == 1) {
        multi_ok(comm, random_make(comm, &b->slot.call, false));
    } else {
        if (!*graph)
            *graph = capture(life->request);
        multi_ok(comm, ceclGraphLaunch(*graph, stream));
    }
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    random_compare(comm, &b->slot, b->host);
}

static void starts_captures_and_calls_go_on_in_any_order(void **state)
{
    struct bench benches[2];
    struct life lives[2] = {0};
    open_all();
    open_bench(&benches[0], MEMORY_POOL, 5);
    open_bench(&benches[1], MEMORY_PRIVATE, 7); /* the library carries its bytes */
    for (int i = 0; i < 2; i++)
        begin_life(&benches[i], &lives[i]);
    for (int step = 0; step < multi_share(STEPS); step++) {
        const int i = step % 2;
        if (random_next(&benches[i].x) % 16 == 0) {
            end_life(&lives[i]);
            begin_life(&benches[i], &lives[i]);
        }
        go_on(&benches[i], &lives[i]);
    }
    for (int i = 0; i < 2; i++) {
        end_life(&lives[i]);
        close_bench(&benches[i]);
    }
    close_all();
}

/* ---- groups and messages */

struct buffers {
    uint32_t *block, *all, *sum, *mail;
};

static int neighbour(int by)
{
    return (multi_rank + multi_nranks + by) % multi_nranks;
}

static size_t ranks(void)
{
    return (size_t)multi_nranks;
}

static uint32_t given(int round, int rank, size_t i)
{
    return (uint32_t)round * 1000003u + (uint32_t)rank * 7919u + (uint32_t)i;
}

static void open_buffers(struct buffers *b)
{
    const size_t bytes = COUNT * sizeof(uint32_t);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&b->block, bytes));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&b->all, bytes * ranks()));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&b->sum, bytes));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&b->mail, bytes));
}

static void fill(const struct buffers *b, int round)
{
    uint32_t block[COUNT], none[COUNT] = {0};
    for (size_t i = 0; i < COUNT; i++)
        block[i] = given(round, multi_rank, i);
    multi_put(comm, b->block, block, sizeof(block));
    multi_put(comm, b->sum, none, sizeof(none));
    multi_put(comm, b->mail, none, sizeof(none));
    for (size_t r = 0; r < ranks(); r++)
        multi_put(comm, b->all + r * COUNT, none, sizeof(none));
}

static void check_mail(const struct buffers *b, int round, int from)
{
    uint32_t mail[COUNT];
    multi_get(comm, mail, b->mail, sizeof(mail));
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(mail[i], given(round, from, i));
}

static void check_collectives(const struct buffers *b, int round)
{
    uint32_t sum[COUNT], block[COUNT];
    multi_get(comm, sum, b->sum, sizeof(sum));
    for (int r = 0; r < multi_nranks; r++) {
        multi_get(comm, block, b->all + (size_t)r * COUNT, sizeof(block));
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(block[i], given(round, r, i));
            sum[i] -= given(round, r, i);
        }
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(sum[i], 0);
}

static void begin_group(const struct buffers *b, bool collectives, bool messages)
{
    multi_ok(comm, ceclGroupStart());
    if (collectives) {
        multi_ok(comm, ceclAllGather(b->block, b->all, COUNT, ceclUint32, comm, stream));
        multi_ok(comm, ceclAllReduce(b->block, b->sum, COUNT, ceclUint32, ceclSum, comm, stream));
    }
    if (messages) {
        multi_ok(comm, ceclSend(b->block, COUNT, ceclUint32, neighbour(1), comm, stream));
        multi_ok(comm, ceclRecv(b->mail, COUNT, ceclUint32, neighbour(-1), comm, stream));
    }
}

/* Starts and captures a request of a group, and makes the group itself, several times in turn. */
static void replay_group(bool collectives, bool messages)
{
    ceclGraph_t graph = NULL;
    ceclRequest_t request;
    struct buffers b;
    open_buffers(&b);
    begin_group(&b, collectives, messages);
    multi_ok(comm, ceclGroupInit(comm, &request));
    for (int round = 0; round < 12; round++) {
        fill(&b, round);
        if (round % 3 == 0 && round < 6) {
            multi_ok(comm, ceclStart(request, stream));
        } else if (round % 3 == 1) {
            begin_group(&b, collectives, messages);
            multi_ok(comm, ceclGroupEnd());
        } else {
            if (!graph)
                graph = capture(request);
            multi_ok(comm, ceclGraphLaunch(graph, stream));
        }
        multi_ok(comm, ceclStreamSynchronize(comm, stream));
        if (collectives)
            check_collectives(&b, round);
        if (messages)
            check_mail(&b, round, neighbour(-1));
        if (round == 6)
            multi_ok(comm, ceclRequestFree(request));
    }
    multi_ok(comm, ceclGraphDestroy(graph));
}

/* Messages between nodes cannot be captured. */
static void groups_are_captured_as_a_whole(void **state)
{
    const bool messages = !multi_over_nodes();
    open_all();
    replay_group(true, false);
    if (messages) {
        replay_group(false, true);
        replay_group(true, true);
    }
    close_all();
}

/* Rank 0 sends to the last rank. Other ranks make no call, and nobody waits for them. */
static void a_message_is_captured_by_its_two_ranks(void **state)
{
    const int last = multi_nranks - 1;
    ceclRequest_t request = NULL;
    struct buffers b;
    open_all();
    open_buffers(&b);
    if (multi_rank == 0)
        multi_ok(comm, ceclSendInit(b.block, COUNT, ceclUint32, last, comm, &request));
    else if (multi_rank == last)
        multi_ok(comm, ceclRecvInit(b.mail, COUNT, ceclUint32, 0, comm, &request));
    if (request && !multi_over_nodes()) {
        ceclGraph_t graph = capture(request);
        multi_ok(comm, ceclRequestFree(request));
        for (int round = 0; round < ROUNDS; round++) {
            fill(&b, round);
            launch(graph);
            if (multi_rank == last)
                check_mail(&b, round, 0);
        }
        multi_ok(comm, ceclGraphDestroy(graph));
    } else if (request) {
        multi_ok(comm, ceclStreamBeginCapture(comm, stream));
        multi_refused(comm, ceclStart(request, stream), ceclInvalidUsage, "is on another node");
        ceclGraph_t graph = NULL;
        multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
        multi_ok(comm, ceclGraphDestroy(graph));
        multi_ok(comm, ceclRequestFree(request));
    }
    close_all();
}

/* ---- the captured calls are the plain calls */

/* Some ranks capture the call itself. The other ranks' request has chunks, which a graph does not announce. */
static void ranks_may_capture_the_call_itself(void **state)
{
    ceclRequest_t request;
    ceclGraph_t graph = NULL;
    struct buffers b;
    open_all();
    open_buffers(&b);
    multi_ok(comm, ceclAllGatherChunksInit(b.block, b.all, COUNT, 3, ceclUint32, comm, &request));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    if (multi_rank % 2)
        multi_ok(comm, ceclAllGather(b.block, b.all, COUNT, ceclUint32, comm, stream));
    else
        multi_ok(comm, ceclStart(request, stream));
    multi_ok(comm, ceclAllReduce(b.block, b.sum, COUNT, ceclUint32, ceclSum, comm, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    multi_refused(comm, ceclWaitChunk(request, -1, 0, stream), ceclInvalidUsage, "not started yet");
    for (int round = 0; round < ROUNDS; round++) {
        fill(&b, round);
        launch(graph);
        check_collectives(&b, round);
    }
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclRequestFree(request));
    close_all();
}

/* Under CECL_CHECK ranks compare the request's call with the other ranks' calls. The capture goes on. */
static void ranks_that_compare_calls_find_unequal_starts(void **state)
{
    ceclRequest_t request;
    ceclGraph_t graph = NULL;
    struct buffers b;
    multi_setenv("CECL_CHECK", "1");
    open_all();
    multi_setenv("CECL_CHECK", NULL);
    open_buffers(&b);
    multi_ok(comm, ceclAllGatherInit(b.block, b.all, COUNT, ceclUint32, comm, &request));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    if (multi_rank == 0)
        multi_refused(comm, ceclStart(request, stream), ceclInvalidUsage, "count: 300 on rank 0");
    else
        multi_refused(comm, ceclAllGather(b.block, b.all, 7, ceclUint32, comm, stream),
                      ceclInvalidUsage, "count: 300 on rank 0");
    multi_ok(comm, ceclStart(request, stream));
    multi_ok(comm, ceclAllReduce(b.block, b.sum, COUNT, ceclUint32, ceclSum, comm, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    fill(&b, 1);
    launch(graph);
    check_collectives(&b, 1);
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclRequestFree(request));
    close_all();
}

/* ---- wrong uses */

/* A request may be made ready behind its capture, and is then started as usual. */
static void a_request_that_was_made_ready_is_not_captured(void **state)
{
    ceclRequest_t request;
    ceclGraph_t graph = NULL, empty = NULL;
    struct buffers b;
    open_all();
    open_buffers(&b);
    multi_ok(comm, ceclAllGatherInit(b.block, b.all, COUNT, ceclUint32, comm, &request));
    graph = capture(request);
    multi_ok(comm, ceclReady(request, stream));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_refused(comm, ceclStart(request, stream), ceclInvalidUsage, "made ready");
    multi_refused(comm, ceclReady(request, stream), ceclInvalidUsage, "made ready");
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &empty));
    multi_ok(comm, ceclGraphDestroy(empty));
    multi_ok(comm, ceclStart(request, stream));
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclGraphDestroy(graph));
    graph = capture(request);
    multi_ok(comm, ceclAllReduce(b.block, b.sum, COUNT, ceclUint32, ceclSum, comm, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    fill(&b, 4);
    multi_ok(comm, ceclAllReduce(b.block, b.sum, COUNT, ceclUint32, ceclSum, comm, stream));
    launch(graph);
    check_collectives(&b, 4);
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclRequestFree(request));
    close_all();
}

static void what_waits_for_one_start_is_refused(void **state)
{
    static uint32_t word;
    ceclRequest_t request;
    ceclGraph_t graph = NULL;
    struct buffers b;
    open_all();
    open_buffers(&b);
    multi_ok(comm, ceclAllGatherInit(b.block, b.all, COUNT, ceclUint32, comm, &request));
    multi_ok(comm, ceclStart(request, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_refused(comm, ceclStartOnSignal(request, multi_on_gpus(comm) ? b.mail : &word, 1, stream),
                  ceclInvalidUsage, "ceclStartOnSignal cannot be captured");
    multi_refused(comm, ceclWaitChunk(request, -1, 0, stream), ceclInvalidUsage,
                  "captures a graph");
    multi_refused(comm, ceclReady(request, stream), ceclInvalidUsage, "captures a graph");
    multi_ok(comm, ceclStart(request, stream)); /* the capture is still usable */
    multi_ok(comm, ceclAllReduce(b.block, b.sum, COUNT, ceclUint32, ceclSum, comm, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    multi_ok(comm, ceclRequestFree(request));
    fill(&b, 2);
    launch(graph);
    check_collectives(&b, 2);
    multi_ok(comm, ceclGraphDestroy(graph));
    close_all();
}

static void a_request_whose_memory_was_freed_is_not_captured(void **state)
{
    ceclRequest_t request;
    ceclGraph_t graph = NULL;
    struct buffers b;
    open_all();
    open_buffers(&b);
    multi_ok(comm, ceclAllGatherInit(b.block, b.all, COUNT, ceclUint32, comm, &request));
    multi_ok(comm, ceclMemFree(comm, b.all));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&b.all, ranks() * COUNT * sizeof(uint32_t)));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_refused(comm, ceclStart(request, stream), ceclInvalidUsage, "freed or replaced");
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclRequestFree(request));
    close_all();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_right_in_each_replay_without_its_request),
        cmocka_unit_test(starts_captures_and_calls_go_on_in_any_order),
        cmocka_unit_test(groups_are_captured_as_a_whole),
        cmocka_unit_test(a_message_is_captured_by_its_two_ranks),
        cmocka_unit_test(ranks_may_capture_the_call_itself),
        cmocka_unit_test(ranks_that_compare_calls_find_unequal_starts),
        cmocka_unit_test(a_request_that_was_made_ready_is_not_captured),
        cmocka_unit_test(what_waits_for_one_start_is_refused),
        cmocka_unit_test(a_request_whose_memory_was_freed_is_not_captured),
    };
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
