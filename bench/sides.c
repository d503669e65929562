/* The sides of a measurement: cecl's, and the list of all. */
#include "memory.h"

static bool cecl_open(struct side *side, const struct run *run, size_t send_bytes,
                      size_t recv_bytes)
{
    side->send_bytes = send_bytes;
    side->recv_bytes = recv_bytes;
    side->run = run;
    if (!memory_take(run, side->state, side->memory, send_bytes, &side->send) ||
        !memory_take(run, side->state, side->memory, recv_bytes, &side->recv))
        return false;
    if (run->options.op->open)
        BENCH_TRY(run, run->options.op->open(side->state, side->recv, recv_bytes));
    return true;
}

static ceclResult_t make_call(struct side *side, const struct run *run, const void *send,
                              size_t block)
{
    const struct options *o = &run->options;
    return o->op->call(send, side->recv, block / o->type->bytes, o->type->id, side->state,
                       run->stream);
}

static bool cecl_call(struct side *side, const struct run *run, const void *send, size_t block)
{
    return make_call(side, run, send, block) == ceclSuccess ||
           complain(run, run->options.op->name, ceclGetLastError(side->state));
}

static void cecl_close(struct side *side)
{
    const struct memory_kind *kind = memory_of(side->run, side->memory);
    if (side->run->options.op->close)
        side->run->options.op->close(side->state, side->recv);
    kind->give(side->state, side->recv_bytes, side->recv);
    kind->give(side->state, side->send_bytes, side->send);
}

struct side side_cecl_make(const char *name, ceclComm_t comm, int memory)
{
    return (struct side){.name = name,
                         .state = comm,
                         .memory = memory,
                         .open = cecl_open,
                         .call = cecl_call,
                         .close = cecl_close};
}

/* Adds each side once more, with its calls in a graph. NCCL's graphs get a communicator of their own. */
static int add_graphs(const struct run *run, struct side sides[MAX_SIDES], int count)
{
    for (int s = 0; s < count; s++) {
        struct side inner = sides[s];
        const bool is_nccl = inner.state != run->comm;
        if ((is_nccl && !side_nccl_make(&inner, inner.name[4] != '\0')) ||
            !side_graph_make(&sides[count + s], run, &inner)) {
            complain(run, "--graph", "no host memory");
            return 0;
        }
    }
    return 2 * count;
}

int sides_make(const struct run *run, struct side sides[MAX_SIDES])
{
    int count = 0;
    sides[count++] = side_cecl_make("cecl", run->comm, MEMORY_POOL);
    for (int kind = MEMORY_NAMED; kind < MEMORY_KINDS; kind++)
        if (run->options.memory >> kind & 1)
            sides[count++] = side_cecl_make(memory_of(run, kind)->name, run->comm, kind);
    const bool wanted[2] = {run->options.nccl, run->options.nccl_ce};
    for (int ce = 0; ce < 2; ce++) {
        if (!wanted[ce])
            continue;
        if (!side_nccl_make(&sides[count], ce)) {
            complain(run, "--baseline", "no host memory");
            return 0;
        }
        count++;
    }
    return run->options.graph ? add_graphs(run, sides, count) : count;
}
