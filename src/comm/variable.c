/* Collectives whose blocks differ, brought to the form of the others: variable all-gather, and
 * broadcast, to which only one rank contributes. */
#include <inttypes.h>
#include <stdlib.h>

#include "comm/collective.h"

struct block {
    uint64_t offset, bytes;
    int rank;
};

static int by_offset(const void *a, const void *b)
{
    const struct block *one = a, *other = b;
    return (one->offset > other->offset) - (one->offset < other->offset);
}

/* Blocks must not overlap: each byte has one writer. */
static ceclResult_t check_apart(const uint64_t *layout, int nranks)
{
    struct block blocks[CECL_MAX_RANKS];
    int count = 0;
    for (int r = 0; r < nranks; r++)
        if (layout[r] > 0)
            blocks[count++] = (struct block){layout[nranks + r], layout[r], r};
    qsort(blocks, (size_t)count, sizeof(*blocks), by_offset);
    for (int i = 1; i < count; i++)
        if (blocks[i - 1].offset + blocks[i - 1].bytes > blocks[i].offset)
            return cecl_fail(ceclInvalidArgument,
                             "recvcounts and displs: the blocks of ranks %d and %d overlap at byte "
                             "%" PRIu64 " of recvbuff",
                             blocks[i - 1].rank, blocks[i].rank, blocks[i].offset);
    return ceclSuccess;
}

/* In bytes, from counts and displacements in elements. */
static ceclResult_t fill_layout(ceclComm_t comm, const size_t *counts, const size_t *displs,
                                size_t size, uint64_t *layout, size_t *largest)
{
    const int n = comm->nranks;
    uint64_t next = 0, end;
    bool in_order = true; /* each block behind those before it: nothing to sort */
    *largest = 0;
    for (int r = 0; r < n; r++) {
        layout[n + r] = next;
        if (__builtin_mul_overflow(counts[r], size, &layout[r]) ||
            (displs && __builtin_mul_overflow(displs[r], size, &layout[n + r])) ||
            __builtin_add_overflow(layout[r], layout[n + r], &end) || end > PTRDIFF_MAX)
            return cecl_fail(ceclInvalidArgument,
                             "recvcounts[%d] %zu, displs[%d] %zu, of %zu bytes: beyond an address "
                             "space",
                             r, counts[r], r, displs ? displs[r] : (size_t)(next / size), size);
        in_order = in_order && layout[n + r] >= next;
        next = end;
        if (counts[r] > *largest)
            *largest = counts[r];
    }
    return in_order ? ceclSuccess : check_apart(layout, n);
}

CECL_API ceclResult_t ceclAllGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
                                     const size_t recvcounts[], const size_t displs[],
                                     ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    const size_t size = cecl_type_bytes(datatype);
    struct cecl_item item = {.op = ceclOpAllGather,
                             .called = CECL_CALLED_ALL_GATHERV,
                             .send = sendbuff,
                             .recv = recvbuff,
                             .type = datatype};
    CECL_TRY(cecl_comm_check(comm));
    ceclResult_t result = ceclSuccess;
    if (!recvcounts) {
        result = cecl_fail(ceclInvalidArgument, "recvcounts: NULL");
    } else if (sendcount != recvcounts[comm->rank]) {
        result = cecl_fail(ceclInvalidArgument, "sendcount %zu: recvcounts[%d] is %zu", sendcount,
                           comm->rank, recvcounts[comm->rank]);
    } else if (size > 0) { /* an unknown type is refused with all others */
        result = fill_layout(comm, recvcounts, displs, size, comm->layout, &item.count);
        item.layout = comm->layout;
    }
    return cecl_collective(&item, comm, stream, result);
}

CECL_API ceclResult_t ceclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                    ceclDataType_t datatype, int root, ceclComm_t comm,
                                    ceclStream_t stream)
{
    const size_t size = cecl_type_bytes(datatype);
    struct cecl_item item = {.op = ceclOpAllGather,
                             .called = CECL_CALLED_BROADCAST,
                             .root = root,
                             .send = sendbuff,
                             .recv = recvbuff,
                             .count = count,
                             .type = datatype};
    CECL_TRY(cecl_comm_check(comm));
    ceclResult_t result = ceclSuccess;
    size_t bytes = 0;
    if (root < 0 || root >= comm->nranks)
        result =
            cecl_fail(ceclInvalidArgument, "root %d: 0 to %d expected", root, comm->nranks - 1);
    else if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX)
        result = cecl_fail(ceclInvalidArgument, "count %zu of %zu bytes: beyond an address space",
                           count, size);
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++) {
        comm->layout[r] = r == root ? bytes : 0;
        comm->layout[comm->nranks + r] = 0;
    }
    item.layout = comm->layout;
    return cecl_collective(&item, comm, stream, result);
}
