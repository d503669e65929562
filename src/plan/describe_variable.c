/* Describes calls whose blocks have different sizes: converts counts and displacements from elements to a
 * layout in bytes, and checks that the blocks do not overlap. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan/describe.h"

/* The caller's blocks, in elements, and the names of the arguments, for messages. */
struct given {
    const size_t *counts, *displs; /* [nranks]; displs NULL: blocks lie one after another */
    const char *counts_name, *displs_name;
    bool empty_anywhere; /* true: the displacement of an empty block is ignored, and becomes 0 */
};

/* Converts to bytes, and refuses a block that ends beyond an address space. Sets *in_order to whether each block begins
 * no earlier than the end of the block before it; then no two overlap. */
static ceclResult_t to_bytes(const struct given *given, const struct cecl_call *call,
                             uint64_t *bytes, uint64_t *offsets, bool *in_order)
{
    const size_t *counts = given->counts, *displs = given->displs, size = call->element;
    uint64_t next = 0, end;
    *in_order = true;
    for (int r = 0; r < call->nranks; r++) {
        const bool placed = displs && !(given->empty_anywhere && counts[r] == 0);
        offsets[r] = displs ? 0 : next;
        if (__builtin_mul_overflow(counts[r], size, &bytes[r]) ||
            (placed && __builtin_mul_overflow(displs[r], size, &offsets[r])) ||
            __builtin_add_overflow(bytes[r], offsets[r], &end) || end > PTRDIFF_MAX)
            return cecl_fail(ceclInvalidArgument,
                             "%s[%d] %zu, %s[%d] %zu, of %zu bytes: beyond an address space",
                             given->counts_name, r, counts[r], given->displs_name, r,
                             displs ? displs[r] : (size_t)(next / size), size);
        *in_order = *in_order && offsets[r] >= next;
        next = end;
    }
    return ceclSuccess;
}

struct block {
    uint64_t offset, bytes;
    int rank;
};

static int by_offset(const void *a, const void *b)
{
    const struct block *one = a, *other = b;
    return (one->offset > other->offset) - (one->offset < other->offset);
}

/* Received blocks must not overlap, because each byte has one writer. */
static ceclResult_t check_apart(const struct given *given, int nranks, const uint64_t *bytes,
                                const uint64_t *offsets)
{
    struct block blocks[CECL_MAX_RANKS];
    int count = 0;
    for (int r = 0; r < nranks; r++)
        if (bytes[r] > 0)
            blocks[count++] = (struct block){offsets[r], bytes[r], r};
    qsort(blocks, (size_t)count, sizeof(*blocks), by_offset);
    for (int i = 1; i < count; i++)
        if (blocks[i - 1].offset + blocks[i - 1].bytes > blocks[i].offset)
            return cecl_fail(ceclInvalidArgument,
                             "%s and %s: the blocks of ranks %d and %d overlap at byte %" PRIu64
                             " of recvbuff",
                             given->counts_name, given->displs_name, blocks[i - 1].rank,
                             blocks[i].rank, blocks[i].offset);
    return ceclSuccess;
}

static void use_layout(const struct cecl_scope *scope, struct cecl_call *call)
{
    call->view.layout = scope->layout;
    call->layout_words = cecl_layout_words(call->op, scope->nranks);
}

static uint64_t *array_of(const struct cecl_scope *scope, int array)
{
    return scope->layout + cecl_layout_at(scope->nranks, array, 0);
}

ceclResult_t cecl_describe_gatherv(const struct cecl_scope *scope, const struct cecl_args *args,
                                   struct cecl_call *call)
{
    const struct given given = {args->recvcounts, args->rdispls, "recvcounts", "displs", false};
    const int n = scope->nranks, me = scope->rank;
    uint64_t *bytes = array_of(scope, CECL_LAYOUT_BYTES), *at = array_of(scope, CECL_LAYOUT_AT);
    bool in_order;
    if (!given.counts)
        return cecl_fail(ceclInvalidArgument, "recvcounts: NULL");
    if (args->count != given.counts[me])
        return cecl_fail(ceclInvalidArgument, "sendcount %zu, but recvcounts[%d] is %zu",
                         args->count, me, given.counts[me]);
    CECL_TRY(to_bytes(&given, call, bytes, at, &in_order));
    if (!in_order)
        CECL_TRY(check_apart(&given, n, bytes, at));
    for (int r = 0; r < n; r++)
        call->bytes = bytes[r] > call->bytes ? bytes[r] : call->bytes;
    call->count = call->bytes / call->element; /* the largest block, which is equal on all ranks */
    use_layout(scope, call);
    return cecl_describe_buffers(scope, args, call);
}

/* Fills in the layout from the arguments, but leaves the offsets in the peers' recvbuffs at 0. */
static ceclResult_t fill(const struct cecl_scope *scope, const struct cecl_args *args,
                         const struct cecl_call *call)
{
    const struct given sends = {args->sendcounts, args->sdispls, "sendcounts", "sdispls", false};
    const struct given receives = {args->recvcounts, args->rdispls, "recvcounts", "rdispls", false};
    uint64_t *bytes = array_of(scope, CECL_LAYOUT_RECEIVED),
             *at = array_of(scope, CECL_LAYOUT_RECEIVED_AT);
    bool any_order, in_order;
    if (!sends.counts || !receives.counts)
        return cecl_fail(ceclInvalidArgument, "%s: NULL",
                         sends.counts ? "recvcounts" : "sendcounts");
    CECL_TRY(to_bytes(&sends, call, array_of(scope, CECL_LAYOUT_SENT),
                      array_of(scope, CECL_LAYOUT_SENT_AT), &any_order));
    CECL_TRY(to_bytes(&receives, call, bytes, at, &in_order));
    return in_order ? ceclSuccess : check_apart(&receives, call->nranks, bytes, at);
}

/* Fills in the offsets in the peers' recvbuffs that the caller gave. */
static ceclResult_t fill_targets(const struct cecl_scope *scope, const struct cecl_args *args,
                                 const struct cecl_call *call)
{
    const struct given given = {args->sendcounts, args->peerdispls, "sendcounts", "peerdispls",
                                true};
    const int me = call->rank;
    uint64_t *bytes = array_of(scope, CECL_LAYOUT_SENT),
             *target = array_of(scope, CECL_LAYOUT_TARGET);
    const uint64_t place = array_of(scope, CECL_LAYOUT_RECEIVED_AT)[me];
    bool any_order;
    CECL_TRY(to_bytes(&given, call, bytes, target, &any_order));
    if (bytes[me] != array_of(scope, CECL_LAYOUT_RECEIVED)[me])
        return cecl_fail(ceclInvalidArgument,
                         "sendcounts[%d] %zu, but recvcounts[%d] %zu, from a rank to itself", me,
                         args->sendcounts[me], me, args->recvcounts[me]);
    if (bytes[me] > 0 && target[me] != place)
        return cecl_fail(ceclInvalidArgument,
                         "peerdispls[%d] %zu, but rdispls[%d] %zu, from a rank to itself", me,
                         args->peerdispls[me], me, (size_t)(place / call->element));
    return ceclSuccess;
}

ceclResult_t cecl_describe_exchangev(const struct cecl_scope *scope, const struct cecl_args *args,
                                     struct cecl_call *call)
{
    memset(scope->layout, 0, cecl_layout_words(call->op, scope->nranks) * sizeof(*scope->layout));
    use_layout(scope, call);
    if (!call->op->asks_places && !args->peerdispls)
        return cecl_fail(ceclInvalidArgument, "peerdispls: NULL");
    CECL_TRY(fill(scope, args, call));
    if (!call->op->asks_places)
        CECL_TRY(fill_targets(scope, args, call));
    return cecl_describe_buffers(scope, args, call);
}
