/* See gains.h. A row stands here only if a table of docs/measurements.md or the measurements of plain
 * memory in it say so. Sizes between two that were measured count as measured. */
#include "nccl/gains.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* From `least` to `most` bytes, as the function names its count: of one rank or one block. */
static const struct gain {
    enum cecl_nccl_op op;
    int nranks;
    size_t least, most;
} gains[] = {
    /* "All-gather in place": 1.19, 1.21 and 1.16 x at 16, 64 and 256 MiB. Out of place, with the own
     * block copied by a kernel (CECL_SM_ALLOW): 1.15, 1.18 and 1.18 x. At 1 and 4 MiB out of place
     * was not compared so. */
    {CECL_NCCL_OP_ncclAllGather, 4, MIB(16), MIB(256)},
    /* "2 GPUs, CECL_SM_ALLOW": 1.24 to 1.74 x in place, 1.36 to 1.75 x out of place. At 4 MiB
     * out of place that table has a time from before the own block was copied locally; with that it
     * takes 26.2 us ("What cecl_tune finds on 2 GPUs"), and NCCL 36.6. */
    {CECL_NCCL_OP_ncclAllGather, 2, 256, MIB(256)},
    /* NCCL takes no all-to-all in place. "Small calls by one kernel": 1.84 to 1.43 x. */
    {CECL_NCCL_OP_ncclAlltoAll, 4, KIB(4), KIB(256)},
    /* "All-to-all, out of place", CECL_SM_ALLOW: 1.28, 1.11, 1.07 and 1.06 x; 0.88 x at 1 MiB. */
    {CECL_NCCL_OP_ncclAlltoAll, 4, MIB(4), MIB(256)},
    /* "2 GPUs, CECL_SM_ALLOW": 1.40 to 1.87 x, and 1.27 to 1.37 x; 0.96 x at 2 MiB. */
    {CECL_NCCL_OP_ncclAlltoAll, 2, 128, KIB(512)},
    {CECL_NCCL_OP_ncclAlltoAll, 2, MIB(8), MIB(128)},
    /* "Reduce-scatter, 4 GPUs": 1.63 to 1.07 x. Programs make it out of place. */
    {CECL_NCCL_OP_ncclReduceScatter, 4, KIB(4), MIB(256)},
    /* "Reductions, 2 GPUs": 1.86 to 1.04 x; with plain memory the same (4 to 64 MiB). */
    {CECL_NCCL_OP_ncclReduceScatter, 2, KIB(4), MIB(256)},
    /* "All-reduce, 4 GPUs", in place: 1.78 to 1.02 x; 64 MiB out of place 1.04 x. */
    {CECL_NCCL_OP_ncclAllReduce, 4, KIB(4), MIB(1024)},
    /* "Reductions, 2 GPUs": 1.81 to 1.06 x; with plain memory, out of place, the same. */
    {CECL_NCCL_OP_ncclAllReduce, 2, KIB(4), MIB(1024)},
};

/* Reductions were compared with NCCL as sums of this type alone; an average is one, divided. */
static bool is_measured_reduction(const struct cecl_nccl_call *call)
{
    return call->datatype == CECL_NCCL_BFLOAT16 &&
           (call->redop == (ncclRedOp_t)ceclSum || call->redop == (ncclRedOp_t)ceclAvg);
}

/* "Flags in memory of the host": the kernels of larger reductions meet by such flags, and take 50 us
 * longer. Of these sizes only all-reduces were timed. */
static bool is_slowed(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    return call->reduces && comm->flags_on_host &&
           (call->op != CECL_NCCL_OP_ncclAllReduce || cecl_nccl_call_bytes(call) > KIB(64));
}

bool cecl_nccl_gains(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    const size_t bytes = cecl_nccl_call_bytes(call);
    const int nranks = comm->nranks;
    bool is_in = false;
    for (size_t i = 0; i < sizeof(gains) / sizeof(gains[0]) && !is_in; i++)
        is_in = gains[i].op == call->op && gains[i].nranks == nranks && bytes >= gains[i].least &&
                bytes <= gains[i].most;
    return is_in && !is_slowed(call, comm) && (!call->reduces || is_measured_reduction(call));
}
