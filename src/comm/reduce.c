/* Reductions, brought to the form of the others. */
#include <inttypes.h>

#include "comm/collective.h"
#include "sm/reduce.h"

/* Blocks of much data begin where wide loads can. */
#define BLOCK_ALIGN 256u

static ceclResult_t check_aligned(const char *name, const void *buffer, size_t size)
{
    if ((uintptr_t)buffer % size != 0)
        return cecl_fail(ceclInvalidArgument, "%s %p: not aligned to its elements of %zu bytes",
                         name, buffer, size);
    return ceclSuccess;
}

/* What can be told of the arguments. `blocks`: of count elements that sendbuff has. */
static ceclResult_t check_arguments(const struct cecl_item *item, size_t count, size_t blocks,
                                    size_t *bytes)
{
    const size_t size = cecl_type_bytes(item->type);
    size_t all;
    CECL_TRY(cecl_reduction_check(item->type, item->red_op));
    if (__builtin_mul_overflow(count, size, bytes) ||
        __builtin_mul_overflow(*bytes, blocks, &all) || all > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "count %zu of %zu bytes, %zu blocks: more bytes than an address space",
                         count, size, blocks);
    if (count > 0 && (!item->send || !item->recv))
        return cecl_fail(ceclInvalidArgument, "%s: NULL", item->send ? "recvbuff" : "sendbuff");
    CECL_TRY(check_aligned("sendbuff", item->send, size));
    return check_aligned("recvbuff", item->recv, size);
}

/* The part of `bytes` that each rank reduces: whole elements. */
static size_t block_of(size_t bytes, size_t nranks, size_t size)
{
    const size_t least = (bytes / size + nranks - 1) / nranks * size;
    return least < BLOCK_ALIGN ? least : (least + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
}

/* An all-reduce or a reduce. */
static ceclResult_t reduce_whole(struct cecl_item item, ceclComm_t comm, ceclStream_t stream)
{
    size_t bytes = 0;
    CECL_TRY(cecl_comm_check(comm));
    ceclResult_t result = check_arguments(&item, item.count, 1, &bytes);
    if (result == ceclSuccess)
        result = cecl_root_check(comm, item.root);
    if (result == ceclSuccess) {
        item.block = block_of(bytes, (size_t)comm->nranks, cecl_type_bytes(item.type));
        item.send_bytes = item.recv_bytes = bytes;
        item.in_place = item.send == item.recv;
    }
    return cecl_collective(&item, comm, stream, result);
}

CECL_API ceclResult_t ceclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                        ceclDataType_t datatype, ceclRedOp_t op, ceclComm_t comm,
                                        ceclStream_t stream)
{
    struct cecl_item item = {.op = ceclOpReduceScatter,
                             .called = CECL_CALLED_REDUCE_SCATTER,
                             .send = sendbuff,
                             .recv = recvbuff,
                             .count = recvcount,
                             .type = datatype,
                             .red_op = op};
    CECL_TRY(cecl_comm_check(comm));
    const size_t nranks = (size_t)comm->nranks;
    const ceclResult_t result = check_arguments(&item, recvcount, nranks, &item.block);
    if (result == ceclSuccess) {
        item.send_bytes = nranks * item.block;
        item.recv_bytes = item.block;
        item.in_place =
            (uintptr_t)recvbuff == (uintptr_t)sendbuff + (size_t)comm->rank * item.block;
        if (item.in_place) { /* RECV stands for both, as a whole */
            item.recv = (void *)(uintptr_t)sendbuff;
            item.recv_bytes = item.send_bytes;
        }
    }
    return cecl_collective(&item, comm, stream, result);
}

CECL_API ceclResult_t ceclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                    ceclDataType_t datatype, ceclRedOp_t op, ceclComm_t comm,
                                    ceclStream_t stream)
{
    return reduce_whole((struct cecl_item){.op = ceclOpAllReduce,
                                           .called = CECL_CALLED_ALL_REDUCE,
                                           .send = sendbuff,
                                           .recv = recvbuff,
                                           .count = count,
                                           .type = datatype,
                                           .red_op = op},
                        comm, stream);
}

CECL_API ceclResult_t ceclReduce(const void *sendbuff, void *recvbuff, size_t count,
                                 ceclDataType_t datatype, ceclRedOp_t op, int root, ceclComm_t comm,
                                 ceclStream_t stream)
{
    return reduce_whole((struct cecl_item){.op = ceclOpReduce,
                                           .called = CECL_CALLED_REDUCE,
                                           .send = sendbuff,
                                           .recv = recvbuff,
                                           .count = count,
                                           .type = datatype,
                                           .red_op = op,
                                           .root = root},
                        comm, stream);
}
