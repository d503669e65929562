/* cecl's main library, libcecl.so, of which only public functions are used. It is opened when the first communicator is
 * made. So a job's shells and helper programs, into which libnccl.so.2 is also preloaded, do not load it. */
#ifndef CECL_NCCL_LIBRARY_H
#define CECL_NCCL_LIBRARY_H

#include "util/error.h"

/* The functions of libcecl.so that are used. */
#define CECL_NCCL_LIBRARY_CALLS(X) \
    X(ceclAllGather) \
    X(ceclAllReduce) \
    X(ceclAlltoAll) \
    X(ceclBroadcast) \
    X(ceclCallStats) \
    X(ceclCommAbort) \
    X(ceclCommCuDevice) \
    X(ceclCommDestroy) \
    X(ceclCommFinalize) \
    X(ceclCommGetAsyncError) \
    X(ceclCommGetSharedMemory) \
    X(ceclCommInitOob) \
    X(ceclCommLimits) \
    X(ceclCommRevoke) \
    X(ceclGather) \
    X(ceclGetLastError) \
    X(ceclGroupEnd) \
    X(ceclGroupExplain) \
    X(ceclGroupStart) \
    X(ceclRecv) \
    X(ceclReduce) \
    X(ceclReduceScatter) \
    X(ceclScatter) \
    X(ceclSend) \
    X(ceclSetOptions) \
    X(ceclStreamSynchronize)

struct cecl_nccl_library {
#define CALL(name) __typeof__(name) *name;
    CECL_NCCL_LIBRARY_CALLS(CALL)
#undef CALL
};

/* Opens libcecl.so, once. NULL: it cannot be opened; cecl_message() says why. */
const struct cecl_nccl_library *cecl_nccl_library(void);

#endif
