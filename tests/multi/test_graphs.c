/* Captured calls: each launch of a graph does what its calls would do. Graphs of random calls (random_call.h) and messages,
 * in memory of any kind, are launched repeatedly, on several streams, one after the other and between eager calls. */
#include "random_call.h"

#define GRAPHS 5
#define EAGER GRAPHS /* eager calls */
#define CALLS_MOST 4
#define STREAMS 3
#define WINDOW 24 /* launches between two checks of all results */
#define LAUNCHES 10000

#define ALL_KINDS (MESSAGE + 1) /* BY_SPLITS becomes MESSAGE: test_experts.c captures splits */

struct work {
    struct random_slot slot;
    struct memory send, recv;
};

static unsigned char *host; /* [random_room()] */

static ceclResult_t call(const struct work *w, ceclComm_t comm, ceclStream_t stream, bool grouped)
{
    struct random_call c = w->slot.call;
    c.stream = stream;
    c.seed = 1024; /* random_make then makes no graph of its own */
    return random_make(comm, &c, grouped);
}

/* Each rank draws its kinds of memory. On GPUs collectives use the pool, so that captures need no bounce buffers. */
static enum memory_kind draw_memory(ceclComm_t comm, int kind, uint64_t *x, uint64_t *own)
{
    const bool in_pool = random_next(x) % 2 || (kind < BY_SPLITS && multi_on_gpus(comm));
    return in_pool ? MEMORY_POOL
                   : MEMORY_SHARED + random_next(own) % (MEMORY_KINDS - MEMORY_SHARED);
}

static void make(struct work *w, ceclComm_t comm, uint64_t *x, int kind)
{
    struct random_call *c = &w->slot.call;
    *c = (struct random_call){.rank = multi_rank, .nranks = multi_nranks};
    c->seed = random_next(x);
    uint64_t own = c->seed + (uint64_t)multi_rank;
    w->send = memory_new(comm, draw_memory(comm, kind, x, &own), random_room());
    w->recv = memory_new(comm, draw_memory(comm, kind, x, &own), random_room());
    assert_non_null(w->slot.want = malloc(random_room()));
    random_draw_of(c, kind == BY_SPLITS ? MESSAGE : (enum kind)kind, x);
    random_prepare(comm, &w->slot, &w->send, &w->recv, &own, host);
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
    assert_non_null(host = malloc(random_room()));
    for (int i = 0; i < WINDOW * CALLS_MOST; i++) {
        struct launch *l = &launches[i / CALLS_MOST];
        assert_non_null(l->in[i % CALLS_MOST] = malloc(random_room()));
        assert_non_null(l->out[i % CALLS_MOST] = malloc(random_room()));
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
        const size_t bytes = random_sent(&l->calls[i].slot.call, multi_rank);
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
        random_expect(&w->slot, w->slot.want);
        random_check(&w->slot, l->out[i]);
    }
}

static void call_all(ceclComm_t comm, const struct work *calls, int ncalls, bool grouped,
                     ceclStream_t stream)
{
    if (grouped)
        multi_ok(comm, ceclGroupStart());
    for (int c = 0; c < ncalls; c++)
        multi_ok(comm, call(&calls[c], comm, stream, grouped));
    if (grouped)
        multi_ok(comm, ceclGroupEnd());
}

static ceclGraph_t capture(ceclComm_t comm, const struct work *calls, int ncalls, bool grouped,
                           ceclStream_t stream)
{
    ceclGraph_t graph = NULL;
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    call_all(comm, calls, ncalls, grouped, stream);
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    return graph;
}

/* ---- many graphs, and eager calls between them */

static struct arena {
    ceclComm_t comm;
    ceclStream_t streams[STREAMS];
    struct work calls[GRAPHS + 1][CALLS_MOST];
    int ncalls[GRAPHS + 1];
    ceclGraph_t graphs[GRAPHS];
    uint64_t x;
    int kind; /* of the latest call */
} a;

static int draw_below(int most)
{
    return (int)(random_next(&a.x) % (uint64_t)most);
}

/* Draws the calls of a graph, or the eager ones. All kinds come in turn. */
static void draw(int g)
{
    a.ncalls[g] = 1 + draw_below(CALLS_MOST);
    for (int c = 0; c < a.ncalls[g]; c++)
        make(&a.calls[g][c], a.comm, &a.x, a.kind = (a.kind + 1) % ALL_KINDS);
    if (g == EAGER)
        return;
    a.graphs[g] = capture(a.comm, a.calls[g], a.ncalls[g], draw_below(3) == 0,
                          a.streams[draw_below(STREAMS)]);
}

static void drop(int g)
{
    if (g != EAGER)
        multi_ok(a.comm, ceclGraphDestroy(a.graphs[g]));
    for (int c = 0; c < a.ncalls[g]; c++)
        free_work(a.comm, &a.calls[g][c]);
}

static void open_arena(const ceclConfig_t *config, uint64_t seed)
{
    a.comm = multi_comm(config);
    a.x = seed;
    for (int s = 0; s < STREAMS; s++)
        a.streams[s] = multi_stream(a.comm);
    for (int g = 0; g <= EAGER; g++)
        draw(g);
}

static void close_arena(void)
{
    for (int g = 0; g <= EAGER; g++)
        drop(g);
    for (int s = 0; s < STREAMS; s++)
        multi_ok(a.comm, ceclStreamDestroy(a.comm, a.streams[s]));
    multi_ok(NULL, ceclCommDestroy(a.comm));
}

/* Until the next check, each graph stays on one stream: its buffers must not be in use on two streams at once. */
static void launch_one(struct launch *l, int g, ceclStream_t stream)
{
    l->calls = a.calls[g];
    l->ncalls = a.ncalls[g];
    put_input(a.comm, l, stream);
    if (g < GRAPHS)
        multi_ok(a.comm, ceclGraphLaunch(a.graphs[g], stream));
    else
        call_all(a.comm, l->calls, l->ncalls, false, stream);
    keep_output(a.comm, l, stream);
}

static void go_on(int windows)
{
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
        if (w % 4 == 3) {
            const int g = draw_below(GRAPHS + 1);
            drop(g);
            draw(g);
        }
    }
}

/* i = 1: small calls, which count their runs if captured. i = 2: urgent calls, which if captured take the usual path. */
TEST(graphs_and_eager_calls_go_on_in_any_order)
{
    const char *given = getenv("CECL_TEST_CALLS");
    const int launches_all = given ? atoi(given) : multi_share(LAUNCHES);
    open_launches();
    for (int i = 0; i < 3; i++) {
        ceclConfig_t config = multi_config();
        config.smPolicy = i == 1 ? CECL_SM_ALLOW : CECL_SM_REDUCE_ONLY;
        config.urgent = i == 2;
        open_arena(&config, 20261125 + (uint64_t)i);
        go_on(launches_all / (3 * WINDOW));
        close_arena();
    }
    close_launches();
}
