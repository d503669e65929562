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
    CECL_INSIDE(comm, args->name);
    CECL_NVTX_RANGE(comm->has_ranges, args->name);
    return cecl_one_sided_make(comm, args, stream);
}

#define MAKE(...) \
    CECL_PUBLIC; \
    return make(comm, &(const struct cecl_one_sided_args){__VA_ARGS__}, stream)
/* A copy from or to `buff`. */
#define COPY(buff, ...) \
    MAKE(.local = (void *)(uintptr_t)(buff), .count = count, .type = datatype, .peer = peer, \
         .window = window, .offset = offset, .is_copy = true, __VA_ARGS__)

CECL_API ceclResult_t ceclPut(const void *sendbuff, size_t count, ceclDataType_t datatype, int peer,
                              ceclWindow_t window, size_t offset, ceclComm_t comm,
                              ceclStream_t stream)
{
    COPY(sendbuff, .name = "ceclPut");
}

CECL_API ceclResult_t ceclGet(void *recvbuff, size_t count, ceclDataType_t datatype, int peer,
                              ceclWindow_t window, size_t offset, ceclComm_t comm,
                              ceclStream_t stream)
{
    COPY(recvbuff, .name = "ceclGet", .gets = true);
}

CECL_API ceclResult_t ceclPutSignal(const void *sendbuff, size_t count, ceclDataType_t datatype,
                                    int peer, ceclWindow_t window, size_t offset, int signal,
                                    ceclComm_t comm, ceclStream_t stream)
{
    COPY(sendbuff, .name = "ceclPutSignal", .is_signal = true, .signal = signal);
}

CECL_API ceclResult_t ceclSignal(int peer, int signal, ceclComm_t comm, ceclStream_t stream)
{
    MAKE(.name = "ceclSignal", .peer = peer, .signal = signal, .is_signal = true);
}

CECL_API ceclResult_t ceclWaitSignal(int nwaits, const ceclSignalWait_t *waits, ceclComm_t comm,
                                     ceclStream_t stream)
{
    MAKE(.name = "ceclWaitSignal", .waits = waits, .nwaits = nwaits, .is_wait = true);
}
