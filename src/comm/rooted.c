/* Gather and scatter: variable all-to-alls whose blocks all have one size, and whose places all ranks
 * know. */
#include <string.h>

#include "comm/variable.h"

/* Whether the root is a rank, and its buffer of all blocks no larger than an address space; *bytes:
 * of a block. */
static ceclResult_t check(ceclComm_t comm, const struct cecl_item *item, size_t *bytes)
{
    const size_t size = cecl_type_bytes(item->type);
    size_t all;
    CECL_TRY(cecl_root_check(comm, item->root));
    if (__builtin_mul_overflow(item->count, size, bytes) ||
        __builtin_mul_overflow(*bytes, (size_t)comm->nranks, &all) || all > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "count %zu of %zu bytes for %d ranks: beyond an address space",
                         item->count, size, comm->nranks);
    return ceclSuccess;
}

static ceclResult_t rooted(struct cecl_item item, ceclComm_t comm, ceclStream_t stream)
{
    CECL_TRY(cecl_comm_check(comm));
    const bool gathers = item.called == CECL_CALLED_GATHER;
    const int n = comm->nranks, me = comm->rank, root = item.root;
    uint64_t *layout = comm->layout;
    size_t bytes = 0;
    ceclResult_t result = check(comm, &item, &bytes);

    memset(layout, 0, cecl_layout_words(item.op, n) * sizeof(*layout));
    for (int r = 0; r < n && result == ceclSuccess; r++) {
        uint64_t *mine = layout + r;
        if (gathers ? r == root : me == root)
            mine[0] = bytes; /* to rank r, whence, and whither there */
        mine[1 * n] = gathers ? 0 : (uint64_t)r * bytes;
        mine[2 * n] = gathers ? (uint64_t)me * bytes : 0;
        if (gathers ? me == root : r == root)
            mine[3 * n] = bytes; /* from rank r, and whither here */
        mine[4 * n] = gathers ? (uint64_t)r * bytes : 0;
    }
    item.layout = layout;
    item.reach = gathers ? (size_t)n * bytes : bytes;
    return cecl_collective(&item, comm, stream, result);
}

CECL_API ceclResult_t ceclGather(const void *sendbuff, void *recvbuff, size_t count,
                                 ceclDataType_t datatype, int root, ceclComm_t comm,
                                 ceclStream_t stream)
{
    return rooted((struct cecl_item){.op = ceclOpAlltoAll,
                                     .called = CECL_CALLED_GATHER,
                                     .root = root,
                                     .send = sendbuff,
                                     .recv = recvbuff,
                                     .count = count,
                                     .type = datatype},
                  comm, stream);
}

CECL_API ceclResult_t ceclScatter(const void *sendbuff, void *recvbuff, size_t count,
                                  ceclDataType_t datatype, int root, ceclComm_t comm,
                                  ceclStream_t stream)
{
    return rooted((struct cecl_item){.op = ceclOpAlltoAll,
                                     .called = CECL_CALLED_SCATTER,
                                     .root = root,
                                     .send = sendbuff,
                                     .recv = recvbuff,
                                     .count = count,
                                     .type = datatype},
                  comm, stream);
}
