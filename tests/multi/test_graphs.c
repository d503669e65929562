/* Captured calls: each launch of a graph does what its calls would do. Graphs are launched
 * repeatedly, on several streams, one after the other and between eager calls. */
#include "memory.h"

#include <stdio.h>

#define COUNT_MOST 700 /* elements of a block */
#define GRAPHS 5
#define EAGER GRAPHS /* eager calls */
#define CALLS_MOST 3
#define STREAMS 3
#define WINDOW 24 /* launches between two checks of all results */
#define LAUNCHES 20000

static size_t ranks(void)
{
    return (size_t)multi_nranks;
}

/* ---- one call, with its buffers */

enum kind {
    GATHER_ALL,
    EXCHANGE,
    BROADCAST,
    GATHER,
    SCATTER,
    SUM_SCATTER,
    SUM_ALL,
    SUM_ROOT,
    STRIDED,
    VARIABLE,
    /* messages: from the root to the next rank; from each rank to the next one; from each rank to each */
    LONE,
    RING,
    MAIL,
    KINDS
};

struct work {
    enum kind kind;
    size_t count; /* elements of a block */
    bool in_place;
    int root;
    uint32_t *send, *recv; /* room for a block of each rank */
};

/* Element i of rank `rank`'s input in launch `seed`. */
static uint32_t given(uint64_t seed, int rank, size_t i)
{
    uint64_t x = seed * 1000003u + (uint64_t)rank * 7919u + i;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 29);
}

/* Elements of a rank's input and of its output. */
static size_t input_of(const struct work *w)
{
    return w->kind == EXCHANGE || w->kind == SUM_SCATTER || w->kind == SCATTER || w->kind == MAIL
               ? w->count * ranks()
               : w->count;
}
static size_t output_of(const struct work *w)
{
    return w->kind == GATHER_ALL || w->kind == EXCHANGE || w->kind == GATHER ||
                   w->kind == STRIDED || w->kind == VARIABLE || w->kind == MAIL
               ? w->count * ranks()
               : w->count;
}
static int after(int rank)
{
    return (rank + 1) % multi_nranks;
}
static bool gets_output(const struct work *w)
{
    if (w->kind == LONE)
        return multi_rank == after(w->root);
    return (w->kind != GATHER && w->kind != SUM_ROOT) || multi_rank == w->root;
}

static uint32_t *input_at(const struct work *w)
{
    if (!w->in_place)
        return w->send;
    return w->kind == GATHER_ALL ? w->recv + (size_t)multi_rank * w->count : w->recv;
}

static uint32_t sum(uint64_t seed, size_t i)
{
    uint32_t all = 0;
    for (int r = 0; r < multi_nranks; r++)
        all += given(seed, r, i);
    return all;
}

/* Expected element i of this rank's output. */
static uint32_t expected(const struct work *w, uint64_t seed, size_t i)
{
    const size_t mine = (size_t)multi_rank * w->count;
    const int from = (int)(i / w->count);
    switch (w->kind) {
    case GATHER_ALL:
    case GATHER:
    case VARIABLE: return given(seed, from, i % w->count);
    case STRIDED: return given(seed, (int)(i % ranks()), i / ranks());
    case EXCHANGE:
    case MAIL: return given(seed, from, mine + i % w->count);
    case RING: return given(seed, (multi_rank + multi_nranks - 1) % multi_nranks, i);
    case LONE:
    case BROADCAST: return given(seed, w->root, i);
    case SCATTER: return given(seed, w->root, mine + i);
    case SUM_SCATTER: return sum(seed, mine + i);
    case SUM_ALL:
    case SUM_ROOT: return sum(seed, i);
    case KINDS: break;
    }
    return 0;
}

static ceclResult_t call_variable(const struct work *w, ceclComm_t comm, ceclStream_t stream)
{
    size_t counts[64], displs[64];
    assert_true(multi_nranks <= 64);
    for (size_t r = 0; r < ranks(); r++) {
        counts[r] = w->count;
        displs[r] = r * w->count;
    }
    return ceclAllGatherv(w->send, w->count, w->recv, counts, displs, ceclUint32, comm, stream);
}

/* Rows of one element: element i of rank r goes to place i * ranks + r. */
static ceclResult_t call_strided(const struct work *w, ceclComm_t comm, ceclStream_t stream)
{
    const ceclStrided_t rows = {
        .width = 1, .rows = w->count, .sendPitch = 1, .recvPitch = ranks(), .recvStride = 1};
    return ceclAllGatherStrided(w->send, w->recv, &rows, ceclUint32, comm, stream);
}

static ceclResult_t call_lone(const struct work *w, ceclComm_t comm, ceclStream_t stream)
{
    const int to = after(w->root);
    if (multi_rank == w->root)
        return ceclSend(w->send, w->count, ceclUint32, to, comm, stream);
    return multi_rank == to ? ceclRecv(w->recv, w->count, ceclUint32, w->root, comm, stream)
                            : ceclSuccess;
}

static ceclResult_t call_messages(const struct work *w, ceclComm_t comm, ceclStream_t stream)
{
    multi_ok(comm, ceclGroupStart());
    for (int r = 0; r < multi_nranks; r++) {
        const size_t at = w->kind == MAIL ? (size_t)r * w->count : 0;
        if (w->kind == MAIL || r == after(multi_rank))
            multi_ok(comm, ceclSend(w->send + at, w->count, ceclUint32, r, comm, stream));
        if (w->kind == MAIL || after(r) == multi_rank)
            multi_ok(comm, ceclRecv(w->recv + at, w->count, ceclUint32, r, comm, stream));
    }
    return ceclGroupEnd();
}

static ceclResult_t call(const struct work *w, ceclComm_t comm, ceclStream_t stream)
{
    const void *in = input_at(w);
    const size_t n = w->count;
    switch (w->kind) {
    case GATHER_ALL: return ceclAllGather(in, w->recv, n, ceclUint32, comm, stream);
    case EXCHANGE: return ceclAlltoAll(in, w->recv, n, ceclUint32, comm, stream);
    case BROADCAST: return ceclBroadcast(in, w->recv, n, ceclUint32, w->root, comm, stream);
    case GATHER: return ceclGather(in, w->recv, n, ceclUint32, w->root, comm, stream);
    case SCATTER: return ceclScatter(in, w->recv, n, ceclUint32, w->root, comm, stream);
    case SUM_SCATTER: return ceclReduceScatter(in, w->recv, n, ceclUint32, ceclSum, comm, stream);
    case SUM_ALL: return ceclAllReduce(in, w->recv, n, ceclUint32, ceclSum, comm, stream);
    case SUM_ROOT: return ceclReduce(in, w->recv, n, ceclUint32, ceclSum, w->root, comm, stream);
    case STRIDED: return call_strided(w, comm, stream);
    case VARIABLE: return call_variable(w, comm, stream);
    case LONE: return call_lone(w, comm, stream);
    case RING:
    case MAIL: return call_messages(w, comm, stream);
    case KINDS: break;
    }
    return ceclInternalError;
}

static struct work make(ceclComm_t comm, uint64_t *x, enum kind kind)
{
    struct work w = {.kind = kind,
                     .count = 1 + multi_draw_below(x, COUNT_MOST),
                     .root = (int)multi_draw_below(x, (uint64_t)multi_nranks)};
    const size_t bytes = w.count * ranks() * sizeof(uint32_t);
    w.in_place = (kind == GATHER_ALL || kind == SUM_ALL) && multi_draw_below(x, 2) == 0;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&w.send, bytes));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&w.recv, bytes));
    return w;
}

static void free_work(ceclComm_t comm, const struct work *w)
{
    multi_ok(comm, ceclMemFree(comm, w->send));
    multi_ok(comm, ceclMemFree(comm, w->recv));
}

/* ---- launches: new input before each launch, and a copy of its output after it */

struct launch {
    uint64_t seed;
    const struct work *calls;
    int ncalls;
    uint32_t *in, *out; /* input and output of each call, COUNT_MOST * ranks elements apart */
};

static size_t apart(void)
{
    return COUNT_MOST * ranks();
}

static struct launch *new_launches(void)
{
    struct launch *launches = calloc(WINDOW, sizeof(*launches));
    assert_non_null(launches);
    for (int i = 0; i < WINDOW; i++) {
        launches[i].in = malloc(CALLS_MOST * apart() * sizeof(uint32_t));
        launches[i].out = malloc(CALLS_MOST * apart() * sizeof(uint32_t));
        assert_true(launches[i].in && launches[i].out);
    }
    return launches;
}

static void free_launches(struct launch *launches)
{
    for (int i = 0; i < WINDOW; i++) {
        free(launches[i].in);
        free(launches[i].out);
    }
    free(launches);
}

static void put_input(ceclComm_t comm, struct launch *l, ceclStream_t stream)
{
    for (int c = 0; c < l->ncalls; c++) {
        uint32_t *in = l->in + (size_t)c * apart();
        const size_t count = input_of(&l->calls[c]);
        for (size_t i = 0; i < count; i++)
            in[i] = given(l->seed + (uint64_t)c, multi_rank, i);
        multi_ok(comm,
                 ceclMemcpyAsync(comm, input_at(&l->calls[c]), in, count * sizeof(*in), stream));
    }
}

static void keep_output(ceclComm_t comm, const struct launch *l, ceclStream_t stream)
{
    for (int c = 0; c < l->ncalls; c++)
        multi_ok(comm, ceclMemcpyAsync(comm, l->out + (size_t)c * apart(), l->calls[c].recv,
                                       output_of(&l->calls[c]) * sizeof(uint32_t), stream));
}

static void check(const struct launch *l, const char *what)
{
    for (int c = 0; c < l->ncalls; c++) {
        const struct work *w = &l->calls[c];
        const uint32_t *out = l->out + (size_t)c * apart();
        const size_t count = gets_output(w) ? output_of(w) : 0;
        for (size_t i = 0; i < count; i++)
            if (out[i] != expected(w, l->seed + (uint64_t)c, i))
                fail_msg("%s, rank %d, seed %llu, call %d of kind %d, %zu elements, in place %d: "
                         "element %zu is wrong",
                         what, multi_rank, (unsigned long long)l->seed, c, (int)w->kind, w->count,
                         (int)w->in_place, i);
    }
}

static ceclGraph_t capture(ceclComm_t comm, const struct work *calls, int ncalls, bool grouped,
                           ceclStream_t stream)
{
    ceclGraph_t graph = NULL;
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    if (grouped)
        multi_ok(comm, ceclGroupStart());
    for (int c = 0; c < ncalls; c++)
        multi_ok(comm, call(&calls[c], comm, stream));
    if (grouped)
        multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    return graph;
}

/* Launches the graph of one call for a whole window, with new input each time. */
static void replay(ceclComm_t comm, const struct work *w, struct launch *launches,
                   ceclStream_t stream)
{
    ceclGraph_t graph = capture(comm, w, 1, false, stream);
    for (int i = 0; i < WINDOW; i++) {
        struct launch *l = &launches[i];
        l->calls = w;
        l->ncalls = 1;
        l->seed = (uint64_t)((int)w->kind * 1000 + i);
        put_input(comm, l, stream);
        multi_ok(comm, ceclGraphLaunch(graph, stream));
        keep_output(comm, l, stream);
    }
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    for (int i = 0; i < WINDOW; i++)
        check(&launches[i], "a kind by itself");
    multi_ok(comm, ceclGraphDestroy(graph));
}

static void replay_each_kind(ceclComm_t comm)
{
    struct launch *launches = new_launches();
    ceclStream_t stream;
    uint64_t x = 11;
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    for (int kind = 0; kind < KINDS; kind++) {
        const struct work w = make(comm, &x, (enum kind)kind);
        replay(comm, &w, launches, stream);
        free_work(comm, &w);
    }
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    free_launches(launches);
}

/* Memory that peers cannot reach goes through bounce buffers, which eager calls use as well. */
TEST(private_memory_is_carried_in_each_replay)
{
    ceclComm_t comm = multi_comm(NULL);
    struct launch *launches = new_launches();
    ceclStream_t stream;
    uint64_t x = 5;
    if (multi_on_gpus(comm)) {
        free_launches(launches);
        multi_ok(NULL, ceclCommDestroy(comm));
        skip_because("the host device reaches all of the program's memory");
    }
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    for (int kind = 0; kind < KINDS; kind++) {
        struct work w = make(comm, &x, (enum kind)kind);
        const struct work pool = w;
        const size_t bytes = w.count * ranks() * sizeof(uint32_t);
        w.send = malloc(bytes);
        w.recv = malloc(bytes);
        assert_true(w.send && w.recv);
        replay(comm, &w, launches, stream);
        multi_ok(comm, call(&w, comm, stream));
        replay(comm, &w, launches, stream);
        free(w.send);
        free(w.recv);
        free_work(comm, &pool);
    }
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    multi_ok(NULL, ceclCommDestroy(comm));
    free_launches(launches);
}

/* The two ranks of a message may have different kinds of memory. */
TEST(messages_take_memory_of_every_kind)
{
    ceclComm_t comm = multi_comm(NULL);
    struct launch *launches = new_launches();
    ceclStream_t stream;
    uint64_t x = 29;
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    for (int i = 0; i < MEMORY_KINDS; i++) {
        struct work w = make(comm, &x, i % 2 ? MAIL : RING);
        const struct work pool = w;
        const size_t bytes = w.count * ranks() * sizeof(uint32_t);
        const int mine = MEMORY_SHARED + (i + multi_rank) % (MEMORY_KINDS - MEMORY_SHARED);
        struct memory send = memory_new(comm, (enum memory_kind)mine, bytes),
                      recv = memory_new(comm, (enum memory_kind)mine, bytes);
        w.send = (uint32_t *)(void *)send.at;
        w.recv = (uint32_t *)(void *)recv.at;
        replay(comm, &w, launches, stream);
        memory_free(comm, &send);
        memory_free(comm, &recv);
        free_work(comm, &pool);
    }
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    multi_ok(NULL, ceclCommDestroy(comm));
    free_launches(launches);
}

TEST(each_kind_of_call_is_right_in_each_replay)
{
    ceclComm_t comm = multi_comm(NULL);
    replay_each_kind(comm);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* Small calls keep their own call count. Captured urgent calls use the same path as other calls. */
TEST(under_each_policy_they_are_right_too)
{
    for (int i = 0; i < 2; i++) {
        ceclConfig_t config = multi_config();
        config.smPolicy = i == 0 ? CECL_SM_ALLOW : CECL_SM_REDUCE_ONLY;
        multi_setenv("CECL_URGENT", i == 1 ? "1" : NULL);
        ceclComm_t comm = multi_comm(&config);
        multi_setenv("CECL_URGENT", NULL);
        replay_each_kind(comm);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
}

/* ---- many graphs, and eager calls between them */

struct arena {
    ceclComm_t comm;
    ceclStream_t streams[STREAMS];
    struct work calls[GRAPHS + 1][CALLS_MOST];
    int ncalls[GRAPHS + 1];
    ceclGraph_t graphs[GRAPHS];
    uint64_t x;
};

static void capture_again(struct arena *a, int g)
{
    multi_ok(a->comm, ceclGraphDestroy(a->graphs[g]));
    a->graphs[g] = capture(a->comm, a->calls[g], a->ncalls[g], multi_draw_below(&a->x, 3) == 0,
                           a->streams[multi_draw_below(&a->x, STREAMS)]);
}

static void open_arena(struct arena *a, uint64_t seed)
{
    *a = (struct arena){.comm = multi_comm(NULL), .x = seed};
    for (int s = 0; s < STREAMS; s++)
        multi_ok(a->comm, ceclStreamCreate(a->comm, &a->streams[s]));
    for (int g = 0; g <= EAGER; g++) {
        a->ncalls[g] = 1 + (int)multi_draw_below(&a->x, CALLS_MOST);
        for (int c = 0; c < a->ncalls[g]; c++)
            a->calls[g][c] =
                make(a->comm, &a->x, (enum kind)multi_draw_below(&a->x, (uint64_t)KINDS));
        if (g < GRAPHS)
            capture_again(a, g);
    }
}

static void close_arena(struct arena *a)
{
    for (int g = 0; g < GRAPHS; g++)
        multi_ok(a->comm, ceclGraphDestroy(a->graphs[(g * 2 + 1) % GRAPHS]));
    for (int s = 0; s < STREAMS; s++)
        multi_ok(a->comm, ceclStreamDestroy(a->comm, a->streams[s]));
    multi_ok(NULL, ceclCommDestroy(a->comm));
}

/* Within a window, each graph is launched on one stream only, because its buffers belong to the
 * program. */
static void launch_one(struct arena *a, struct launch *l, int g, ceclStream_t stream)
{
    l->calls = a->calls[g];
    l->ncalls = a->ncalls[g];
    put_input(a->comm, l, stream);
    if (g < GRAPHS)
        multi_ok(a->comm, ceclGraphLaunch(a->graphs[g], stream));
    for (int c = 0; c < l->ncalls && g == EAGER; c++)
        multi_ok(a->comm, call(&l->calls[c], a->comm, stream));
    keep_output(a->comm, l, stream);
}

TEST(graphs_and_eager_calls_go_on_in_any_order)
{
    struct arena arena;
    struct launch *launches = new_launches();
    const char *given = getenv("CECL_TEST_CALLS");
    const int windows = (given ? atoi(given) : multi_share(LAUNCHES)) / WINDOW;
    open_arena(&arena, 20261125);
    for (int w = 0; w < windows; w++) {
        ceclStream_t of[GRAPHS + 1];
        for (int g = 0; g <= EAGER; g++)
            of[g] = arena.streams[multi_draw_below(&arena.x, STREAMS)];
        for (int i = 0; i < WINDOW; i++) {
            const int g = (int)multi_draw_below(&arena.x, GRAPHS + 1);
            launches[i].seed = (uint64_t)w * 1000u + (uint64_t)i * 10u;
            launch_one(&arena, &launches[i], g, of[g]);
        }
        for (int s = 0; s < STREAMS; s++)
            multi_ok(arena.comm, ceclStreamSynchronize(arena.comm, arena.streams[s]));
        for (int i = 0; i < WINDOW; i++)
            check(&launches[i], "among others");
        if (w % 16 == 15)
            capture_again(&arena, (int)multi_draw_below(&arena.x, GRAPHS));
    }
    close_arena(&arena);
    free_launches(launches);
}
