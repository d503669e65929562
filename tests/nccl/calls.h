/* NCCL's functions that tests call, besides those of nccl/abi.h, and the stand-in's functions for tests. abi_check.c
 * compares NCCL's functions with NCCL's own header. */
#ifndef CECL_TESTS_NCCL_CALLS_H
#define CECL_TESTS_NCCL_CALLS_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "nccl/abi.h"

#ifndef CECL_NCCL_TYPES_GIVEN
enum { ncclInt8 = 0, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16 };
enum { ncclFloat32 = 7, ncclFloat64, ncclBfloat16 };
enum { ncclSum = 0, ncclProd, ncclMax, ncclMin, ncclAvg };
#endif

/* Offset of the int `blocking` in ncclConfig_t, in each version that has it. blocking = 0: calls do not wait. */
#define CONFIG_BLOCKING_AT 16

#define STANDIN_API CECL_NCCL_API

STANDIN_API ncclResult_t ncclGetVersion(int *version);
STANDIN_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
STANDIN_API const char *ncclGetErrorString(ncclResult_t result);
STANDIN_API const char *ncclGetLastError(ncclComm_t comm);
STANDIN_API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
STANDIN_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id,
                                                int rank, ncclConfig_t *config);
STANDIN_API ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices);
STANDIN_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *split,
                                       ncclConfig_t *config);
STANDIN_API ncclResult_t ncclCommFinalize(ncclComm_t comm);
STANDIN_API ncclResult_t ncclCommDestroy(ncclComm_t comm);
STANDIN_API ncclResult_t ncclCommAbort(ncclComm_t comm);
STANDIN_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
STANDIN_API ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
STANDIN_API ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
STANDIN_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);
STANDIN_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
STANDIN_API ncclResult_t ncclGroupStart(void);
STANDIN_API ncclResult_t ncclGroupEnd(void);

#ifndef CECL_NCCL_TYPES_GIVEN
/* NCCL 2.31 has functions of these names. These arguments are invented: the library under test knows none of them. */
STANDIN_API ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount,
                                             ncclDataType_t datatype, ncclComm_t comm,
                                             cudaStream_t stream, const void *config);
STANDIN_API ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                                             ncclDataType_t datatype, ncclRedOp_t redop,
                                             ncclComm_t comm, cudaStream_t stream,
                                             const void *config);
#endif

/* A call as the stand-in received it. */
struct standin_record {
    const char *name;
    uint64_t words[8]; /* its arguments, in order, without unique ids */
};

/* How many calls of `name` this process has made to the stand-in. */
STANDIN_API size_t standin_calls(const char *name);

/* Streams that can capture, each for one thread; a stream at another address cannot. Launches return when complete. */
struct standin_graph;
STANDIN_API cudaStream_t standin_stream(void);
STANDIN_API void standin_stream_free(cudaStream_t stream);
STANDIN_API void standin_capture(cudaStream_t stream);
STANDIN_API struct standin_graph *standin_end_capture(cudaStream_t stream);
/* How many calls and groups the stand-in itself carries out in a launch. */
STANDIN_API int standin_passed(const struct standin_graph *graph);
STANDIN_API ncclResult_t standin_launch(struct standin_graph *graph);
STANDIN_API void standin_graph_free(struct standin_graph *graph);
/* The library in NCCL's place calls this. */
STANDIN_API ceclStream_t cecl_standin_stream(ceclComm_t ours, cudaStream_t stream);

/* For measurements: whether this thread's next collectives return at once, without a transfer. */
STANDIN_API void standin_go_hollow(bool is);

/* From now on, each collective of this process takes at least this many microseconds. */
STANDIN_API void standin_take_us(unsigned us);

STANDIN_API struct standin_record standin_last(void);

/* A function of the library that CECL_NCCL_PATH names, looked up as programs do. */
static inline void *standin_function(const char *name)
{
    const char *path = getenv("CECL_NCCL_PATH");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "CECL_NCCL_PATH: %s\n", path ? dlerror() : "the stand-in expected");
        exit(2);
    }
    return dlsym(library, name);
}
/* The stand-in's own function of this name: its calls do not go through the library under test. */
#define STANDIN(name) (__extension__(__typeof__(name) *) standin_function(#name))

#endif
