/* Describes calls between two ranks, ceclSend and ceclRecv. */
#include "call/describe.h"

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
