/* What small calls on GPUs and on the host share: checks, and where a call's lines lie in the
 * slots. */
#include <inttypes.h>

#include "sm/small_args.h"

bool cecl_small_reduces(const struct cecl_small *small)
{
    return small->kind == CECL_SMALL_ALL_REDUCE || small->kind == CECL_SMALL_REDUCE_SCATTER;
}

/* Whether sendbuff has a block for each rank; otherwise its one block goes to all ranks. */
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
    if (small->widens)
        CECL_TRY(cecl_reduction_check_widens(small->type, small->op));
    if (small->counting && !cecl_reduction_counts(small->type, small->op))
        return cecl_fail(ceclInternalError,
                         "small collective: no kernel of this type and operation numbers calls");
    if (small->bytes % cecl_reduction_element_bytes(small->type) != 0)
        return cecl_fail(ceclInvalidArgument,
                         "small collective: %" PRIu64 " bytes are not whole elements",
                         small->bytes);
    return ceclSuccess;
}

/* The slot, at `holder`, for the data of `sender` in this call. */
static unsigned char *slot_of(const struct cecl_small *small, int holder, int sender)
{
    const uint64_t half = (small->epoch & 1) * (uint64_t)small->nranks;
    return small->slots[holder] + (half + (uint64_t)sender) * 2 * small->slot_bytes;
}

/* Chooses the row that this call renews. The calls that use a half renew its rows in turn. With the
 * largest slots all rows are renewed within 2^28 calls, far fewer than the 2^31 calls after which
 * the epoch written into a row is in use again. Line 0 of a thread begins with data of its vector
 * 0, line l > 0 with data of its vector l - 1. A call whose block lacks that vector does not use
 * the line. */
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

uint32_t cecl_small_mark(const struct cecl_small *small)
{
    const uint64_t rows = 2 * small->slot_bytes / CECL_SMALL_ROW * (uint64_t)small->nranks;
    uint32_t bits = 1;
    while ((uint64_t)1 << bits < 2 * rows + 4)
        bits++;
    return (uint32_t)((uint64_t)small->counting->number << bits) & ~CECL_SMALL_FAR;
}

void cecl_small_args_make(const struct cecl_small *asked, struct cecl_small_args *args)
{
    struct cecl_small mine = *asked, *const small = &mine;
    if (small->counting)
        small->epoch = 0; /* the slots of half 0; the kernel finds out which half it uses */
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
        .half = n * 2 * small->slot_bytes,
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
    if (small->counting) {
        args->counting = *small->counting;
        args->mark = cecl_small_mark(small);
    }
    if (cecl_small_reduces(small))
        args->average = cecl_average_of(small->op, n);
}
