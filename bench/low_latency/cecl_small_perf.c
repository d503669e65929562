/* Times small calls in four variants: the kernel of sm/small.h alone; the kernel and a stream write after it; the
 * library's call; and NCCL. All take turns in one run, with one process for each GPU.
 *
 * mpirun -n 4 cecl_small_perf [--calls N] [--rounds N] [--sms N]
 *     --calls   calls that follow each other and are timed together; default 100
 *     --rounds  rounds of all variants in turn; the median counts; default 15
 *     --sms     most SMs of the kernel; default 0: the kernel's own choice
 *
 * Bytes are of the whole buffer in an all-reduce, and of one rank's block in other calls. Times are the slowest
 * rank's. */
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef WITH_NCCL
#include <nccl.h>
#endif

#include "comm/comm.h"
#include "sm/small.h"

#define LARGEST ((size_t)1 << 20)
#define CONTENDERS 4
#define ROUNDS_MAX 101

/* Reduce-scatters are left to cecl_perf. */
static const struct {
    enum cecl_small_kind kind;
    const char *name;
} kinds[] = {{CECL_SMALL_ALL_REDUCE, "all-reduce"},
             {CECL_SMALL_ALL_GATHER, "all-gather"},
             {CECL_SMALL_ALL_TO_ALL, "all-to-all"}};
static const char *const contenders[CONTENDERS] = {"kernel", "kernel+word", "cecl", "nccl"};

static int rank, nranks;
static ceclComm_t comm;
static cudaStream_t stream;
static cudaEvent_t start, end;
static unsigned char *send, *recv[2]; /* recvbuffs of the kernel and of cecl */
/* `marks` is pinned. `ended` has two words in the GPU's memory: the kernel's `end` and `late` */
static uint32_t *marks, *ended;
static struct cecl_small small;
#ifdef WITH_NCCL
static ncclComm_t nccl;
#endif

static void fail(const char *what, const char *words)
{
    fprintf(stderr, "cecl_small_perf: rank %d: %s: %s\n", rank, what, words);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(expr) \
    do { \
        if ((expr) != ceclSuccess) \
            fail(#expr, ceclGetLastError(NULL)); \
    } while (0)
#define MUST_CUDA(expr) \
    do { \
        const cudaError_t error_ = (expr); \
        if (error_ != cudaSuccess) \
            fail(#expr, cudaGetErrorString(error_)); \
    } while (0)

static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static long number(const char *option, const char *words, long least, long most)
{
    char *rest = NULL;
    const long value = words ? strtol(words, &rest, 10) : -1;
    if (!words || rest == words || *rest || value < least || value > most) {
        fprintf(stderr, "cecl_small_perf: %s %s: %ld to %ld expected\n", option, words ? words : "",
                least, most);
        exit(2);
    }
    return value;
}

static void setup(void)
{
    const ceclOob_t oob = {NULL, gather, NULL};
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    const size_t slots = (size_t)cecl_small_slots_bytes(nranks, LARGEST);
    void *own = NULL, *there = NULL;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    config.device = CECL_DEVICE_CUDA;
    config.smPolicy = CECL_SM_ALLOW;
    MUST(ceclCommInitOob(&comm, nranks, rank, &oob, &config));
    MUST(cecl_small_cuda_prepare());
    MUST(ceclMemAlloc(comm, &own, slots));
    MUST(ceclMemAlloc(comm, (void **)&send, LARGEST * (size_t)nranks));
    for (int i = 0; i < 2; i++)
        MUST(ceclMemAlloc(comm, (void **)&recv[i], LARGEST * (size_t)nranks));
    MUST_CUDA(cudaMemset(own, 0, slots));
    MUST_CUDA(cudaMemset(send, 1 + rank, LARGEST * (size_t)nranks));
    MUST_CUDA(cudaMalloc((void **)&ended, 2 * sizeof(*ended)));
    MUST_CUDA(cudaMemset(ended, 0, 2 * sizeof(*ended)));
    MUST_CUDA(cudaHostAlloc((void **)&marks, 64, cudaHostAllocDefault));
    MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST_CUDA(cudaEventCreate(&start));
    MUST_CUDA(cudaEventCreate(&end));
    small = (struct cecl_small){.rank = rank,
                                .nranks = nranks,
                                .send = send,
                                .recv = recv[0],
                                .type = ceclFloat32,
                                .op = ceclSum,
                                .slot_bytes = LARGEST,
                                .end = ended,
                                .late = ended + 1,
                                .timeout_ns = UINT64_C(10000000000)};
    for (int r = 0; r < nranks; r++) {
        MUST(ceclGetPeerPointer(comm, own, r, &there));
        small.slots[r] = there;
    }
#ifdef WITH_NCCL
    ncclUniqueId id;
    /* no multicast in NCCL, because cecl uses none */
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (rank == 0 && ncclGetUniqueId(&id) != ncclSuccess)
        fail("ncclGetUniqueId", "failed");
    MPI_Bcast(&id, (int)sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (ncclCommInitRank(&nccl, nranks, id, rank) != ncclSuccess)
        fail("ncclCommInitRank", "failed");
#endif
    MUST_CUDA(cudaDeviceSynchronize());
    MPI_Barrier(MPI_COMM_WORLD);
}

static void by_kernel(void)
{
    small.epoch++;
    MUST(cecl_small_cuda(stream, &small));
}

static void by_kernel_and_word(void)
{
    const struct cecl_memop mark = {marks, small.epoch, CECL_MEMOP_WRITE};
    by_kernel();
    MUST(comm->dev->ops->memops(comm->dev, stream, &mark, 1));
}

static void by_cecl(void)
{
    const size_t bytes = (size_t)small.bytes;
    switch (small.kind) {
    case CECL_SMALL_ALL_REDUCE:
        MUST(ceclAllReduce(send, recv[1], bytes / 4, ceclFloat32, ceclSum, comm, stream));
        break;
    case CECL_SMALL_REDUCE_SCATTER: break;
    case CECL_SMALL_ALL_GATHER:
        MUST(ceclAllGather(send, recv[1], bytes, ceclUint8, comm, stream));
        break;
    case CECL_SMALL_ALL_TO_ALL:
        MUST(ceclAlltoAll(send, recv[1], bytes, ceclUint8, comm, stream));
        break;
    }
}

static void by_nccl(void)
{
#ifdef WITH_NCCL
    const size_t bytes = (size_t)small.bytes;
    ncclResult_t result = ncclSuccess;
    if (small.kind == CECL_SMALL_ALL_REDUCE)
        result = ncclAllReduce(send, recv[1], bytes / 4, ncclFloat32, ncclSum, nccl, stream);
    else if (small.kind == CECL_SMALL_ALL_GATHER)
        result = ncclAllGather(send, recv[1], bytes, ncclUint8, nccl, stream);
    else {
        ncclGroupStart();
        for (int p = 0; p < nranks; p++) {
            ncclSend(send + (size_t)p * bytes, bytes, ncclUint8, p, nccl, stream);
            ncclRecv(recv[1] + (size_t)p * bytes, bytes, ncclUint8, p, nccl, stream);
        }
        result = ncclGroupEnd();
    }
    if (result != ncclSuccess)
        fail("nccl", ncclGetErrorString(result));
#endif
}

static void (*const call_by[CONTENDERS])(void) = {by_kernel, by_kernel_and_word, by_cecl, by_nccl};

/* The time of a call on the slowest rank, in us. */
static double measure(int contender, int calls)
{
    float ms = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int c = 0; c < 5; c++) /* brings ranks into step */
        call_by[contender]();
    MUST_CUDA(cudaEventRecord(start, stream));
    for (int c = 0; c < calls; c++)
        call_by[contender]();
    MUST_CUDA(cudaEventRecord(end, stream));
    MUST_CUDA(cudaEventSynchronize(end));
    MUST_CUDA(cudaEventElapsedTime(&ms, start, end));
    double mine = (double)ms * 1000 / calls, slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Whether any bit of the kernel's result differs from the library's. The input differs from place to place. */
static int differ(void)
{
    const size_t all = LARGEST * (size_t)nranks;
    unsigned char *host = malloc(2 * all);
    uint32_t late = 0;
    if (!host)
        fail("malloc", "no memory");
    for (size_t i = 0; i < all / 4; i++) {
        const float x = (float)((i * 2654435761u + (size_t)rank * 40503u) % 100003) / 977.0f;
        memcpy(host + 4 * i, &x, 4);
    }
    MUST_CUDA(cudaMemcpy(send, host, all, cudaMemcpyDefault));
    for (int i = 0; i < 2; i++)
        MUST_CUDA(cudaMemset(recv[i], 0x5a, all));
    MUST_CUDA(cudaDeviceSynchronize());
    MPI_Barrier(MPI_COMM_WORLD);
    by_kernel();
    by_cecl();
    MUST(ceclStreamSynchronize(comm, stream));
    for (int i = 0; i < 2; i++)
        MUST_CUDA(cudaMemcpy(host + (size_t)i * all, recv[i], all, cudaMemcpyDefault));
    MUST_CUDA(cudaMemcpy(&late, ended + 1, sizeof(late), cudaMemcpyDefault));
    int mine = late != 0 || memcmp(host, host + all, all) != 0, any = 0;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    free(host);
    return any;
}

static int table(enum cecl_small_kind kind, const char *name, int calls, int rounds)
{
    int wrong = 0;
    small.kind = kind;
    if (rank == 0) {
        printf("\n%s, %d GPUs, us\n%10s", name, nranks, "bytes");
        for (int c = 0; c < CONTENDERS; c++)
            printf(" %12s", contenders[c]);
        printf("\n");
    }
    for (small.bytes = 16; small.bytes <= LARGEST; small.bytes *= 4) {
        static double us[CONTENDERS][ROUNDS_MAX];
        const int bad = differ();
        for (int round = -1; round < rounds; round++) /* round -1 makes plans and connections */
            for (int c = 0; c < CONTENDERS; c++) {
                const double time = measure(c, calls);
                us[c][round < 0 ? 0 : round] = time;
            }
        if (rank == 0)
            printf("%10zu", (size_t)small.bytes);
        for (int c = 0; c < CONTENDERS; c++) {
            qsort(us[c], (size_t)rounds, sizeof(double), ascending);
            if (rank == 0)
                printf(" %12.2f", us[c][rounds / 2]);
        }
        if (rank == 0)
            printf("%s\n", bad ? "  DIFFERS from the library's result" : "");
        fflush(stdout);
        wrong |= bad;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    int calls = 100, rounds = 15, gpus = 0, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    for (int i = 1; i < argc; i += 2) {
        const char *words = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--calls") == 0)
            calls = (int)number(argv[i], words, 1, 10000);
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = (int)number(argv[i], words, 1, ROUNDS_MAX);
        else if (strcmp(argv[i], "--sms") == 0)
            small.max_sms = (uint32_t)number(argv[i], words, 0, CECL_MOST_SMS);
        else {
            fprintf(stderr, "cecl_small_perf: %s: --calls, --rounds or --sms expected\n", argv[i]);
            exit(2);
        }
    }
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < nranks || nranks < 2 ||
        nranks > CECL_SMALL_RANKS_MAX) {
        if (rank == 0)
            printf("cecl_small_perf: 2 to %d ranks and a GPU for each expected\n",
                   CECL_SMALL_RANKS_MAX);
        MPI_Finalize();
        return 77;
    }
    const uint32_t sms = small.max_sms;
    setup();
    small.max_sms = sms;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        wrong |= table(kinds[i].kind, kinds[i].name, calls, rounds);
#ifdef WITH_NCCL
    ncclCommDestroy(nccl);
#endif
    MUST(ceclCommDestroy(comm));
    MPI_Finalize();
    return wrong;
}
