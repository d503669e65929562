/* cecl: collectives on the GPU's copy engines.
 *
 * This header is the manual of the library. It includes no header of CUDA: a ceclStream_t is the
 * same pointer as a cudaStream_t. CHANGELOG.md says which calls came in which version.
 *
 * A program does four things: it joins, allocates, communicates, and leaves (examples/allgather.c
 * is a complete program):
 *
 *     ceclComm_t comm;
 *     ceclCommInitRank(&comm, nranks, id, rank); // or ...InitMpi, ...InitAll, ...InitOob
 *     float *recv;
 *     ceclMemAlloc(comm, (void **)&recv, nranks * count * 4); // or cudaMalloc: see Buffers
 *     ceclAllGather(recv + rank * count, recv, count, ceclFloat, comm, stream);
 *     ceclCommDestroy(comm);
 *
 * Words used below:
 *   rank         one participant of a communicator: a process, or a part of a process that has several
 *                ranks. On GPUs each rank has a GPU of its own.
 *   peer         another rank of the same communicator.
 *   host device  what ranks run on without GPUs: threads and shared memory carry out the same copies
 *                and reductions. Its memory is ordinary memory: the program can read and write what
 *                ceclMemAlloc gives, and calls take any memory of the process. The host device needs
 *                /proc. Its streams compute in the default floating-point environment.
 *   collective   every rank of the communicator must make the call, and all ranks must make the
 *                communicator's collective calls in the same order.
 *   local        the peers need not make the call. If the call waits for peers or tells them
 *                something, its text says so.
 *   blocking     the calling host thread waits until the call's work is done. Other calls wait only as
 *                the texts say (for collectives: see Collectives).
 *   symmetric    memory of ceclMemAlloc. Every rank has it at the same offset in its pool (the memory
 *                that ceclMemAlloc gives out), so a rank can compute the address at a peer.
 *   registered   other memory of the program that peers have opened (see Buffers).
 *   private      memory that peers cannot open (see Buffers).
 *   block        the data that one rank sends to one rank. A rank's own block is what it sends to itself.
 *   staging      symmetric memory of the communicator, through which some calls pass blocks.
 *   chunk        a part of a block that is sent in one go.
 *   in place     the rank's own block already lies where the result needs it.
 *   zero SM      the call uses only copy engines and stream memory operations, and no streaming
 *                multiprocessor (SM).
 *
 * Errors: every call returns a ceclResult_t, except the two that return strings. A call that is refused
 * has enqueued nothing and changed nothing, unless its text says otherwise. ceclGetLastError tells what
 * was wrong: the function, the argument, its value, and what was expected. In a group it also tells the
 * number of the call ("call 2 of 3 in the group, ceclAllGather: ..."). Do not use the handle of a
 * communicator, stream, graph, window or registration that has ended. Calls refuse such a handle only
 * until a new object gets the same handle, and that may happen at once. The text of each call lists its
 * errors. In addition, every call that takes a communicator may return
 *   ceclInvalidArgument     the communicator is NULL, or was destroyed;
 *   ceclInvalidUsage        the communicator was finalized (the calls listed under Failure still
 *                           work then), or was made before this process was forked;
 *   ceclUnhandledCudaError, ceclSystemError, ceclOutOfMemory
 *                           CUDA or the operating system refused what the call needs;
 *   the asynchronous error  the communicator has failed (see Failure).
 * Once a collective has passed its checks, the rank tells its peers where the buffers lie, and the
 * peers rely on that. If the rank then cannot carry out the collective (memory is used up, a peer's
 * memory cannot be opened, the device refuses a copy or a kernel), the call returns the error, and the
 * communicator fails.
 *
 * Buffers: a collective takes any memory of the rank's device. On GPUs that is memory of this
 * rank's GPU, but not managed memory, and not memory of the host. A buffer must lie within one
 * allocation. Ranks may pass different kinds of memory, at different offsets. How peers reach a buffer
 * depends on the kind of its memory:
 *   symmetric    memory of ceclMemAlloc. Peers compute its address.
 *   registered   memory that other processes can open: memory of cudaMalloc, of ncclMemAlloc, and of
 *                cuMemCreate with handles that can be exported as file descriptors. One range of
 *                addresses may consist of many handles, as in PyTorch's expandable segments. If a
 *                call uses memory of a handle that cannot be exported, the whole range is private.
 *                On the host device, registered memory is a shared mapping of a file (such as a
 *                memfd) that the process has open for reading and writing. A call registers the
 *                memory that it uses, unless ceclConfig_t.registerOnUse is 0; ceclCommRegister
 *                registers memory before the first call. Once peers have opened registered memory,
 *                calls make the same copies as on symmetric memory.
 *   private      all other memory, such as memory of cudaMallocAsync, or of malloc on the host device. If
 *                registerOnUse is 0, all memory that was not registered is private. Peers cannot write a
 *                private recvbuff, so they write to a bounce buffer: registered memory of the
 *                communicator, as large as recvbuff. This rank then carries the bytes from there to
 *                recvbuff. If the call is in place, the rank first carries the input to the bounce
 *                buffer. Carried bytes go through a peer's staging: this needs no SM, but the bytes cross
 *                the links twice more. Under CECL_SM_ALLOW an SM copies them within the GPU instead. A
 *                private sendbuff is sent from where it lies. Only if a peer comes late to the call (see
 *                Collectives), this rank carries sendbuff to a bounce buffer; the call takes memory for
 *                that buffer even if no peer is late. ceclReduceScatter needs no bounce buffer.
 * Each call checks which memory is at the address, so it does not confuse freed memory with memory that
 * was allocated there later. On the host device a call checks all bytes from the first to the last that
 * it uses, and refuses (ceclInvalidArgument) holes, missing access rights, and mappings of files that
 * have become too short. Keep the memory allocated and accessible until the call is done. If a program
 * frees the memory, takes away access rights, or truncates the mapped file while a call is pending,
 * SIGSEGV or SIGBUS may end this rank's process and its peers'. cecl cannot prevent that.
 *
 * Agreement: ranks must make equal collective calls. The text of each call says which arguments
 * must be equal on all ranks; buffers may always lie at different places. Ranks tell each other a
 * hash of the call, together with the places of their buffers. If the hashes differ, no byte of the
 * call moves, and the communicator fails. A rank that finds the difference gets ceclInvalidUsage; a rank
 * that first hears of the failure from a peer gets ceclRemoteError. The error text names what differs
 * (function, count, datatype, root, op or options), and gives both
 * values. Small calls (ceclExplain tells which are small), barriers and calls with splits on the
 * device (ceclAlltoAllvDevice) are compared afterwards: ceclStreamSynchronize, ceclCommGetAsyncError
 * or a thread of cecl finds the difference, and the communicator fails with ceclInvalidUsage. (Two
 * ranks are not compared while one is more than 64 calls ahead.) The kernels of calls with splits on
 * the device also compare the call, and move no row if ranks differ. With CECL_CHECK=1 in the
 * environment, the host threads compare every collective before it starts. If calls differ, all ranks
 * refuse them (ceclInvalidUsage, naming the difference). Run every new program once with CECL_CHECK=1.
 *
 * Several hosts: on GPUs, NCCL carries out all calls of a communicator over several hosts. See
 * Hosts in ceclCommInitRankConfig.
 *
 * Failure: the communicator fails on every rank when a rank dies, revokes the communicator, aborts it
 * while a call is pending, leaves while others wait for it, or keeps a call waiting longer than the
 * timeout (ceclConfig_t.timeoutMs). A rank leaves when it destroys its communicator, when it calls
 * ceclCommAbort while none of its calls is pending, or when its process ends by exit or a return from
 * main. If another rank later makes a call that needs the rank that left, the communicator fails on the
 * calling rank. When a communicator fails, pending calls end with undefined results, so that no stream
 * hangs. From then on calls return the asynchronous error. Only these still work:
 * ceclCommCount, ceclCommUserRank, ceclCommCuDevice, ceclCommNodes, ceclCommGetAsyncError,
 * ceclGetLastError, ceclCallStats, ceclCommDeregister, ceclCommRevoke, ceclStreamSynchronize,
 * ceclStreamEndCapture, ceclGraphDestroy, ceclStreamDestroy, ceclEventDestroy, ceclCommShrink (makes a new
 * communicator of the remaining ranks), ceclCommDestroy and ceclCommAbort (end the failed one).
 *
 * Results: a result is valid once the stream has passed the call and ceclCommGetAsyncError, called
 * after that, gives ceclSuccess. ceclStreamSynchronize waits for the stream, and makes this check. If the
 * communicator fails later, every recvbuff that is still allocated has undefined contents on all ranks,
 * because a peer's copies may still arrive. To keep a result beyond a failure, copy it elsewhere; the
 * copy is valid if ceclCommGetAsyncError, called again after the copy, still gives ceclSuccess. After a
 * failure, use registered memory for something else only once the failed communicator has ended on all
 * ranks, or ceclCommShrink has made a new one of all ranks that are alive. (ceclCommShrink waits for
 * copies that are under way.)
 *
 * Threads: communicators are independent of each other. On one communicator, make one call at a
 * time; only calls that say "Threads: any" may run beside another call. Collectives, messages, ends of
 * groups, ceclExplain and ceclGroupExplain exclude each other: while a thread is inside one of these
 * calls, such a call of another thread on the same communicator is refused (ceclInvalidUsage). A
 * communicator belongs to the process that made it. A thread that is cancelled in a call (pthread_cancel)
 * ends when the call returns. */
#ifndef CECL_CECL_H
#define CECL_CECL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_MAJOR 0
#define CECL_MINOR 3
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

/* One rank's handle of a communicator. */
typedef struct ceclComm *ceclComm_t;
/* A cudaStream_t; on the host device a stream of ceclStreamCreate. A stream serves all communicators
 * of the process that run on its device. On the host device a communicator has a default stream (0);
 * it shares this stream with the communicators that are split or shrunk from it. */
typedef struct CUstream_st *ceclStream_t;
/* A cudaEvent_t; on the host device an event of ceclEventCreate. */
typedef struct CUevent_st *ceclEvent_t;

/* The result of a call. The first eight have NCCL's numbers. */
typedef enum {
    ceclSuccess = 0,
    /* CUDA refused something; ceclGetLastError names the call and CUDA's reason. */
    ceclUnhandledCudaError = 1,
    ceclSystemError = 2,     /* the operating system refused sockets, memory or descriptors */
    ceclInternalError = 3,   /* a defect in cecl: please report it with ceclGetLastError's text */
    ceclInvalidArgument = 4, /* a parameter's value is wrong */
    /* The values are valid, but the order of calls is wrong, memory cannot be used, or ranks differ. */
    ceclInvalidUsage = 5,
    ceclRemoteError = 6, /* a peer failed, left, or aborted */
    ceclInProgress = 7,  /* not an error: not finished yet */
    ceclOutOfMemory = 8, /* device, host or pool memory is used up, here or on a peer */
    ceclTimeout = 9      /* a wait reached its time limit */
} ceclResult_t;

/* Element types, with NCCL's names and numbers. */
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

/* How a reduction combines the elements of all ranks. Names and numbers are NCCL's. ceclAvg is the sum
 * divided by the number of ranks; it takes floating-point types only. */
typedef enum { ceclSum = 0, ceclProd = 1, ceclMax = 2, ceclMin = 3, ceclAvg = 4 } ceclRedOp_t;
#define CECL_NUM_RED_OPS 5

/* Collectives. ceclExplain takes only the first two. */
typedef enum {
    ceclOpAllGather = 0,
    ceclOpAlltoAll = 1,
    ceclOpReduceScatter = 2,
    ceclOpAllReduce = 3,
    ceclOpReduce = 4
} ceclOp_t;
#define CECL_NUM_OPS 5

/* What calls may use SMs for (ceclConfig_t.smPolicy). */
typedef enum {
    /* Nothing: a call that needs an SM is refused with the reason. */
    CECL_SM_NEVER = 0,
    /* Default. Reductions only; all other calls are zero SM. If a rank's own block has to move, it
     * goes to peers, which send it back. A communicator of one rank has no peers: there an
     * out-of-place call copies within the GPU, which needs an SM. */
    CECL_SM_REDUCE_ONLY = 1,
    /* Reductions, and all that SMs do faster: SMs may copy a rank's own block within its GPU. A
     * small all-gather or all-to-all, even in place, may be one kernel. Only this policy allows
     * ceclAlltoAllvDevice, ceclDispatch and ceclCombine, which need SMs. */
    CECL_SM_ALLOW = 2
} ceclSmPolicy_t;

/* Which of two ranks copies the bytes between them. With PUSH or PULL a small call is never one kernel.
 * Whatever is chosen here, a rank that comes late to a call (see Collectives) moves the bytes of both
 * directions. */
typedef enum {
    /* The faster choice for each call: calls that only move data push; reductions push or pull. */
    CECL_DIRECTION_AUTO = 0,
    /* The rank that has the bytes copies them. Reductions go through staging. */
    CECL_DIRECTION_PUSH = 1,
    /* The rank that needs the bytes copies them. A call that runs alone is about 5 % slower this way,
     * but some GEMMs that run at the same time are slowed less. Some calls are still pushed as a whole:
     * ceclGather, ceclScatter, ceclAlltoAllv and ceclAlltoAllvAt, calls in which peers send a rank's
     * own block back (see CECL_SM_REDUCE_ONLY), and all-to-alls that are in place or have a private
     * sendbuff on any rank. In all reductions except ceclReduce and ceclReduceScatterTiles, SMs read the
     * inputs in the peers' memory, if no input is private. */
    CECL_DIRECTION_PULL = 2
} ceclDirection_t;

/* Where ranks run (ceclConfig_t.device). */
typedef enum {
    /* Default. CUDA if each rank has a GPU of its own, otherwise the host device. If the host
     * device is chosen, rank 0 says so on stderr, once in a process. */
    CECL_DEVICE_AUTO = 0,
    CECL_DEVICE_CUDA = 1, /* CUDA, or an error */
    CECL_DEVICE_HOST = 2  /* the host device, also where there are GPUs */
} ceclDevice_t;

/* Values of ceclConfig_t.cudaDevice, which chooses this rank's GPU. A value of 0 or more is a CUDA
 * ordinal. */
/* Default: the calling thread's current CUDA device, as in NCCL. */
#define CECL_CUDA_DEVICE_CURRENT (-1)
/* The rank modulo the number of visible GPUs. This GPU also becomes the caller's current device. */
#define CECL_CUDA_DEVICE_BY_RANK (-2)

/* The id by which ranks find each other. One rank makes it with ceclGetUniqueId, and the program sends it
 * to all others. The id holds a secret: every process that has the id can join. */
#define CECL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[CECL_UNIQUE_ID_BYTES];
} ceclUniqueId;

/* Settings of one communicator. Start from CECL_CONFIG_INITIALIZER; a field left at CECL_UNDEF
 * takes its default. The environment variable named last in a field's comment overrides the field
 * if the variable is set (docs/env.md). All fields must be equal on all ranks, except cudaDevice
 * and registerOnUse. */
#define CECL_UNDEF (-1)
typedef struct ceclConfig {
    size_t size;          /* set by the initializer */
    unsigned int magic;   /* set by the initializer */
    unsigned int version; /* set by the initializer */
    int device;           /* ceclDevice_t; CECL_DEVICE */
    int cudaDevice; /* an ordinal, or CECL_CUDA_DEVICE_CURRENT or _BY_RANK; CECL_CUDA_DEVICE */
    int smPolicy;   /* ceclSmPolicy_t; CECL_SM_POLICY */
    /* Longest wait for peers, ms; 0: no limit; default 30000; CECL_TIMEOUT_MS. The error comes up to
     * 1.4 s after this limit. (If several peers are late, up to 3.4 s: this rank first lets one of them
     * name the rank at fault.) If this process is stopped for more than 1.4 s (SIGSTOP, a debugger),
     * that time does not count for enqueued calls, except for small calls that are one kernel. */
    int timeoutMs;
    /* Address range of each rank's pool, bytes; default: the memory of the smallest GPU (host
     * device: 4 GiB); CECL_POOL_BYTES. */
    int64_t poolBytes;
    /* Size of the pool's first growth, bytes. Each later growth is twice the previous one, up to 16 times
     * the first. Default: 64 MiB (host device: 1 MiB); CECL_SEGMENT_BYTES. */
    int64_t segmentBytes;
    /* Staging for all-to-all, gather, scatter, reductions and small calls, bytes on each rank;
     * default: a small part of the smallest GPU's memory, by the tuning table (the rows staging.*
     * that `cecl_info --tuning` prints); CECL_STAGING_BYTES. */
    int64_t stagingBytes;
    /* Most SMs that a kernel of cecl may take, 1 to 1024; default: by the tuning table. Results do
     * not depend on it. The kernels wait for peers while they hold these SMs: see
     * ceclReduceScatter. CECL_MAX_SMS. */
    int maxSms;
    /* 1: a call registers the memory that it uses, as ceclCommRegister does. 0: memory that was not
     * registered is private (see Buffers). Default 1; CECL_REGISTER_ON_USE. */
    int registerOnUse;
    /* 1: this communicator is urgent. Its flags (by which ranks signal each other) and its small calls
     * that only move data go through pinned memory of the host (small: see the tuning table's row
     * urgent.max_bytes). There they do not wait for copies between GPUs, such as another communicator's
     * prefetch, but they do wait for large copies to and from the host. The calls are still zero SM. The
     * data of these calls never goes through the host: calls that share a group with others, captured
     * calls, calls with a direction chosen, calls of strided blocks, ceclAlltoAllv and ceclAlltoAllvAt,
     * messages, one-sided calls, and calls by kernels (CECL_SM_ALLOW). Default 0; CECL_URGENT. */
    int urgent;
} ceclConfig_t;
#define CECL_CONFIG_MAGIC 0xcec1c0deu
#define CECL_CONFIG_INITIALIZER \
    { \
        sizeof(ceclConfig_t), CECL_CONFIG_MAGIC, CECL_VERSION, CECL_UNDEF, \
            CECL_CUDA_DEVICE_CURRENT, CECL_UNDEF, CECL_UNDEF, CECL_UNDEF, CECL_UNDEF, CECL_UNDEF, \
            CECL_UNDEF, CECL_UNDEF, CECL_UNDEF \
    }

/* The caller's exchange for ceclCommInitOob. allGather is collective over the ranks, returns 0 on
 * success, and must bound its own waits. It is called only until init returns. */
typedef struct {
    void *context; /* passed to allGather */
    /* send: `bytes` bytes of this rank; recv: nranks * bytes, in rank order */
    int (*allGather)(void *context, const void *send, void *recv, size_t bytes);
    int (*barrier)(void *context); /* never called since 0.3; may be NULL */
} ceclOob_t;

/* ------------------------------------------------------------------------------------------------
 * Errors and versions */

/* Tells the library's version in the form of CECL_VERSION (major * 10000 + minor * 100 + patch).
 * version  [out]
 * Local. Threads: any. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclGetVersion(int *version);

/* Names a result in a few words; never NULL.
 * Local. Threads: any. Ownership: a constant. Errors: none. */
CECL_API const char *ceclGetErrorString(ceclResult_t result);

/* The message of the last error; never NULL, empty if there was none. It begins with the function that
 * failed, unless the communicator has failed.
 * comm  may be NULL. If comm has failed, the call returns the message of its asynchronous error,
 *       otherwise the message of this thread's last error.
 * Local. Threads: any. Ownership: cecl's; valid until this thread's next call. Errors: none. */
CECL_API const char *ceclGetLastError(ceclComm_t comm);

/* ------------------------------------------------------------------------------------------------
 * Communicators */

/* Makes an id by which ranks meet over TCP. This process listens until all ranks have joined.
 * id  [out] the id. Send it to every rank by any means (MPI, a file, an environment variable). An id
 *     serves for one communicator; ceclCommInitRankConfig says when it may be used again.
 * CECL_SOCKET_IFNAME names the network interface to listen on; default: loopback, which only ranks on
 * this host and in the same network namespace (container) can reach. Set the variable if ranks are on
 * several hosts; for ceclCommInitOob and ceclCommInitMpi set it on rank 0, which then makes such an id.
 * Local. Threads: any. Ownership: the id is the caller's. Listening ends when the communicator is
 * made or has failed, when no rank has come within CECL_INIT_TIMEOUT_MS, or with this process.
 * Errors: ceclInvalidArgument (NULL; a bad CECL_INIT_TIMEOUT_MS), ceclSystemError (no interface, no
 * socket), ceclOutOfMemory. */
CECL_API CECL_CHECKED ceclResult_t ceclGetUniqueId(ceclUniqueId *id);

/* Joins a communicator with default settings; see ceclCommInitRankConfig. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitRank(ceclComm_t *comm, int nranks, ceclUniqueId id,
                                                    int rank);

/* Joins a communicator of `nranks` ranks as `rank`. All flags, staging and connections to peers
 * exist when the call returns.
 * comm    [out] written on success only; in a group at the outermost ceclGroupEnd.
 * nranks  1 .. 1024, equal on all ranks.
 * id      from one call of ceclGetUniqueId on one rank. The id stays usable if `nranks` is refused. If
 *         nranks is 1, the id stays usable after any refusal. Once peers have learned of a failure, the
 *         id is used up, and the message says so.
 * rank    0 .. nranks - 1, each once.
 * config  NULL for defaults; read during the call only.
 * Collective, blocking; waits at most CECL_INIT_TIMEOUT_MS (default 60000), and 2 s more if several
 * ranks are late.
 * Hosts: ranks share a host if they run under one boot of a kernel, in one network namespace. On
 * GPUs, NCCL (2.17 or later, loaded at run time, the same version on all ranks) carries out the calls
 * of a communicator over several hosts. The host device refuses such communicators (ceclInvalidUsage).
 * - NCCL does the arithmetic, and every call takes SMs: CECL_SM_NEVER is refused. maxSms limits
 *   NCCL's kernels, and cannot change later; direction has no effect.
 * - NCCL carries out collectives with equal or variable counts, ceclBarrier, messages, and groups. A
 *   group may also have calls on communicators of one host. Each call becomes one call of NCCL, or a
 *   group of NCCL's sends and receives. Buffers may be any memory of the rank's GPU. Graphs can capture
 *   the calls that NCCL can capture; destroy these graphs before the communicator.
 * - Refused (ceclInvalidUsage; the message names the call to make instead): strided calls, tiles,
 *   ceclReduceScatterAs, splits on the device, an all-to-all in place, one-sided calls and windows, pointers to peers'
 *   memory, ceclCommGetDeviceComm, ceclCommGetSharedMemory, ceclCommShrink, and fp8 reductions with
 *   NCCL before 2.24. cudaStreamPerThread is also refused (ceclInvalidArgument).
 * - ceclMemAlloc is local: it gives memory of this rank alone, and sizes may differ between ranks.
 *   ceclCommRegister only checks the memory. Calls are not compared, not even under CECL_CHECK=1.
 * - ceclCommSplit can make communicators of ranks on one host. cecl itself carries out their calls.
 * - The communicator fails when a rank ends, gives up or revokes it, when NCCL reports an error, or
 *   when a call outside of graphs takes longer than the timeout once its stream has begun it. NCCL does
 *   not say for which rank it waits, so the error names a rank only if that rank has left. The process
 *   that made the id must live as long as the ranks, because they learn of each other's ends through
 *   it. After a failure the remaining ranks join anew, with a new id.
 * CECL_NODE_SIZE and CECL_HOST_ID pretend that there are several hosts.
 * Threads: ranks may be threads of one process, each calling for itself. One thread may call for
 * several ranks in a group: arguments are read and checked at the call, CECL_CUDA_DEVICE_CURRENT
 * means the device that is current at the call, and all ranks join at the outermost ceclGroupEnd.
 * If one rank cannot join, this process keeps no communicator of the group, and the peers learn why.
 * Calls on the communicator must come after that group.
 * Ownership: the communicator is the caller's until ceclCommDestroy or ceclCommAbort.
 * Errors, on every rank that can learn of them; no communicator is made:
 *   ceclInvalidArgument  NULL; a rank out of range or taken twice; a setting or an environment variable
 *                        out of range; nranks or settings differ between ranks.
 *   ceclInvalidUsage     The id was used before, or is not an id. Ranks of several hosts are on the host
 *                        device, or have different versions of NCCL. Ranks have different versions of
 *                        cecl. GPUs cannot reach each other's memory. Under CECL_DEVICE_CUDA a rank has
 *                        no GPU, or two ranks share one without CECL_SHARE_GPU=1 (with it, each of
 *                        the two needs a process of its own).
 *   Also ceclRemoteError, ceclTimeout, ceclSystemError, ceclUnhandledCudaError, ceclOutOfMemory. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitRankConfig(ceclComm_t *comm, int nranks,
                                                          ceclUniqueId id, int rank,
                                                          const ceclConfig_t *config);

/* Makes all ranks of a communicator in this process, one for each device.
 * comms    [out] ndev handles, comms[i] is rank i; written on success only.
 * ndev     number of ranks, 1 .. 1024. For a moment the process needs more than ndev * ndev + 4 * ndev
 *          descriptors; ceclSystemError if `ulimit -n` (above 1022 ranks also fs.nr_open) allows fewer.
 * devlist  [ndev] CUDA ordinals, 0 or more, each once; NULL for 0 .. ndev-1. The host device ignores it.
 * Local to the process, blocking. A program with one thread makes the ceclMemAlloc calls of all its
 * ranks between ceclGroupStart and ceclGroupEnd. It should also make collectives in a group:
 * outside a group every rank except the first comes late to each collective (see Collectives). These
 * calls wait for the other ranks, so they need a thread for each rank: ceclCommSplit, ceclCommShrink,
 * ceclWindowShare, ceclWindowFree and ceclAlltoAllv; under CECL_CHECK=1 ceclMemFree. If they are in no
 * group, so do captured calls, collectives of more than 64 ranks, and under CECL_CHECK=1 all collectives.
 * Ownership, errors: as ceclCommInitRankConfig. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitAll(ceclComm_t *comms, int ndev, const int *devlist);

/* Joins a communicator through the caller's own exchange of data (a store, or MPI).
 * oob  its allGather must be set on every rank; it is used until this call returns.
 * Other parameters as ceclCommInitRankConfig. Collective, blocking; refused in a group
 * (ceclInvalidUsage). Threads, ownership, errors: as ceclCommInitRankConfig, and ceclSystemError if
 * a callback fails. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitOob(ceclComm_t *comm, int nranks, int rank,
                                                   const ceclOob_t *oob,
                                                   const ceclConfig_t *config);

/* The color of a rank that joins no new communicator in ceclCommSplit. NCCL's value. */
#define CECL_SPLIT_NOCOLOR (-1)

/* Splits a communicator: ranks with equal colors form a new one. `comm` stays as it is. From then
 * on the communicators are independent: each has its own memory, streams and threads. They may be
 * destroyed in any order, and the failure of one does not affect another. (If a rank dies, all its
 * communicators fail.) Memory of ceclMemAlloc belongs to the communicator that allocated it; for
 * calls on the others it is ordinary memory of the device. Memory that is registered with `comm` is
 * registered with the new communicator too, until the new one ends or finds that the memory was freed.
 * color    0 or more, or CECL_SPLIT_NOCOLOR.
 * key      any number. The new communicator numbers its ranks by their keys, and ranks with equal
 *          keys by their numbers in `comm`.
 * newcomm  [out] written on success only. It must not be NULL, even with CECL_SPLIT_NOCOLOR; in that
 *          case the handle becomes NULL.
 * config   NULL: the settings of `comm`, without its options (ceclSetOptions). Otherwise the new
 *          communicator's settings, read during the call only, and equal on all ranks of a color.
 *          cudaDevice is ignored, because the rank keeps its GPU; device must be AUTO, or the kind
 *          that `comm` runs on.
 * Collective over `comm`: all ranks call, even those without a color; not in a group. Blocking;
 * waits at most the timeout of `comm` (over several hosts CECL_INIT_TIMEOUT_MS) for ranks that have not
 * come to the call, and then at most CECL_INIT_TIMEOUT_MS while the new communicators are made.
 * Threads: one call at a time on `comm`; ranks that are threads each call for themselves.
 * Ownership: as ceclCommInitRankConfig; `comm` stays the caller's.
 * Errors, no communicator made, `comm` still usable: ceclInvalidArgument (newcomm NULL; another negative
 * color; a wrong config; device of another kind), ceclInvalidUsage (between ceclGroupStart and
 * ceclGroupEnd; a rank is in another call, or its arguments are refused).
 * If a new communicator cannot be made, only its ranks get an error, as from
 * ceclCommInitRankConfig; `comm` stays usable. ceclRemoteError or ceclTimeout: a rank did not come,
 * and `comm` has failed. Error texts name ranks by number in `comm`. */
CECL_API CECL_CHECKED ceclResult_t ceclCommSplit(ceclComm_t comm, int color, int key,
                                                 ceclComm_t *newcomm, const ceclConfig_t *config);

/* Makes a new communicator of the ranks of `comm` that stay; they keep their order. With this call a
 * program can go on after ranks have died, whether `comm` has failed or not. The call changes nothing
 * on `comm`: the caller still destroys it, and its memory stays until then. If a rank that stays knows
 * that `comm` has failed, the call first waits for all work that the staying ranks have enqueued on
 * `comm`, so none of their copies reaches buffers of later calls. It waits 5 s at most. If work is
 * pending after that, CECL_DEBUG=warn prints a line, and copies of this work may still arrive.
 * Copies of an excluded rank that is alive may also still arrive.
 * excludeRanks  [excludeCount] ranks of `comm` that do not stay, each once, in any order. All ranks
 *               that stay name the same ranks. NULL where excludeCount is 0.
 * excludeCount  0 .. nranks-1. With 0 all ranks stay, for example after a timeout.
 * newcomm       [out] written on success only.
 * config        as in ceclCommSplit.
 * Collective over the ranks that stay; excluded ranks, dead or alive, do not call. Not in a group.
 * Blocking; waits for CECL_INIT_TIMEOUT_MS at most.
 * Threads, ownership: as ceclCommSplit.
 * Errors: no communicator is made, and all ranks that stay get an error.
 *   ceclInvalidArgument  newcomm NULL; excludeCount out of range; excludeRanks NULL, but excludeCount
 *                        not 0; a rank out of range or listed twice; a wrong config; the list names the
 *                        calling rank (ranks that do not exclude it get ceclInvalidUsage).
 *   ceclInvalidUsage     Ranks exclude different ranks; the message has both lists. Or the call is
 *                        between ceclGroupStart and ceclGroupEnd: then only the caller gets it.
 *   ceclRemoteError      A rank that should stay has died or destroyed `comm`; the message names it.
 *   ceclTimeout          A rank that should stay did not come; the message names it.
 * Also the errors of ceclCommInitRankConfig. Error texts name ranks by number in `comm`. After an
 * error the call may be made again, for example with another list. If lists differed, a rank that comes
 * only afterwards may also get ceclInvalidUsage, even with the right list: let it call again. */
CECL_API CECL_CHECKED ceclResult_t ceclCommShrink(ceclComm_t comm, const int *excludeRanks,
                                                  int excludeCount, ceclComm_t *newcomm,
                                                  const ceclConfig_t *config);

/* Tells the number of ranks.
 * count  [out]
 * Local. Threads: any. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclCommCount(ceclComm_t comm, int *count);

/* Tells which rank this is.
 * rank  [out]
 * Local. Threads: any. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclCommUserRank(ceclComm_t comm, int *rank);

/* Tells the CUDA ordinal of this rank's GPU.
 * device  [out] -1 on the host device.
 * Local. Threads: any. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclCommCuDevice(ceclComm_t comm, int *device);

/* Tells which ranks share a host (see Hosts in ceclCommInitRankConfig).
 * nodes  [nranks] [out] for each rank its host's number; rank 0's host is 0, the next new host 1.
 * Local. Threads: any. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclCommNodes(ceclComm_t comm, int *nodes);

/* Waits until this rank's calls on `comm`, and all work on streams of ceclStreamCreate, are
 * done. After that, make only the calls that are listed in Failure at the top.
 * Local, blocking: also waits for the peers to do their parts of this rank's calls. The timeout bounds
 * waits for peers, but not the caller's own work that comes before a call in its stream. (While
 * another thread frees memory, the timeout bounds both, because the driver then does not report the
 * stream's progress.)
 * Threads: one call at a time. Ownership: unchanged.
 * Errors: ceclInvalidUsage (finalized before; a stream of ceclStreamCreate is capturing; this
 * thread has calls on comm in a group that it has not ended: nothing changes, and the group goes on),
 * and the asynchronous error. */
CECL_API CECL_CHECKED ceclResult_t ceclCommFinalize(ceclComm_t comm);

/* Finalizes `comm` if the caller did not, then frees everything: pool, mappings, sockets, threads,
 * streams of ceclStreamCreate. (After a failure, memory that pending work may still touch stays mapped.)
 * The call never hangs: it aborts collectives that do not end within the timeout (30 s if timeoutMs is
 * 0). Memory of ceclMemAlloc is freed, so all that uses it elsewhere must be over: copies and kernels on
 * the caller's own streams, and calls of other communicators. Registered memory stays the caller's; peers
 * keep it open until they destroy their communicators, or have no pending call for a moment. `comm` has
 * ended even when an error is returned.
 * Local, blocking (bounded; but on GPUs it also waits for other pending work of this process,
 * because CUDA waits for such work when it frees memory). Threads: the last call on comm. Ownership: no
 * longer the caller's.
 * Errors: ceclTimeout; the asynchronous error; ceclInvalidUsage if a stream of ceclStreamCreate is
 * capturing, if graphs hold captured calls (destroy the graphs first; otherwise memory of comm stays
 * mapped), or if this thread has an open group with calls on comm (the group's calls are dropped). */
CECL_API ceclResult_t ceclCommDestroy(ceclComm_t comm);

/* Gives up: ends this rank's pending waits, tells the peers (their communicators fail with
 * ceclRemoteError), and frees everything. If none of this rank's calls is pending, the rank only
 * leaves (see Failure), as with ceclCommDestroy. (After ceclGetPeerPointer, ceclWindowPointer or
 * ceclCommGetDeviceComm it always gives up.) `comm` is gone in any case.
 * Local, blocking (bounded). Threads: the last call on comm; no other thread may be inside a call
 * on it. A thread that waits in cudaStreamSynchronize is not inside a call of cecl; its wait ends.
 * Ownership: no longer the caller's. Errors: ceclInvalidArgument. */
CECL_API ceclResult_t ceclCommAbort(ceclComm_t comm);

/* Makes the communicator fail, here and on all peers, as a rank's death would: pending collectives
 * end, and a thread that is inside a call on `comm` gets an error soon. (Only ceclCommShrink goes
 * on, because it works on failed communicators; its own time limit ends it.) To end a communicator
 * that another thread uses: revoke it, wait until that thread is out of its call, and call
 * ceclCommAbort.
 * Local; does not wait. Threads: any. Ownership: unchanged. Errors: ceclInvalidArgument. */
CECL_API ceclResult_t ceclCommRevoke(ceclComm_t comm);

/* Tells whether the communicator has failed (see Failure and Results at the top). The call first
 * reads all that peers have published.
 * asyncError  [out] ceclSuccess or the cause, which never changes once it is set;
 *             ceclGetLastError(comm) has the message.
 * Local; does not wait. Threads: any. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclCommGetAsyncError(ceclComm_t comm, ceclResult_t *asyncError);

/* ------------------------------------------------------------------------------------------------
 * Symmetric memory */

/* Allocates `bytes` of symmetric memory: at the same offset on every rank, and reachable by all.
 * ptr    [out] address on this rank's device, 256-byte aligned; untouched on failure. Not zeroed.
 * bytes  size on each rank, equal on all; rounded up to 256. 0 gives *ptr = NULL.
 * Collective; blocks for one exchange if the pool must grow (on all ranks in the same call);
 * otherwise returns at once and exchanges nothing (except under CECL_CHECK=1). In a group the
 * allocation is made at the outermost ceclGroupEnd, and only then *ptr is written, so one thread
 * may allocate for several ranks. Not capturable.
 * Threads: one call at a time. Ownership: the caller's until ceclMemFree on every rank; comm's
 * end frees all allocations.
 * Errors, nothing allocated:
 *   ceclInvalidArgument  NULL.
 *   ceclInvalidUsage     Ranks differ in their sequence of ceclMemAlloc and ceclMemFree. This is noticed
 *                        when the pool grows, and under CECL_CHECK=1 at every call.
 *   ceclOutOfMemory      On any rank; the message says which. If this rank had no host memory for its list
 *                        of allocations, the communicator has failed.
 *   ceclRemoteError; ceclTimeout (a rank did not come: the communicator has failed). */
CECL_API CECL_CHECKED ceclResult_t ceclMemAlloc(ceclComm_t comm, void **ptr, size_t bytes);

/* Gives symmetric memory back to the pool, where it stays mapped for the next ceclMemAlloc.
 * ptr  exactly what ceclMemAlloc gave, or NULL (no effect). Work that uses the memory must be over, or
 *      must be ordered before all work that uses it as a later allocation.
 * The call may close memory that peers have freed, and so break captures: see ceclStreamSynchronize.
 * Collective, in the same order on all ranks; exchanges nothing, except under CECL_CHECK=1.
 * Threads: one call at a time.
 * Ownership: no longer the caller's.
 * Errors: ceclInvalidArgument (not the start of an allocation, or freed before), ceclInvalidUsage
 * (a graph holds a captured call that uses the memory; a window shares it on any rank; under
 * CECL_CHECK=1: ranks free different allocations). */
CECL_API CECL_CHECKED ceclResult_t ceclMemFree(ceclComm_t comm, void *ptr);

/* Translates a pointer into this rank's symmetric memory to the same place at a peer. The result
 * may be used in kernels and copies, and on the host device by the program itself.
 * After this call peers may wait for what this rank writes to them, so ceclCommAbort and the end of
 * this process fail the communicator on every rank, even if no call is pending.
 * ptr      inside an allocation of ceclMemAlloc on this rank.
 * peer     0 .. nranks-1; this rank's own number gives ptr.
 * peerPtr  [out]
 * Local. Threads: one call at a time. Ownership: the peer's; valid while the allocation lives on
 * both ranks.
 * Errors: ceclInvalidArgument (outside every allocation, peer out of range, NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclGetPeerPointer(ceclComm_t comm, const void *ptr, int peer,
                                                      void **peerPtr);

/* ------------------------------------------------------------------------------------------------
 * Registered memory: see Buffers at the top. No program needs these calls: peers open and close memory
 * by themselves. With these calls the program decides when.
 *
 * A peer opens memory at its first call that copies to or from it; this call waits until the memory is
 * open. Peers keep freed memory open until this rank notices that the program freed it: at a call
 * that uses the address again, or when this rank registers other memory. Until then the GPU may keep
 * the freed memory. To give memory back at once, register it, deregister it, and then free it. */

/* One registration. */
typedef struct ceclRegistration *ceclRegistration_t;

/* Registers memory of the caller before its first use, so that peers have opened it by the time a
 * call uses it. A call that comes sooner waits until peers have opened the memory. Memory that a call
 * used before is not opened ahead.
 * ptr     start of the range, anywhere inside an allocation of this rank's device. The whole
 *         allocation is registered; if it has several handles, only those that the range touches.
 * bytes   1 or more; the range must be memory throughout.
 * handle  [out] for ceclCommDeregister; written on success only.
 * Local: tells the peers; at each peer a thread of cecl opens the memory in the background.
 * Ranges may overlap, and be registered several times; memory of ceclMemAlloc may be registered,
 * without effect.
 * Threads: one call at a time. Ownership: the memory stays the caller's; it may be freed before
 * ceclCommDeregister once no call uses it. The registration ends with comm at the latest.
 * Errors, nothing registered: ceclInvalidArgument (NULL, 0 bytes; host memory, managed memory,
 * memory of another device, freed memory; a range that passes the end of its allocation),
 * ceclInvalidUsage (memory that other processes cannot open; symmetric memory that was freed, or past the
 * end of its allocation), ceclTimeout (a peer does not receive what this rank tells it). */
CECL_API CECL_CHECKED ceclResult_t ceclCommRegister(ceclComm_t comm, void *ptr, size_t bytes,
                                                    ceclRegistration_t *handle);

/* Ends a registration. When the memory's last registration by ceclCommRegister ends, peers close the
 * memory, even if calls have also registered it. They do so at their next ceclStreamSynchronize,
 * ceclMemFree or ceclCommDeregister that finds their GPU without work. A later call registers the memory
 * again.
 * The call may close memory that peers have freed, and so break captures: see ceclStreamSynchronize.
 * Local: tells the peers. Threads: one call at a time. Ownership: handle is gone on success.
 * Errors, nothing changed: ceclInvalidArgument (no such registration), ceclInvalidUsage (a pending
 * call uses the memory; calls of comm are in a group that has not ended). If a peer does not receive what
 * this rank tells it (ceclTimeout), the handle is gone, too. */
CECL_API CECL_CHECKED ceclResult_t ceclCommDeregister(ceclComm_t comm, ceclRegistration_t handle);

/* What the pool of this rank holds. */
typedef struct {
    uint64_t reservedBytes; /* address range of the pool */
    uint64_t mappedBytes;   /* the part that is backed by memory and mapped at every peer */
    uint64_t usedBytes;     /* in live allocations, including cecl's own flags and staging */
    uint64_t peakBytes;     /* largest usedBytes so far */
    uint64_t segments;      /* times the pool grew */
    uint64_t allocations;   /* live allocations, including cecl's own */
    /* exchanges with all peers so far: for init, growth, splits, windows and ceclAlltoAllv, and for
     * comparisons under CECL_CHECK=1. Each of these may need several exchanges */
    uint64_t exchanges;
} ceclPoolStats_t;

/* Reads the pool's counters.
 * stats  [out]
 * Local. Threads: one call at a time. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclPoolStats(ceclComm_t comm, ceclPoolStats_t *stats);

/* How often calls of this rank were late (see Collectives). A group counts as one call. */
typedef struct {
    uint64_t told; /* calls for which ranks told each other where their buffers lie */
    uint64_t late; /* how many of these calls were late; they may take three times as long */
} ceclCallStats_t;

/* Reads the counters of calls since init, also after `comm` was finalized or has failed.
 * stats  [out]
 * Local. Threads: one call at a time. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclCallStats(ceclComm_t comm, ceclCallStats_t *stats);

/* ------------------------------------------------------------------------------------------------
 * Kernels of the caller's own */

/* How many barriers and signals each communicator has; they are zeroed at init. A barrier is among one
 * thread block of every rank; a signal goes from any rank to any other. */
#define CECL_DEVICE_BLOCKS 64
#define CECL_DEVICE_SIGNALS 64

/* What a kernel needs to reach its peers. It is passed to the kernel by value; cecl/cecl_device.h
 * has the functions that take it. A program may change timeoutNs in its copy. */
typedef struct ceclDeviceComm {
    int rank, nranks;
    int blocks, signals; /* CECL_DEVICE_BLOCKS and _SIGNALS of the library */
    /* [nranks] where this rank has mapped each rank's slice of symmetric memory. There may be gaps
     * between slices. The table lies in memory of the device. On CUDA only kernels can read it; host
     * code calls ceclGetPeerPointer. On the host device host code reads it. */
    char *const *slices;
    /* This rank's words, in its slice: [blocks][nranks] of barriers, then [signals][nranks] of
     * signals, then one word that ends all waits. The second index is the rank that writes the
     * word. The words lie at the same place in the slice of every rank. */
    uint32_t *pads;
    uint64_t timeoutNs; /* bound of each wait: the communicator's timeoutMs; 0 = none */
} ceclDeviceComm_t;

/* Returns what kernels of this rank need to reach the peers' symmetric memory and to wait for the
 * peers' kernels. *dc is valid until comm is destroyed, even for memory that is allocated later.
 * After this call ceclCommAbort and the end of this process fail the communicator on every rank, even
 * if no call is pending, so that kernels of peers stop waiting for this rank.
 * dc  [out] written on success only. On the host device host code passes it to functions of cecl_device.h.
 * Local. Threads: one call at a time. Ownership: plain data; what it points to is comm's.
 * Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclCommGetDeviceComm(ceclComm_t comm, ceclDeviceComm_t *dc);

/* ------------------------------------------------------------------------------------------------
 * Collectives
 *
 * A collective enqueues all of its work and returns. Its stream waits for the peers. "Results",
 * "Buffers" and "Agreement" at the top hold for all collectives.
 *
 * At each call, or group, ranks tell each other through shared memory where their buffers lie. (Small
 * calls, ceclBarrier, calls without effect, lone calls with splits on the device and communicators of one
 * rank do not need this.) The calling thread waits a little for peers that have not told this yet. If a
 * peer does not come in that time, the call is late. In a late call the later one of any two ranks moves
 * the bytes of both directions, because the earlier one does not know the later one's buffers. Late calls
 * have the same results. A call that only moves data takes no extra SMs when it is late.
 *
 * The calling thread waits for
 *   - a peer that has not told yet where its buffers lie. The thread waits in three steps:
 *       1. While this rank's GPU has yet to do calls that come before the peer's latest call. This wait
 *          costs the GPU no time. The step also ends if the GPU makes no progress for 50 ms
 *          (late.behind_ns).
 *       2. If the peer has made the preceding call: 20 us (late.wait_ns), plus the time that this rank
 *          has just spent on registering memory (at most 100 ms).
 *       3. The longer of two times, A and B. A applies on GPUs, if the peer has made the preceding
 *          call. A is 2.5 us for each MiB that this rank sends to its peers (4.4 us on more than 2
 *          ranks; late.wait_ns_per_mib), because a late call takes that much longer. B applies to any
 *          peer, while an earlier call of this rank is pending on its GPU. B is at most 500 us
 *          (late.pending_ns). In all calls together this step takes at most 2 ms plus a 64th of the
 *          program's time (late.pending_sum_ns).
 *     cecl_info --tuning prints these times. With more than 64 ranks no call is late: each rank
 *     waits until all have made the call.
 *   - memory of a peer that is used for the first time: until this rank has opened it.
 *   - a peer that is 8192 calls behind (fewer among more than 7 ranks): until its next call.
 *   - the peers' threads in ceclAlltoAllv, and under CECL_CHECK=1.
 *   - its own GPU, for at most 5 s, if this process still has open more than 256 MiB that peers freed.
 * The timeout bounds each wait for which this list gives no time: after it, the communicator fails. */

/* Gathers `sendcount` elements from every rank into `recvbuff`, in rank order, on copy engines.
 *
 *     rank 0: [a]      recvbuff on every rank: [a][b][c]
 *     rank 1: [b]
 *     rank 2: [c]      in place: sendbuff == recvbuff + rank * sendcount
 *
 * sendbuff   [sendcount] elements, in any memory of this rank's device (see Buffers).
 * recvbuff   [nranks * sendcount] elements, likewise. Peers use both buffers only after this rank's
 *            `stream` has reached the call.
 * sendcount  elements, equal on all ranks; 0: the call has no effect.
 * stream     orders the call; may be the legacy default stream (0). Work that follows the call in
 *            `stream` may reuse both buffers. Calls on different streams of one communicator run in
 *            the order in which they were made.
 *
 * Collective: all ranks call with equal sendcount and datatype, in the same order on `comm`. Some
 * ranks may be in place and others not.
 * Threads: one call at a time. Ownership: buffers stay the caller's.
 * Errors, nothing enqueued:
 *   ceclInvalidArgument  NULL; partly overlapping buffers; unknown datatype; size overflow; memory of the
 *                        host or of another device, managed memory, freed memory; a buffer that passes
 *                        the end of its allocation; a stream of another device; on the host device a
 *                        destroyed stream.
 *   ceclInvalidUsage     Symmetric memory that was freed, or past the end of its allocation; a peer's
 *                        symmetric memory; only some ranks capture the call into a graph (the
 *                        communicator fails); under CECL_SM_NEVER a call out of place on a communicator
 *                        of one rank; under CECL_CHECK=1 ranks differ.
 *   ceclOutOfMemory      Also if there is no room for a bounce buffer. */
CECL_API CECL_CHECKED ceclResult_t ceclAllGather(const void *sendbuff, void *recvbuff,
                                                 size_t sendcount, ceclDataType_t datatype,
                                                 ceclComm_t comm, ceclStream_t stream);

/* Tells where this rank's own block lies in the recvbuff of an all-gather. If a kernel writes its
 * shard there, the all-gather can run in place.
 * recvbuff  [nranks * count] elements, as in ceclAllGather.
 * count     elements of one rank; datatype their type.
 * shard     [out] recvbuff + rank * count elements; written on success only.
 * Local. Threads: one call at a time. Ownership: shard is a part of recvbuff.
 * Errors: ceclInvalidArgument (NULL, unknown datatype, size overflow, memory that is not this
 * device's), ceclInvalidUsage (symmetric memory past the end of its allocation, or a peer's). */
CECL_API CECL_CHECKED ceclResult_t ceclShard(ceclComm_t comm, void *recvbuff, size_t count,
                                             ceclDataType_t datatype, void **shard);

/* Blocks of rows, for gathering and exchanging along any dimension of a tensor. All fields are in
 * elements and equal on all ranks. A pitch or stride of 0 takes the default that the call names. A
 * call with width 0 has no effect; any other call with rows 0 is refused.
 *
 * Example: a tensor [a, b, c] in C order is cut along b into blocks of b / nranks. A block then has
 * rows = a; a row is contiguous, with width = b / nranks * c. In the whole tensor the rows of a
 * block begin nranks * width apart. */
typedef struct ceclStrided {
    size_t width;      /* of a row */
    size_t rows;       /* of a block */
    size_t sendPitch;  /* in sendbuff, from one row of a block to the next */
    size_t sendStride; /* in sendbuff, from one block to the next; ceclAllGatherStrided: not used */
    size_t recvPitch;  /* in recvbuff, from one row of a block to the next */
    size_t recvStride; /* in recvbuff, from one block to the next */
} ceclStrided_t;

/* Gathers blocks of rows from every rank: along the last dimension by default.
 *
 *     rank 0: [a a]      recvbuff on every rank: [a a][b b][c c]
 *             [A A]                              [A A][B B][C C]
 *     rank 1: [b b]
 *             [B B]      width 2, rows 2, recvPitch 6, recvStride 2
 *     rank 2: [c c] ...
 *
 * Nothing is packed: copy engines move rows of 256 bytes or more at 0.946 to 0.997 of the rate of
 * contiguous bytes.
 * sendbuff  [rows] rows of [width] elements, sendPitch apart (default: width).
 * recvbuff  [nranks] such blocks, recvStride apart (default: width), of rows that are recvPitch
 *           apart (default: nranks * width). Bytes between rows are not touched. In place:
 *           sendbuff is recvbuff + rank * recvStride, and the pitches are equal.
 * strided   read during the call. Blocks of recvbuff must lie side by side (together no wider than
 *           recvPitch) or one below another; a pitch is 2147483647 bytes at most.
 * stream, collective, threads, ownership, errors: as ceclAllGather; ceclInvalidArgument also for
 * rows or blocks that overlap. */
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
 * sendbuff  [nranks * count] elements. In place when it is recvbuff; all ranks must be in place, or
 *           none. Blocks of a call in place pass through staging, in chunks.
 * recvbuff  [nranks * count] elements.
 * count     elements in one block, equal on all ranks; 0: the call has no effect.
 * buffers, stream, collective, threads, ownership, errors: as ceclAllGather; ceclInvalidUsage also
 * where staging is too small for so many ranks (the communicator fails). */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                                ceclDataType_t datatype, ceclComm_t comm,
                                                ceclStream_t stream);

/* Exchanges blocks of rows. By default sendbuff is cut along its last dimension, and recvbuff is put
 * together along its first.
 *
 *     sendbuff on rank 0: [a a][b b]     recvbuff on rank 0: [a a]
 *                         [A A][B B]                         [A A]
 *     sendbuff on rank 1: [c c][d d]                         [c c]
 *                         [C C][D D]                         [C C]     width 2, rows 2
 *
 * The way back (first dimension to last) has sendPitch = width, sendStride = rows * width,
 * recvPitch = nranks * width, recvStride = width.
 * sendbuff  [nranks] blocks, sendStride apart (default: width), of rows that are sendPitch apart
 *           (default: nranks * width). In place when it is recvbuff and has recvbuff's pitch and
 *           stride; all ranks must be in place, or none.
 * recvbuff  [nranks] blocks, recvStride apart (default: rows * recvPitch), of rows that are
 *           recvPitch apart (default: width). Bytes between rows are not touched.
 * strided   as in ceclAllGatherStrided.
 * stream, collective, threads, ownership, errors: as ceclAlltoAll; ceclInvalidArgument also for
 * rows or blocks that overlap. */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAllStrided(const void *sendbuff, void *recvbuff,
                                                       const ceclStrided_t *strided,
                                                       ceclDataType_t datatype, ceclComm_t comm,
                                                       ceclStream_t stream);

/* Gathers a different number of elements from each rank.
 *
 *     recvcounts {2, 0, 3}, displs {0, 2, 4}:     recvbuff on every rank: [a a . . c c c]
 *
 * sendbuff    [sendcount] elements. In place when it is recvbuff + displs[rank] elements.
 * sendcount   equal to recvcounts[rank].
 * recvbuff    only the bytes that blocks cover are written.
 * recvcounts  [nranks] elements of each rank, equal on all ranks; 0 allowed. Host memory, read
 *             during the call.
 * displs      [nranks] where each rank's block begins in recvbuff, in elements, equal on all ranks;
 *             NULL: one after the other. Blocks must not overlap. Host memory, as recvcounts.
 * stream, collective, threads, ownership, errors: as ceclAllGather. */
CECL_API CECL_CHECKED ceclResult_t ceclAllGatherv(const void *sendbuff, size_t sendcount,
                                                  void *recvbuff, const size_t recvcounts[],
                                                  const size_t displs[], ceclDataType_t datatype,
                                                  ceclComm_t comm, ceclStream_t stream);

/* Copies root's elements to every rank.
 * sendbuff  [count] elements, read by root alone; other ranks may pass NULL. In place when it is
 *           recvbuff on root.
 * recvbuff  [count] elements.
 * count     elements, equal on all ranks; 0: the call has no effect.
 * root      0 .. nranks-1, equal on all ranks.
 * buffers, stream, collective, threads, ownership, errors: as ceclAllGather; ceclInvalidArgument
 * also for a root that is no rank. */
CECL_API CECL_CHECKED ceclResult_t ceclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                                 ceclDataType_t datatype, int root, ceclComm_t comm,
                                                 ceclStream_t stream);

/* Sends a block to each rank and receives one from each; all blocks may differ in size.
 *
 *     rank 0: sendcounts {2, 1}  sendbuff [a a b]    recvcounts {2, 3}  recvbuff [a a c c c]
 *     rank 1: sendcounts {3, 0}  sendbuff [c c c]    recvcounts {1, 0}  recvbuff [b]
 *
 * sendbuff    memory as in ceclAllGather, not overlapping recvbuff; a rank that sends nothing may
 *             pass NULL.
 * sendcounts  [nranks] elements for each rank; 0 allowed. This and the other arrays are host
 *             memory, read during the call; ranks may differ in all of them.
 * sdispls     [nranks] where the block for each rank begins in sendbuff, in elements; NULL: one
 *             after the other.
 * recvbuff    memory as in ceclAllGather; a rank that receives nothing may pass any address but
 *             NULL. Bytes that no block covers are not touched.
 * recvcounts  [nranks] elements from each rank, equal to that rank's sendcounts for this rank.
 * rdispls     [nranks] where the block from each rank begins in recvbuff, in elements; NULL: one
 *             after the other. Blocks must not overlap.
 * stream      as in ceclAllGather.
 *
 * A rank must know where its blocks belong at its peers, so the ranks' host threads exchange their
 * layouts at each call: the calling thread waits for the peers' threads, but for no stream. Because
 * of this exchange the call is refused within a group. If the caller knows the places,
 * ceclAlltoAllvAt does the same without waiting.
 * Collective: all ranks call, with equal datatype, in the same order on `comm`.
 * Threads: one call at a time. Ownership: buffers stay the caller's.
 * Errors, nothing enqueued on any rank: as ceclAllGather, and ceclInvalidArgument (counts or
 * displacements beyond an address space; blocks of recvbuff that overlap), ceclInvalidUsage
 * (sendcounts of one rank and recvcounts of another differ: the message names both; another rank's
 * arguments are refused; within a group), ceclTimeout (a rank did not come: the communicator has
 * failed). */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAllv(const void *sendbuff, const size_t sendcounts[],
                                                 const size_t sdispls[], void *recvbuff,
                                                 const size_t recvcounts[], const size_t rdispls[],
                                                 ceclDataType_t datatype, ceclComm_t comm,
                                                 ceclStream_t stream);

/* Does what ceclAlltoAllv does, for a caller that knows where its blocks belong at the peers. So ranks
 * exchange no layouts, the host waits no longer than in other calls, and the call may be in a group.
 * peerdispls  [nranks] where this rank's block begins in the recvbuff of each rank, in elements;
 *             equal to that rank's rdispls for this rank. Ignored for empty blocks.
 * Other parameters as in ceclAlltoAllv. If counts or places of two ranks do not agree, recvbuff has
 * undefined contents, but nothing is written after the last block of recvbuff. CECL_CHECK=1 compares
 * counts and places.
 * Collective: all ranks call, with equal datatype, in the same order on `comm`.
 * Threads: one call at a time. Ownership: buffers stay the caller's.
 * Errors, nothing enqueued: as ceclAllGather, and ceclInvalidArgument (counts or displacements
 * beyond an address space; blocks of recvbuff that overlap; counts or places that disagree about this
 * rank's own block), ceclInvalidUsage (a block would end after the last block that the peer receives or
 * sends: the communicator fails, because peers already rely on the call). */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAllvAt(
    const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
    const size_t recvcounts[], const size_t rdispls[], const size_t peerdispls[],
    ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream);

/* Sends rows to each rank and receives rows from each. The numbers of rows (splits) lie in memory of the
 * device, and are read when the call runs. Thus the host need not wait for the kernel that computes them.
 *
 *     rank 0: sendsplits {2, 1}  sendbuff [a a b]    recvsplits {2, 3, 0, 2}  recvbuff [a a c c c]
 *     rank 1: sendsplits {3, 0}  sendbuff [c c c]    recvsplits {1, 0, 0, 1}  recvbuff [b]
 *
 * sendbuff    rows for rank 0, then for rank 1, and so on. Memory as in ceclAllGather; it must not
 *             overlap recvbuff.
 * sendrows    rows that sendbuff has room for, equal on all ranks; 0 allowed: sendbuff may then be NULL.
 * sendsplits  [nranks] rows for each rank; 0 allowed. Memory of the device, 8-byte aligned.
 * recvbuff    receives the rows of rank 0, then of rank 1, and so on. Memory of ceclMemAlloc, at any
 *             offset.
 * recvrows    rows that recvbuff has room for, at least 1, equal on all ranks. Rows after the
 *             received ones are not touched.
 * recvsplits  [2 * nranks] written: [r] is the number of rows from rank r, and [nranks + r] the row
 *             of recvbuff at which they begin. Memory of the device, 8-byte aligned. Must not
 *             overlap sendsplits.
 * rowcount    elements of a row, at least 1, equal on all ranks.
 * stream      as in ceclAllGather. Work before the call may write sendsplits and sendbuff, and work
 *             after it may read recvsplits.
 * Two kernels carry out the call. The first, on one SM, sends the splits to the peers. The second,
 * on maxSms SMs at most (default: splits.sms in cecl_info --tuning), writes the rows to the peers.
 * Neither kernel waits for a peer. A peer without rows costs nothing. Because kernels move the rows,
 * the call is refused unless the policy is CECL_SM_ALLOW.
 * Rows that do not fit: if a rank's splits go beyond its sendbuff, or beyond the room of a recvbuff,
 * the rows that fit are moved, and nothing is written or read beyond the buffers. After that the
 * communicator fails on every rank with ceclInvalidUsage, and the message names the rank of that buffer.
 * In a group the call must be the only one.
 * Collective: all ranks call, with equal sendrows, recvrows, rowcount, datatype and options, in the
 * same order on `comm`. If ranks differ, no row moves, and the communicator fails on every rank, with
 * ceclInvalidUsage, or with ceclRemoteError on a rank that first heard of the failure from a peer. The
 * error text names a rank whose call differs. With CECL_CHECK=1 all ranks refuse the call instead, and
 * the text says what differs. Threads: one call at a time. Ownership: buffers stay the caller's.
 * Errors, nothing enqueued: as ceclAllGather, and ceclInvalidArgument (sendsplits or recvsplits NULL or
 * not aligned; recvrows or rowcount 0; more than 2^31 - 1 rows; more than 16 ranks), ceclInvalidUsage
 * (the policy is not CECL_SM_ALLOW; recvbuff is not of ceclMemAlloc). */
CECL_API CECL_CHECKED ceclResult_t ceclAlltoAllvDevice(const void *sendbuff, size_t sendrows,
                                                       const uint64_t *sendsplits, void *recvbuff,
                                                       size_t recvrows, uint64_t *recvsplits,
                                                       size_t rowcount, ceclDataType_t datatype,
                                                       ceclComm_t comm, ceclStream_t stream);

/* How rows go to experts. All ranks have equal experts, align and scalebytes. */
typedef struct {
    size_t experts; /* on each rank, at least 1; at most 512 on all ranks together */
    /* ceclDispatch: each expert's rows begin at a multiple of `align` rows; at least 1. If it is more
     * than 1, an expert without rows takes the room of `align` rows. (In PyTorch's
     * all_to_all_vdev_2d such an expert takes room even if major_align is 1.) ceclCombine ignores
     * `align`. */
    size_t align;
    /* A second array with a row for each row of sendbuff, such as fp8 scales. Its row i goes where row
     * i of sendbuff goes. scalebytes: bytes of a row; 0: there is no such array, and both addresses are
     * ignored. */
    const void *sendscales; /* memory as sendbuff; must not overlap what the call writes */
    void *recvscales;       /* memory of ceclMemAlloc; must not overlap the other arrays */
    size_t scalebytes;
} ceclExperts_t;

/* Sends rows to the experts of all ranks. It is ceclAlltoAllvDevice with one block for each expert.
 * In recvbuff the rows are sorted by expert.
 *
 *     2 ranks with 2 experts each, align 2:
 *     rank 0: sendsplits {1, 2, 0, 1}  sendbuff [a b b d]   experts 0 and 1 of rank 0, then of rank 1
 *     rank 1: sendsplits {1, 0, 0, 3}  sendbuff [A D D D]
 *     rank 0: recvbuff [a A | b b]      recvsplits {1, 1, 2, 0,  0, 1, 2, 4}
 *     rank 1: recvbuff [- - | d D D D]  recvsplits {0, 0, 1, 3,  0, 0, 2, 3}
 *
 * sendbuff    the rows for expert 0 of rank 0, then expert 1 of rank 0, and so on, then the rows for
 *             rank 1. Memory as in ceclAlltoAllvDevice.
 * sendsplits  [nranks * experts] rows of each block, in that order.
 * recvbuff    receives the rows for expert 0, from rank 0, then from rank 1, and so on; the rows for
 *             expert 1 begin at the next multiple of `align`. Padding rows are not touched.
 * recvsplits  [2 * experts * nranks] written: the number of rows of each received block, in that
 *             order, and then the row of recvbuff at which each block begins. Pass it to
 *             ceclCombine as sendsplits.
 * experts     how many experts there are, and their alignment. Host memory, read during the call.
 *             The arrays that it names are memory of the device, and stay the caller's.
 * Other parameters, rows that do not fit, stream, collective, threads, ownership, errors: as
 * ceclAlltoAllvDevice; the error names the expert too. ceclInvalidArgument also for a NULL experts,
 * scales that are NULL, and an align or experts that is 0 or too large. */
CECL_API CECL_CHECKED ceclResult_t ceclDispatch(const void *sendbuff, size_t sendrows,
                                                const uint64_t *sendsplits, void *recvbuff,
                                                size_t recvrows, uint64_t *recvsplits,
                                                const ceclExperts_t *experts, size_t rowcount,
                                                ceclDataType_t datatype, ceclComm_t comm,
                                                ceclStream_t stream);

/* Sends rows back from the experts to the ranks that they came from. Each rank receives its rows in
 * the order of its sendbuff in ceclDispatch. ceclSumRows adds each token's rows.
 * sendbuff    rows, each at the place that ceclDispatch gave it in recvbuff. Padding is not sent.
 * sendsplits  [2 * experts * nranks] the recvsplits that ceclDispatch wrote: the number of rows of
 *             each block, and where each block begins. The blocks of one expert are for rank 0, then
 *             for rank 1, and so on.
 * recvbuff    receives the rows of expert 0 of rank 0, then of expert 1 of rank 0, and so on, without
 *             gaps. Memory of ceclMemAlloc.
 * recvsplits  [2 * nranks * experts] written: the number of rows of each received block, in that
 *             order, and then the row of recvbuff at which each block begins.
 * Other parameters, rows that do not fit, stream, collective, threads, ownership, errors: as
 * ceclDispatch. */
CECL_API CECL_CHECKED ceclResult_t ceclCombine(const void *sendbuff, size_t sendrows,
                                               const uint64_t *sendsplits, void *recvbuff,
                                               size_t recvrows, uint64_t *recvsplits,
                                               const ceclExperts_t *experts, size_t rowcount,
                                               ceclDataType_t datatype, ceclComm_t comm,
                                               ceclStream_t stream);

/* For each token, adds the rows that the experts computed for it, each times its weight:
 *
 *     sums[t] = weights[t][0] * rows[places[t][0]] + weights[t][1] * rows[places[t][1]] + ...
 *
 * Products and sums are fp32, in the order of places. Each product and each sum is rounded to nearest
 * even (no fused multiply-add); the result is rounded once to the datatype. Thus the bits do not
 * depend on how rows travelled.
 * rows      [nrows * rowcount] elements, such as recvbuff of ceclCombine.
 * nrows     how many rows there are; 0 allowed.
 * places    [tokens * each] the numbers of each token's rows. Numbers of nrows or more are skipped;
 *           a token whose numbers are all skipped gets the sum 0. Memory of the device, 8-byte aligned.
 * weights   [tokens * each], memory of the device; NULL: rows are added as they are.
 * sums      [tokens * rowcount] written. Must not overlap any other buffer.
 * tokens, each (rows of a token), rowcount (elements of a row)   any of them may be 0.
 * datatype  ceclFloat32, ceclFloat16, ceclBfloat16, ceclFloat8e4m3 or ceclFloat8e5m2.
 * stream    orders the call; any stream of the device. It may be capturing.
 *
 * One kernel does this, on at most maxSms SMs (default 16). Buffers: any memory of the device.
 * Local. Threads: any thread, but not while another one calls ceclSetOptions. Ownership: buffers stay
 * the caller's, and must stay allocated until the stream has passed the call.
 * Errors, nothing enqueued: ceclInvalidArgument (NULL; a buffer that is not aligned, that the device does
 * not reach, or that overlaps sums; another datatype; more bytes than an address space),
 * ceclInvalidUsage (under CECL_SM_NEVER). */
CECL_API CECL_CHECKED ceclResult_t ceclSumRows(const void *rows, size_t nrows,
                                               const uint64_t *places, const float *weights,
                                               void *sums, size_t tokens, size_t each,
                                               size_t rowcount, ceclDataType_t datatype,
                                               ceclComm_t comm, ceclStream_t stream);

/* Gathers `count` elements from every rank, in rank order, on root only.
 * sendbuff  [count] elements. In place on root when it is recvbuff + root * count elements; the other
 *           ranks need not know of it.
 * recvbuff  [nranks * count] elements on root; other ranks may pass any address but NULL.
 * count     elements of one rank, equal on all; 0: the call has no effect.
 * root      0 .. nranks-1, equal on all ranks.
 * stream, collective (but only root may be in place), threads, ownership, errors: as ceclAllGather;
 * ceclInvalidArgument also for a root that is no rank. */
CECL_API CECL_CHECKED ceclResult_t ceclGather(const void *sendbuff, void *recvbuff, size_t count,
                                              ceclDataType_t datatype, int root, ceclComm_t comm,
                                              ceclStream_t stream);

/* Sends block r of root's `sendbuff` to rank r.
 * sendbuff  [nranks * count] elements, read only on root; other ranks may pass NULL.
 * recvbuff  [count] elements. In place on root when it is sendbuff + root * count elements; the other
 *           ranks need not know of it.
 * count     elements for one rank, equal on all; 0: the call has no effect.
 * root      0 .. nranks-1, equal on all ranks.
 * stream, collective, threads, ownership, errors: as ceclGather. */
CECL_API CECL_CHECKED ceclResult_t ceclScatter(const void *sendbuff, void *recvbuff, size_t count,
                                               ceclDataType_t datatype, int root, ceclComm_t comm,
                                               ceclStream_t stream);

/* Sends `count` elements to one rank, which receives them by ceclRecv. Only these two ranks make calls.
 * sendbuff  [count] elements.
 * count     elements; the peer's ceclRecv must have as many bytes. 0 is a message without bytes;
 *           the two ranks still wait for each other.
 * peer      0 .. nranks-1. This rank may be its own peer only in a group in which it sends itself as
 *           many messages as it receives from itself.
 * stream    orders the call. The message waits until the peer's stream has reached its call; the
 *           host does not wait for that.
 * Order: the n-th ceclSend to a rank is received by that rank's n-th ceclRecv from this rank. Outside of
 * a group later work in the stream, and every later call on `comm`, waits until the message has arrived.
 * If two ranks both send first and then receive, they wait for each other until the timeout.
 * Groups: between ceclGroupStart and ceclGroupEnd messages run at the same time; their order only says
 * which send meets which receive. A message waits only until both of its ranks have reached their groups.
 * The other calls of these two groups may differ. If a group also has collectives, messages come after
 * them. Messages of a group may overlap in memory, but bytes that one receives and another uses are
 * undefined.
 * Bytes: if the two ranks give different numbers of bytes, no byte of the message moves, and the
 * communicator fails. The rank that comes second gets ceclInvalidUsage, the other ranks an asynchronous
 * error. The error text names both ranks and both numbers of bytes. As in NCCL, types are not compared.
 * Limits: from one rank to another a group may have 256 messages in a communicator of up to 4 ranks,
 * 128 in one of 8, at least 16 in larger ones. A rank that is that many messages ahead of its peer waits
 * for the peer's host. Communicators of more than 64 ranks have no messages.
 * Copies: the rank whose host thread comes second moves the bytes: a sender pushes them, a receiver
 * pulls them. It uses copy engines under every policy. If a group has only messages, and they total at
 * least 8 MiB in each direction, the host waits up to about 20 us (late.wait_ns) for the peers. Thus
 * ranks that come at about the same time each push what they send. If a buffer is private and its rank
 * comes first, the buffer is carried through a bounce buffer (see Buffers). Messages of a rank to itself
 * go through the next rank's staging; under CECL_SM_ALLOW, or if there is only one rank, an SM copies
 * them.
 * Local: ranks other than the peer make no call. Threads: one call at a time. Ownership: `sendbuff`
 * stays the caller's; it may be written again when `stream` has passed the call.
 * Errors, nothing enqueued: ceclInvalidArgument (sendbuff NULL or in no memory of the device, or past the
 * end of its allocation; unknown datatype; a peer that is no rank; a stream as in ceclAllGather),
 * ceclInvalidUsage (symmetric memory as in ceclAllGather; too many messages in a group; unequal numbers
 * or bytes of sends and receives of this rank to itself; in a communicator of one rank a message that
 * has bytes, under CECL_SM_NEVER; more than 64 ranks), ceclTimeout (the peer was too far behind: the
 * communicator has failed). */
CECL_API CECL_CHECKED ceclResult_t ceclSend(const void *sendbuff, size_t count,
                                            ceclDataType_t datatype, int peer, ceclComm_t comm,
                                            ceclStream_t stream);

/* Receives `count` elements that one rank sends by ceclSend.
 * recvbuff  [count] elements. It belongs to the call until `stream` has passed the call.
 * count     elements; the peer's ceclSend must have as many bytes.
 * peer      0 .. nranks-1, as in ceclSend.
 * stream, matching, groups, limits, local, threads, ownership, errors: see ceclSend. */
CECL_API CECL_CHECKED ceclResult_t ceclRecv(void *recvbuff, size_t count, ceclDataType_t datatype,
                                            int peer, ceclComm_t comm, ceclStream_t stream);

/* Adds up (or multiplies, ...) blocks of all ranks; rank r receives block r of the result.
 *
 *     sendbuff on rank 0: [a0][a1]     recvbuff on rank 0: [a0 + b0]
 *     sendbuff on rank 1: [b0][b1]     recvbuff on rank 1: [a1 + b1]
 *
 * The arithmetic needs a few SMs (ceclConfig_t.maxSms). A small call is one kernel. A larger call
 * goes one of two ways; ceclGroupExplain tells which. If no sendbuff is private and no rank comes
 * late, SMs may read the blocks in the peers' memory. Otherwise copy engines bring the blocks to
 * staging in chunks, and a kernel reduces one chunk while the next arrives.
 *
 * A reduction's kernel holds its SMs while it waits for the same call's kernels on the peers.
 * Leave enough other SMs free for kernels of this rank for which a peer waits before it makes this call,
 * and for kernels of other communicators, whose calls a peer may run in another order. Otherwise the
 * ranks wait for each other until the timeout. A kernel that waits for its peers takes at most a
 * quarter of the GPU's SMs, whatever maxSms says. Kernels that reduce large blocks run on a stream
 * of cecl with the highest priority, in the order of `stream`.
 *
 * The same inputs give the same bits on every rank and in every run, whichever way the call goes and with
 * any number of SMs. Elements are combined in rank order; 16-bit types and fp8 are accumulated in fp32
 * and rounded once, at the end, to nearest even. A NaN of any rank gives a NaN, even in minimum and
 * maximum; integers wrap around; float8e4m3 overflows to 448. ceclAvg divides the sum by the number of
 * ranks before the last rounding. Averages of finite elements are finite, because elements are first
 * multiplied by a power of two, so that their sum cannot overflow. In float64 and float32 this
 * multiplication rounds an element if the product is below the smallest normal number. Every NaN in a
 * result has the same bits, except in place on a communicator of one rank, where the call writes nothing.
 * sendbuff   [nranks * recvcount] elements.
 * recvbuff   [recvcount] elements. In place when it is sendbuff + rank * recvcount; some ranks may be
 *            in place and others not. The other blocks of sendbuff keep their contents.
 * recvcount  elements, equal on all ranks; 0: the call has no effect.
 * op         not ceclAvg for integers; equal on all ranks.
 * Both buffers must be aligned to the size of an element.
 * memory of the buffers, stream, collective, threads, ownership: as ceclAllGather.
 * Errors, nothing enqueued: as ceclAllGather, and ceclInvalidArgument (unknown op; ceclAvg of
 * integers; a buffer that is not aligned), ceclInvalidUsage (under CECL_SM_NEVER; staging too small
 * for so many ranks). */
CECL_API CECL_CHECKED ceclResult_t ceclReduceScatter(const void *sendbuff, void *recvbuff,
                                                     size_t recvcount, ceclDataType_t datatype,
                                                     ceclRedOp_t op, ceclComm_t comm,
                                                     ceclStream_t stream);

/* Does what ceclReduceScatter does, but the sums may have a wider type than the elements: 16-bit
 * gradients travel in 16 bits, and arrive as fp32 sums.
 * sendbuff   [nranks * recvcount] elements of sendtype.
 * recvbuff   [recvcount] elements of recvtype. Must not overlap sendbuff, unless the types are equal.
 * recvcount  elements, equal on all ranks; 0: the call has no effect.
 * sendtype   ceclFloat16 or ceclBfloat16; equal on all ranks.
 * recvtype   ceclFloat32; equal on all ranks. If it equals sendtype, the call is ceclReduceScatter,
 *            and takes any type and op.
 * op         ceclSum or ceclAvg; equal on all ranks.
 * Each buffer must be aligned to the size of its elements. The result has the bits that
 * ceclReduceScatter gives for sendbuff converted to fp32, but half as many bytes travel. Over
 * several hosts the call is refused: convert sendbuff, and call ceclReduceScatter.
 * memory of the buffers, stream, collective, threads, ownership: as ceclReduceScatter.
 * Errors, nothing enqueued: as ceclReduceScatter, and ceclInvalidArgument (other types or operations;
 * buffers that overlap), ceclInvalidUsage (a communicator over several hosts).
 * Since 0.3. */
CECL_API CECL_CHECKED ceclResult_t ceclReduceScatterAs(const void *sendbuff, void *recvbuff,
                                                       size_t recvcount, ceclDataType_t sendtype,
                                                       ceclDataType_t recvtype, ceclRedOp_t op,
                                                       ceclComm_t comm, ceclStream_t stream);

/* Tiles: parts of a matrix that have equal shapes. */
typedef struct {
    size_t count;       /* tiles for each rank, at least 1; at most 1024 for all ranks together */
    size_t width, rows; /* elements of a tile's row, and rows; width 0: the call has no effect */
    size_t pitch;       /* elements from one row to the next; 0: nranks * count * width */
    /* [nranks * count] the element of sendbuff with which each tile begins: first the tiles for rank 0,
     * then the tiles for rank 1, and so on. Tiles may overlap. NULL: tiles lie side by side. */
    const size_t *begins;
} ceclTiles_t;

/* Adds up (or multiplies, ...) tiles of all ranks; each rank receives the sums of its tiles. The call can
 * serve as a ceclReduceScatter along any dimension, or as a reduction to many roots at once.
 *
 *     sendbuff on rank 0: [a a][b b]     recvbuff on rank 0: [a + c  a + c]
 *                         [A A][B B]                         [A + C  A + C]
 *     sendbuff on rank 1: [c c][d d]
 *                         [C C][D D]                         width 2, rows 2, count 1
 *
 * No kernel packs rows: copy engines move the rows of tiles to staging, as ceclAlltoAllStrided does, and
 * a kernel for each chunk reduces them there, however many tiles the call has. (Copies of a rank's own
 * tiles within its GPU take SMs.) Results have the same bits as with ceclReduceScatter.
 * sendbuff  a matrix; read as `tiles` says.
 * recvbuff  [count * rows * width] elements: this rank's tiles, one after the other, each without gaps.
 *           Must not overlap the part of sendbuff that is read.
 * tiles     read during the call, with the array `begins`. count, width, rows and pitch are equal on all
 *           ranks; `begins` may differ. A pitch is 2147483647 bytes at most. Ownership: the caller's.
 * op        as in ceclReduceScatter.
 * Both buffers must be aligned to the size of an element.
 * memory of the buffers, stream, collective, threads, ownership, errors: as ceclReduceScatter;
 * ceclInvalidArgument also for tiles that are NULL, rows that overlap, and sizes beyond an address
 * space. */
CECL_API CECL_CHECKED ceclResult_t ceclReduceScatterTiles(const void *sendbuff, void *recvbuff,
                                                          const ceclTiles_t *tiles,
                                                          ceclDataType_t datatype, ceclRedOp_t op,
                                                          ceclComm_t comm, ceclStream_t stream);

/* Adds up (or multiplies, ...) the elements of all ranks; every rank receives the result. Each rank
 * reduces one part as in ceclReduceScatter, and copy engines or SMs bring the part to all others;
 * in a small call each rank reduces everything.
 * sendbuff  [count] elements. In place when it is recvbuff; some ranks may be in place and others not.
 * recvbuff  [count] elements.
 * count     elements, equal on all ranks; 0: the call has no effect.
 * buffers, op, stream, collective, threads, ownership, errors: as ceclReduceScatter. */
CECL_API CECL_CHECKED ceclResult_t ceclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                                 ceclDataType_t datatype, ceclRedOp_t op,
                                                 ceclComm_t comm, ceclStream_t stream);

/* Adds up (or multiplies, ...) the elements of all ranks; root receives the result.
 * sendbuff  [count] elements. In place when it is recvbuff; some ranks may be in place and others not.
 * recvbuff  [count] elements on every rank; written only on root.
 * root      0 .. nranks-1, equal on all ranks.
 * buffers, count, op, stream, collective, threads, ownership, errors: as ceclAllReduce;
 * ceclInvalidArgument also for a root that is no rank. */
CECL_API CECL_CHECKED ceclResult_t ceclReduce(const void *sendbuff, void *recvbuff, size_t count,
                                              ceclDataType_t datatype, ceclRedOp_t op, int root,
                                              ceclComm_t comm, ceclStream_t stream);

/* Makes all ranks meet: work after the call in `stream` begins only when every rank's stream has
 * reached the call. That work sees everything that any rank wrote before the call, even to peers'
 * memory. The call moves no data and needs no SM.
 * stream  as in ceclAllGather. The host does not wait.
 * Collective: all ranks call, in the same order on `comm`; it may be in a group.
 * Threads: one call at a time. Ownership: none.
 * Errors, nothing enqueued: ceclInvalidArgument (a stream as in ceclAllGather), ceclInvalidUsage (ranks
 * differ, under CECL_CHECK=1), and the asynchronous error. */
CECL_API CECL_CHECKED ceclResult_t ceclBarrier(ceclComm_t comm, ceclStream_t stream);

/* How to carry out the calls that follow. Start from CECL_OPTIONS_INITIALIZER; a field left at
 * CECL_UNDEF keeps the communicator's own value (from its configuration or the environment). */
typedef struct ceclOptions {
    size_t size;          /* set by the initializer */
    unsigned int magic;   /* set by the initializer */
    unsigned int version; /* set by the initializer */
    int smPolicy;         /* ceclSmPolicy_t */
    int direction;        /* ceclDirection_t */
    int maxSms;           /* as in ceclConfig_t */
} ceclOptions_t;
#define CECL_OPTIONS_MAGIC 0xcec10b75u
#define CECL_OPTIONS_INITIALIZER \
    { \
        sizeof(ceclOptions_t), CECL_OPTIONS_MAGIC, CECL_VERSION, CECL_UNDEF, CECL_UNDEF, \
            CECL_UNDEF \
    }

/* Sets the options of later calls on `comm`; a call in a group has the options that were set when it
 * was made. A training loop can thus forbid SMs for gathers that run during computation, and take the
 * fastest way for others.
 * options  read during the call; NULL: the communicator's own.
 * Local, but ranks must make each collective with equal options. Changing options is cheap, because
 * cecl keeps plans for each choice of options. Threads: one call at a time. Ownership: the caller's.
 * Errors, nothing changed: ceclInvalidArgument (not initialised, a value out of range), ceclInvalidUsage
 * (over several hosts: CECL_SM_NEVER, or other maxSms than the communicator's own). */
CECL_API CECL_CHECKED ceclResult_t ceclSetOptions(ceclComm_t comm, const ceclOptions_t *options);

/* Begins a group: the collectives that this thread calls until the matching ceclGroupEnd are
 * carried out together. Collectives that only move data become one batch of copies with one
 * exchange of flags. Reductions that need only one chunk are carried out in bundles, each as large as
 * staging has room for (ceclGroupExplain tells the number of bundles). The chunks of larger reductions
 * follow, as if they all belonged to one call. Each result has the same bits as without a
 * group. ceclCommInitRank and ceclMemAlloc may be in a group too, so that one thread can make these
 * calls for several ranks. Groups may be nested; only the outermost end counts.
 * Local. Threads: the group is the calling thread's. Ownership: none. Errors: ceclOutOfMemory. */
CECL_API CECL_CHECKED ceclResult_t ceclGroupStart(void);

/* Ends a group and enqueues its calls, all calls on one communicator together. A group has up to
 * 4096 calls on each communicator (fewer among more than 10 ranks; the refusal names the number), in
 * any mix of sizes and types, but no ceclAlltoAllv. Calls of a group have no order among themselves,
 * so no call may read or write memory that another call writes. (A recvbuff that is in place on the
 * root counts as written.) All calls on one communicator must be on one stream.
 * Joins (ceclCommInitRank) come first; if one fails, no communicator is made. Then come
 * allocations, in order on each communicator; if one fails, its communicator keeps no allocation of
 * the group, and other communicators keep theirs.
 * Collective: every rank's group has the same collectives in the same order. Messages (ceclSend,
 * ceclRecv) run after the group's collectives. The peer may make its part of a message in another group
 * or outside of groups, but only after it has made this group's collectives: otherwise the two ranks wait
 * for each other until the timeout. If communicators share a stream, all calls of the communicator whose
 * first call comes earlier in the group run first (communicators over several hosts come last); all ranks
 * must have the same order of communicators. The host waits as in collectives, but once for all calls on
 * a communicator. It also waits for ranks that join, and for allocations that grow the pool. One thread
 * may make the calls of several ranks in one group; none of these ranks is then late.
 * Threads: the one that began the group; one call at a time on each communicator in it. Ownership:
 * as in the calls.
 * Errors, after which no call is enqueued: the error of the first call that is refused. If an error
 * follows from the arguments alone, the call itself also returns it. What depends on memory, streams and
 * the SM policy may be found only here: buffers of a call that overlap, pass the end of their allocation, were
 * freed, or are a peer's; a stream of another device; a call that the policy forbids. Also
 * ceclInvalidArgument (buffers of two calls overlap), ceclInvalidUsage (no group was begun; two streams; too
 * many calls; under CECL_CHECK=1 ranks differ), ceclOutOfMemory, and the errors of ceclCommInitRankConfig and
 * ceclMemAlloc. Communicators stay usable, unless a peer did not come to an allocation, or peers already rely
 * on calls (see Errors at the top). */
CECL_API CECL_CHECKED ceclResult_t ceclGroupEnd(void);

/* How a call would be carried out. */
typedef struct {
    int zeroSm;      /* 1: no SM is used */
    int copies;      /* copies this rank issues; the stores of a small call's kernel do not count */
    int localCopies; /* of these: copies within one GPU; `reason` says if they need an SM */
    int reductions;  /* reductions this rank makes, on ceclConfig_t.maxSms SMs at most */
    /* kernels this rank launches: one for each reduction or small call, two for splits on the device */
    int kernels;
    int barriers; /* how often all ranks signal each other and wait */
    /* bytes that this rank's copies move, local ones included, or that a small call's kernel sends;
     * other bytes that SMs read or write do not count */
    uint64_t bytesSent;
    char path[64];    /* e.g. "push, one batch" */
    char reason[192]; /* why this way, and what would make the call zero SM */
} ceclExplanation_t;

/* Tells how an all-gather or an all-to-all with these arguments would be carried out, and why. It
 * assumes that all ranks come in time, with buffers of the same kinds as this rank's. It enqueues
 * nothing, but registers memory as the call would. Arguments are those of the call itself. For all
 * other calls see ceclGroupExplain.
 * explanation  [out] written on success only. Copies for private buffers also count.
 * Local. Threads: one call at a time. Ownership: none. Errors: the errors that the call itself would
 * return for its arguments, ceclInvalidArgument (another op; NULL), and ceclInvalidUsage (calls of comm
 * are in a group that has not ended). */
CECL_API CECL_CHECKED ceclResult_t ceclExplain(ceclOp_t op, const void *sendbuff,
                                               const void *recvbuff, size_t count,
                                               ceclDataType_t datatype, ceclComm_t comm,
                                               ceclExplanation_t *explanation);

/* Ends a group as ceclGroupEnd does, but enqueues nothing. Instead it tells how the calls would be
 * carried out together, under the assumptions of ceclExplain. The group may have any calls that
 * ceclGroupEnd takes, even a single one.
 * comm         the communicator of all calls of the group.
 * explanation  [out] written on success only.
 * Local; waits for no peer. Threads: the one that began the group. Ownership: none.
 * Errors, after which the group has also ended: the errors of ceclGroupEnd; ceclInvalidArgument
 * (explanation NULL), ceclInvalidUsage (a call on another communicator; a join or an allocation; a
 * group inside another: the outer one goes on, and its end returns this error). */
CECL_API CECL_CHECKED ceclResult_t ceclGroupExplain(ceclComm_t comm,
                                                    ceclExplanation_t *explanation);

/* ------------------------------------------------------------------------------------------------
 * One-sided calls
 *
 * One rank moves bytes to or from another rank's memory, and the other rank's host makes no call.
 * All ranks first share a window, which may be memory of any kind that peers can open (see
 * Buffers). Under every policy copy engines alone move the bytes.
 *
 *     ceclWindowShare(comm, mine, bytes, &window);              // on all ranks
 *
 *     // rank 0: put, and tell rank 1          // rank 1: wait, then read
 *     ceclPutSignal(from, count, ceclFloat,    const ceclSignalWait_t wait = {0, 7, 1};
 *                   1, window, 0,              ceclWaitSignal(1, &wait, comm, stream);
 *                   7, comm, stream);          kernel<<<..., stream>>>(mine);
 *
 *   Order     A one-sided call is ordered only with other work of its stream: it runs after the
 *             work that was enqueued before it, and before the work that is enqueued later. Unlike
 *             collectives, one-sided calls on different streams do not wait for each other. The
 *             communicator's collectives and messages do not wait for them either. Two puts on one
 *             stream arrive in order. Streams may share a hardware queue of the GPU, and then wait
 *             for each other. So if a wait can end only after a put of this rank, make that put first.
 *   Signals   A signal has a number, 0 .. CECL_SIGNALS-1. Signals are counted separately for each
 *             sender, receiver and number. A rank that has waited for a signal sees the bytes of
 *             its put, and everything that the sender's stream did before. Signals with the same
 *             number to the same peer arrive in the order in which the host made the calls, even on
 *             different streams: the n-th comes once the first n calls are done. Every signal is
 *             counted; none is lost if the peer waits late.
 *   Waits     A wait takes `count` signals with one number from one peer. Waits for the same signals
 *             take them in the order of the host's calls: a wait ends once `count` signals have come
 *             that no earlier wait takes. Waiting takes no SM.
 *   Memory    The memory in a window stays its owner's. Ranks agree by signals, or by collectives, on
 *             who may write where and when; cecl adds no order between peers. A window may lie in
 *             memory that collectives also use. A put may have 0 elements. A put to this rank itself
 *             copies within one GPU, which needs CECL_SM_ALLOW with today's drivers.
 *   Failure   The communicator's timeout limits each wait. The time begins when the stream comes to the
 *             wait, and begins again with each signal that comes. The error names the peer. A call to a
 *             peer that has left fails the communicator (ceclRemoteError); so does a wait for its
 *             signals. When the communicator fails, waits end with undefined results, as calls do
 *             (see Failure at the top).
 *
 * These calls are refused inside a group, on a communicator of more than CECL_ONE_SIDED_RANKS ranks,
 * and on a stream that captures a graph: capture a message or ceclAlltoAllvAt instead.
 * ceclCommFinalize, ceclCommDestroy and the end of the process wait for one-sided calls as for other
 * calls. */

#define CECL_SIGNALS 64
#define CECL_ONE_SIDED_RANKS 64

/* Memory of each rank that all ranks of a communicator can reach. */
typedef struct ceclWindow *ceclWindow_t;

/* Signals for which ceclWaitSignal waits. */
typedef struct {
    int peer;   /* whose signals: 0 .. nranks-1 */
    int signal; /* their number: 0 .. CECL_SIGNALS-1 */
    int count;  /* how many, at least 1; all pending waits for them together: 2^30 at most */
} ceclSignalWait_t;

/* Shares memory of each rank with all ranks, for one-sided calls. Registers it as ceclCommRegister
 * does.
 * ptr     start of this rank's memory: from ceclMemAlloc, or any other that peers can open. Ranks
 *         may pass different kinds of memory, at different offsets.
 * bytes   size of this rank's memory, which may differ between ranks; 0: this rank shares none, and
 *         ptr is ignored.
 * window  [out] written on success only.
 * Collective, blocking: waits until all ranks have come and have opened the memory of all others,
 * so that no later call has to wait for this. Not in a group, and not capturable.
 * Threads: one call at a time; if several ranks are in one process, each calls on its own thread.
 * Ownership: the memory stays the caller's, and must stay allocated until ceclWindowFree. The
 * window ends at ceclWindowFree, or with comm.
 * Errors, on all ranks, no window made: ceclInvalidArgument (window NULL; ptr NULL, but bytes not 0;
 * memory that ceclCommRegister refuses), ceclInvalidUsage (memory that peers cannot open; another rank
 * is in another call, or its arguments are refused; too many ranks; inside a group: only the caller gets
 * this error), ceclTimeout and ceclRemoteError (a rank did not come: the communicator has failed). */
CECL_API CECL_CHECKED ceclResult_t ceclWindowShare(ceclComm_t comm, void *ptr, size_t bytes,
                                                   ceclWindow_t *window);

/* Ends a window. Once the call has returned, no one-sided call touches this rank's memory in the
 * window, so the memory may be freed.
 * window  the same on all ranks.
 * Collective, blocking: waits until all ranks have come. Not in a group.
 * Threads: as ceclWindowShare. Ownership: the handle is gone on success.
 * Errors, on all ranks, nothing changed: ceclInvalidArgument (NULL, freed before, or of another
 * communicator), ceclInvalidUsage (a call of this rank that uses the window is pending: synchronize
 * its stream first; another rank's call is refused, or names another window; inside a group: only
 * the caller gets this error), ceclTimeout and ceclRemoteError as in ceclWindowShare. */
CECL_API CECL_CHECKED ceclResult_t ceclWindowFree(ceclComm_t comm, ceclWindow_t window);

/* Gives the address at which this rank reaches a peer's memory in a window. Kernels and copies of the
 * program may use it, and on the host device its host code. The program must order these accesses
 * itself. After this call ceclCommAbort and the end of this process fail the communicator on every
 * rank, as after ceclGetPeerPointer.
 * window  of ceclWindowShare on `comm`.
 * peer    0 .. nranks-1; this rank's own number gives the address that it shared.
 * ptr     [out] the start of the peer's memory; written on success only.
 * Local. Threads: one call at a time. Ownership: the peer's; valid until ceclWindowFree, and only while
 * the peer keeps the memory allocated.
 * Errors: ceclInvalidArgument (window NULL, freed before, or of another communicator; peer out of range,
 * or one that shares no memory; ptr NULL), ceclInvalidUsage (a communicator over several hosts).
 * Since 0.3. */
CECL_API CECL_CHECKED ceclResult_t ceclWindowPointer(ceclComm_t comm, ceclWindow_t window, int peer,
                                                     void **ptr);

/* Copies `count` elements of this rank into a peer's memory.
 * sendbuff  [count] elements in any memory of this rank's device. It may be written again when
 *           `stream` has passed the call.
 * peer      0 .. nranks-1. It makes no call.
 * window    of ceclWindowShare on `comm`.
 * offset    where the bytes go, in bytes from the start of the peer's memory in the window.
 * stream    orders the call; it may be the legacy default stream (0). Once it has passed the call,
 *           the bytes are at the peer. The peer learns this by a signal, or by a later collective
 *           of both ranks.
 * Local: the peer need not call. The host does not wait. Threads: one call at a time. Ownership:
 * buffers stay their owners'.
 * Errors, nothing enqueued:
 *   ceclInvalidArgument  sendbuff NULL or in no memory of the device; unknown datatype; a peer that is no
 *                        rank; a window that is NULL, was freed, or is of another communicator; bytes
 *                        that lie outside of what the peer shares; a peer's file that has become too
 *                        short; a buffer that passes the end of its allocation; a stream as in
 *                        ceclAllGather.
 *   ceclInvalidUsage     Symmetric memory as in ceclAllGather. The peer has freed or unmapped
 *                        its memory; this is known only once a call of the peer has noticed it.
 *                        The peer is this rank, and an SM is not allowed. Inside a group. `stream`
 *                        captures a graph.
 *   ceclRemoteError      The peer has left: the communicator has failed. */
CECL_API CECL_CHECKED ceclResult_t ceclPut(const void *sendbuff, size_t count,
                                           ceclDataType_t datatype, int peer, ceclWindow_t window,
                                           size_t offset, ceclComm_t comm, ceclStream_t stream);

/* Copies `count` elements out of a peer's memory.
 * recvbuff  [count] elements in any memory of this rank's device; valid when `stream` has passed
 *           the call.
 * Other parameters, local, threads, ownership, errors: see ceclPut. The peer may write the copied
 * bytes again once it has learned, by a signal or a collective, that the copy is done. */
CECL_API CECL_CHECKED ceclResult_t ceclGet(void *recvbuff, size_t count, ceclDataType_t datatype,
                                           int peer, ceclWindow_t window, size_t offset,
                                           ceclComm_t comm, ceclStream_t stream);

/* Does what ceclPut does, and then sends a signal to the peer. The signal arrives after the bytes.
 * signal  0 .. CECL_SIGNALS-1.
 * Other parameters, local, threads, ownership, errors: see ceclPut; ceclInvalidArgument also for a
 * signal out of range. */
CECL_API CECL_CHECKED ceclResult_t ceclPutSignal(const void *sendbuff, size_t count,
                                                 ceclDataType_t datatype, int peer,
                                                 ceclWindow_t window, size_t offset, int signal,
                                                 ceclComm_t comm, ceclStream_t stream);

/* Sends a signal to a peer when `stream` comes to the call. The call needs no window. When the
 * signal arrives, all earlier work of the stream is done, including puts to any rank.
 * peer    0 .. nranks-1; it may be this rank.
 * signal  0 .. CECL_SIGNALS-1.
 * Local: the peer need not call. The host does not wait. Threads: one call at a time. Ownership:
 * none.
 * Errors, nothing enqueued: ceclInvalidArgument (peer or signal out of range; a bad stream),
 * ceclInvalidUsage (more than CECL_ONE_SIDED_RANKS ranks; inside a group; `stream` captures a graph),
 * ceclRemoteError (as in ceclPut). */
CECL_API CECL_CHECKED ceclResult_t ceclSignal(int peer, int signal, ceclComm_t comm,
                                              ceclStream_t stream);

/* Makes a stream wait for signals of peers, and takes them.
 * nwaits  entries of `waits`, 1 or more.
 * waits   [nwaits] read during the call. The stream goes on when all of them have come. An entry for
 *         the same peer and signal as an earlier entry waits for further signals.
 * Local: peers make their calls when they like. The host does not wait. Threads: one call at a
 * time. Ownership: none.
 * Errors, nothing enqueued: ceclInvalidArgument (waits NULL, nwaits below 1; an entry out of range;
 * a bad stream), ceclInvalidUsage (as in ceclSignal). */
CECL_API CECL_CHECKED ceclResult_t ceclWaitSignal(int nwaits, const ceclSignalWait_t *waits,
                                                  ceclComm_t comm, ceclStream_t stream);

/* What a communicator accepts. If all ranks set equal options, all fields are equal on all ranks. */
typedef struct {
    int groupCalls;      /* collectives that a group may have on the communicator */
    int groupMessages;   /* messages that a group may have to each peer, and from each; 0: none */
    uint64_t blockBytes; /* most bytes of a block; in calls without blocks, of a buffer */
    uint32_t types;      /* bit t: calls take ceclDataType_t t */
    /* bit t of [r]: calls take ceclRedOp_t r of type t (over several hosts fp8 needs NCCL 2.24) */
    uint32_t reductions[CECL_NUM_RED_OPS];
    int smPolicy; /* ceclSmPolicy_t of the calls that follow */
    /* 1: flags lie in memory of the host, which makes the kernels of reductions slower */
    int hostFlags;
} ceclLimits_t;

/* Tells what `comm` accepts, for callers that choose between libraries before they make a call. A call
 * within these limits may still be refused for its buffers, its stream or its policy.
 * limits  [out] written on success only. Valid until ceclSetOptions, which changes smPolicy.
 * Local. Threads: one call at a time. Ownership: none. Errors: ceclInvalidArgument (NULL). */
CECL_API CECL_CHECKED ceclResult_t ceclCommLimits(ceclComm_t comm, ceclLimits_t *limits);

/* Lends host memory that all ranks of `comm` share, so that a program's ranks can agree on
 * something without a call. cecl itself never touches this memory. All ranks may write all of it,
 * so use atomics.
 * memory  [out] this rank's address of it: 64-byte aligned, zeroed when the communicator was made.
 *         Ranks may have it at different addresses.
 * bytes   [out] CECL_LENT_BYTES.
 * Local. Threads: any. Ownership: the communicator's; it may be used until `comm` ends on this
 * rank.
 * Errors: ceclInvalidArgument (NULL), ceclInvalidUsage (several hosts). */
CECL_API CECL_CHECKED ceclResult_t ceclCommGetSharedMemory(ceclComm_t comm, void **memory,
                                                           size_t *bytes);
#define CECL_LENT_BYTES ((size_t)64 << 10)

/* ------------------------------------------------------------------------------------------------
 * Streams, for programs that run with and without a GPU. A CUDA program passes its own cudaStream_t
 * to the collectives and needs none of these. */

/* Makes a stream on the communicator's device (CUDA: non-blocking with respect to the default
 * stream). Any communicator of this process on that device may use it, also in the functions below.
 * stream  [out] written on success only.
 * Local. Threads: one call at a time. Ownership: the caller's until ceclStreamDestroy, at the latest
 * until comm ends: ceclCommDestroy waits for all work that the stream holds, even for calls of other
 * communicators. Work that the stream holds when it ends is carried out; later calls that pass the
 * stream are refused.
 * Errors: ceclInvalidArgument (NULL), ceclUnhandledCudaError, ceclSystemError, ceclOutOfMemory. */
CECL_API CECL_CHECKED ceclResult_t ceclStreamCreate(ceclComm_t comm, ceclStream_t *stream);

/* Blocks until everything enqueued on `stream` (0: the default stream) is done, even if comm has
 * failed. The timeout bounds waits for peers. Success means that the results of the calls on
 * `stream` are valid (see Results at the top). If the GPU then has no other work, the call closes
 * memory that peers have freed. This may break a capture of another thread, as cudaDeviceSynchronize
 * may, unless that thread captures on a stream of ceclStreamCreate or on a blocking stream.
 * Local, blocking. Threads: any. Ownership: none. Errors: ceclInvalidArgument (on the host device: no
 * such stream), ceclInvalidUsage (`stream` captures a graph; this thread has calls on comm in a group that
 * it has not ended: they are not enqueued yet), ceclUnhandledCudaError, and the asynchronous error. */
CECL_API CECL_CHECKED ceclResult_t ceclStreamSynchronize(ceclComm_t comm, ceclStream_t stream);

/* Destroys a stream of ceclStreamCreate, after waiting for its work.
 * Local, blocking. Threads: any. Ownership: no longer the caller's. Errors: ceclInvalidArgument (a
 * default stream; on the host device: no such stream), ceclUnhandledCudaError. */
CECL_API ceclResult_t ceclStreamDestroy(ceclComm_t comm, ceclStream_t stream);

/* Makes an event, by which one stream waits for another.
 *
 *     ceclEventRecord(comm, event, compute);       // the gradients are computed
 *     ceclStreamWaitEvent(comm, transfer, event);  // then they are sent
 *
 * event  [out] written on success only. On GPUs a cudaEvent_t without timing: CUDA's functions take
 *        it, and the functions below take events that the program made by cudaEventCreate.
 * Local. Threads: any. Ownership: the caller's until ceclEventDestroy; it may outlive comm.
 * Errors: ceclInvalidArgument (NULL), ceclUnhandledCudaError, ceclOutOfMemory. Since 0.3.0. */
CECL_API CECL_CHECKED ceclResult_t ceclEventCreate(ceclComm_t comm, ceclEvent_t *event);

/* Lets an event mark the work that `stream` holds now. Streams that already wait for the event still
 * wait for the work that it marked before.
 * stream  any stream of the process on comm's device. On GPUs it may capture a graph, as with
 *         cudaEventRecord; on the host device that is refused.
 * Local; the host does not wait. Threads: any; one call at a time for an event. Ownership: none.
 * Errors: ceclInvalidArgument (NULL, no such event, no such stream), ceclInvalidUsage (the stream
 * captures, on the host device), ceclUnhandledCudaError, and the asynchronous error.
 * Since 0.3.0. */
CECL_API CECL_CHECKED ceclResult_t ceclEventRecord(ceclComm_t comm, ceclEvent_t event,
                                                   ceclStream_t stream);

/* Makes later work on `stream` wait for the work that an event marks now. An event that was never
 * recorded marks nothing: the call has no effect.
 * Local; the host does not wait. Threads, ownership, errors, Since: as ceclEventRecord. */
CECL_API CECL_CHECKED ceclResult_t ceclStreamWaitEvent(ceclComm_t comm, ceclStream_t stream,
                                                       ceclEvent_t event);

/* Destroys an event. Waits that are enqueued keep their effect. Works even if comm has failed.
 * Local; does not wait. Threads: any. Ownership: no longer the caller's. Errors: ceclInvalidArgument
 * (NULL, no such event), ceclUnhandledCudaError. Since 0.3.0. */
CECL_API ceclResult_t ceclEventDestroy(ceclComm_t comm, ceclEvent_t event);

/* Copies `bytes` bytes from `src` to `dst` in the order of `stream`. Each of the two may lie on the
 * device or on the host.
 * Local; the host does not wait when both lie on the device. Threads: any. Ownership: the caller's;
 * host memory must be kept until the stream has passed the call.
 * Errors: ceclInvalidArgument (NULL; on the host device: no such stream), ceclUnhandledCudaError. */
CECL_API CECL_CHECKED ceclResult_t ceclMemcpyAsync(ceclComm_t comm, void *dst, const void *src,
                                                   size_t bytes, ceclStream_t stream);

/* -- graphs -- */

/* CUDA programs capture calls of this header with CUDA's own functions (cudaStreamBeginCapture).
 * The four functions below do the same on every device. A captured call runs whenever the graph is
 * launched.
 *
 *   - All ranks capture equal calls in the same order, and launch their graphs in the same order among
 *     their other calls on the communicator. Whatever their streams, launches and calls of a communicator
 *     run in the order in which the host makes them. If ranks launch graphs of collectives in different
 *     orders, the communicator fails, and the error names both calls (ceclInvalidUsage;
 *     ceclRemoteError on ranks that first heard of it from a peer). As after any failure, results are
 *     undefined. Ranks compare neither the order of graphs of messages, nor the order of a graph and a
 *     call that is not captured. If such an order differs, ranks wait for CECL_TIMEOUT_MS, and the
 *     error names the peer. Bytes of one message never arrive as bytes of another one.
 *   - Collectives, messages, and groups of them can be captured. One-sided calls cannot.
 *   - While a collective is captured, the host waits until all ranks capture it (CECL_TIMEOUT_MS at
 *     most). End a group with captured calls before you end the capture.
 *   - ceclSend and ceclRecv: only the two ranks of a message capture it, and their hosts wait for each
 *     other. If the two ranks would capture two messages in different orders, put both into one group. A
 *     captured group has at most 32 messages to a rank and 32 from it (fewer if groupMessages of
 *     ceclCommLimits is less). Launch graphs with messages in the order of their captures.
 *   - Destroy a graph before you free memory that its calls use, and before their communicator.
 *     A free, or the communicator's end, waits up to 2 s before it reports that a graph holds calls:
 *     the graph's last launch may still run, and the driver reports the end of a launch late. */
typedef struct ceclGraph *ceclGraph_t;

/* Begins to capture what is enqueued on a stream of ceclStreamCreate, or of the program.
 * Local. Threads: any; one call at a time on the stream. Ownership: none. Errors: ceclInvalidUsage
 * (a default stream; one that captures already), ceclInvalidArgument (no such stream),
 * ceclUnhandledCudaError. */
CECL_API CECL_CHECKED ceclResult_t ceclStreamBeginCapture(ceclComm_t comm, ceclStream_t stream);

/* Ends the capture, and makes a graph that can be launched. Returns an error if the capture is broken.
 * Local. Threads: as ceclStreamBeginCapture. Ownership: *graph is the caller's until
 * ceclGraphDestroy; it is untouched on failure. Errors: ceclInvalidUsage (`stream` captures no graph),
 * ceclInvalidArgument (NULL; on the host device: no such stream), ceclUnhandledCudaError,
 * ceclOutOfMemory. */
CECL_API CECL_CHECKED ceclResult_t ceclStreamEndCapture(ceclComm_t comm, ceclStream_t stream,
                                                        ceclGraph_t *graph);

/* Carries out what the graph has captured, in the order of `stream`. May be called any number of times.
 * Local; the host waits only while the driver's queue is full. Threads: any; one call at a time for
 * graphs of one communicator. Ownership: none. Errors: ceclInvalidArgument (NULL, destroyed, no
 * such stream), ceclInvalidUsage (the communicator has ended; `stream` captures), the asynchronous
 * error, ceclUnhandledCudaError. */
CECL_API CECL_CHECKED ceclResult_t ceclGraphLaunch(ceclGraph_t graph, ceclStream_t stream);

/* Destroys a graph; launches that are not done yet are carried out. NULL has no effect.
 * Local. Threads: any. Ownership: no longer the caller's. Errors: ceclInvalidArgument
 * (destroyed before), ceclUnhandledCudaError. */
CECL_API ceclResult_t ceclGraphDestroy(ceclGraph_t graph);

#ifdef __cplusplus
}
#endif
#endif
