/* Calls go on while a kernel of this rank holds every SM, and a peer frees memory that it has published: nothing in the
 * library may wait for that kernel, which only the host ends. There are two processes, because a process does not
 * import its own memory. Usage: test_cuda_closing [cases] */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cecl/cecl.h>
#include <cuda_runtime_api.h>

#include "hold_sms.h"

#define RANKS 2
#define BLOCK ((size_t)2 << 20) /* bytes; too large for a small call */
#define KEPT 3        /* memory is freed at once, or this many cases after its last call */
#define CALL_MS 10000 /* less than the time after which the kernel ends by itself */
#define CASES 200
#define ALL_S 200

static struct {
    ceclUniqueId id;
    _Atomic int arrived;
    _Atomic bool failed;
} * shared;
static int rank;
static ceclComm_t comm;
static ceclStream_t stream;

#define MUST(expr, good, words) \
    do { \
        if ((expr) != (good)) { \
            fprintf(stderr, "rank %d: %s: %s\n", rank, #expr, words); \
            return false; \
        } \
    } while (0)
#define OK(expr) MUST(expr, ceclSuccess, ceclGetLastError(NULL))
#define CUDA(expr) MUST(expr, cudaSuccess, cudaGetErrorString(cudaGetLastError()))

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000L};
    nanosleep(&pause, NULL);
}

static bool meet(void)
{
    const int until = (atomic_fetch_add(&shared->arrived, 1) / RANKS + 1) * RANKS;
    while (atomic_load(&shared->arrived) < until && !atomic_load(&shared->failed))
        pause_ms(1);
    return !atomic_load(&shared->failed);
}

static unsigned char byte_of(int r, int number)
{
    return (unsigned char)(1 + 37 * r + 11 * number);
}

static bool gather(unsigned char *buffer, cudaGraphExec_t graph)
{
    if (graph)
        CUDA(cudaGraphLaunch(graph, (cudaStream_t)stream));
    else
        OK(ceclAllGather(buffer + (size_t)rank * BLOCK, buffer, BLOCK, ceclUint8, comm, stream));
    return true;
}

static bool capture(unsigned char *buffer, cudaGraphExec_t *made)
{
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal));
    MUST(gather(buffer, NULL), true, "captured");
    CUDA(cudaStreamEndCapture((cudaStream_t)stream, &graph));
    CUDA(cudaGraphInstantiate(made, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return true;
}

static bool finishes(void)
{
    for (int ms = 0; ms < CALL_MS; ms++) {
        const cudaError_t state = cudaStreamQuery((cudaStream_t)stream);
        if (state != cudaErrorNotReady)
            return state == cudaSuccess;
        pause_ms(1);
    }
    return false;
}

static bool check(const unsigned char *buffer, int number)
{
    unsigned char *host = malloc(RANKS * BLOCK);
    MUST(host != NULL, true, "no memory");
    CUDA(cudaMemcpy(host, buffer, RANKS * BLOCK, cudaMemcpyDeviceToHost));
    bool same = true;
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < BLOCK; i++)
            same = same && host[(size_t)r * BLOCK + i] == byte_of(r, number);
    free(host);
    MUST(same, true, "wrong bytes");
    return true;
}

/* Two calls while every SM is held. The second one is in memory of the communicator, and comes after the worker has
 * learned what the peer freed. */
static bool call_held(unsigned char *buffer, unsigned char *pool, cudaGraphExec_t graph)
{
    struct hold_sms *hold = hold_sms_start();
    MUST(hold != NULL, true, "the SMs are not held");
    const bool first = gather(buffer, graph) && finishes();
    pause_ms(10);
    const bool second = first && gather(pool, NULL) && finishes();
    const bool held = hold_sms_stop(hold) == 1;
    MUST(first, true, "the call in new memory did not end while the SMs were held");
    MUST(second, true, "the next call did not end while the SMs were held");
    MUST(held, true, "a call took as long as the kernel");
    return true;
}

static bool try_case(int number, unsigned char *kept[KEPT], unsigned char *pool)
{
    unsigned char **place = &kept[number % KEPT], *buffer;
    cudaGraphExec_t graph = NULL;
    CUDA(cudaFree(*place));
    *place = NULL;
    CUDA(cudaMalloc((void **)&buffer, RANKS * BLOCK));
    CUDA(cudaMemset(buffer + (size_t)rank * BLOCK, byte_of(rank, number), BLOCK));
    CUDA(cudaDeviceSynchronize());
    if (number % 2 == 1)
        MUST(capture(buffer, &graph), true, "capture");
    MUST(meet(), true, "the other rank has failed");
    MUST(call_held(buffer, pool, graph), true, graph ? "a captured call" : "a plain call");
    MUST(check(buffer, number), true, "check");
    OK(ceclStreamSynchronize(comm, stream));
    if (graph)
        CUDA(cudaGraphExecDestroy(graph));
    MUST(meet(), true, "the other rank has failed");
    if (number % 5 < 2) /* the next case gets this address again */
        CUDA(cudaFree(buffer));
    else
        *place = buffer;
    return true;
}

static bool run(int cases)
{
    unsigned char *kept[KEPT] = {0}, *pool = NULL;
    size_t before = 0, after = 0, total = 0;
    CUDA(cudaSetDevice(rank));
    if (rank == 0)
        OK(ceclGetUniqueId(&shared->id));
    MUST(meet(), true, "the other rank has failed");
    OK(ceclCommInitRank(&comm, RANKS, shared->id, rank));
    OK(ceclStreamCreate(comm, &stream));
    OK(ceclMemAlloc(comm, (void **)&pool, RANKS * BLOCK));
    MUST(gather(pool, NULL) && finishes(), true, "the first call");
    CUDA(cudaMemGetInfo(&before, &total));
    for (int i = 0; i < cases; i++)
        if (!try_case(i, kept, pool)) {
            fprintf(stderr, "rank %d: case %d\n", rank, i);
            return false;
        }
    for (int i = 0; i < KEPT; i++)
        CUDA(cudaFree(kept[i]));
    MUST(meet(), true, "the other rank has failed");
    CUDA(cudaMemGetInfo(&after, &total));
    printf("rank %d: %d cases, %zu MiB more in use at the end\n", rank, cases,
           before > after ? (before - after) >> 20 : 0);
    OK(ceclCommDestroy(comm));
    return true;
}

int main(int argc, char **argv)
{
    const int cases = argc > 1 ? atoi(argv[1]) : CASES;
    bool good = true;
    pid_t children[RANKS];
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            alarm(ALL_S);
            const bool done = run(cases);
            if (!done)
                atomic_store(&shared->failed, true);
            _exit(done ? 0 : 1);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        int status = 1;
        good = waitpid(children[r], &status, 0) > 0 && status == 0 && good;
        if (status != 0)
            atomic_store(&shared->failed, true);
    }
    return good ? 0 : 1;
}
