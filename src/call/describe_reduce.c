/* Describes reductions. */
#include "call/describe.h"

ceclResult_t cecl_describe_aligned(const char *name, const void *buffer, size_t size)
{
    if ((uintptr_t)buffer % size != 0)
        return cecl_fail(ceclInvalidArgument, "%s %p: not aligned to its elements of %zu bytes",
                         name, buffer, size);
    return ceclSuccess;
}

ceclResult_t cecl_describe_reduction(const struct cecl_scope *scope, const struct cecl_args *args,
                                     struct cecl_call *call)
{
    CECL_TRY(cecl_reduction_check(args->type, args->red_op));
    CECL_TRY(cecl_describe_bytes(call, args->count, cecl_call_input_blocks(call), &call->bytes));
    CECL_TRY(cecl_describe_buffers(scope, args, call));
    if (cecl_call_is_empty(call))
        return ceclSuccess;
    CECL_TRY(cecl_describe_aligned("sendbuff", args->send, call->element));
    return cecl_describe_aligned("recvbuff", args->recv, call->element);
}
