/* The public one-sided calls. */
#include "launch/one_sided.h"

#include "device/nvtx.h"
#include "launch/group.h"

static ceclResult_t make(ceclComm_t comm, const struct cecl_one_sided_args *args,
                         ceclStream_t stream)
{
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_comm_check_own(comm, "one-sided calls", "send messages (ceclSend, ceclRecv)"));
    CECL_TRY(cecl_group_check_outside(args->name, "; one-sided calls do not wait for other calls, "
                                                  "so they need no group"));
    CECL_TRY(cecl_comm_enter(comm, args->name));
    const bool range = cecl_nvtx_begin(comm->has_ranges, args->name);
    const ceclResult_t result = cecl_one_sided_make(comm, args, stream);
    cecl_nvtx_end(range);
    return cecl_comm_left(comm, result);
}

static struct cecl_one_sided_args copy_args(const char *name, const void *local, size_t count,
                                            ceclDataType_t type, int peer, ceclWindow_t window,
                                            size_t offset)
{
    return (struct cecl_one_sided_args){.name = name,
                                        .local = (void *)(uintptr_t)local,
                                        .count = count,
                                        .type = type,
                                        .peer = peer,
                                        .window = window,
                                        .offset = offset,
                                        .is_copy = true};
}

CECL_API ceclResult_t ceclPut(const void *sendbuff, size_t count, ceclDataType_t datatype, int peer,
                              ceclWindow_t window, size_t offset, ceclComm_t comm,
                              ceclStream_t stream)
{
    CECL_PUBLIC;
    const struct cecl_one_sided_args args =
        copy_args("ceclPut", sendbuff, count, datatype, peer, window, offset);
    return make(comm, &args, stream);
}

CECL_API ceclResult_t ceclGet(void *recvbuff, size_t count, ceclDataType_t datatype, int peer,
                              ceclWindow_t window, size_t offset, ceclComm_t comm,
                              ceclStream_t stream)
{
    CECL_PUBLIC;
    struct cecl_one_sided_args args =
        copy_args("ceclGet", recvbuff, count, datatype, peer, window, offset);
    args.gets = true;
    return make(comm, &args, stream);
}

CECL_API ceclResult_t ceclPutSignal(const void *sendbuff, size_t count, ceclDataType_t datatype,
                                    int peer, ceclWindow_t window, size_t offset, int signal,
                                    ceclComm_t comm, ceclStream_t stream)
{
    CECL_PUBLIC;
    struct cecl_one_sided_args args =
        copy_args("ceclPutSignal", sendbuff, count, datatype, peer, window, offset);
    args.is_signal = true;
    args.signal = signal;
    return make(comm, &args, stream);
}

CECL_API ceclResult_t ceclSignal(int peer, int signal, ceclComm_t comm, ceclStream_t stream)
{
    CECL_PUBLIC;
    const struct cecl_one_sided_args args = {
        .name = "ceclSignal", .peer = peer, .signal = signal, .is_signal = true};
    return make(comm, &args, stream);
}

CECL_API ceclResult_t ceclWaitSignal(int nwaits, const ceclSignalWait_t *waits, ceclComm_t comm,
                                     ceclStream_t stream)
{
    CECL_PUBLIC;
    const struct cecl_one_sided_args args = {
        .name = "ceclWaitSignal", .waits = waits, .nwaits = nwaits, .is_wait = true};
    return make(comm, &args, stream);
}
