/* Collectives of the stand-in, as transfers between pairs of ranks. Reductions add in rank order, in the elements' type. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

/* wide: the type of the arithmetic. Integers wrap around, as on GPUs. */
#define COMBINE(type, wide) \
    static type combine_##type(type a, type b, ncclRedOp_t redop) \
    { \
        switch (redop) { \
        case ncclProd: return (type)((wide)a * (wide)b); \
        case ncclMax: return a > b ? a : b; \
        case ncclMin: return a < b ? a : b; \
        default: return (type)((wide)a + (wide)b); \
        } \
    } \
    static void reduce_##type(struct op *op) \
    { \
        const type *in = (const void *)op->staging; \
        type *out = (void *)op->out; \
        for (size_t i = 0; i < op->count; i++) { \
            type sum = in[i]; \
            for (size_t rank = 1; rank < (size_t)op->comm->nranks; rank++) \
                sum = combine_##type(sum, in[rank * op->count + i], op->redop); \
            out[i] = (type)(op->redop == ncclAvg ? sum / (type)op->comm->nranks : sum); \
        } \
    }

COMBINE(int8_t, uint64_t)
COMBINE(uint8_t, uint64_t)
COMBINE(int32_t, uint64_t)
COMBINE(uint32_t, uint64_t)
COMBINE(int64_t, uint64_t)
COMBINE(uint64_t, uint64_t)
COMBINE(float, float)
COMBINE(double, double)

static void (*const reductions[])(struct op *) = {
    [ncclInt8] = reduce_int8_t,     [ncclUint8] = reduce_uint8_t,  [ncclInt32] = reduce_int32_t,
    [ncclUint32] = reduce_uint32_t, [ncclInt64] = reduce_int64_t,  [ncclUint64] = reduce_uint64_t,
    [ncclFloat32] = reduce_float,   [ncclFloat64] = reduce_double,
};
#define TYPES ((ncclDataType_t)(sizeof(reductions) / sizeof(reductions[0])))

static bool reduces(ncclDataType_t datatype, ncclRedOp_t redop)
{
    return datatype >= 0 && datatype < TYPES && reductions[datatype] && redop >= ncclSum &&
           redop <= ncclAvg;
}

static void reduce(struct op *op)
{
    reductions[op->datatype](op);
}

static size_t bytes_of(size_t count, ncclDataType_t datatype)
{
    static const unsigned char type_bytes[] = CECL_NCCL_TYPE_BYTES;
    return count * type_bytes[datatype];
}

static const unsigned char *block(const void *buff, int index, size_t bytes)
{
    return (const unsigned char *)buff + (size_t)index * bytes;
}

static struct op *op_of(ncclComm_t comm, void *out, size_t count, ncclDataType_t datatype)
{
    struct op *op = standin_op(comm);
    op->out = out;
    op->count = count;
    op->datatype = datatype;
    op->bytes = bytes_of(count, datatype);
    return op;
}

/* Receives a block from every rank into staging; `finish` reads the blocks there. */
static void receive_staged(struct op *op, void (*finish)(struct op *))
{
    op->staging = calloc((size_t)op->comm->nranks, op->bytes ? op->bytes : 1);
    op->finish = finish;
    for (int peer = 0; peer < op->comm->nranks; peer++)
        standin_receive(op, peer, op->staging + (size_t)peer * op->bytes, op->bytes);
}

static void copy_out(struct op *op)
{
    if (op->bytes > 0)
        memcpy(op->out, op->staging, (size_t)op->comm->nranks * op->bytes);
}

static ncclResult_t enqueue(struct op *op, cudaStream_t stream)
{
    op->stream = stream;
    return standin_enqueue(op);
}

/* Sends every rank the same block, or (is_own) each rank a block of its own. */
static void send_all(struct op *op, const void *sendbuff, bool is_own)
{
    for (int peer = 0; peer < op->comm->nranks; peer++)
        standin_send(op, peer, block(sendbuff, is_own ? peer : 0, op->bytes), op->bytes);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    NOTE(WORD(sendbuff), WORD(recvbuff), sendcount, (uint64_t)datatype, WORD(comm), WORD(stream));
    struct op *op = op_of(comm, recvbuff, sendcount, datatype);
    send_all(op, sendbuff, false);
    receive_staged(op, copy_out);
    return enqueue(op, stream);
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    NOTE(WORD(sendbuff), WORD(recvbuff), count, (uint64_t)datatype, WORD(comm), WORD(stream));
    struct op *op = op_of(comm, recvbuff, count, datatype);
    send_all(op, sendbuff, true);
    receive_staged(op, copy_out);
    return enqueue(op, stream);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    NOTE(WORD(sendbuff), WORD(recvbuff), count, (uint64_t)datatype, (uint64_t)root, WORD(comm),
         WORD(stream));
    struct op *op = op_of(comm, recvbuff, count, datatype);
    if (comm->rank == root)
        send_all(op, sendbuff, false);
    standin_receive(op, root, recvbuff, op->bytes);
    return enqueue(op, stream);
}

/* Like NCCL's function, calls ncclBroadcast by its exported name. */
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    NOTE(WORD(buff), count, (uint64_t)datatype, (uint64_t)root, WORD(comm), WORD(stream));
    return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    NOTE(WORD(sendbuff), WORD(recvbuff), count, (uint64_t)datatype, (uint64_t)root, WORD(comm),
         WORD(stream));
    struct op *op = op_of(comm, recvbuff, count, datatype);
    standin_send(op, root, sendbuff, op->bytes);
    if (comm->rank == root)
        receive_staged(op, copy_out);
    return enqueue(op, stream);
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    NOTE(WORD(sendbuff), WORD(recvbuff), count, (uint64_t)datatype, (uint64_t)root, WORD(comm),
         WORD(stream));
    struct op *op = op_of(comm, recvbuff, count, datatype);
    if (comm->rank == root)
        send_all(op, sendbuff, true);
    standin_receive(op, root, recvbuff, op->bytes);
    return enqueue(op, stream);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    NOTE(WORD(sendbuff), count, (uint64_t)datatype, (uint64_t)peer, WORD(comm), WORD(stream));
    struct op *op = standin_op(comm);
    standin_send(op, peer, sendbuff, bytes_of(count, datatype));
    return enqueue(op, stream);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    NOTE(WORD(recvbuff), count, (uint64_t)datatype, (uint64_t)peer, WORD(comm), WORD(stream));
    struct op *op = standin_op(comm);
    standin_receive(op, peer, recvbuff, bytes_of(count, datatype));
    return enqueue(op, stream);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t redop, int root, ncclComm_t comm, cudaStream_t stream)
{
    NOTE(WORD(sendbuff), WORD(recvbuff), count, (uint64_t)datatype, (uint64_t)redop, (uint64_t)root,
         WORD(comm), WORD(stream));
    if (!reduces(datatype, redop))
        return ceclInvalidArgument;
    struct op *op = op_of(comm, recvbuff, count, datatype);
    op->redop = redop;
    standin_send(op, root, sendbuff, op->bytes);
    if (comm->rank == root)
        receive_staged(op, reduce);
    return enqueue(op, stream);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t redop, ncclComm_t comm,
                           cudaStream_t stream)
{
    NOTE(WORD(sendbuff), WORD(recvbuff), count, (uint64_t)datatype, (uint64_t)redop, WORD(comm),
         WORD(stream));
    if (!reduces(datatype, redop))
        return ceclInvalidArgument;
    struct op *op = op_of(comm, recvbuff, count, datatype);
    op->redop = redop;
    send_all(op, sendbuff, false);
    receive_staged(op, reduce);
    return enqueue(op, stream);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t redop, ncclComm_t comm,
                               cudaStream_t stream)
{
    NOTE(WORD(sendbuff), WORD(recvbuff), recvcount, (uint64_t)datatype, (uint64_t)redop, WORD(comm),
         WORD(stream));
    if (!reduces(datatype, redop))
        return ceclInvalidArgument;
    struct op *op = op_of(comm, recvbuff, recvcount, datatype);
    op->redop = redop;
    send_all(op, sendbuff, true);
    receive_staged(op, reduce);
    return enqueue(op, stream);
}

/* ---- the newest functions; their last argument is ignored */

ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                 const void *config)
{
    return config ? ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream)
                  : (ncclResult_t)ceclInvalidArgument;
}

ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                                 ncclDataType_t datatype, ncclRedOp_t redop, ncclComm_t comm,
                                 cudaStream_t stream, const void *config)
{
    return config ? ncclAllReduce(sendbuff, recvbuff, count, datatype, redop, comm, stream)
                  : (ncclResult_t)ceclInvalidArgument;
}
