/* The sides of a measurement: cecl's own, and the list of all. */
#include "bench.h"

static bool cecl_open(struct side *side, const struct run *run, size_t send_bytes,
                      size_t recv_bytes)
{
    BENCH_TRY(run, ceclMemAlloc(run->comm, &side->send, send_bytes));
    BENCH_TRY(run, ceclMemAlloc(run->comm, &side->recv, recv_bytes));
    side->state = run->comm;
    return true;
}

static bool cecl_call(struct side *side, const struct run *run, const void *send, size_t block)
{
    if (run->options.op == ceclOpAllGather)
        BENCH_TRY(run,
                  ceclAllGather(send, side->recv, block / 4, ceclInt32, run->comm, run->stream));
    else
        BENCH_TRY(run,
                  ceclAlltoAll(send, side->recv, block / 4, ceclInt32, run->comm, run->stream));
    return true;
}

static void cecl_close(struct side *side)
{
    (void)!ceclMemFree(side->state, side->recv);
    (void)!ceclMemFree(side->state, side->send);
}

const struct side side_cecl = {
    .name = "cecl", .open = cecl_open, .call = cecl_call, .close = cecl_close};

int sides_make(const struct run *run, struct side sides[MAX_SIDES])
{
    int count = 0;
    sides[count++] = side_cecl;
    const bool wanted[2] = {run->options.nccl, run->options.nccl_ce};
    for (int ce = 0; ce < 2; ce++) {
        if (!wanted[ce])
            continue;
        if (!run->cuda || !side_nccl_make(&sides[count], ce))
            return complain(run, "--baseline", run->cuda ? "built without NCCL" : "NCCL needs GPUs")
                       ? 0
                       : -1;
        count++;
    }
    return count;
}

const void *send_place(const struct side *side, const struct run *run, size_t block, bool in_place)
{
    if (!in_place)
        return side->send;
    return run->options.op == ceclOpAllGather ? (char *)side->recv + (size_t)run->rank * block
                                              : side->recv;
}

size_t block_of(const struct run *run, size_t bytes)
{
    if (run->options.op == ceclOpAlltoAll)
        bytes /= (size_t)run->nranks;
    return bytes / 4 * 4;
}
