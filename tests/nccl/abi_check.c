/* Compiled if NCCL's own header was found: checks that this repository's declarations of NCCL's interface agree with
 * the header. A different type is a compiler error. */
#include <nccl.h>

#define CECL_NCCL_TYPES_GIVEN
#include "calls.h"

#define SAME(ours, theirs) \
    _Static_assert((int)(ours) == (int)(theirs), #theirs " differs from the value in NCCL's " \
                                                         "header")

SAME(ceclSuccess, ncclSuccess);
SAME(ceclUnhandledCudaError, ncclUnhandledCudaError);
SAME(ceclSystemError, ncclSystemError);
SAME(ceclInternalError, ncclInternalError);
SAME(ceclInvalidArgument, ncclInvalidArgument);
SAME(ceclInvalidUsage, ncclInvalidUsage);
SAME(ceclRemoteError, ncclRemoteError);
SAME(ceclInProgress, ncclInProgress);
SAME(CECL_NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR) + NCCL_PATCH, NCCL_VERSION_CODE);
_Static_assert(sizeof(ncclUniqueId) == 128, "calls.h declares an id of 128 bytes");
_Static_assert(offsetof(ncclConfig_t, blocking) == CONFIG_BLOCKING_AT,
               "calls.h has another offset of ncclConfig_t's field `blocking`");
_Static_assert(sizeof(ncclResult_t) == sizeof(int), "abi.h declares results as ints");
_Static_assert(sizeof(ncclDataType_t) == sizeof(int), "abi.h declares datatypes as ints");
_Static_assert(sizeof(ncclRedOp_t) == sizeof(int), "abi.h declares reductions as ints");

/* The datatypes whose sizes are in CECL_NCCL_TYPE_BYTES, in its order. */
SAME(0, ncclInt8);
SAME(1, ncclUint8);
SAME(2, ncclInt32);
SAME(3, ncclUint32);
SAME(4, ncclInt64);
SAME(5, ncclUint64);
SAME(6, ncclFloat16);
SAME(7, ncclFloat32);
SAME(8, ncclFloat64);
SAME(9, ncclBfloat16);
#if NCCL_VERSION_CODE >= 22400
SAME(10, ncclFloat8e4m3);
SAME(11, ncclFloat8e5m2);
#endif

#ifdef NCCL_WIN_COLL_SYMMETRIC
SAME(CECL_NCCL_WIN_COLL_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
#endif
#ifdef NCCL_SHRINK_ABORT
SAME(CECL_NCCL_SHRINK_ABORT, NCCL_SHRINK_ABORT);
#endif

/* The reductions that calls.h declares. */
SAME(0, ncclSum);
SAME(1, ncclProd);
SAME(2, ncclMax);
SAME(3, ncclMin);
SAME(4, ncclAvg);
