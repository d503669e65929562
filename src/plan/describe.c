/* Describes calls: what all calls share, calls with dense blocks, reductions, and messages. */
#include "plan/describe.h"
#include "plan/call.h"

static ceclResult_t check_root(int root, int nranks)
{
    if (root < 0 || root >= nranks)
        return cecl_fail(ceclInvalidArgument, "root %d: 0 to %d expected", root, nranks - 1);
    return ceclSuccess;
}

ceclResult_t cecl_call_describe(const struct cecl_op *op, const struct cecl_scope *scope,
                                const struct cecl_args *args, struct cecl_call *call)
{
    *call = (struct cecl_call){.op = op,
                               .rank = scope->rank,
                               .nranks = scope->nranks,
                               .root = args->root,
                               .count = args->count,
                               .type = (uint8_t)args->type,
                               .red_op = (uint8_t)args->red_op,
                               .options = scope->options,
                               .captured = scope->captured};
    call->element = (uint8_t)cecl_type_bytes(args->type);
    if (call->element == 0)
        return cecl_fail(ceclInvalidArgument, "datatype %d: 0 to %d expected (ceclDataType_t)",
                         (int)args->type, CECL_NUM_TYPES - 1);
    if (op->rooted)
        CECL_TRY(check_root(args->root, scope->nranks));
    return op->describe ? op->describe(scope, args, call) : ceclSuccess;
}

ceclResult_t cecl_describe_bytes(const struct cecl_call *call, size_t count, size_t blocks,
                                 uint64_t *bytes)
{
    size_t one, all;
    if (__builtin_mul_overflow(count, (size_t)call->element, &one) ||
        __builtin_mul_overflow(one, blocks, &all) || all > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "%s %zu: %zu blocks of that many elements of %u bytes do not fit into the "
                         "address space",
                         call->op->count_name ? call->op->count_name : "count", count, blocks,
                         call->element);
    *bytes = one;
    return ceclSuccess;
}

/* Whether this rank's own block already lies where the call puts it. If a call can have all blocks in place, the own
 * block decides for all of them. */
static bool is_in_place(const struct cecl_call *call, struct cecl_buffer send,
                        struct cecl_buffer recv)
{
    const struct cecl_block own = cecl_call_block(call, call->rank, call->rank);
    const struct cecl_shape *shape = &call->view.shape;
    if (call->op->widens)
        return false;
    if (shape->rows > 1 && shape->send_pitch != shape->recv_pitch)
        return false;
    if (shape->width && cecl_call_input_blocks(call) > 1 &&
        shape->send_stride != shape->recv_stride)
        return false;
    return (own.bytes > 0 || !cecl_op_has_both_buffers(call->op)) &&
           cecl_buffer_is(cecl_buffer_at(send, own.send_offset),
                          cecl_buffer_at(recv, own.recv_offset));
}

/* Whether this rank has input. In a reduction every rank has. If each rank has its own layout, a rank with a block for
 * any rank has input; in other calls, a rank with a block for the root (for rank 0 if there is no root). */
static bool has_input(const struct cecl_call *call)
{
    const bool any = call->op->family == CECL_FAMILY_OWN_LAYOUT;
    bool sends = cecl_call_block(call, call->rank, call->root).bytes > 0;
    if (call->op->family == CECL_FAMILY_REDUCTION)
        return !cecl_call_is_empty(call);
    for (int to = 0; to < call->nranks && any && !sends; to++)
        sends = cecl_call_block(call, call->rank, to).bytes > 0;
    return sends;
}

ceclResult_t cecl_describe_buffers(const struct cecl_scope *scope, const struct cecl_args *args,
                                   struct cecl_call *call)
{
    const bool reads = has_input(call);
    if (reads && !args->send)
        return cecl_fail(ceclInvalidArgument, "sendbuff: NULL");
    if (!cecl_call_is_empty(call) && !args->recv)
        return cecl_fail(ceclInvalidArgument, "recvbuff: NULL");

    const struct cecl_buffer send = cecl_window_find(scope->windows, args->send);
    call->recv = cecl_window_find(scope->windows, args->recv);
    call->in_place = is_in_place(call, send, call->recv);
    if (call->in_place && cecl_op_reduces_to(call->op, CECL_TO_EACH))
        call->recv = send; /* sendbuff holds all blocks, and gets the result */
    else if (reads && !cecl_call_is_one_buffer(call))
        call->send = send;
    return ceclSuccess;
}

ceclResult_t cecl_describe_dense(const struct cecl_scope *scope, const struct cecl_args *args,
                                 struct cecl_call *call)
{
    CECL_TRY(cecl_describe_bytes(call, args->count, (size_t)scope->nranks, &call->bytes));
    return cecl_describe_buffers(scope, args, call);
}

ceclResult_t cecl_describe_aligned(const char *name, const void *buffer, size_t size)
{
    if ((uintptr_t)buffer % size != 0)
        return cecl_fail(ceclInvalidArgument, "%s %p: not aligned to its elements of %zu bytes",
                         name, buffer, size);
    return ceclSuccess;
}

static ceclResult_t check_widens(const struct cecl_args *args)
{
    if (args->recv_type != ceclFloat32)
        return cecl_fail(ceclInvalidArgument, "recvtype %d: ceclFloat32 or sendtype (%d) expected",
                         (int)args->recv_type, (int)args->type);
    return cecl_reduction_check_widens(args->type, args->red_op);
}

ceclResult_t cecl_describe_reduction(const struct cecl_scope *scope, const struct cecl_args *args,
                                     struct cecl_call *call)
{
    const size_t blocks = cecl_call_input_blocks(call);
    CECL_TRY(cecl_reduction_check(args->type, args->red_op));
    if (call->op->widens)
        CECL_TRY(check_widens(args));
    CECL_TRY(
        cecl_describe_bytes(call, args->count, cecl_call_result_bytes(call, blocks), &call->bytes));
    CECL_TRY(cecl_describe_buffers(scope, args, call));
    if (cecl_call_is_empty(call))
        return ceclSuccess;
    CECL_TRY(cecl_describe_aligned("sendbuff", args->send, call->element));
    return cecl_describe_aligned("recvbuff", args->recv,
                                 cecl_call_result_bytes(call, call->element));
}

ceclResult_t cecl_describe_pair(const struct cecl_scope *scope, const struct cecl_args *args,
                                struct cecl_call *call)
{
    const bool sends = call->op->to == CECL_TO_PEER;
    const void *buffer = sends ? args->send : args->recv;
    if (args->root < 0 || args->root >= scope->nranks)
        return cecl_fail(ceclInvalidArgument, "peer %d: 0 to %d expected", args->root,
                         scope->nranks - 1);
    CECL_TRY(cecl_describe_bytes(call, args->count, 1, &call->bytes));
    if (call->bytes > 0 && !buffer)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", sends ? "sendbuff" : "recvbuff");
    if (call->bytes > 0)
        *(sends ? &call->send : &call->recv) = cecl_window_find(scope->windows, buffer);
    return ceclSuccess;
}

/* ---- what the policy allows */

/* Refuses reductions if no SM may be used. A reduction needs SMs on some rank, so all ranks refuse it, even ranks that
 * reduce nothing. A call by splits on the device moves rows by kernels, so it needs the policy that lets SMs move
 * data. */
ceclResult_t cecl_calls_check_arithmetic(const struct cecl_call *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (calls[i].options.sm_policy == CECL_SM_NEVER &&
            calls[i].op->family == CECL_FAMILY_REDUCTION &&
            (calls[i].nranks > 1 || !calls[i].in_place))
            return cecl_fail(ceclInvalidUsage,
                             "%s: CECL_SM_NEVER, but its arithmetic needs SMs; set smPolicy or "
                             "CECL_SM_POLICY to CECL_SM_REDUCE_ONLY",
                             calls[i].op->name);
        if (calls[i].op->family == CECL_FAMILY_SPLITS &&
            calls[i].options.sm_policy != CECL_SM_ALLOW)
            return cecl_fail(ceclInvalidUsage,
                             "%s reads its splits on the device, so kernels on SMs move the rows: "
                             "set smPolicy or CECL_SM_POLICY to CECL_SM_ALLOW",
                             calls[i].op->name);
    }
    return ceclSuccess;
}

/* ---- a call as a peer describes it */

void cecl_call_of_peer(const struct cecl_call *call, int rank, bool outside,
                       const uint64_t *send_at, uint64_t *layout, struct cecl_call *peer)
{
    /* {an array of the peer's layout, the array of this rank's layout that says the same} */
    static const int theirs_mine[][2] = {{CECL_LAYOUT_SENT, CECL_LAYOUT_RECEIVED},
                                         {CECL_LAYOUT_TARGET, CECL_LAYOUT_RECEIVED_AT},
                                         {CECL_LAYOUT_RECEIVED, CECL_LAYOUT_SENT},
                                         {CECL_LAYOUT_RECEIVED_AT, CECL_LAYOUT_TARGET}};
    const int n = call->nranks, me = call->rank;
    const uint64_t *mine = call->view.layout;
    *peer = *call;
    peer->rank = rank;
    if (call->op->family == CECL_FAMILY_GATHERED)
        peer->in_place = !outside;
    if (cecl_op_has_both_buffers(call->op))
        /* only the peer knows whether its own block is in place; the other blocks do not depend on that */
        peer->in_place = false;
    if (call->op->family != CECL_FAMILY_OWN_LAYOUT)
        return;
    for (size_t i = 0; i < sizeof(theirs_mine) / sizeof(theirs_mine[0]); i++)
        layout[cecl_layout_at(n, theirs_mine[i][0], me)] =
            mine[cecl_layout_at(n, theirs_mine[i][1], rank)];
    layout[cecl_layout_at(n, CECL_LAYOUT_SENT_AT, me)] = send_at ? send_at[rank] : 0;
    peer->view.layout = layout;
}
