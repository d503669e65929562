/* Captured calls: each launch of a graph does what its calls would do. Graphs of random calls (random_call.h) and messages
 * are launched repeatedly, on several streams, one after the other and between eager calls. */
#include "random_call.h"

#define POISON 0x5A
#define GRAPHS 5
#define EAGER GRAPHS /* eager calls */
#define CALLS_MOST 3
#define STREAMS 3
#define WINDOW 24 /* launches between two checks of all results */
#define LAUNCHES 10000
#define MESSAGE_MOST 2500

/* ---- one call, or messages, with their buffers */

/* From the root to the next rank; from each rank to the next one; from each rank to each. */
enum messages { NONE, LONE, RING, MAIL, MESSAGES };
#define ALL_KINDS (KINDS + MESSAGES - 1)

struct work {
    struct random_slot slot;
    enum messages messages; /* NONE: a random call */
    struct memory send, recv;
};

static unsigned char *host; /* [random_room()] */

static int after(int rank)
{
    return (rank + 1) % multi_nranks;
}

/* Bytes that a rank sends, and gets. */
static size_t input_of(const struct work *w)
{
    const struct random_call *c = &w->slot.call;
    return w->messages == NONE   ? random_sent(c, multi_rank)
           : w->messages == MAIL ? c->count * (size_t)multi_nranks
                                 : c->count;
}

static ceclResult_t call_messages(const struct work *w, ceclComm_t comm, ceclStream_t stream)
{
    const struct random_call *c = &w->slot.call;
    multi_ok(comm, ceclGroupStart());
    for (int r = 0; r < multi_nranks; r++) {
        const size_t at = w->messages == MAIL ? (size_t)r * c->count : 0;
        const bool sends = w->messages == MAIL || r == after(multi_rank),
                   gets = w->messages == MAIL || after(r) == multi_rank;
        if (sends && (w->messages != LONE || multi_rank == c->root))
            multi_ok(comm, ceclSend(c->in + at, c->count, ceclUint8, r, comm, stream));
        if (gets && (w->messages != LONE || r == c->root))
            multi_ok(comm, ceclRecv(c->out + at, c->count, ceclUint8, r, comm, stream));
    }
    return ceclGroupEnd();
}

static void expect(const struct work *w, unsigned char *want)
{
    const struct random_call *c = &w->slot.call;
    if (w->messages == NONE) {
        random_expect(&w->slot, want);
        return;
    }
    memset(want, POISON, w->slot.bytes);
    for (int r = 0; r < multi_nranks; r++)
        if (w->messages == MAIL)
            for (size_t i = 0; i < c->count; i++)
                want[(size_t)r * c->count + i] =
                    model_byte(c->seed, r, (size_t)multi_rank * c->count + i);
        else if (after(r) == multi_rank && (w->messages == RING || r == c->root))
            model_fill(want, c->seed, r, c->count);
}

static ceclResult_t call(const struct work *w, ceclComm_t comm, ceclStream_t stream, bool grouped)
{
    struct random_call c = w->slot.call;
    if (w->messages != NONE)
        return call_messages(w, comm, stream);
    c.stream = stream;
    c.seed = 1024; /* for random_make: once, and no graph of its own */
    return random_make(comm, &c, grouped);
}

static void make(struct work *w, ceclComm_t comm, uint64_t *x, int kind, enum memory_kind memory)
{
    struct random_call *c = &w->slot.call;
    const size_t room = random_room() + MESSAGE_MOST * (size_t)multi_nranks;
    *c = (struct random_call){.rank = multi_rank, .nranks = multi_nranks};
    w->messages = kind < KINDS ? NONE : (enum messages)(kind - KINDS + 1);
    w->send = memory_new(comm, memory, room);
    w->recv = memory_new(comm, memory, room);
    assert_non_null(w->slot.want = malloc(room));
    c->seed = random_next(x);
    uint64_t own = c->seed + (uint64_t)multi_rank;
    if (w->messages == NONE) {
        random_draw_of(c, (enum kind)kind, x);
        random_prepare(comm, &w->slot, &w->send, &w->recv, &own, host);
        return;
    }
    c->count = 1 + random_next(x) % MESSAGE_MOST;
    c->root = (int)(random_next(x) % (uint64_t)multi_nranks);
    c->in = w->send.at;
    c->out = c->recv = w->recv.at;
    w->slot.bytes = input_of(w);
    memset(host, POISON, w->slot.bytes);
    multi_put(comm, c->recv, host, w->slot.bytes);
}

static void free_work(ceclComm_t comm, struct work *w)
{
    memory_free(comm, &w->send);
    memory_free(comm, &w->recv);
    free(w->slot.want);
}

/* ---- launches: new input before each launch, and a copy of its output after it */

struct launch {
    uint64_t seed;
    struct work *calls;
    int ncalls;
    unsigned char *in[CALLS_MOST], *out[CALLS_MOST];
};
static struct launch launches[WINDOW];

static void open_launches(void)
{
    const size_t room = random_room() + MESSAGE_MOST * (size_t)multi_nranks;
    assert_non_null(host = malloc(room));
    for (int i = 0; i < WINDOW * CALLS_MOST; i++) {
        struct launch *l = &launches[i / CALLS_MOST];
        assert_non_null(l->in[i % CALLS_MOST] = malloc(room));
        assert_non_null(l->out[i % CALLS_MOST] = malloc(room));
    }
}

static void close_launches(void)
{
    for (int i = 0; i < WINDOW * CALLS_MOST; i++) {
        free(launches[i / CALLS_MOST].in[i % CALLS_MOST]);
        free(launches[i / CALLS_MOST].out[i % CALLS_MOST]);
    }
    free(host);
}

static void put_input(ceclComm_t comm, const struct launch *l, ceclStream_t stream)
{
    for (int i = 0; i < l->ncalls; i++) {
        const size_t bytes = input_of(&l->calls[i]);
        model_fill(l->in[i], l->seed + (uint64_t)i, multi_rank, bytes);
        multi_ok(comm, ceclMemcpyAsync(comm, l->calls[i].slot.call.in, l->in[i], bytes, stream));
    }
}

static void keep_output(ceclComm_t comm, const struct launch *l, ceclStream_t stream)
{
    for (int i = 0; i < l->ncalls; i++)
        multi_ok(comm, ceclMemcpyAsync(comm, l->out[i], l->calls[i].slot.call.recv,
                                       l->calls[i].slot.bytes, stream));
}

static void check(const struct launch *l)
{
    for (int i = 0; i < l->ncalls; i++) {
        struct work *w = &l->calls[i];
        w->slot.call.seed = l->seed + (uint64_t)i;
        expect(w, w->slot.want);
        random_check(&w->slot, l->out[i]);
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
        multi_ok(comm, call(&calls[c], comm, stream, grouped));
    if (grouped)
        multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    return graph;
}

/* Launches the graph of one call for a whole window, with new input each time. */
static void replay(ceclComm_t comm, struct work *w, ceclStream_t stream)
{
    ceclGraph_t graph = capture(comm, w, 1, false, stream);
    for (int i = 0; i < WINDOW; i++) {
        struct launch *l = &launches[i];
        l->calls = w;
        l->ncalls = 1;
        l->seed = 1000 + (uint64_t)i;
        put_input(comm, l, stream);
        multi_ok(comm, ceclGraphLaunch(graph, stream));
        keep_output(comm, l, stream);
    }
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    for (int i = 0; i < WINDOW; i++)
        check(&launches[i]);
    multi_ok(comm, ceclGraphDestroy(graph));
}

/* Replays each of the kinds [first, end), before and after an eager call. Memory may be of another kind on each rank. */
static void replay_each(ceclComm_t comm, int first, int end, enum memory_kind least, int kinds)
{
    static struct work w;
    uint64_t x = 11;
    open_launches();
    ceclStream_t stream = multi_stream(comm);
    for (int kind = first; kind < end; kind++) {
        make(&w, comm, &x, kind, (enum memory_kind)((int)least + (kind + multi_rank) % kinds));
        replay(comm, &w, stream);
        multi_ok(comm, call(&w, comm, stream, false));
        replay(comm, &w, stream);
        free_work(comm, &w);
    }
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    close_launches();
}

/* Memory that peers cannot reach goes through bounce buffers, which eager calls use as well. */
TEST(private_memory_is_carried_in_each_replay)
{
    ceclComm_t comm = multi_comm(NULL);
    const bool on_gpus = multi_on_gpus(comm);
    if (!on_gpus)
        replay_each(comm, 0, ALL_KINDS, MEMORY_PRIVATE, 1);
    multi_ok(NULL, ceclCommDestroy(comm));
    if (on_gpus)
        skip_because("the host device reaches all of the program's memory");
}

TEST(messages_take_memory_of_every_kind)
{
    ceclComm_t comm = multi_comm(NULL);
    for (int i = 0; i < 2; i++)
        replay_each(comm, KINDS, ALL_KINDS, MEMORY_SHARED, MEMORY_KINDS - MEMORY_SHARED);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* Small calls keep their own call count. Captured urgent calls use the same path as other calls. */
TEST(each_kind_of_call_is_right_in_each_replay)
{
    for (int i = 0; i < 3; i++) {
        ceclConfig_t config = multi_config();
        config.smPolicy = i == 1 ? CECL_SM_ALLOW : CECL_SM_REDUCE_ONLY;
        multi_setenv("CECL_URGENT", i == 2 ? "1" : NULL);
        ceclComm_t comm = multi_comm(&config);
        multi_setenv("CECL_URGENT", NULL);
        replay_each(comm, 0, ALL_KINDS, MEMORY_POOL, 1);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
}

/* ---- many graphs, and eager calls between them */

static struct arena {
    ceclComm_t comm;
    ceclStream_t streams[STREAMS];
    struct work calls[GRAPHS + 1][CALLS_MOST];
    int ncalls[GRAPHS + 1];
    ceclGraph_t graphs[GRAPHS];
    uint64_t x;
} a;

static int draw_below(int most)
{
    return (int)(random_next(&a.x) % (uint64_t)most);
}

static void capture_again(int g)
{
    multi_ok(a.comm, ceclGraphDestroy(a.graphs[g]));
    a.graphs[g] = capture(a.comm, a.calls[g], a.ncalls[g], draw_below(3) == 0,
                          a.streams[draw_below(STREAMS)]);
}

static void open_arena(uint64_t seed)
{
    a.comm = multi_comm(NULL);
    a.x = seed;
    for (int s = 0; s < STREAMS; s++)
        a.streams[s] = multi_stream(a.comm);
    for (int g = 0; g <= EAGER; g++) {
        a.ncalls[g] = 1 + draw_below(CALLS_MOST);
        for (int c = 0; c < a.ncalls[g]; c++)
            make(&a.calls[g][c], a.comm, &a.x, draw_below(ALL_KINDS), MEMORY_POOL);
        if (g < GRAPHS)
            capture_again(g);
    }
}

static void close_arena(void)
{
    for (int g = 0; g < GRAPHS; g++)
        multi_ok(a.comm, ceclGraphDestroy(a.graphs[(g * 2 + 1) % GRAPHS]));
    for (int g = 0; g <= EAGER; g++)
        for (int c = 0; c < a.ncalls[g]; c++)
            free_work(a.comm, &a.calls[g][c]);
    for (int s = 0; s < STREAMS; s++)
        multi_ok(a.comm, ceclStreamDestroy(a.comm, a.streams[s]));
    multi_ok(NULL, ceclCommDestroy(a.comm));
}

/* Within a window, each graph is launched on one stream only, because its buffers belong to the
 * program. */
static void launch_one(struct launch *l, int g, ceclStream_t stream)
{
    l->calls = a.calls[g];
    l->ncalls = a.ncalls[g];
    put_input(a.comm, l, stream);
    if (g < GRAPHS)
        multi_ok(a.comm, ceclGraphLaunch(a.graphs[g], stream));
    for (int c = 0; c < l->ncalls && g == EAGER; c++)
        multi_ok(a.comm, call(&l->calls[c], a.comm, stream, false));
    keep_output(a.comm, l, stream);
}

TEST(graphs_and_eager_calls_go_on_in_any_order)
{
    const char *given = getenv("CECL_TEST_CALLS");
    const int windows = (given ? atoi(given) : multi_share(LAUNCHES)) / WINDOW;
    open_launches();
    open_arena(20261125);
    for (int w = 0; w < windows; w++) {
        ceclStream_t of[GRAPHS + 1];
        for (int g = 0; g <= EAGER; g++)
            of[g] = a.streams[draw_below(STREAMS)];
        for (int i = 0; i < WINDOW; i++) {
            const int g = draw_below(GRAPHS + 1);
            launches[i].seed = (uint64_t)w * 1000u + (uint64_t)i * 10u;
            launch_one(&launches[i], g, of[g]);
        }
        for (int s = 0; s < STREAMS; s++)
            multi_ok(a.comm, ceclStreamSynchronize(a.comm, a.streams[s]));
        for (int i = 0; i < WINDOW; i++)
            check(&launches[i]);
        if (w % 16 == 15)
            capture_again(draw_below(GRAPHS));
    }
    close_arena();
    close_launches();
}
