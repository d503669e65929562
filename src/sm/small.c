/* Small collectives: what GPUs and the host have in common, but for the work itself. What is refused,
 * and where in the slots a call has its lines. */
#include <inttypes.h>

#include "sm/small_args.h"

bool cecl_small_reduces(const struct cecl_small *small)
{
    return small->kind == CECL_SMALL_ALL_REDUCE || small->kind == CECL_SMALL_REDUCE_SCATTER;
}

/* Whether there is a block for each rank, and not one for all. */
static bool has_blocks(const struct cecl_small *small)
{
    return small->kind == CECL_SMALL_ALL_TO_ALL || small->kind == CECL_SMALL_REDUCE_SCATTER;
}

ceclResult_t cecl_small_check(const struct cecl_small *small)
{
    if (small->nranks < 2 || small->nranks > CECL_SMALL_RANKS_MAX || small->rank < 0 ||
        small->rank >= small->nranks)
        return cecl_fail(ceclInvalidArgument,
                         "small collective: rank %d of %d: 2 to %d ranks expected", small->rank,
                         small->nranks, CECL_SMALL_RANKS_MAX);
    if (small->bytes < 1 || small->bytes > small->slot_bytes || small->slot_bytes % 512 != 0 ||
        small->slot_bytes > CECL_SMALL_SLOT_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "small collective: %" PRIu64 " bytes for slots of %" PRIu64, small->bytes,
                         small->slot_bytes);
    if (!cecl_small_reduces(small))
        return ceclSuccess;
    CECL_TRY(cecl_reduction_check(small->type, small->op));
    if (small->bytes % cecl_reduction_element_bytes(small->type) != 0)
        return cecl_fail(ceclInvalidArgument,
                         "small collective: %" PRIu64 " bytes are no whole elements", small->bytes);
    return ceclSuccess;
}

/* Where what `sender` sends in this call lies at `holder`. */
static unsigned char *slot_of(const struct cecl_small *small, int holder, int sender)
{
    const uint64_t half = (small->epoch & 1) * (uint64_t)small->nranks;
    return small->slots[holder] + (half + (uint64_t)sender) * 2 * small->slot_bytes;
}

/* In so many calls of a half as it has rows, each row has its turn. With the largest slots that are
 * 2^27 calls, also twice in a row, as it may be where epochs wrap around: far from the 2^31 in which
 * an epoch comes near that of a line. A thread's line 0 begins with its vector 0, and line l > 0 with
 * some of its vector l - 1: without that the call does not use it. */
static void args_renew(const struct cecl_small *small, struct cecl_small_args *args)
{
    const uint32_t in_slot = (uint32_t)(2 * small->slot_bytes / CECL_SMALL_ROW);
    const uint32_t row = (small->epoch >> 1) % (in_slot * (uint32_t)small->nranks);
    const uint32_t group = row % in_slot / CECL_SMALL_LINES;
    const uint32_t line = row % in_slot % CECL_SMALL_LINES;
    args->renewed = slot_of(small, small->rank, 0) + (uint64_t)row * CECL_SMALL_ROW;
    args->renewed_vector =
        CECL_SMALL_SHARES * (group * CECL_SMALL_VECTORS + (line > 0 ? line - 1 : 0));
}

void cecl_small_args_make(const struct cecl_small *small, struct cecl_small_args *args)
{
    const uint32_t n = (uint32_t)small->nranks;
    *args = (struct cecl_small_args){
        .send = small->send,
        .recv = small->recv,
        .bytes = (uint32_t)small->bytes,
        .send_stride = has_blocks(small) ? (uint32_t)small->bytes : 0,
        .from = slot_of(small, small->rank, 0),
        .slot = 2 * small->slot_bytes,
        .rank = (uint32_t)small->rank,
        .nranks = n,
        .epoch = small->epoch,
        .end = small->end,
        .late = small->late,
        .timeout_ns = small->timeout_ns,
    };
    for (int i = 1; i < small->nranks; i++)
        args->to[i - 1] = slot_of(small, (small->rank + i) % small->nranks, small->rank);
    args_renew(small, args);
    if (small->meeting)
        args->meeting = *small->meeting;
    if (cecl_small_reduces(small))
        args->division = cecl_division_of(small->op, n);
}
