/* Describes calls whose splits are on the device. */
#include "plan/describe.h"
#include "plan/splits.h"

/* `by` and `value`: the name and the value of the argument that says how many bytes or elements a row has. */
static ceclResult_t check_rows(const char *name, size_t rows, uint64_t row_bytes, const char *by,
                               size_t value)
{
    size_t bytes;
    if (__builtin_mul_overflow(rows, (size_t)row_bytes, &bytes) || bytes > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "%s %zu, with %s %zu: the rows do not fit into the address space", by,
                         value, name, rows);
    return ceclSuccess;
}

static ceclResult_t check_both(const struct cecl_splits_args *splits, uint64_t row_bytes,
                               const char *by, size_t value)
{
    CECL_TRY(check_rows("sendrows", splits->send_rows, row_bytes, by, value));
    return check_rows("recvrows", splits->recv_rows, row_bytes, by, value);
}

static ceclResult_t check_array(const char *name, const void *array)
{
    if (!array)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", name);
    if ((uintptr_t)array % sizeof(uint64_t) != 0)
        return cecl_fail(ceclInvalidArgument, "%s %p: not aligned to its elements of 8 bytes", name,
                         array);
    return ceclSuccess;
}

/* sendsplits and recvsplits must not overlap, because some thread blocks read one array while another thread
 * block writes the other. */
static ceclResult_t check_apart(const struct cecl_call *call, const struct cecl_splits_form *form)
{
    const uint64_t bytes = (uint64_t)form->nranks * form->experts * sizeof(uint64_t),
                   in = call->view.layout[CECL_LAYOUT_SPLITS],
                   out = call->view.layout[CECL_LAYOUT_SPLITS_OUT];
    if (in < out + 2 * bytes && out < in + (form->back ? 2 * bytes : bytes))
        return cecl_fail(ceclInvalidArgument,
                         "sendsplits %p and recvsplits %p overlap; they must not",
                         cecl_call_address(call, CECL_LAYOUT_SPLITS),
                         cecl_call_address(call, CECL_LAYOUT_SPLITS_OUT));
    return ceclSuccess;
}

static ceclResult_t check_sizes(const struct cecl_splits_args *splits, size_t rowcount,
                                const struct cecl_splits_form *form)
{
    if (form->row_bytes == 0)
        return cecl_fail(ceclInvalidArgument, "rowcount 0: 1 or more expected");
    if (form->recv_rows == 0)
        return cecl_fail(ceclInvalidArgument, "recvrows 0: 1 or more expected");
    CECL_TRY(cecl_splits_check(form));
    CECL_TRY(check_both(splits, form->row_bytes, "rowcount", rowcount));
    return check_both(splits, form->scale_bytes, "experts->scalebytes", form->scale_bytes);
}

/* Checks that the arrays of scales are given, and that peers can write to recvscales. The description has no buffers
 * for these arrays, because only kernels use them. */
static ceclResult_t check_scales(const struct cecl_scope *scope, const ceclExperts_t *experts,
                                 const struct cecl_call *call)
{
    if (!experts->recvscales || (!experts->sendscales && call->send.window))
        return cecl_fail(ceclInvalidArgument, "experts->%s: NULL, but scalebytes is %zu",
                         experts->recvscales ? "sendscales" : "recvscales", experts->scalebytes);
    if (!cecl_buffer_is_pool(cecl_window_find(scope->windows, experts->recvscales)))
        return cecl_fail(ceclInvalidUsage,
                         "experts->recvscales %p: memory of ceclMemAlloc expected, to which peers' "
                         "kernels can write",
                         experts->recvscales);
    return ceclSuccess;
}

static ceclResult_t use_experts(const struct cecl_call *call, const ceclExperts_t *experts,
                                uint64_t *words)
{
    words[CECL_LAYOUT_EXPERTS] = words[CECL_LAYOUT_ALIGN] = 1;
    words[CECL_LAYOUT_SCALE_BYTES] = 0;
    words[CECL_LAYOUT_SEND_SCALES] = words[CECL_LAYOUT_RECV_SCALES] = 0;
    if (!call->op->has_experts)
        return ceclSuccess;
    if (!experts)
        return cecl_fail(ceclInvalidArgument, "experts: NULL");
    if (experts->experts > CECL_SPLITS_BLOCKS_MAX)
        return cecl_fail(ceclInvalidArgument, "experts->experts %zu: 1 to %d expected",
                         experts->experts, CECL_SPLITS_BLOCKS_MAX);
    if (experts->align > CECL_SPLITS_ROWS_MAX)
        return cecl_fail(ceclInvalidArgument, "experts->align %zu: 1 to %u expected",
                         experts->align, CECL_SPLITS_ROWS_MAX);
    words[CECL_LAYOUT_EXPERTS] = experts->experts;
    if (!call->op->goes_back)
        words[CECL_LAYOUT_ALIGN] = experts->align;
    words[CECL_LAYOUT_SCALE_BYTES] = experts->scalebytes;
    if (experts->scalebytes > 0) {
        words[CECL_LAYOUT_SEND_SCALES] = (uintptr_t)experts->sendscales;
        words[CECL_LAYOUT_RECV_SCALES] = (uintptr_t)experts->recvscales;
    }
    return ceclSuccess;
}

/* recvbuff must lie in the pool: peers' kernels write to it, at the offset that this rank's kernel tells them. */
static ceclResult_t find_buffers(const struct cecl_scope *scope, const struct cecl_args *args,
                                 struct cecl_call *call)
{
    const bool reads = args->splits->send_rows > 0;
    if (!args->recv || (reads && !args->send))
        return cecl_fail(ceclInvalidArgument, "%s: NULL", args->recv ? "sendbuff" : "recvbuff");
    call->recv = cecl_window_find(scope->windows, args->recv);
    if (reads)
        call->send = cecl_window_find(scope->windows, args->send);
    if (!cecl_buffer_is_pool(call->recv))
        return cecl_fail(
            ceclInvalidUsage,
            "recvbuff %p: memory of ceclMemAlloc expected, to which peers' kernels can "
            "write",
            args->recv);
    return ceclSuccess;
}

ceclResult_t cecl_describe_splits(const struct cecl_scope *scope, const struct cecl_args *args,
                                  struct cecl_call *call)
{
    const struct cecl_splits_args *splits = args->splits;
    uint64_t *words = scope->layout;
    CECL_TRY(cecl_describe_bytes(call, args->count, 1, &words[CECL_LAYOUT_ROW_BYTES]));
    words[CECL_LAYOUT_SEND_ROWS] = splits->send_rows;
    words[CECL_LAYOUT_RECV_ROWS] = splits->recv_rows;
    words[CECL_LAYOUT_SPLITS] = (uintptr_t)splits->splits;
    words[CECL_LAYOUT_SPLITS_OUT] = (uintptr_t)splits->out;
    CECL_TRY(use_experts(call, splits->experts, words));
    call->view.layout = words;
    call->layout_words = cecl_layout_words(call->op, scope->nranks);
    const struct cecl_splits_form form = cecl_call_splits(call);
    CECL_TRY(check_sizes(splits, args->count, &form));
    call->bytes = form.recv_rows * form.row_bytes;
    CECL_TRY(check_array("sendsplits", splits->splits));
    CECL_TRY(check_array("recvsplits", splits->out));
    CECL_TRY(check_apart(call, &form));
    CECL_TRY(find_buffers(scope, args, call));
    return form.scale_bytes > 0 ? check_scales(scope, splits->experts, call) : ceclSuccess;
}
