/* Makes a call by NCCL's own function, if NCCL has one for the collective, otherwise by a message for each block;
 * plan/block.h defines a collective's blocks. A call that only moves data is passed to NCCL as bytes. */
#include "net/net.h"

static ceclResult_t refuse(const char *what, const char *instead)
{
    return cecl_fail(ceclInvalidUsage,
                     "%s: NCCL, which carries calls over several hosts, has no such call; %s", what,
                     instead);
}

ceclResult_t cecl_net_check(const struct cecl_call *call, int version)
{
    const bool is_exchange = call->op->family == CECL_FAMILY_EXCHANGED,
               is_fp8 = call->type == ceclFloat8e4m3 || call->type == ceclFloat8e5m2;
    if (call->op->family == CECL_FAMILY_SPLITS)
        return refuse("splits on the device", "read them on the host, and call ceclAlltoAllv");
    if (call->op->has_tiles)
        return refuse("tiles", "call ceclReduceScatter");
    if (call->op->widens)
        return refuse("fp32 results of a narrower type",
                      "convert sendbuff, and call ceclReduceScatter with ceclFloat32");
    if (call->view.shape.width > 0)
        return refuse("strided blocks", is_exchange ? "call ceclAlltoAll with contiguous blocks"
                                                    : "call ceclAllGather with contiguous blocks");
    if (is_exchange && call->in_place && call->bytes > 0)
        return refuse("an all-to-all in place", "pass another buffer as sendbuff");
    if (call->op->family == CECL_FAMILY_REDUCTION && is_fp8 && version < NCCL_FP8_VERSION)
        return cecl_fail(ceclInvalidUsage,
                         "datatype %d: fp8 is reduced over several hosts by NCCL 2.24 or later; "
                         "this is version %d",
                         call->type, version);
    return ceclSuccess;
}

static char *at(void *base, uint64_t offset)
{
    return (char *)((uintptr_t)base + offset);
}

/* Makes the call by messages: one for each block that this rank sends or receives, except an own block in its place. */
static nccl_result call_messages(const struct cecl_net *net, nccl_comm comm,
                                 const struct cecl_call *call, void *send, void *recv)
{
    nccl_result result = NCCL_SUCCESS;
    for (int r = 0; r < call->nranks && !nccl_failed(result); r++) {
        const struct cecl_block sent = cecl_call_block(call, call->rank, r),
                                received = cecl_call_block(call, r, call->rank);
        char *from = at(send, sent.send_offset), *to = at(recv, received.recv_offset);
        if (r == call->rank && from == to)
            continue;
        if (sent.bytes > 0)
            result = net->nccl->Send(from, sent.bytes, ceclInt8, r, comm, net->work);
        if (received.bytes > 0 && !nccl_failed(result))
            result = net->nccl->Recv(to, received.bytes, ceclInt8, r, comm, net->work);
    }
    return result;
}

static bool has_own_function(const struct cecl_call *call)
{
    const enum cecl_family family = call->op->family;
    return family == CECL_FAMILY_MESSAGE || family == CECL_FAMILY_REDUCTION ||
           (family == CECL_FAMILY_GATHERED && !call->view.layout);
}

/* Makes the call by NCCL's own function. */
static nccl_result call_own(const struct cecl_net *net, nccl_comm comm,
                            const struct cecl_call *call, void *send, void *recv)
{
    const struct nccl *nccl = net->nccl;
    const enum cecl_to to = call->op->to;
    const ceclStream_t on = net->work;
    const size_t bytes = call->bytes, count = call->count;
    const int root = call->root;
    if (bytes == 0)
        return NCCL_SUCCESS;
    if (call->op->family == CECL_FAMILY_MESSAGE)
        return to == CECL_TO_PEER ? nccl->Send(send, bytes, ceclInt8, root, comm, on)
                                  : nccl->Recv(recv, bytes, ceclInt8, root, comm, on);
    const struct cecl_block own = cecl_call_block(call, call->rank, call->rank);
    if (call->op->family == CECL_FAMILY_GATHERED) {
        send = at(send, own.send_offset);
        return call->op->rooted ? nccl->Broadcast(send, recv, bytes, ceclInt8, root, comm, on)
                                : nccl->AllGather(send, recv, bytes, ceclInt8, comm, on);
    }
    recv = at(recv, own.recv_offset);
    if (to == CECL_TO_EACH)
        return nccl->ReduceScatter(send, recv, count, call->type, call->red_op, comm, on);
    return to == CECL_TO_ROOT
               ? nccl->Reduce(send, recv, count, call->type, call->red_op, root, comm, on)
               : nccl->AllReduce(send, recv, count, call->type, call->red_op, comm, on);
}

ceclResult_t cecl_net_add(const struct cecl_net *net, const struct cecl_call *call)
{
    /* a call whose blocks are all in place has only recvbuff */
    void *recv = cecl_buffer_address(call->recv),
         *send = cecl_call_is_one_buffer(call) ? recv : cecl_buffer_address(call->send);
    nccl_comm comm = cecl_net_comm(net);
    nccl_result result;
    if (!comm)
        return cecl_fail(ceclRemoteError, "%s was aborted", net->name);
    if (call->op->family == CECL_FAMILY_BARRIER) /* the all-reduce's result is not used */
        result = net->nccl->AllReduce(net->word, net->word, 1, ceclInt8, ceclSum, comm, net->work);
    else
        result = has_own_function(call) ? call_own(net, comm, call, send, recv)
                                        : call_messages(net, comm, call, send, recv);
    return cecl_net_result(net, call->op->name, result);
}
