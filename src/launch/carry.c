/* Copies between private memory and bounce buffers; see steps.h. */
#include "launch/steps.h"

#define CARRIED_MOST 64u /* a launch has at most this many copies */

/* What is needed to add copies of a call's blocks, from `src` to `dst`, to one of a launch's lists. */
struct copying {
    struct cecl_launch *launch, **list;
    const struct cecl_call *call;
    struct cecl_buffer src, dst;
    uint64_t pitch;
    struct cecl_call *last; /* the copy that was added last */
};

/* Returns the launch to which to add the next copy; NULL without host memory. */
static struct cecl_launch *launch_for_copy(const struct copying *copying)
{
    const struct cecl_launch *launch = copying->launch;
    struct cecl_launch *first = *copying->list;
    if (first && first->ncalls < CARRIED_MOST)
        return first;
    struct cecl_launch *taken = cecl_launch_take(launch->comm, CECL_LAUNCH_CARRIED, launch->stream);
    if (!taken)
        return NULL;
    taken->next = first;
    return *copying->list = taken;
}

/* Adds a copy of a block, or makes the last copy longer if the block follows that copy's bytes in source and
 * destination. Does not join blocks of two calls: their buffers may be two adjacent allocations, and CUDA refuses a
 * copy over both. */
static ceclResult_t add_copy(struct copying *copying, uint64_t offset, uint64_t bytes)
{
    const struct cecl_call *call = copying->call;
    const struct cecl_shape *shape = &call->view.shape;
    const struct cecl_buffer src = cecl_buffer_at(copying->src, offset),
                             dst = cecl_buffer_at(copying->dst, offset);
    struct cecl_call *last = copying->last;
    uint32_t index;
    if (bytes == 0)
        return ceclSuccess;
    if (last && shape->width == 0 && cecl_buffer_is(cecl_buffer_at(last->send, last->bytes), src) &&
        cecl_buffer_is(cecl_buffer_at(last->recv, last->bytes), dst)) {
        last->bytes += bytes;
        last->count += bytes;
        return ceclSuccess;
    }
    struct cecl_call copy = {.op = &cecl_ops[CECL_OP_CARRY],
                             .send = src,
                             .recv = dst,
                             .count = bytes,
                             .bytes = bytes,
                             .rank = call->rank,
                             .nranks = call->nranks,
                             .type = ceclInt8,
                             .element = 1,
                             .captured = call->captured,
                             .options = call->options};
    if (shape->width > 0)
        copy.view.shape = (struct cecl_shape){.width = shape->width,
                                              .rows = shape->rows,
                                              .send_pitch = copying->pitch,
                                              .recv_pitch = copying->pitch};
    struct cecl_launch *carried = launch_for_copy(copying);
    if (!carried)
        return ceclOutOfMemory;
    CECL_TRY(cecl_launch_add(carried, &copy, &index));
    copying->last = &carried->calls[index];
    return ceclSuccess;
}

/* Adds copies of the blocks that this rank sends; source and destination have equal offsets. If all ranks receive the
 * same block, adds one copy. */
static ceclResult_t carry_input(struct copying copying)
{
    const struct cecl_call *call = copying.call;
    for (int to = 0; to < call->nranks; to++) {
        const struct cecl_block block = cecl_call_block(call, call->rank, to);
        if (call->op->to == CECL_TO_EACH || to == call->root)
            CECL_TRY(add_copy(&copying, block.send_offset, block.bytes));
    }
    return ceclSuccess;
}

/* Adds copies of the blocks that this rank receives (of a reduction, the result), except the own block of a call in
 * place. */
static ceclResult_t carry_output(struct copying copying)
{
    const struct cecl_call *call = copying.call;
    for (int from = 0; from < call->nranks; from++) {
        const struct cecl_block block = cecl_call_block(call, from, call->rank);
        const bool own = from == call->rank;
        if (call->op->family == CECL_FAMILY_REDUCTION ? own : !(own && call->in_place))
            CECL_TRY(add_copy(&copying, block.recv_offset, block.bytes));
    }
    return ceclSuccess;
}

/* Whether recvbuff is private and peers may write to it. (cecl_keeps_to_own_buffers is only about lone calls.) */
static bool needs_bounce(ceclComm_t comm, const struct cecl_call *call, bool grouped)
{
    return comm->nranks > 1 && cecl_op_peers_write(call->op) && !cecl_call_is_empty(call) &&
           cecl_buffer_is_private(call->recv) && cecl_call_recv_needed(call) > 0 &&
           (grouped || !cecl_keeps_to_own_buffers(comm, call)) &&
           !cecl_pool_holds(&comm->pool, (const void *)(uintptr_t)call->recv.offset);
}

/* In place, the input lies in recvbuff, and is copied to the bounce buffer before the call. Some calls have a sendbuff
 * even in place, and need no such copy: ceclGather and ceclScatter on the root, and calls whose layout differs between
 * ranks. */
ceclResult_t cecl_carry_replace(struct cecl_launch *launch, uint32_t index)
{
    ceclComm_t comm = launch->comm;
    if (!needs_bounce(comm, &launch->calls[index], launch->is_grouped))
        return ceclSuccess;
    const struct cecl_call asked = launch->calls[index];
    struct cecl_call derived = asked;
    CECL_TRY(cecl_call_check_buffers(&asked, &comm->windows)); /* checks the caller's memory */
    CECL_TRY(cecl_bounce_lease(launch, cecl_call_recv_needed(&asked), &derived.recv));
    const uint64_t pitch = asked.view.shape.recv_pitch;
    if (cecl_call_is_one_buffer(&asked))
        CECL_TRY(carry_input((struct copying){launch, &launch->leases.before, &asked, asked.recv,
                                              derived.recv, pitch, NULL}));
    CECL_TRY(carry_output((struct copying){launch, &launch->leases.after, &asked, derived.recv,
                                           asked.recv, pitch, NULL}));
    cecl_launch_derive(launch, index, &derived);
    launch->origins[index].recv = cecl_buffer_address(asked.recv);
    return ceclSuccess;
}

ceclResult_t cecl_carry_lend(struct cecl_launch *launch, const struct cecl_call *call,
                             struct cecl_buffer *lent)
{
    *lent = call->send;
    return cecl_buffer_is_private(call->send) && call->op->family != CECL_FAMILY_REDUCTION
               ? cecl_bounce_lease(launch, cecl_call_send_needed(call), lent)
               : ceclSuccess;
}

ceclResult_t cecl_carry_sent(struct cecl_launch *launch, const struct cecl_call *call,
                             struct cecl_buffer lent)
{
    return carry_input((struct copying){launch, &launch->leases.before, call, call->send, lent,
                                        call->view.shape.send_pitch, NULL});
}

ceclResult_t cecl_carry_note(struct cecl_launch *launch, struct cecl_launch **list,
                             const struct cecl_call *call, struct cecl_buffer src,
                             struct cecl_buffer dst)
{
    struct copying copying = {launch, list, call, src, dst, 0, NULL};
    return add_copy(&copying, 0, call->bytes);
}
