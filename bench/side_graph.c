/* --graph: a side that captures the calls of another side, several in a graph, and launches the graph. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

struct captured {
    struct side inner;
    char name[32];
    struct run run; /* with a communicator of its own, for captures and for cecl's calls */
    bool is_cecl;
    ceclGraph_t graph; /* the last call's graph, sendbuff and block */
    const void *send;
    size_t block;
};

/* Captured calls get a communicator of their own: if a communicator has graphs, its eager calls wait for them. The
 * first call is eager, because NCCL's first call on copy engines allocates memory, which would break a capture. */
static bool captured_open(struct side *side, const struct run *run, size_t send_bytes,
                          size_t recv_bytes)
{
    struct captured *c = side->state;
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    config.urgent = run->options.urgent;
    c->run = *run;
    if (run->team->comm_init(&c->run.comm, &config) != ceclSuccess)
        return complain(run, c->name, ceclGetLastError(NULL));
    BENCH_TRY(run, ceclStreamCreate(c->run.comm, &c->run.stream));
    if (c->is_cecl)
        c->inner.state = c->run.comm;
    if (!c->inner.open(&c->inner, &c->run, send_bytes, recv_bytes))
        return false;
    side->send = c->inner.send;
    side->recv = c->inner.recv;
    side->own = &c->run;
    if (!c->inner.call(&c->inner, &c->run, side->send,
                       block_of(&run->options, run->nranks, run->options.first)))
        return false;
    BENCH_TRY(&c->run, ceclStreamSynchronize(c->run.comm, c->run.stream));
    return true;
}

static bool capture(struct captured *c, const struct run *run, const void *send, size_t block)
{
    bool fine = true;
    BENCH_TRY(run,
              ceclStreamSynchronize(run->comm, run->stream)); /* the last graph may still run */
    BENCH_TRY(run, ceclGraphDestroy(c->graph));
    c->graph = NULL;
    BENCH_TRY(run, ceclStreamBeginCapture(run->comm, run->stream));
    for (int i = 0; i < run->options.graph && fine; i++)
        fine = c->inner.call(&c->inner, run, send, block);
    BENCH_TRY(run, ceclStreamEndCapture(run->comm, run->stream, &c->graph));
    c->send = send;
    c->block = block;
    return fine;
}

static bool captured_call(struct side *side, const struct run *run, const void *send, size_t block)
{
    struct captured *c = side->state;
    if ((!c->graph || c->send != send || c->block != block) && !capture(c, run, send, block))
        return false;
    BENCH_TRY(run, ceclGraphLaunch(c->graph, run->stream));
    return true;
}

/* False for several reductions in place in a graph: each would reduce the last result again, which no check expects. */
static bool captured_supports(const struct side *side, const struct run *run, bool in_place)
{
    const struct captured *c = side->state;
    if (in_place && run->options.op->reduces && run->options.graph > 1)
        return false;
    return !c->inner.supports || c->inner.supports(&c->inner, run, in_place);
}

static void captured_close(struct side *side)
{
    struct captured *c = side->state;
    (void)!ceclGraphDestroy(c->graph);
    c->inner.close(&c->inner);
    if (ceclStreamDestroy(c->run.comm, c->run.stream) != ceclSuccess ||
        ceclCommDestroy(c->run.comm) != ceclSuccess)
        (void)complain(&c->run, c->name, ceclGetLastError(NULL));
    free(c);
}

bool side_graph_make(struct side *side, const struct run *run, const struct side *inner)
{
    struct captured *c = calloc(1, sizeof(*c));
    if (!c)
        return false;
    c->inner = *inner;
    c->is_cecl = inner->state == run->comm;
    snprintf(c->name, sizeof(c->name), "%s-graph", inner->name);
    *side = (struct side){.name = c->name,
                          .state = c,
                          .calls = run->options.graph,
                          .open = captured_open,
                          .call = captured_call,
                          .supports = captured_supports,
                          .close = captured_close};
    return true;
}
