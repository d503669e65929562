/* Which class a call belongs to (learn/classes.h), and its token (learn/period.h). */
#include <stdio.h>

#include "nccl/call.h"
#include "nccl/learned_file.h"
#include "nccl/learning.h"

/* A call's time is the shortest of all ranks' times, which is correct only if no rank can be done before
 * all have come. So only these operations have classes: in a gather or a reduce, a rank that sends to the
 * root may be done at once. */
static const char *const nouns[CECL_NCCL_OPS] = {
    [CECL_NCCL_OP_ncclAllGather] = "all-gather",
    [CECL_NCCL_OP_ncclAllReduce] = "all-reduce",
    [CECL_NCCL_OP_ncclAlltoAll] = "all-to-all",
    [CECL_NCCL_OP_ncclBroadcast] = "broadcast",
    [CECL_NCCL_OP_ncclReduceScatter] = "reduce-scatter",
};

/* ranks may use either name of a broadcast */
static enum cecl_nccl_op op_of(const struct cecl_nccl_call *call)
{
    return call->op == CECL_NCCL_OP_ncclBcast ? CECL_NCCL_OP_ncclBroadcast : call->op;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 31;
}

uint64_t cecl_nccl_token_of(const struct cecl_nccl_call *call, uint32_t in_group)
{
    uint64_t hash = mix((uint64_t)op_of(call) + 1, call->count);
    hash = mix(hash, (uint64_t)call->datatype << 32 | (uint32_t)call->root);
    hash = mix(hash, (uint64_t)(call->reduces ? call->redop + 1 : 0) << 32 | in_group);
    return cecl_period_token(mix(hash, 0), in_group == 0);
}

/* Of reductions, only sums and averages are in classes, because the two libraries' maximum and minimum
 * differ if there are NaNs. */
uint32_t cecl_nccl_class_of(const struct cecl_nccl_call *call)
{
    const size_t bytes = cecl_nccl_call_bytes(call);
    const enum cecl_nccl_op op = op_of(call);
    const bool is_sum = call->redop == (ncclRedOp_t)ceclSum || call->redop == (ncclRedOp_t)ceclAvg;
    if (!nouns[op] || bytes == 0 || (call->reduces && !is_sum))
        return 0;
    const uint32_t power = 63u - (uint32_t)__builtin_clzll((unsigned long long)bytes);
    return ((uint32_t)op + 1) << 16 | power << 8 | (uint32_t)call->datatype;
}

void cecl_nccl_class_words(uint32_t key, char words[CECL_NCCL_CLASS_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    const uint32_t op = (key >> 16) - 1, power = key >> 8 & 0xff;
    const unsigned least = 1u << power % 10;
    snprintf(words, CECL_NCCL_CLASS_BYTES, "%s of %u to %u %s, %s", nouns[op], least, 2 * least,
             units[power / 10], cecl_nccl_row_type((int)(key & 0xff)));
}
