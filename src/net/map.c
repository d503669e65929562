/* Which functions of NCCL carry a call: NCCL's own one, if NCCL has it, or else a message for each block, as the
 * collective defines it (plan/block.h). Calls that only move data move bytes. */
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

static char *at(const void *base, uint64_t offset)
{
    return (char *)((uintptr_t)base + offset);
}

static void add(struct cecl_net_call *out, uint32_t *count, enum cecl_net_kind kind, char *block,
                uint64_t bytes, int peer)
{
    if (bytes > 0)
        out[(*count)++] = (struct cecl_net_call){
            .kind = kind, .send = block, .recv = block, .count = bytes, .peer = peer};
}

/* A message for each block that this rank sends, and for each that it receives, unless the block stays where it is. */
static uint32_t map_blocks(const struct cecl_call *call, const void *input, const void *output,
                           struct cecl_net_call *out)
{
    uint32_t count = 0;
    for (int r = 0; r < call->nranks; r++) {
        const struct cecl_block sent = cecl_call_block(call, call->rank, r),
                                received = cecl_call_block(call, r, call->rank);
        char *from = at(input, sent.send_offset), *to = at(output, received.recv_offset);
        if (r == call->rank && from == to)
            continue;
        add(out, &count, CECL_NET_SEND, from, sent.bytes, r);
        add(out, &count, CECL_NET_RECV, to, received.bytes, r);
    }
    return count;
}

/* For calls that NCCL has. */
static enum cecl_net_kind kind_of(const struct cecl_op *op)
{
    if (op->family == CECL_FAMILY_MESSAGE)
        return op->to == CECL_TO_PEER ? CECL_NET_SEND : CECL_NET_RECV;
    if (op->family == CECL_FAMILY_GATHERED)
        return op->rooted ? CECL_NET_BROADCAST : CECL_NET_ALL_GATHER;
    return op->to == CECL_TO_EACH   ? CECL_NET_REDUCE_SCATTER
           : op->to == CECL_TO_ROOT ? CECL_NET_REDUCE
                                    : CECL_NET_ALL_REDUCE;
}

uint32_t cecl_net_map(const struct cecl_call *call, void *word, struct cecl_net_call *out)
{
    const enum cecl_family family = call->op->family;
    const bool is_gathered = family == CECL_FAMILY_GATHERED && !call->view.layout,
               is_reduced = family == CECL_FAMILY_REDUCTION,
               has_blocks = family != CECL_FAMILY_MESSAGE && family != CECL_FAMILY_BARRIER;
    /* in place recvbuff is the input, too */
    const void *output = cecl_buffer_address(call->recv),
               *input = cecl_call_is_one_buffer(call) ? output : cecl_buffer_address(call->send);
    const struct cecl_block own =
        has_blocks ? cecl_call_block(call, call->rank, call->rank) : (struct cecl_block){0};
    if (has_blocks && !is_gathered && !is_reduced)
        return map_blocks(call, input, output, out);
    out[0] = (struct cecl_net_call){.kind = kind_of(call->op),
                                    .send = at(input, is_gathered ? own.send_offset : 0),
                                    .recv = at(output, is_reduced ? own.recv_offset : 0),
                                    .count = is_reduced ? call->count : call->bytes,
                                    .type = is_reduced ? call->type : ceclInt8,
                                    .red_op = call->red_op,
                                    .peer = call->root};
    if (family == CECL_FAMILY_BARRIER) /* its result means nothing */
        out[0] = (struct cecl_net_call){
            .kind = CECL_NET_ALL_REDUCE, .send = word, .recv = word, .count = 1};
    return out[0].count > 0;
}
