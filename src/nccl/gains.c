/* For which calls cecl is faster than NCCL; see decide.h. The comment above a row names its table in
 * docs/data/results.md; factors are NCCL's time / cecl's. Sizes between two measured ones count as measured.
 *
 * The table leaves small calls to NCCL: cecl takes 0.5 to 0.7 x NCCL's time in cecl_perf, but 0.9 to 1.9 x in the loops
 * of nccl-tests ("nccl-tests under the default policy"). A row for 2 ranks begins at the size from which on cecl was
 * faster in both programs. A row for 4 ranks begins at the same size as the row for 2 ranks or at a larger one, except
 * for all-to-alls, and reduce-scatters on windows. If a program repeats small calls, trials decide. */
#include "nccl/decide.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* cecl is faster from `least` to `most` bytes. Bytes of a call: its argument `count` times the size of an element. */
struct gain {
    enum cecl_nccl_op op;
    int nranks;
    size_t least, most;
};

static const struct gain gains[] = {
    /* "All-gather in place": 1.19, 1.21 and 1.16 x at 16, 64 and 256 MiB. Out of place, with the own block copied by a
     * kernel (CECL_SM_ALLOW): 1.15, 1.18 and 1.18 x. Out of place was not measured at 1 and 4 MiB. */
    {CECL_NCCL_OP_ncclAllGather, 4, MIB(16), MIB(256)},
    /* "2 GPUs, CECL_SM_ALLOW": 1.24 to 1.51 x in place, 1.36 to 1.48 x out of place. 4 MiB out of place: cecl 26.2 us
     * (in the text below the table), NCCL 36.5. */
    {CECL_NCCL_OP_ncclAllGather, 2, KIB(512), MIB(256)},
    /* "Small calls by one kernel": 1.69 to 1.43 x. nccl-tests: 1.00 to 1.31 x, but 0.83 to 0.89 x with 16 KiB. From 4
     * MiB on cecl is faster out of place (1.16 x with 64 MiB), but in place nccl-tests measured 0.80, 0.92 and 0.95 x
     * with 4, 16 and 64 MiB ("nccl-tests under the default policy"). */
    {CECL_NCCL_OP_ncclAlltoAll, 4, KIB(64), KIB(256)},
    /* "2 GPUs, CECL_SM_ALLOW": 1.40 to 1.87 x up to 512 KiB, 1.27 and 1.29 x at 32 and 128 MiB; 0.96 x at 2 MiB.
     * nccl-tests measured cecl slower at 8 KiB, and in place at 8 MiB. */
    {CECL_NCCL_OP_ncclAlltoAll, 2, KIB(128), KIB(512)},
    {CECL_NCCL_OP_ncclAlltoAll, 2, MIB(32), MIB(128)},
    /* "Reduce-scatter, 4 GPUs": 1.51 to 1.07 x. Programs call it out of place. */
    {CECL_NCCL_OP_ncclReduceScatter, 4, KIB(512), MIB(256)},
    /* "Reductions, 2 GPUs": 1.27 to 1.04 x; with plain memory, measured at 4 to 64 MiB, the same factors. */
    {CECL_NCCL_OP_ncclReduceScatter, 2, KIB(512), MIB(256)},
    /* "All-reduce, 4 GPUs", in place: 1.30 to 1.02 x; 64 MiB out of place 1.04 x. On H100s 0.93 x at 1 MiB. */
    {CECL_NCCL_OP_ncclAllReduce, 4, KIB(256), KIB(512)},
    {CECL_NCCL_OP_ncclAllReduce, 4, MIB(4), MIB(1024)},
    /* "Reductions, 2 GPUs": 1.55 to 1.06 x, also with plain memory and out of place. On H100s 0.87 x at 1 MiB. */
    {CECL_NCCL_OP_ncclAllReduce, 2, KIB(256), KIB(512)},
    {CECL_NCCL_OP_ncclAllReduce, 2, MIB(4), MIB(1024)},
};

/* For communicators with symmetric windows: NCCL uses other kernels for them. */
static const struct gain gains_on_windows[] = {
    /* "nccl-tests with -R 2": 1.11 to 1.64 x. All-to-alls took the same time or longer. */
    {CECL_NCCL_OP_ncclAllGather, 2, MIB(32), MIB(256)},
    /* "Reduce-scatter, 4 GPUs" and "Reductions, 2 GPUs", column "symmetric": at least 1.21 x, but
     * 0.86 x at 1 MiB on 2 GPUs. */
    {CECL_NCCL_OP_ncclReduceScatter, 4, MIB(1), MIB(256)},
    {CECL_NCCL_OP_ncclReduceScatter, 2, MIB(4), MIB(256)},
    /* "All-reduce, 4 GPUs" and "Reductions, 2 GPUs", column "symmetric": at least 1.12 x. nccl-tests: 1.2 to 1.65 x
     * ("nccl-tests with -R 2"). */
    {CECL_NCCL_OP_ncclAllReduce, 4, KIB(512), MIB(1024)},
    {CECL_NCCL_OP_ncclAllReduce, 2, KIB(512), MIB(1024)},
};

static bool is_in(const struct gain *rows, size_t count, const struct cecl_nccl_call *call,
                  int nranks)
{
    const size_t bytes = cecl_nccl_call_bytes(call);
    for (size_t i = 0; i < count; i++)
        if (rows[i].op == call->op && rows[i].nranks == nranks && bytes >= rows[i].least &&
            bytes <= rows[i].most)
            return true;
    return false;
}

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

/* Reductions were measured only as bfloat16 sums; an average is a sum that is divided. They were measured with flags in
 * GPU memory: with flags in memory of the host, larger reductions take 50 us longer ("Flags in memory of the host"). */
static bool is_measured_reduction(const struct cecl_nccl_call *call,
                                  const struct cecl_nccl_comm *comm)
{
    return !comm->limits.hostFlags && call->datatype == CECL_NCCL_BFLOAT16 &&
           (call->redop == (ncclRedOp_t)ceclSum || call->redop == (ncclRedOp_t)ceclAvg);
}

bool cecl_nccl_gains(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                     const struct cecl_nccl_group *group)
{
    const uint64_t windows = atomic_load_explicit(&comm->windows, memory_order_relaxed);
    const bool on_windows = windows != 0 && (group->depth == 0 || group->number != windows);
    const bool is_faster =
        on_windows ? is_in(gains_on_windows, COUNT(gains_on_windows), call, comm->nranks)
                   : is_in(gains, COUNT(gains), call, comm->nranks);
    return is_faster && (!call->reduces || is_measured_reduction(call, comm));
}
