/* cecl: collectives on the GPU's copy engines.
 *
 * This header is the manual of the library. It needs nothing of CUDA: a stream is the same pointer
 * as a `cudaStream_t`.
 *
 * A program does four things (examples/allgather.c is the whole of one):
 *
 *     ceclComm_t comm;
 *     ceclCommInitRank(&comm, nranks, id, rank); // or ...InitMpi, ...InitAll, ...InitOob
 *     float *recv;
 *     ceclMemAlloc(comm, (void **)&recv, nranks * count * 4); // symmetric: peers write to it
 *     ceclAllGather(recv + rank * count, recv, count, ceclFloat, comm, stream);
 *     ceclCommDestroy(comm);
 *
 * Words used below:
 *   rank        one participant: a process, or a thread of one; one GPU each (host device: none).
 *   collective  every rank of the communicator must make the call, in the same order.
 *   local       the call concerns this rank alone and exchanges nothing.
 *   symmetric   memory that every rank has at the same offset of its pool, so that a peer's address
 *               is arithmetic.
 *   in place    the rank's own part already lies where the result wants it.
 *   zero SM     no streaming multiprocessor is used: copy engines and stream memory operations do
 *               all of it.
 *
 * Errors: every call returns a ceclResult_t. A call that is refused has enqueued nothing and
 * changed nothing, unless its text says otherwise. ceclGetLastError tells in words what was wrong:
 * the argument, its value, and what was expected.
 *
 * Failure: when a rank dies, aborts, or keeps a collective waiting beyond the timeout, the
 * communicator fails on every rank. Its streams go on, and every call on it then returns that
 * asynchronous error, beside those in its own text; queries, ceclStreamSynchronize and
 * ceclStreamDestroy still do their work, and ceclCommDestroy or ceclCommAbort ends it. A result is
 * good when the stream has come to it and ceclCommGetAsyncError, asked after that, gives
 * ceclSuccess, and stays so until the communicator fails: then the contents of every recvbuff that
 * is still allocated are undefined, on all ranks. Ask again after reading, or copy what must last.
 *
 * Threads: communicators are independent of each other. On one communicator, make one call at a
 * time; those that say "Threads: any" may be made beside it. A communicator belongs to the process
 * that made it: a forked child is refused with ceclInvalidUsage. */
#ifndef CECL_CECL_H
#define CECL_CECL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_MAJOR 0
#define CECL_MINOR 1
#define CECL_PATCH 0
#define CECL_VERSION (CECL_MAJOR * 10000 + CECL_MINOR * 100 + CECL_PATCH)

#if defined(__GNUC__)
#define CECL_API __attribute__((visibility("default")))
#define CECL_CHECKED __attribute__((warn_unused_result))
#else
#define CECL_API
#define CECL_CHECKED
#endif

/* ------------------------------------------------------------------------------------------------
 * Types */

typedef struct ceclComm *ceclComm_t; /* one rank's end of a communicator */
typedef struct CUstream_st
    *ceclStream_t; /* a cudaStream_t; on the host device a stream of ceclStreamCreate */

/* What a call came to. The first eight have NCCL's numbers. */
typedef enum {
    ceclSuccess = 0,
    ceclUnhandledCudaError =
        1, /* CUDA refused something; ceclGetLastError names the call and CUDA's reason */
    ceclSystemError = 2,     /* the operating system did: sockets, memory, descriptors */
    ceclInternalError = 3,   /* a defect in cecl: please report it with ceclGetLastError's text */
    ceclInvalidArgument = 4, /* a parameter's value is wrong */
    ceclInvalidUsage =
        5, /* the call does not fit the state: wrong order, memory in no window, ranks differ */
    ceclRemoteError = 6, /* a peer failed, left, or aborted */
    ceclInProgress = 7,  /* not an error: not finished yet */
    ceclOutOfMemory = 8, /* device, host or pool memory is used up, here or on a peer */
    ceclTimeout = 9      /* a bounded wait ran out */
} ceclResult_t;

/* Element types; NCCL's names and numbers. fp8 types are moved as bytes. */
typedef enum {
    ceclInt8 = 0,
    ceclChar = 0,
    ceclUint8 = 1,
    ceclInt32 = 2,
    ceclInt = 2,
    ceclUint32 = 3,
    ceclInt64 = 4,
    ceclUint64 = 5,
    ceclFloat16 = 6,
    ceclHalf = 6,
    ceclFloat32 = 7,
    ceclFloat = 7,
    ceclFloat64 = 8,
    ceclDouble = 8,
    ceclBfloat16 = 9,
    ceclFloat8e4m3 = 10,
    ceclFloat8e5m2 = 11
} ceclDataType_t;
#define CECL_NUM_TYPES 12

/* What a reduction does with the elements of all ranks; NCCL's names and numbers. ceclAvg is the sum
 * divided by the number of ranks, of floating-point types alone. */
typedef enum { ceclSum = 0, ceclProd = 1, ceclMax = 2, ceclMin = 3, ceclAvg = 4 } ceclRedOp_t;
#define CECL_NUM_RED_OPS 5

/* Collectives; ceclExplain takes the first two. */
typedef enum {
    ceclOpAllGather = 0,
    ceclOpAlltoAll = 1,
    ceclOpReduceScatter = 2,
    ceclOpAllReduce = 3,
    ceclOpReduce = 4
} ceclOp_t;
#define CECL_NUM_OPS 5

/* Which SM use the caller allows (ceclConfig_t.smPolicy). */
typedef enum {
    /* A call that would need an SM is refused with the reason. */
    CECL_SM_NEVER = 0,
    /* Default. SMs serve reductions alone. A communicator of one rank still copies its own block
     * out of place, which needs an SM (but see CECL_LOCAL_COPY in docs/env.md): it has no peer that
     * could return it. */
    CECL_SM_REDUCE_ONLY = 1,
    /* A rank's own block may be copied within its GPU, on SMs, where that is faster; a small
     * all-gather or all-to-all may be a kernel, in place too. */
    CECL_SM_ALLOW = 2
} ceclSmPolicy_t;

/* Who copies between two ranks. */
typedef enum {
    CECL_DIRECTION_AUTO = 0, /* what measurements say: push */
    CECL_DIRECTION_PUSH = 1, /* the rank that has the bytes */
    /* The rank that wants them: about 5 % slower alone, and gentler to some GEMMs. Where blocks of
     * the call must go by way of peers (see CECL_SM_REDUCE_ONLY) it is pushed all the same. */
    CECL_DIRECTION_PULL = 2
} ceclDirection_t;

/* Where ranks run (ceclConfig_t.device). */
typedef enum {
    /* Default. CUDA where each rank has a GPU of its own, otherwise host: rank 0 says so on stderr,
     * once a communicator. */
    CECL_DEVICE_AUTO = 0,
    CECL_DEVICE_CUDA = 1, /* CUDA or an error */
    CECL_DEVICE_HOST = 2  /* no GPU: shared memory and threads, the same plans */
} ceclDevice_t;

/* Which GPU is this rank's (ceclConfig_t.cudaDevice), beside an ordinal of CUDA's. */
#define CECL_CUDA_DEVICE_CURRENT                                                                   \
    (-1) /* default: the calling thread's current CUDA device, as in NCCL */
#define CECL_CUDA_DEVICE_BY_RANK                                                                   \
    (-2) /* rank modulo the number of visible GPUs; also made the caller's current device */

/* Created by one rank with ceclGetUniqueId and carried to all others by the caller; opaque. It
 * holds a secret: whoever has it can join. */
#define CECL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[CECL_UNIQUE_ID_BYTES];
} ceclUniqueId;

/* Settings of one communicator. Start from CECL_CONFIG_INITIALIZER; a field left at CECL_UNDEF
 * takes its default. The
 * environment variable named beside a field, where set, overrides it (docs/env.md). All ranks must
 * agree on them. */
#define CECL_UNDEF (-1)
typedef struct ceclConfig {
    size_t size;          /* set by the initializer */
    unsigned int magic;   /* set by the initializer */
    unsigned int version; /* set by the initializer */
    int device;           /* ceclDevice_t; CECL_DEVICE */
    /* ordinal or CECL_CUDA_DEVICE_...; CECL_CUDA_DEVICE. Alone in that ranks may differ */
    int cudaDevice;
    int smPolicy;  /* ceclSmPolicy_t; CECL_SM_POLICY */
    int timeoutMs; /* bound of every wait on peers, ms; 0 = none; CECL_TIMEOUT_MS; default 30000 */
    int64_t
        /* address range for each rank's pool, bytes; CECL_POOL_BYTES; default: the smallest GPU's,
         * host 4 GiB */
        poolBytes;
    int64_t
        /* first growth step of the pool, bytes; doubles as it grows; CECL_SEGMENT_BYTES; default 64
         * MiB, host 1 MiB */
        segmentBytes;
    /* staging for all-to-all, gather, scatter and reductions, bytes a rank; CECL_STAGING_BYTES;
     * default 1/512 of the smallest GPU's memory, at most an eighth of the pool and 192 MiB (64 MiB
     * from 6 ranks on); host 256 KiB */
    int64_t stagingBytes;
    /* most SMs that a kernel of cecl's may take, 1 to 1024; CECL_MAX_SMS; default: what measurements
     * chose. Results do not depend on it. Kernels wait for peers on them: leave some to whatever a
     * peer may wait for (see ceclReduceScatter). */
    int maxSms;
} ceclConfig_t;
#define CECL_CONFIG_MAGIC 0xcec1c0deu
#define CECL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(ceclConfig_t), CECL_CONFIG_MAGIC, CECL_VERSION, CECL_UNDEF,                         \
            CECL_CUDA_DEVICE_CURRENT, CECL_UNDEF, CECL_UNDEF, CECL_UNDEF, CECL_UNDEF, CECL_UNDEF,  \
            CECL_UNDEF                                                                             \
    }

/* Caller's exchange for ceclCommInitOob. Both are collective over the ranks and used only until
 * init returns; both return 0 on
 * success. A callback bounds its own waits. */
typedef struct {
    void *context; /* handed to both */
    int (*allGather)(void *context, const void *send, void *recv,
                     size_t bytes); /* recv: nranks * bytes, in rank order */
    int (*barrier)(void *context);
} ceclOob_t;

/* ------------------------------------------------------------------------------------------------
 * Words about errors and versions */

/* Tells the library's version as CECL_VERSION does (major * 10000 + minor * 100 + patch).
 * version  [out]
 * Local. Threads: any. Ownership: none. Errors: ceclInvalidArgument (NULL). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclGetVersion(int *version);

/* Names a result in a few words; never NULL.
 * Local. Threads: any. Ownership: a constant. Errors: none. Since 0.1. */
CECL_API const char *ceclGetErrorString(ceclResult_t result);

/* Tells in words what last went wrong; never NULL, empty if nothing did.
 * comm  the communicator whose asynchronous error is preferred when it has one; may be NULL.
 * Local. Threads: the text is the calling thread's own. Ownership: cecl's; valid until this
 * thread's next call. Errors: none. Since 0.1. */
CECL_API const char *ceclGetLastError(ceclComm_t comm);

/* ------------------------------------------------------------------------------------------------
 * Communicators */

/* Makes an id with which ranks find each other over TCP; the calling process listens until nranks
 * ranks have joined.
 * id  [out] carry it to every rank by any means (MPI, a file, an environment variable); it serves
 *     one attempt to make a communicator, also one that fails.
 * CECL_SOCKET_IFNAME names the network interface to listen on (default: the first one up that is
 * not loopback, else loopback).
 * Local. Threads: any. Ownership: the caller's; the listener ends with the job or with this
 * process.
 * Errors: ceclInvalidArgument (NULL), ceclSystemError (no interface, no socket). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclGetUniqueId(ceclUniqueId *id);

/* Joins a communicator with default settings; see ceclCommInitRankConfig. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitRank(ceclComm_t *comm, int nranks, ceclUniqueId id,
                                                    int rank);

/* Joins a communicator of `nranks` ranks as `rank`. All flags, staging and peer connections exist
 * when it returns.
 * comm    [out] written on success only.
 * nranks  1 .. 1024, equal on all ranks.
 * id      from one call of ceclGetUniqueId on one rank. A refused `nranks` leaves it good for another
 *         call; so does any refusal where nranks is 1. A failure that peers heard of uses it up, and
 *         the message says so.
 * rank    0 .. nranks - 1, each once.
 * config  NULL for defaults; read during the call only.
 * Collective, blocking; waits at most CECL_INIT_TIMEOUT_MS (default 60000). Ranks must be on one
 * host in this version.
 * Threads: ranks may be threads of one process, each calling for itself. Ownership: the caller's
 * until ceclCommDestroy or ceclCommAbort.
 * Errors, on every rank that can know: ceclInvalidArgument (NULL, a rank out of range or taken
 * twice, nranks or settings differ, a
 * setting out of range), ceclInvalidUsage (id already used or not one; two ranks on one GPU; no GPU
 * under CECL_DEVICE_CUDA), ceclRemoteError, ceclTimeout,
 * ceclSystemError, ceclUnhandledCudaError, ceclOutOfMemory. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitRankConfig(ceclComm_t *comm, int nranks,
                                                          ceclUniqueId id, int rank,
                                                          const ceclConfig_t *config);

/* Makes a whole communicator in this process: one rank a device.
 * comms    [out] ndev handles, comms[i] is rank i; written on success only.
 * ndev     1 .. 1024.
 * devlist  CUDA ordinals, one each; NULL for 0 .. ndev-1. Without a GPU a rank each on the host
 *          device, devlist ignored.
 * Local to the process, blocking. Each rank's calls that block need a thread of their own:
 * ceclMemAlloc when the pool grows, and under CECL_CHECK=1 ceclMemFree and the collectives too. In
 * one thread, make the first segment large enough: CECL_SEGMENT_BYTES.
 * Ownership, errors: as ceclCommInitRankConfig. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitAll(ceclComm_t *comms, int ndev, const int *devlist);

/* Joins a communicator through the caller's own exchange (a store, MPI, a test).
 * oob     callbacks; used until this call returns. Every rank's fields must be set.
 * Others as ceclCommInitRankConfig; a callback's failure is ceclSystemError. Collective, blocking.
 * Threads, ownership, errors: as ceclCommInitRankConfig. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitOob(ceclComm_t *comm, int nranks, int rank,
                                                   const ceclOob_t *oob,
                                                   const ceclConfig_t *config);

/* Tells the number of ranks. count [out]. Local. Threads: any. Ownership: none. Errors:
 * ceclInvalidArgument. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommCount(ceclComm_t comm, int *count);

/* Tells this rank. rank [out]. Local. Threads: any. Ownership: none. Errors: ceclInvalidArgument.
 * Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommUserRank(ceclComm_t comm, int *rank);

/* Tells this rank's CUDA ordinal. device [out] -1 on the host device. Local. Threads: any.
 * Ownership: none. Errors: ceclInvalidArgument. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommCuDevice(ceclComm_t comm, int *device);

/* Waits until this rank's collectives on `comm`, and all work on streams of ceclStreamCreate, are
 * done; afterwards only ceclStreamDestroy, queries, ceclCommDestroy and ceclCommAbort are allowed.
 * Local, blocking: for as long as work of the caller's own takes that comes before a collective;
 * waits on peers end by the timeout. Threads: one call at a time. Ownership: unchanged.
 * Errors: ceclInvalidArgument, ceclInvalidUsage (finalized before), and the communicator's
 * asynchronous error. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommFinalize(ceclComm_t comm);

/* Finalizes if that was not done, then frees everything: pool, mappings, sockets, threads, streams
 * of ceclStreamCreate. Never hangs: collectives that do not end within the timeout are aborted.
 * Memory of ceclMemAlloc goes with it: copies and kernels on streams of the caller's own must be
 * over. `comm` is gone even when an error is returned.
 * Local, blocking (bounded). Threads: the last call on comm. Ownership: ends the caller's.
 * Errors: ceclInvalidArgument, and what Finalize returns. Since 0.1. */
CECL_API ceclResult_t ceclCommDestroy(ceclComm_t comm);

/* Gives up: releases this rank's pending waits, tells the peers (whose communicators turn to
 * ceclRemoteError), and frees everything. `comm` is gone in any case.
 * Local, blocking (bounded). Threads: the last call on comm; no other thread may be inside a call on
 * it. A thread that waits in cudaStreamSynchronize is inside none, and is let go.
 * Ownership: ends the caller's. Errors: ceclInvalidArgument. Since 0.1. */
CECL_API ceclResult_t ceclCommAbort(ceclComm_t comm);

/* Tells whether the communicator has failed asynchronously: a peer died or aborted, or a collective
 * outlasted the timeout.
 * asyncError  [out] ceclSuccess or the cause; ceclGetLastError(comm) has the words. Once set it
 *             stays. All that peers have told by now counts: what a stream brought before is good
 *             if this is ceclSuccess.
 * Local. Threads: any. Ownership: none. Errors: ceclInvalidArgument. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommGetAsyncError(ceclComm_t comm, ceclResult_t *asyncError);

/* ------------------------------------------------------------------------------------------------
 * Symmetric memory */

/* Allocates `bytes` of symmetric device memory: the same offset on every rank, addressable by all.
 * ptr    [out] address on this rank's device, 256-byte aligned; untouched on failure. Contents
 *        undefined.
 * bytes  wanted on each rank, equal on all; rounded up to 256. 0 gives *ptr = NULL.
 * Collective; blocks for one exchange when the pool must grow (ranks see that alike), otherwise
 * returns at once and exchanges nothing. Not capturable.
 * Threads: one call at a time. Ownership: the caller's until ceclMemFree on every rank; what is
 * left is freed with comm.
 * Errors, nothing allocated: ceclInvalidArgument (NULL), ceclInvalidUsage (ranks' sequences of
 * ceclMemAlloc and ceclMemFree differ; found at
 * growth, or at every call under CECL_CHECK=1), ceclOutOfMemory (on any rank; the text says which),
 * ceclRemoteError, ceclTimeout (a rank did not come: the communicator has failed). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclMemAlloc(ceclComm_t comm, void **ptr, size_t bytes);

/* Gives symmetric memory back to the pool; it stays mapped for the next ceclMemAlloc.
 * ptr  exactly what ceclMemAlloc gave, or NULL (no effect). Work on it must be over, or ordered
 *      before what reuses it.
 * Collective in order, exchanges nothing (except under CECL_CHECK=1). Threads: one call at a time.
 * Ownership: ends the caller's.
 * Errors: ceclInvalidArgument (not an allocation's start, or freed before). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclMemFree(ceclComm_t comm, void *ptr);

/* Translates a pointer into this rank's symmetric memory to the same place at a peer: usable in
 * kernels, copies, and on the host device as it is.
 * ptr      inside an allocation of ceclMemAlloc on this rank.
 * peer     0 .. nranks-1; one's own rank gives ptr.
 * peerPtr  [out]
 * Local. Threads: one call at a time. Ownership: the peer's; valid while the allocation lives on
 * both.
 * Errors: ceclInvalidArgument (outside every allocation, peer out of range). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclGetPeerPointer(ceclComm_t comm, const void *ptr, int peer,
                                                      void **peerPtr);

/* What a pool holds; bytes on this rank. */
typedef struct {
    uint64_t reservedBytes; /* address range of one rank's slice */
    uint64_t mappedBytes;   /* backed by memory and mapped at every peer */
    uint64_t usedBytes;     /* in live allocations, cecl's own flags and staging included */
    uint64_t peakBytes;     /* largest usedBytes so far */
    uint64_t segments;      /* times the pool grew */
    uint64_t allocations;   /* live, cecl's own included */
    uint64_t
        exchanges; /* rendezvous with the peers since init: growth, and checks under CECL_CHECK=1 */
} ceclPoolStats_t;

/* Reads the pool's counters. stats [out]. Local. Threads: one call at a time. Ownership: none.
 * Errors: ceclInvalidArgument. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclPoolStats(ceclComm_t comm, ceclPoolStats_t *stats);

/* ------------------------------------------------------------------------------------------------
 * Kernels of the caller's own */

/* Of each a communicator has so many, zeroed at init: barriers for a block of a kernel each, and
 * signals from every rank to every other. */
#define CECL_DEVICE_BLOCKS 64
#define CECL_DEVICE_SIGNALS 64

/* What a kernel needs to reach its peers. Passed to it by value; cecl/cecl_device.h has the functions
 * that a kernel calls with it. A copy whose timeoutNs was changed is as good. */
typedef struct ceclDeviceComm {
    int rank, nranks;
    int blocks, signals; /* CECL_DEVICE_BLOCKS and _SIGNALS of the library */
    /* [nranks] where the slice of symmetric memory of each rank begins, as this rank maps it. There
     * may be gaps between slices. The table is the device's memory: on CUDA kernels read it, the host
     * does not (ceclGetPeerPointer is for the host); on the host device host code reads it. */
    char *const *slices;
    /* This rank's words, in its slice: [blocks][nranks] of barriers, [signals][nranks] of signals,
     * each written by the rank that is its second index, and one that ends all waits. They lie at the
     * same place in the slice of every rank. */
    uint32_t *pads;
    uint64_t timeoutNs; /* bound of each wait: the communicator's timeoutMs; 0 = none */
} ceclDeviceComm_t;

/* Tells what this rank's kernels need to reach the peers' symmetric memory and to meet the peers'
 * kernels. Valid until comm is destroyed; memory that is allocated later is reached too.
 * dc  [out] written on success only. On the host device it serves the same functions in host code.
 * Local. Threads: one call at a time. Ownership: plain data; what it points to is comm's.
 * Errors: ceclInvalidArgument (NULL), and comm's asynchronous error. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommGetDeviceComm(ceclComm_t comm, ceclDeviceComm_t *dc);

/* ------------------------------------------------------------------------------------------------
 * Collectives */

/* Gathers `sendcount` elements from every rank into `recvbuff`, in rank order, on copy engines.
 *
 *     rank 0: [a]      recvbuff on every rank: [a][b][c]
 *     rank 1: [b]
 *     rank 2: [c]      in place: sendbuff == recvbuff + rank * sendcount
 *
 * sendbuff   [sendcount] elements on this rank's device: symmetric memory or any other of this
 *            device.
 * recvbuff   [nranks * sendcount] elements inside one allocation of ceclMemAlloc, at the same
 *            offset on all ranks.
 * sendcount  elements, equal on all ranks; 0 is a call without effect.
 * stream     orders the call; the legacy default stream (0) too. Both buffers may be reused once
 *            `stream` reaches the end of the call.
 *
 * Collective: all ranks call with equal sendcount and datatype, all in place or all not, in the
 * same order on `comm` (CECL_CHECK=1 verifies it, at the price of an exchange among the hosts;
 * otherwise the host does not wait). Calls on different streams of one communicator run in call
 * order.
 * Threads: one call at a time. Ownership: buffers stay the caller's.
 * Errors, nothing enqueued: ceclInvalidArgument (NULL, partly overlapping buffers, unknown
 * datatype, size overflow, memory of another device), ceclInvalidUsage (recvbuff in no allocation
 * of ceclMemAlloc, or past its end; sendbuff a peer's memory; stream is capturing; under
 * CECL_SM_NEVER out of place on one rank; ranks differ, under CECL_CHECK=1),
 * and the communicator's asynchronous error. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclAllGather(const void *sendbuff, void *recvbuff,
                                                 size_t sendcount, ceclDataType_t datatype,
                                                 ceclComm_t comm, ceclStream_t stream);

/* Tells where this rank's own block lies in the recvbuff of an all-gather: what is written there is
 * gathered in place, without a copy of its own.
 * recvbuff  [nranks * count] elements inside one allocation of ceclMemAlloc.
 * count     elements of one rank; datatype their type.
 * shard     [out] recvbuff + rank * count elements; written on success only.
 * Local. Threads: one call at a time. Ownership: recvbuff's.
 * Errors: ceclInvalidArgument (NULL, unknown datatype, size overflow), ceclInvalidUsage (recvbuff in
 * no allocation, or past its end). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclShard(ceclComm_t comm, void *recvbuff, size_t count,
                                             ceclDataType_t datatype, void **shard);

/* Blocks of rows, for gathering and exchanging along any dimension of a tensor. All in elements, equal
 * on all ranks; a field at 0 takes the default that the call names.
 *
 * A tensor [a, b, c] in C order, cut along b into blocks of b / nranks: rows = a, and
 * width = b / nranks * c, what lies together. Rows of a whole tensor are then nranks * width apart. */
typedef struct ceclStrided {
    size_t width;      /* of a row */
    size_t rows;       /* of a block */
    size_t sendPitch;  /* in sendbuff, from one row of a block to the next */
    size_t sendStride; /* in sendbuff, from one block to the next; ceclAllGatherStrided: not used */
    size_t recvPitch;  /* in recvbuff */
    size_t recvStride; /* in recvbuff */
} ceclStrided_t;

/* Gathers blocks of rows from every rank: along the last dimension by default.
 *
 *     rank 0: [a a]      recvbuff on every rank: [a a][b b][c c]
 *             [A A]                              [A A][B B][C C]
 *     rank 1: [b b]
 *             [B B]      width 2, rows 2, recvPitch 6, recvStride 2
 *     rank 2: [c c] ...
 *
 * Copy engines move rows of 256 bytes or more at 0.95 to 0.99 of the rate of contiguous bytes; nothing
 * is packed.
 * sendbuff  [rows] rows of [width] elements, sendPitch apart (default: width).
 * recvbuff  [nranks] such blocks, recvStride apart (default: width), of rows that are recvPitch apart
 *           (default: nranks * width), inside one allocation of ceclMemAlloc, at the same offset on
 *           all ranks. What lies between rows is not touched. In place: sendbuff is
 *           recvbuff + rank * recvStride, and the pitches are equal.
 * strided   read during the call. Blocks of recvbuff must lie side by side (no wider in all than the
 *           pitch) or one behind the other; pitches of 2147483647 bytes at most.
 * stream, collective, threads, ownership, errors: as ceclAllGather; ceclInvalidArgument also for rows
 * or blocks that overlap. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclAllGatherStrided(const void *sendbuff, void *recvbuff,
                                                        const ceclStrided_t *strided,
                                                        ceclDataType_t datatype, ceclComm_t comm,
                                                        ceclStream_t stream);

/* Sends block j of `sendbuff` to rank j, which receives it as block `rank` of its `recvbuff`.
 *
 *     sendbuff on rank 0: [a0][a1][a2]     recvbuff on rank 0: [a0][b0][c0]
 *     sendbuff on rank 1: [b0][b1][b2]     recvbuff on rank 1: [a1][b1][c1]
 *     sendbuff on rank 2: [c0][c1][c2]     recvbuff on rank 2: [a2][b2][c2]
 *
 * sendbuff  [nranks * count] elements on this rank's device; in place when it is recvbuff (then
 *           blocks pass through staging, in chunks).
 * recvbuff  [nranks * count] elements inside one allocation of ceclMemAlloc, at the same offset on
 *           all ranks.
 * count     elements in one block, equal on all ranks; 0 is a call without effect.
 * stream, collective, threads, ownership, errors: as ceclAllGather. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                                ceclDataType_t datatype, ceclComm_t comm,
                                                ceclStream_t stream);

/* Exchanges blocks of rows: by default from the last dimension to the first.
 *
 *     sendbuff on rank 0: [a a][b b]     recvbuff on rank 0: [a a]
 *                         [A A][B B]                         [A A]
 *     sendbuff on rank 1: [c c][d d]                         [c c]
 *                         [C C][D D]                         [C C]     width 2, rows 2
 *
 * The way back (first dimension to last) has sendPitch = width, sendStride = rows * width,
 * recvPitch = nranks * width, recvStride = width.
 * sendbuff  [nranks] blocks, sendStride apart (default: width), of rows that are sendPitch apart
 *           (default: nranks * width). In place when it is recvbuff, with equal pitches and strides.
 * recvbuff  [nranks] blocks, recvStride apart (default: rows * recvPitch), of rows that are recvPitch
 *           apart (default: width), inside one allocation of ceclMemAlloc, at the same offset on all
 *           ranks. What lies between rows is not touched.
 * strided, stream, collective, threads, ownership, errors: as ceclAllGatherStrided. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAllStrided(const void *sendbuff, void *recvbuff,
                                                       const ceclStrided_t *strided,
                                                       ceclDataType_t datatype, ceclComm_t comm,
                                                       ceclStream_t stream);

/* Gathers a different number of elements from each rank.
 *
 *     recvcounts {2, 0, 3}, displs {0, 2, 4}:     recvbuff on every rank: [a a . . c c c]
 *
 * sendbuff    [sendcount] elements. In place when it is recvbuff + displs[rank] elements: on all
 *             ranks or on none, those that contribute nothing included.
 * sendcount   recvcounts[rank].
 * recvbuff    elements inside one allocation of ceclMemAlloc, at the same offset on all ranks. What
 *             no block covers is not touched.
 * recvcounts  [nranks] elements of each rank, equal on all ranks; 0 allowed. Host memory, read
 *             during the call.
 * displs      [nranks] where each rank's block begins in recvbuff, in elements, equal on all ranks;
 *             NULL: one behind the other. Blocks must not overlap.
 * stream, collective, threads, ownership, errors: as ceclAllGather. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclAllGatherv(const void *sendbuff, size_t sendcount,
                                                  void *recvbuff, const size_t recvcounts[],
                                                  const size_t displs[], ceclDataType_t datatype,
                                                  ceclComm_t comm, ceclStream_t stream);

/* Copies root's elements to every rank.
 * sendbuff  [count] elements, read on root alone. In place when it is recvbuff: on all ranks or on
 *           none.
 * recvbuff  [count] elements inside one allocation of ceclMemAlloc, at the same offset on all ranks.
 * root      0 .. nranks-1, equal on all ranks.
 * stream, collective, threads, ownership, errors: as ceclAllGather. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                                 ceclDataType_t datatype, int root, ceclComm_t comm,
                                                 ceclStream_t stream);

/* Sends a block of its own size to each rank, and receives one from each.
 *
 *     sendcounts on rank 0: {2, 1}     sendbuff on rank 0: [a a b]     recvbuff on rank 0: [a a c c c]
 *     sendcounts on rank 1: {3, 0}     sendbuff on rank 1: [c c c]     recvbuff on rank 1: [b]
 *     recvcounts on rank 0: {2, 3}, on rank 1: {1, 0}
 *
 * sendbuff    on this rank's device: symmetric memory or any other of this device. It and recvbuff
 *             must not overlap.
 * sendcounts  [nranks] elements for each rank; 0 allowed. This and the other arrays are host memory,
 *             read during the call; ranks may differ in all of them.
 * sdispls     [nranks] where the block for each rank begins in sendbuff, in elements; NULL: one
 *             behind the other.
 * recvbuff    inside one allocation of ceclMemAlloc, at the same offset on all ranks, also on one
 *             that receives nothing. What no block covers is not touched.
 * recvcounts  [nranks] elements from each rank: what that rank has in its sendcounts for this one.
 * rdispls     [nranks] where the block from each rank begins in recvbuff, in elements; NULL: one
 *             behind the other. Blocks must not overlap.
 * stream      as in ceclAllGather.
 *
 * A rank must know where its blocks belong at its peers, so ranks tell each other at each call: the
 * host waits for the peers' hosts, but for no stream. A training loop that knows the places calls
 * ceclAlltoAllvAt, which does not wait. Not within a group, for the same reason.
 * Collective: all ranks call, with equal datatype, in the same order on `comm`.
 * Threads: one call at a time. Ownership: buffers stay the caller's.
 * Errors, nothing enqueued on any rank: as ceclAllGather, and ceclInvalidArgument (NULL; counts and
 * displacements beyond an address space; blocks of recvbuff overlap), ceclInvalidUsage (sendcounts of
 * one rank and recvcounts of another differ: the text names both; another rank refused its arguments;
 * within a group), ceclTimeout (a rank did not come: the communicator has failed). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAllv(const void *sendbuff, const size_t sendcounts[],
                                                 const size_t sdispls[], void *recvbuff,
                                                 const size_t recvcounts[], const size_t rdispls[],
                                                 ceclDataType_t datatype, ceclComm_t comm,
                                                 ceclStream_t stream);

/* Does what ceclAlltoAllv does where the caller knows the places at the peers: nothing is exchanged,
 * the host does not wait, and it may be in a group.
 * peerdispls  [nranks] where this rank's block begins in the recvbuff of each rank, in elements: what
 *             that rank has in its rdispls for this one; of no account where the block is empty.
 * Others as in ceclAlltoAllv. Ranks whose counts or places do not fit one another get undefined
 * contents of recvbuff, within its allocation; CECL_CHECK=1 compares them, at the price of exchanges
 * among the hosts.
 * Collective: all ranks call, with equal datatype, in the same order on `comm`.
 * Threads: one call at a time. Ownership: buffers stay the caller's.
 * Errors, nothing enqueued: as ceclAllGather, and ceclInvalidArgument (NULL; counts and displacements
 * beyond an address space; blocks of recvbuff overlap; what this rank sends to itself is not what it
 * receives), ceclInvalidUsage (a block ends beyond a peer's allocation; under CECL_CHECK=1 ranks
 * differ). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAllvAt(
    const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
    const size_t recvcounts[], const size_t rdispls[], const size_t peerdispls[],
    ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream);

/* Gathers `count` elements from every rank, in rank order, on root alone.
 * sendbuff  [count] elements on this rank's device. In place on root when it is recvbuff + root *
 *           count elements; other ranks need not know.
 * recvbuff  [nranks * count] elements inside one allocation of ceclMemAlloc, at the same offset on
 *           all ranks; written on root alone.
 * count     elements of one rank, equal on all; 0 is a call without effect.
 * root      0 .. nranks-1, equal on all ranks.
 * stream, collective, threads, ownership, errors: as ceclAllGather; ceclInvalidArgument also for a
 * root that is no rank. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclGather(const void *sendbuff, void *recvbuff, size_t count,
                                              ceclDataType_t datatype, int root, ceclComm_t comm,
                                              ceclStream_t stream);

/* Sends block r of root's `sendbuff` to rank r.
 * sendbuff  [nranks * count] elements on root's device, read on root alone; others may pass NULL.
 * recvbuff  [count] elements inside one allocation of ceclMemAlloc, at the same offset on all ranks.
 *           In place on root when it is sendbuff + root * count elements; other ranks need not know.
 * count     elements for one rank, equal on all; 0 is a call without effect.
 * root      0 .. nranks-1, equal on all ranks.
 * stream, collective, threads, ownership, errors: as ceclGather. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclScatter(const void *sendbuff, void *recvbuff, size_t count,
                                               ceclDataType_t datatype, int root, ceclComm_t comm,
                                               ceclStream_t stream);

/* Adds up (or multiplies, ...) blocks of all ranks; rank r receives block r of the result.
 *
 *     sendbuff on rank 0: [a0][a1]     recvbuff on rank 0: [a0 + b0]
 *     sendbuff on rank 1: [b0][b1]     recvbuff on rank 1: [a1 + b1]
 *
 * Arithmetic needs SMs, few of them (ceclConfig_t.maxSms): peers' blocks come by copy engine into
 * staging, in chunks, and a kernel reduces one while the next is on its way; or SMs read them at the
 * peers; small calls are one kernel. Such kernels wait for the peers' while they hold their SMs: a
 * kernel that a peer's call comes after must find room beside them, and so must those of other
 * communicators, whose calls may come in another order elsewhere; waiting for peers to begin, they take
 * a quarter of the GPU's SMs at most, whatever maxSms says, small calls 32 of them. Large ones run on
 * a stream of cecl's of the highest priority, between what stands in `stream` before and behind the
 * call. The same inputs give the same bits on every rank, in every run, whatever the way and the
 * number of SMs: elements are taken in rank order, 16-bit types and fp8 are accumulated in fp32 and
 * rounded once, at the end, to nearest even; a NaN of any rank gives a NaN, in minimum and maximum
 * too; integers wrap around; float8e4m3 overflows to 448. ceclAvg divides the sum by the number of
 * ranks, before that rounding.
 * sendbuff   [nranks * recvcount] elements on this rank's device. Where it is memory of ceclMemAlloc
 *            it must be so on all ranks, at the same offset: SMs may then read it at the peers.
 * recvbuff   [recvcount] elements on this rank's device: symmetric memory or any other. In place when
 *            it is sendbuff + rank * recvcount, on all ranks or on none; the other blocks of sendbuff
 *            are as they were.
 * recvcount  elements, equal on all ranks; 0 is a call without effect.
 * op         not ceclAvg for integers.
 * Buffers are aligned to their elements.
 * stream, collective, threads, ownership: as ceclAllGather.
 * Errors, nothing enqueued: ceclInvalidArgument (NULL, unknown datatype or op, ceclAvg of integers,
 * a buffer that is not aligned, partly overlapping buffers, size overflow, memory of another device),
 * ceclInvalidUsage (under CECL_SM_NEVER; past the end of an allocation; stream is capturing; staging
 * too small for so many ranks; ranks differ, under CECL_CHECK=1), and the communicator's asynchronous
 * error. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclReduceScatter(const void *sendbuff, void *recvbuff,
                                                     size_t recvcount, ceclDataType_t datatype,
                                                     ceclRedOp_t op, ceclComm_t comm,
                                                     ceclStream_t stream);

/* Adds up (or multiplies, ...) the elements of all ranks; every rank receives the result. Each rank
 * reduces a part as in ceclReduceScatter, which goes to all others by copy engine, or from SMs; of a
 * small call each reduces all.
 * sendbuff  [count] elements on this rank's device; where it is memory of ceclMemAlloc, so on all
 *           ranks, at the same offset. In place when it is recvbuff, on all ranks or on none.
 * recvbuff  [count] elements inside one allocation of ceclMemAlloc, at the same offset on all ranks.
 * count     elements, equal on all ranks; 0 is a call without effect.
 * op, stream, collective, threads, ownership, errors: as ceclReduceScatter; ceclInvalidUsage also
 * where recvbuff is in no allocation of ceclMemAlloc. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                                 ceclDataType_t datatype, ceclRedOp_t op,
                                                 ceclComm_t comm, ceclStream_t stream);

/* Adds up (or multiplies, ...) the elements of all ranks; root receives the result.
 * sendbuff  [count] elements on this rank's device. In place when it is recvbuff, on all ranks or on
 *           none.
 * recvbuff  [count] elements inside one allocation of ceclMemAlloc, at the same offset on all ranks;
 *           written on root alone.
 * root      0 .. nranks-1, equal on all ranks.
 * count, op, stream, collective, threads, ownership, errors: as ceclAllReduce. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclReduce(const void *sendbuff, void *recvbuff, size_t count,
                                              ceclDataType_t datatype, ceclRedOp_t op, int root,
                                              ceclComm_t comm, ceclStream_t stream);

/* How the calls that follow are to be carried out. Start from CECL_OPTIONS_INITIALIZER; a field left
 * at CECL_UNDEF is as the communicator has it (its configuration and the environment). */
typedef struct ceclOptions {
    size_t size;          /* set by the initializer */
    unsigned int magic;   /* set by the initializer */
    unsigned int version; /* set by the initializer */
    int smPolicy;         /* ceclSmPolicy_t */
    int direction;        /* ceclDirection_t */
    int maxSms;           /* as in ceclConfig_t */
} ceclOptions_t;
#define CECL_OPTIONS_MAGIC 0xcec10b75u
#define CECL_OPTIONS_INITIALIZER                                                                   \
    {                                                                                              \
        sizeof(ceclOptions_t), CECL_OPTIONS_MAGIC, CECL_VERSION, CECL_UNDEF, CECL_UNDEF,           \
            CECL_UNDEF                                                                             \
    }

/* Sets the options of the calls on `comm` from here on, each call of a group having those that stood
 * when it was made: a training loop that mixes hidden and exposed gathers keeps SMs free in the one
 * and takes the fastest way in the other.
 * options  read during the call; NULL: as the communicator has it.
 * Local, but ranks must make a call with equal options (CECL_CHECK=1 verifies it). Cheap: each call's
 * plan is kept for each choice. Threads: one call at a time. Ownership: the caller's.
 * Errors, nothing changed: ceclInvalidArgument (not initialised, a value out of range). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclSetOptions(ceclComm_t comm, const ceclOptions_t *options);

/* Begins a group: the collectives that this thread calls until the matching ceclGroupEnd are carried
 * out together, what only moves data in one batch of copies with one exchange of flags, reductions
 * one after the other behind it. Groups may be nested; the outermost end counts.
 * Local. Threads: the group is the calling thread's. Ownership: none. Errors: ceclOutOfMemory.
 * Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclGroupStart(void);

/* Ends a group and enqueues its calls, as one for each communicator. Up to 4096 calls of any sizes
 * and types, all but ceclAlltoAllv, mixed; they have no order among themselves, so what one
 * writes no other may read or write. All calls on one communicator go to one stream.
 * Collective: every rank's group has the same calls in the same order. The host does not wait.
 * Threads: the one that began it; one call at a time on each communicator in it. Ownership: as the
 * calls'.
 * Errors, nothing enqueued of any call: that of the first call that was refused, which the call
 * itself gave too; ceclInvalidArgument (buffers of two calls overlap), ceclInvalidUsage (no group was
 * begun; two streams; under CECL_CHECK=1 ranks differ), ceclOutOfMemory. Communicators stay as
 * usable as before. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclGroupEnd(void);

/* How a call would be carried out. */
typedef struct {
    int zeroSm;         /* 1: no SM is used */
    int copies;         /* copies this rank issues */
    int localCopies;    /* of these, within one GPU: each needs an SM, or is said to need none */
    int reductions;     /* kernels that add up, on ceclConfig_t.maxSms SMs at most */
    int barriers;       /* exchanges of flags with all peers */
    uint64_t bytesSent; /* that this rank's copies move, bytes */
    char path[64];      /* e.g. "push, one batch" */
    char reason[192];   /* why this path, and what would make it zero-SM if it is not */
} ceclExplanation_t;

/* Tells how an all-gather or an all-to-all with these arguments would be carried out, and why;
 * enqueues nothing. Arguments as in the call itself; for all other calls see ceclGroupExplain.
 * explanation  [out] written on success only.
 * Local. Threads: one call at a time. Ownership: none. Errors: those that the call itself would
 * return for its arguments, and ceclInvalidArgument (another op; NULL). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclExplain(ceclOp_t op, const void *sendbuff,
                                               const void *recvbuff, size_t count,
                                               ceclDataType_t datatype, ceclComm_t comm,
                                               ceclExplanation_t *explanation);

/* Ends a group as ceclGroupEnd does, but enqueues nothing: tells how its calls would be carried out
 * together. So any call can be asked about, strided, variable and rooted ones too: as a group of one.
 * comm         all calls of the group are on it.
 * explanation  [out] written on success only.
 * Local; exchanges nothing. Threads: the one that began the group. Ownership: none.
 * Errors, the group ended all the same: those of ceclGroupEnd; ceclInvalidArgument (explanation NULL),
 * ceclInvalidUsage (a call on another communicator; an inner group). Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclGroupExplain(ceclComm_t comm,
                                                    ceclExplanation_t *explanation);

/* ------------------------------------------------------------------------------------------------
 * Streams, for programs that run with and without a GPU */
/* A CUDA program passes its own cudaStream_t to the collectives and needs none of these. */

/* Makes a stream on the communicator's device (CUDA: non-blocking with respect to the default
 * stream).
 * stream  [out] written on success only.
 * Local. Threads: any one at a time. Ownership: the caller's until ceclStreamDestroy, before comm
 * is destroyed.
 * Errors: ceclInvalidArgument, ceclUnhandledCudaError, ceclSystemError, ceclOutOfMemory. Since 0.1.
 * */
CECL_API CECL_CHECKED ceclResult_t ceclStreamCreate(ceclComm_t comm, ceclStream_t *stream);

/* Blocks until everything enqueued on `stream` (0: the default stream) is done, also when comm has
 * failed. Pending waits on peers are bounded by the timeout. On success the results are good.
 * Local, blocking. Threads: any. Ownership: none. Errors: ceclInvalidArgument,
 * ceclUnhandledCudaError, and comm's asynchronous error. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclStreamSynchronize(ceclComm_t comm, ceclStream_t stream);

/* Destroys a stream of ceclStreamCreate; waits for its work first.
 * Local, blocking. Threads: any. Ownership: ends the caller's. Errors: ceclInvalidArgument,
 * ceclUnhandledCudaError. Since 0.1. */
CECL_API ceclResult_t ceclStreamDestroy(ceclComm_t comm, ceclStream_t stream);

/* Copies `bytes` from `src` to `dst` in the order of `stream`; each may be memory of the device or
 * of the host.
 * Local; the host does not wait when both are the device's. Threads: any. Ownership: the caller's;
 * keep host memory until the stream gets there.
 * Errors: ceclInvalidArgument, ceclUnhandledCudaError. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclMemcpyAsync(ceclComm_t comm, void *dst, const void *src,
                                                   size_t bytes, ceclStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
