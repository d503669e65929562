/* The sides of a measurement: cecl's, and the list of all. */
#include "memory.h"

static bool cecl_open(struct side *side, const struct run *run, size_t send_bytes,
                      size_t recv_bytes)
{
    if (ceclMemAlloc(side->state, &side->send, send_bytes) != ceclSuccess ||
        ceclMemAlloc(side->state, &side->recv, recv_bytes) != ceclSuccess)
        return complain(run, "ceclMemAlloc", ceclGetLastError(side->state));
    return true;
}

static bool cecl_call(struct side *side, const struct run *run, const void *send, size_t block)
{
    const struct options *o = &run->options;
    if (o->op->call(send, side->recv, block / o->type->bytes, o->type->id, side->state,
                    run->stream) != ceclSuccess)
        return complain(run, o->op->name, ceclGetLastError(side->state));
    return true;
}

static void cecl_close(struct side *side)
{
    (void)!ceclMemFree(side->state, side->recv);
    (void)!ceclMemFree(side->state, side->send);
}

struct side side_cecl_make(const char *name, ceclComm_t comm)
{
    return (struct side){
        .name = name, .state = comm, .open = cecl_open, .call = cecl_call, .close = cecl_close};
}

int sides_make(const struct run *run, struct side sides[MAX_SIDES])
{
    int count = 0;
    sides[count++] = side_cecl_make("cecl", run->comm);
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        if (run->options.memory >> kind & 1)
            sides[count++] = side_memory_make(run, kind);
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
    return count;
}
