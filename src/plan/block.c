/* What each collective means, block by block. */
#include "plan/block.h"

/* A block. In place, its offset in the input is the one in recvbuff. */
static struct cecl_block placed(const struct cecl_call *call, uint64_t bytes, uint64_t send_offset,
                                uint64_t recv_offset)
{
    return (struct cecl_block){bytes, call->in_place ? recv_offset : send_offset, recv_offset};
}

struct cecl_block cecl_block_nothing(const struct cecl_call *call, int from, int to)
{
    (void)call;
    (void)from;
    (void)to;
    return (struct cecl_block){0};
}

struct cecl_block cecl_block_gathered(const struct cecl_call *call, int from, int to)
{
    const uint64_t *layout = call->view.layout;
    const struct cecl_shape *shape = &call->view.shape;
    const uint64_t stride = shape->width ? shape->recv_stride : call->bytes;
    (void)to; /* all ranks receive the same block */
    if (layout)
        return placed(call, layout[cecl_layout_at(call->nranks, CECL_LAYOUT_BYTES, from)], 0,
                      layout[cecl_layout_at(call->nranks, CECL_LAYOUT_AT, from)]);
    return placed(call, call->bytes, 0, (uint64_t)from * stride);
}

struct cecl_block cecl_block_exchanged(const struct cecl_call *call, int from, int to)
{
    const struct cecl_shape *shape = &call->view.shape;
    const uint64_t sent = shape->width ? shape->send_stride : call->bytes,
                   received = shape->width ? shape->recv_stride : call->bytes;
    /* in place: where the block lies before the call */
    const uint64_t home = (uint64_t)to * received;
    return (struct cecl_block){.bytes = call->bytes,
                               .send_offset = call->in_place ? home : (uint64_t)to * sent,
                               .recv_offset = (uint64_t)from * received};
}

struct cecl_block cecl_block_per_rank(const struct cecl_call *call, int from, int to)
{
    const uint64_t *layout = call->view.layout;
    const int n = call->nranks, target = to == from ? CECL_LAYOUT_RECEIVED_AT : CECL_LAYOUT_TARGET;
    if (from == call->rank)
        return (struct cecl_block){layout[cecl_layout_at(n, CECL_LAYOUT_SENT, to)],
                                   layout[cecl_layout_at(n, CECL_LAYOUT_SENT_AT, to)],
                                   layout[cecl_layout_at(n, target, to)]};
    if (to == call->rank)
        return (struct cecl_block){layout[cecl_layout_at(n, CECL_LAYOUT_RECEIVED, from)], 0,
                                   layout[cecl_layout_at(n, CECL_LAYOUT_RECEIVED_AT, from)]};
    return (struct cecl_block){0};
}

struct cecl_block cecl_block_broadcast(const struct cecl_call *call, int from, int to)
{
    (void)to;
    return (struct cecl_block){.bytes = from == call->root ? call->bytes : 0};
}

struct cecl_block cecl_block_own(const struct cecl_call *call, int from, int to)
{
    return (struct cecl_block){.bytes = from == to ? call->bytes : 0};
}

struct cecl_block cecl_block_to_root(const struct cecl_call *call, int from, int to)
{
    return (struct cecl_block){.bytes = to == call->root ? call->bytes : 0,
                               .recv_offset = (uint64_t)from * call->bytes};
}

struct cecl_block cecl_block_from_root(const struct cecl_call *call, int from, int to)
{
    return (struct cecl_block){.bytes = from == call->root ? call->bytes : 0,
                               .send_offset = (uint64_t)to * call->bytes};
}

struct cecl_block cecl_block_reduced_to_each(const struct cecl_call *call, int from, int to)
{
    const uint64_t at = (uint64_t)to * call->bytes;
    (void)from;
    return (struct cecl_block){call->bytes, at, call->in_place ? at : 0};
}

/* The tiles for a rank lie at several places in sendbuff, so no send_offset describes them: see
 * plan/block.h. */
struct cecl_block cecl_block_tiles(const struct cecl_call *call, int from, int to)
{
    (void)from;
    (void)to;
    return (struct cecl_block){.bytes = call->bytes};
}

struct cecl_block cecl_block_reduced_to_all(const struct cecl_call *call, int from, int to)
{
    (void)from;
    (void)to;
    return (struct cecl_block){.bytes = call->bytes};
}

struct cecl_block cecl_block_reduced_to_root(const struct cecl_call *call, int from, int to)
{
    (void)from;
    return (struct cecl_block){.bytes = to == call->root ? call->bytes : 0};
}

uint64_t cecl_call_half_exchanged(const struct cecl_call *call)
{
    uint64_t bytes = 0;
    for (int r = 0; r < call->nranks; r++)
        if (r != call->rank)
            bytes += cecl_call_block(call, call->rank, r).bytes +
                     cecl_call_block(call, r, call->rank).bytes;
    return bytes / 2;
}

int cecl_only_contributor(const struct cecl_call *call)
{
    int only = -1;
    if (call->op->family != CECL_FAMILY_GATHERED)
        return -1;
    for (int r = 0; r < call->nranks; r++)
        if (cecl_call_block(call, r, call->root).bytes > 0) {
            if (only >= 0)
                return -1;
            only = r;
        }
    return only;
}
