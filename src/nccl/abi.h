/* What this library knows of NCCL's binary interface: the functions of NCCL that it replaces by C functions, and those
 * that it calls. The values of ncclResult_t up to 7 equal the values of ceclResult_t. tests/nccl/abi_check.c compares
 * this file with NCCL's own header. */
#ifndef CECL_NCCL_ABI_H
#define CECL_NCCL_ABI_H

#include <stddef.h>

#include <cecl/cecl.h>

#ifndef CECL_NCCL_TYPES_GIVEN /* abi_check.c takes the types from NCCL's header */
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct ncclWindow *ncclWindow_t;
typedef struct ncclConfig ncclConfig_t; /* its size differs between versions of NCCL */
#endif

enum { CECL_NCCL_BFLOAT16 = 9 }; /* a value of ncclDataType_t */

/* Bytes of an element, by ncclDataType_t. */
#define CECL_NCCL_TYPE_BYTES \
    { \
        1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 \
    }

#define CECL_NCCL_WIN_COLL_SYMMETRIC 1 /* a flag of ncclCommWindowRegister */
#define CECL_NCCL_SHRINK_ABORT 1       /* a flag of ncclCommShrink: NCCL ends the parent's calls */

/* ncclGetVersion gives 10000 * major + 100 * minor + patch. */
#define CECL_NCCL_VERSION(major, minor) (10000 * (major) + 100 * (minor))

#define CECL_NCCL_API __attribute__((visibility("default")))
/* Exports the function `name` also as p`name`, as NCCL does. */
#define CECL_NCCL_ALIAS(name) CECL_NCCL_API __typeof__(name) p##name __attribute__((alias(#name)));

#pragma GCC visibility push(default)
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream);

ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                          ncclComm_t *grown, ncclConfig_t *config);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *shrunk,
                            ncclConfig_t *config, int flags);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *split,
                           ncclConfig_t *config);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupStart(void);
#if !defined(CECL_NCCL_TYPES_GIVEN) || NCCL_VERSION_CODE >= CECL_NCCL_VERSION(2, 23)
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids,
                                      ncclUniqueId *ids, ncclConfig_t *config);
#endif
#if !defined(CECL_NCCL_TYPES_GIVEN) || NCCL_VERSION_CODE >= CECL_NCCL_VERSION(2, 27)
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
#endif
#ifndef CECL_NCCL_TYPES_GIVEN
ncclResult_t ncclGroupSimulateEnd(void *info);
#endif
#pragma GCC visibility pop

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);
ncclResult_t ncclGetVersion(int *version);

#ifndef CECL_NCCL_TYPES_GIVEN
/* cecl_nccl_pass_ncclAllGather calls the real NCCL's ncclAllGather, and so on (jump.c). */
#define PASSED(name) __typeof__(name) cecl_nccl_pass_##name;
#define COUNTED PASSED
#define FOLLOWED(name, answer) PASSED(name)
#include "nccl/names.h"
PASSED(ncclCommCount)
PASSED(ncclCommCuDevice)
PASSED(ncclCommUserRank)
#undef PASSED
#endif

#endif
