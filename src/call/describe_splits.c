/* Describing calls whose splits are on the device. */
#include "call/describe.h"
#include "call/splits.h"

/* Refuses more bytes than an address space has. */
static ceclResult_t check_rows(const char *name, size_t rows, uint64_t row_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(rows, (size_t)row_bytes, &bytes) || bytes > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument, "%s %zu: more bytes than an address space", name,
                         rows);
    return ceclSuccess;
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

static ceclResult_t check_sizes(const struct cecl_splits_args *splits,
                                const struct cecl_splits_form *form)
{
    if (form->row_bytes == 0)
        return cecl_fail(ceclInvalidArgument, "rowcount 0: 1 at least");
    if (form->recv_rows == 0)
        return cecl_fail(ceclInvalidArgument, "recvrows 0: 1 at least");
    CECL_TRY(cecl_splits_check(form));
    CECL_TRY(check_rows("sendrows", splits->send_rows, form->row_bytes));
    return check_rows("recvrows", splits->recv_rows, form->row_bytes);
}

/* The kernel of a peer writes to recvbuff, at an offset that this rank's kernel tells it. */
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
        return cecl_fail(ceclInvalidUsage,
                         "recvbuff %p: %s needs memory of ceclMemAlloc, to which peers' kernels "
                         "can write",
                         args->recv, call->op->name);
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
    call->view.layout = words;
    call->layout_words = cecl_layout_words(call->op, scope->nranks);
    const struct cecl_splits_form form = cecl_call_splits(call);
    CECL_TRY(check_sizes(splits, &form));
    call->bytes = form.recv_rows * form.row_bytes;
    CECL_TRY(check_array("sendsplits", splits->splits));
    CECL_TRY(check_array("recvsplits", splits->out));
    return find_buffers(scope, args, call);
}
