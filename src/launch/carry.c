/* Copies between private memory and bounce buffers; see steps.h. */
#include "launch/steps.h"

#include <stdlib.h>
#include <string.h>

#include "util/grow.h"

/* Adds a copy of a block, or makes the last copy longer if the block follows it in source and destination. Blocks of
 * two calls stay two copies: their buffers may be two allocations side by side, and CUDA refuses a copy over both. */
static ceclResult_t add_copy(struct cecl_carried *carried, const struct cecl_call *call,
                             struct cecl_buffer src, struct cecl_buffer dst, uint64_t offset,
                             uint64_t bytes, uint64_t pitch)
{
    const struct cecl_shape *shape = &call->view.shape;
    struct cecl_call *last =
        carried->count > carried->first ? &carried->calls[carried->count - 1] : NULL;
    src = cecl_buffer_at(src, offset);
    dst = cecl_buffer_at(dst, offset);
    if (bytes == 0)
        return ceclSuccess;
    if (last && shape->width == 0 && last->view.shape.width == 0 &&
        memcmp(&last->options, &call->options, sizeof(call->options)) == 0 &&
        cecl_buffer_is(cecl_buffer_at(last->send, last->bytes), src) &&
        cecl_buffer_is(cecl_buffer_at(last->recv, last->bytes), dst)) {
        last->bytes += bytes;
        last->count += bytes;
        return ceclSuccess;
    }
    if (!CECL_HAS_ROOM(carried->calls, carried->count, carried->room))
        return cecl_fail(ceclOutOfMemory, "no host memory for %u blocks", carried->count + 1);
    carried->calls[carried->count] = (struct cecl_call){.op = &cecl_ops[CECL_OP_CARRY],
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
        carried->calls[carried->count].view.shape = (struct cecl_shape){
            .width = shape->width, .rows = shape->rows, .send_pitch = pitch, .recv_pitch = pitch};
    carried->count++;
    return ceclSuccess;
}

/* Adds copies of the blocks that this rank sends, from `src` to `dst` at equal offsets. If all ranks
 * receive the same block, it is copied once. */
static ceclResult_t carry_input(struct cecl_carried *carried, const struct cecl_call *call,
                                struct cecl_buffer src, struct cecl_buffer dst, uint64_t pitch)
{
    carried->first = carried->count;
    for (int to = 0; to < call->nranks; to++) {
        const struct cecl_block block = cecl_call_block(call, call->rank, to);
        if (call->op->to == CECL_TO_EACH || to == call->root)
            CECL_TRY(add_copy(carried, call, src, dst, block.send_offset, block.bytes, pitch));
    }
    return ceclSuccess;
}

/* Adds the blocks that this rank receives. In place this rank's own block needs no copy. */
static ceclResult_t carry_output(struct cecl_carried *carried, const struct cecl_call *call,
                                 struct cecl_buffer src, struct cecl_buffer dst)
{
    carried->first = carried->count;
    for (int from = 0; from < call->nranks; from++) {
        const struct cecl_block block = cecl_call_block(call, from, call->rank);
        const bool own = from == call->rank;
        if (call->op->family == CECL_FAMILY_REDUCTION ? own : !(own && call->in_place))
            CECL_TRY(add_copy(carried, call, src, dst, block.recv_offset, block.bytes,
                              call->view.shape.recv_pitch));
    }
    return ceclSuccess;
}

/* Whether recvbuff is private and peers must write to it. Peers may write to recvbuff in a group even if
 * they would not when the same call is made alone. */
static bool needs_bounce(ceclComm_t comm, const struct cecl_call *call, bool grouped)
{
    return comm->nranks > 1 && cecl_op_peers_write(call->op) && !cecl_call_is_empty(call) &&
           cecl_buffer_is_private(call->recv) && cecl_call_recv_needed(call) > 0 &&
           (grouped || !cecl_keeps_to_own_buffers(comm, call)) &&
           !cecl_pool_holds(&comm->pool, (const void *)(uintptr_t)call->recv.offset);
}

/* Two kinds of ranks send out of the caller's memory even in place: the root of a rooted call, and every
 * rank of a call whose layout differs between ranks. */
ceclResult_t cecl_carry_replace(struct cecl_launch *launch, uint32_t index)
{
    ceclComm_t comm = launch->comm;
    if (!needs_bounce(comm, &launch->calls[index], launch->is_grouped))
        return ceclSuccess;
    const struct cecl_call asked = launch->calls[index];
    struct cecl_call derived = asked;
    CECL_TRY(cecl_call_check_buffers(&asked, &comm->windows)); /* checks the caller's memory */
    CECL_TRY(cecl_bounce_lease(launch, cecl_call_recv_needed(&asked), &derived.recv));
    if (cecl_call_is_one_buffer(&asked))
        CECL_TRY(carry_input(&launch->leases.before, &asked, asked.recv, derived.recv,
                             asked.view.shape.recv_pitch));
    CECL_TRY(carry_output(&launch->leases.after, &asked, derived.recv, asked.recv));
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
    return carry_input(&launch->leases.before, call, call->send, lent, call->view.shape.send_pitch);
}

ceclResult_t cecl_carry_note(struct cecl_carried *carried, const struct cecl_call *call,
                             struct cecl_buffer src, struct cecl_buffer dst)
{
    carried->first = carried->count;
    return add_copy(carried, call, src, dst, 0, call->bytes, 0);
}
