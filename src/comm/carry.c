/* Bounce buffers for private memory, and what is carried between the two. */
#include "comm/carry.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective.h"
#include "util/round.h"

#define ALIGN 512u

/* A bounce buffer. */
struct cecl_bounce {
    char *base;
    size_t bytes;
    struct cecl_mem mem;
    bool replaced;     /* calls that are not enqueued yet may still use it */
    uint32_t last_use; /* the flags' `done` after the last call that used it */
    struct cecl_bounce *next;
};

/* ---- memory */

static void free_bounce(ceclComm_t comm, struct cecl_bounce *bounce)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    ops->mem_unmap(comm->dev, bounce->base, bounce->bytes);
    ops->mem_release(comm->dev, &bounce->mem);
    ops->unreserve(comm->dev, bounce->base, bounce->bytes);
    free(bounce);
}

void cecl_carrier_close(ceclComm_t comm)
{
    struct cecl_carrier *carrier = &comm->carrier;
    while (carrier->memory) {
        struct cecl_bounce *first = carrier->memory;
        carrier->memory = first->next;
        free_bounce(comm, first);
    }
    free(carrier->before.calls);
    free(carrier->after.calls);
    *carrier = (struct cecl_carrier){0};
}

static ceclResult_t create(ceclComm_t comm, struct cecl_bounce *bounce)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    void *base = NULL;
    CECL_TRY(ops->reserve(comm->dev, bounce->bytes, &base));
    bounce->base = base;
    ceclResult_t result = ops->mem_create(comm->dev, bounce->bytes, &bounce->mem);
    if (result == ceclSuccess) {
        result = ops->mem_map(comm->dev, base, &bounce->mem);
        if (result != ceclSuccess)
            ops->mem_release(comm->dev, &bounce->mem);
    }
    if (result != ceclSuccess)
        ops->unreserve(comm->dev, base, bounce->bytes);
    return result;
}

/* Frees bounce buffers that were replaced, once no call uses them any more. */
static ceclResult_t free_replaced(ceclComm_t comm)
{
    struct cecl_bounce **at = &comm->carrier.memory;
    while (*at && (*at)->next) {
        struct cecl_bounce *old = (*at)->next;
        if (old->replaced || !cecl_flags_reached(&comm->engine.flags, old->last_use)) {
            at = &old->next;
            continue;
        }
        CECL_TRY(cecl_registry_forget(&comm->registry, old->base));
        (*at)->next = old->next;
        free_bounce(comm, old);
    }
    return ceclSuccess;
}

/* Makes a bounce buffer the first one, of at least so many bytes. */
static ceclResult_t grow(ceclComm_t comm, uint64_t bytes)
{
    struct cecl_carrier *carrier = &comm->carrier;
    const uint64_t unit = comm->dev->granularity,
                   before = carrier->memory ? carrier->memory->bytes : 0;
    const uint64_t wanted = bytes > 2 * before ? bytes : 2 * before;
    struct cecl_bounce *bounce = calloc(1, sizeof(*bounce));
    if (!bounce)
        return cecl_fail(ceclOutOfMemory, "no host memory for a bounce buffer");
    bounce->bytes = (size_t)cecl_round_up(wanted, unit);
    ceclResult_t result = create(comm, bounce);
    if (result != ceclSuccess && wanted > bytes) { /* then no more than is needed */
        bounce->bytes = (size_t)cecl_round_up(bytes, unit);
        result = create(comm, bounce);
    }
    if (result != ceclSuccess) {
        char words[CECL_MESSAGE_BYTES];
        cecl_keep_message(words);
        free(bounce);
        return cecl_fail(result,
                         "%.300s; a buffer in memory that peers cannot reach needs as much memory "
                         "again: register it, or take it from ceclMemAlloc",
                         words);
    }
    result = cecl_registry_forget(&comm->registry, bounce->base);
    if (result == ceclSuccess) {
        const struct cecl_use all = cecl_use_all(bounce->base, bounce->bytes, "bounce");
        result = cecl_registry_settle(&comm->registry, &all, true);
    }
    if (result != ceclSuccess) {
        char words[CECL_MESSAGE_BYTES];
        result = cecl_comm_cause(comm, result);
        cecl_keep_message(words);
        free_bounce(comm, bounce);
        return cecl_fail_with(result, words);
    }
    if (carrier->memory)
        carrier->memory->replaced = true;
    bounce->next = carrier->memory;
    carrier->memory = bounce;
    carrier->used = 0;
    return ceclSuccess;
}

static ceclResult_t take(ceclComm_t comm, uint64_t bytes, char **ptr)
{
    struct cecl_carrier *carrier = &comm->carrier;
    const uint64_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!carrier->memory || rounded > carrier->memory->bytes - carrier->used)
        CECL_TRY(grow(comm, rounded));
    *ptr = carrier->memory->base + carrier->used;
    carrier->used += rounded;
    return ceclSuccess;
}

/* ---- what is carried */

/* Adds a copy of a block, or makes the last one longer where the two follow each other. */
static ceclResult_t add(struct cecl_carried *carried, const struct cecl_call *call,
                        struct cecl_buffer src, struct cecl_buffer dst, uint64_t offset,
                        uint64_t bytes, uint64_t pitch)
{
    const struct cecl_shape *shape = &call->view.shape;
    struct cecl_call *last = carried->count > 0 ? &carried->calls[carried->count - 1] : NULL;
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
    if (carried->count == carried->room) {
        const uint32_t room = carried->room ? 2 * carried->room : 8;
        struct cecl_call *calls = realloc(carried->calls, room * sizeof(*calls));
        if (!calls)
            return cecl_fail(ceclOutOfMemory, "no host memory for %u blocks", room);
        carried->calls = calls;
        carried->room = room;
    }
    carried->calls[carried->count] = (struct cecl_call){.op = &cecl_ops[CECL_OP_CARRY],
                                                        .send = src,
                                                        .recv = dst,
                                                        .count = bytes,
                                                        .bytes = bytes,
                                                        .rank = call->rank,
                                                        .nranks = call->nranks,
                                                        .type = ceclInt8,
                                                        .element = 1,
                                                        .options = call->options};
    if (shape->width > 0)
        carried->calls[carried->count].view.shape = (struct cecl_shape){
            .width = shape->width, .rows = shape->rows, .send_pitch = pitch, .recv_pitch = pitch};
    carried->count++;
    return ceclSuccess;
}

/* Whether this rank sends each rank a block of its own. */
static bool sends_each(const struct cecl_call *call)
{
    return call->op->each || call->op->per_rank;
}

/* Adds the blocks that this rank sends, from `src` to the same offsets of `dst`. A block that is the
 * same for all ranks is carried once. */
static ceclResult_t carry_input(struct cecl_carried *carried, const struct cecl_call *call,
                                struct cecl_buffer src, struct cecl_buffer dst, uint64_t pitch)
{
    for (int to = 0; to < call->nranks; to++) {
        const struct cecl_block block = cecl_call_block(call, call->rank, to);
        if (sends_each(call) || to == call->root)
            CECL_TRY(add(carried, call, src, dst, block.send_offset, block.bytes, pitch));
    }
    return ceclSuccess;
}

/* Adds the blocks that this rank receives. In place, its own block is at home already. */
static ceclResult_t carry_output(struct cecl_carried *carried, const struct cecl_call *call,
                                 struct cecl_buffer src, struct cecl_buffer dst)
{
    for (int from = 0; from < call->nranks; from++) {
        const struct cecl_block block = cecl_call_block(call, from, call->rank);
        const bool own = from == call->rank;
        if (call->op->reduces ? own : !(own && call->in_place))
            CECL_TRY(add(carried, call, src, dst, block.recv_offset, block.bytes,
                         call->view.shape.recv_pitch));
    }
    return ceclSuccess;
}

/* In a group, calls go other ways. */
static bool reaches_recvbuff(ceclComm_t comm, const struct cecl_call *call)
{
    return cecl_group_is_open() || !cecl_keeps_to_own_buffers(comm, call);
}

/* Whether peers write to a recvbuff that they cannot reach. */
static bool needs_bounce(ceclComm_t comm, const struct cecl_call *call)
{
    return comm->nranks > 1 && !call->op->moves_nothing && !cecl_call_is_empty(call) &&
           !call->op->recv_anywhere && cecl_buffer_is_private(call->recv) &&
           cecl_call_recv_needed(call) > 0 && reaches_recvbuff(comm, call) &&
           !cecl_pool_holds(&comm->pool, (const void *)(uintptr_t)call->recv.offset);
}

ceclResult_t cecl_carry_replace(ceclComm_t comm, const struct cecl_call *call,
                                struct cecl_args *args, bool *replaced)
{
    struct cecl_carrier *carrier = &comm->carrier;
    char *bounce;
    *replaced = false;
    if (!needs_bounce(comm, call))
        return ceclSuccess;
    CECL_TRY(cecl_call_check_buffers(call, &comm->windows)); /* of the caller's memory */
    CECL_TRY(take(comm, cecl_call_recv_needed(call), &bounce));
    const struct cecl_buffer there = cecl_window_find(&comm->windows, bounce);
    if (cecl_call_is_one_buffer(call))
        CECL_TRY(
            carry_input(&carrier->before, call, call->recv, there, call->view.shape.recv_pitch));
    CECL_TRY(carry_output(&carrier->after, call, there, call->recv));
    if (cecl_call_is_one_buffer(call)) /* else the root sends out of the caller's memory */
        args->send = bounce + ((const char *)args->send - (const char *)args->recv);
    args->recv = bounce;
    *replaced = true;
    return ceclSuccess;
}

ceclResult_t cecl_carry_lend(ceclComm_t comm, const struct cecl_call *call,
                             struct cecl_buffer *lent)
{
    char *bounce;
    *lent = call->send;
    if (!cecl_buffer_is_private(call->send) || call->op->reduces)
        return ceclSuccess;
    CECL_TRY(take(comm, cecl_call_send_needed(call), &bounce));
    *lent = cecl_window_find(&comm->windows, bounce);
    return ceclSuccess;
}

ceclResult_t cecl_carry_sent(ceclComm_t comm, const struct cecl_call *call, struct cecl_buffer lent)
{
    return cecl_buffer_is(lent, call->send) ? ceclSuccess
                                            : carry_input(&comm->carrier.before, call, call->send,
                                                          lent, call->view.shape.send_pitch);
}

ceclResult_t cecl_carry_take(ceclComm_t comm, uint64_t bytes, struct cecl_buffer *bounce)
{
    char *ptr;
    CECL_TRY(take(comm, bytes, &ptr));
    *bounce = cecl_window_find(&comm->windows, ptr);
    return ceclSuccess;
}

ceclResult_t cecl_carry_note(struct cecl_carried *carried, const struct cecl_call *call,
                             struct cecl_buffer src, struct cecl_buffer dst)
{
    return add(carried, call, src, dst, 0, call->bytes, 0);
}

void cecl_carry_reset(ceclComm_t comm)
{
    for (struct cecl_bounce *bounce = comm->carrier.memory; bounce; bounce = bounce->next)
        if (bounce->replaced) {
            bounce->replaced = false;
            bounce->last_use = cecl_flags_done_target(&comm->engine.flags);
        }
    /* Where the communicator has failed, peers may have been told of a bounce buffer that this rank never
     * used. What cannot be freed now is tried again. */
    if (comm->carrier.memory && comm->carrier.memory->next &&
        atomic_load(&comm->async_result) == ceclSuccess)
        (void)!free_replaced(comm);
    comm->carrier.used = 0;
    comm->carrier.before.count = comm->carrier.after.count = 0;
}
