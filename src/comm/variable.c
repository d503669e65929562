/* Collectives whose blocks differ, brought to the form of the others: variable all-gather, and
 * broadcast, to which only one rank contributes. */
#include "comm/variable.h"

/* *largest: elements of the largest block. */
static ceclResult_t fill_layout(ceclComm_t comm, const size_t *counts, const size_t *displs,
                                size_t size, uint64_t *layout, size_t *largest)
{
    const struct cecl_given given = {counts, displs, "recvcounts", "displs", false};
    const int n = comm->nranks;
    bool in_order;
    CECL_TRY(cecl_given_bytes(&given, n, size, layout, layout + n, &in_order));
    *largest = 0;
    for (int r = 0; r < n; r++)
        if (counts[r] > *largest)
            *largest = counts[r];
    return in_order ? ceclSuccess : cecl_given_apart(&given, n, layout, layout + n);
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
    ceclResult_t result = cecl_root_check(comm, root);
    size_t bytes = 0;
    if (result == ceclSuccess &&
        (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX))
        result = cecl_fail(ceclInvalidArgument, "count %zu of %zu bytes: beyond an address space",
                           count, size);
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++) {
        comm->layout[r] = r == root ? bytes : 0;
        comm->layout[comm->nranks + r] = 0;
    }
    item.layout = comm->layout;
    return cecl_collective(&item, comm, stream, result);
}
