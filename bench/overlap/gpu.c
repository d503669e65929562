/* The GEMM, and the time on a GPU from a common start until the GEMM and a collective are done.
 *
 *     start    [gate]--o begun
 *     compute          `-----[GEMM]-----------o gemm_done     (before: a GEMM that is not timed)
 *     run's            `-----[collective]-----o call_done
 *
 * In sequence, the collective waits for gemm_done.
 *
 * The host enqueues all of it before it opens the gate, so no enqueueing time is measured for any
 * side. The gate is a host function and no kernel: it holds no SM. */
#include <cublas_v2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock_wall.h"
#include "cuda_try.h"

#define WORKSPACE ((size_t)64 << 20)
/* us after which the gate opens by itself, in case enqueueing waits for the stream. The run then fails with a
 * message. Less than cecl's own limit. */
#define GATE_US 10e6

struct gate {
    atomic_bool open, outlasted;
};

struct gpu {
    cudaStream_t start, compute;
    cudaEvent_t begun, gemm_done, call_done;
    cublasHandle_t blas;
    void *a, *b, *c, *workspace;
    int size; /* M = N = K of the GEMM */
    struct gate gate;
};

#define BLAS_TRY(run, expr) \
    do { \
        const cublasStatus_t blas_status_ = (expr); \
        if (blas_status_ != CUBLAS_STATUS_SUCCESS) \
            return complain((run), #expr, cublasGetStatusString(blas_status_)); \
    } while (0)

bool gpu_present(char *why, size_t bytes)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    snprintf(why, bytes, "%s",
             error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
    return error == cudaSuccess && count > 0;
}

static void CUDART_CB pass_gate(void *data)
{
    struct gate *gate = data;
    const double end = wall_us() + GATE_US;
    while (!atomic_load(&gate->open))
        if (wall_us() > end) {
            atomic_store(&gate->outlasted, true);
            return;
        }
}

static bool gemm(struct gpu *g, const struct run *run)
{
    const float one = 1, zero = 0;
    const int n = g->size;
    BLAS_TRY(run, cublasGemmEx(g->blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, g->a, CUDA_R_16F,
                               n, g->b, CUDA_R_16F, n, &zero, g->c, CUDA_R_16F, n,
                               CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    return true;
}

/* Fills a matrix with half-precision numbers from 1/8 to 2, of either sign. With zeros the GPU would need less
 * power, and run faster. */
static bool fill(const struct run *run, void *matrix, size_t count, uint64_t state)
{
    uint16_t *host = malloc(count * sizeof(*host));
    if (!host)
        return complain(run, "--size", "no host memory for a matrix");
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        host[i] = (uint16_t)(((state >> 48) & 0x8fff) | 0x3000);
    }
    const cudaError_t error =
        cudaMemcpy(matrix, host, count * sizeof(*host), cudaMemcpyHostToDevice);
    free(host);
    CUDA_TRY(run, error);
    return true;
}

/* Makes the communicator's GPU current for the CUDA runtime, in the calling thread. */
bool gpu_make_current(const struct run *run)
{
    int device;
    BENCH_TRY(run, ceclCommCuDevice(run->comm, &device));
    CUDA_TRY(run, cudaSetDevice(device));
    return true;
}

static bool make_streams(struct gpu *g, const struct run *run)
{
    CUDA_TRY(run, cudaStreamCreateWithFlags(&g->start, cudaStreamNonBlocking));
    CUDA_TRY(run, cudaStreamCreateWithFlags(&g->compute, cudaStreamNonBlocking));
    CUDA_TRY(run, cudaEventCreate(&g->begun));
    CUDA_TRY(run, cudaEventCreate(&g->gemm_done));
    CUDA_TRY(run, cudaEventCreate(&g->call_done));
    return true;
}

static bool make_gemm(struct gpu *g, const struct run *run)
{
    const size_t count = (size_t)g->size * (size_t)g->size;
    CUDA_TRY(run, cudaMalloc(&g->a, count * 2));
    CUDA_TRY(run, cudaMalloc(&g->b, count * 2));
    CUDA_TRY(run, cudaMalloc(&g->c, count * 2));
    CUDA_TRY(run, cudaMalloc(&g->workspace, WORKSPACE));
    if (!fill(run, g->a, count, 1) || !fill(run, g->b, count, 2))
        return false;
    /* non-blocking streams would not wait for these copies */
    CUDA_TRY(run, cudaDeviceSynchronize());
    BLAS_TRY(run, cublasCreate(&g->blas));
    BLAS_TRY(run, cublasSetStream(g->blas, g->compute));
    BLAS_TRY(run, cublasSetWorkspace(g->blas, g->workspace, WORKSPACE));
    /* The first call loads the kernel, which may wait for the device. */
    if (!gemm(g, run))
        return false;
    CUDA_TRY(run, cudaStreamSynchronize(g->compute));
    return true;
}

void gpu_close(struct gpu *g)
{
    if (!g)
        return;
    if (g->blas)
        cublasDestroy(g->blas);
    void *const memory[] = {g->a, g->b, g->c, g->workspace};
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        cudaFree(memory[i]);
    const cudaEvent_t events[] = {g->begun, g->gemm_done, g->call_done};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    if (g->compute)
        cudaStreamDestroy(g->compute);
    if (g->start)
        cudaStreamDestroy(g->start);
    free(g);
}

struct gpu *gpu_open(const struct run *run, int size)
{
    struct gpu *g = calloc(1, sizeof(*g));
    if (!g) {
        complain(run, "GEMM", "no host memory");
        return NULL;
    }
    g->size = size;
    if (gpu_make_current(run) && make_streams(g, run) && make_gemm(g, run))
        return g;
    gpu_close(g);
    return NULL;
}

bool gpu_make_urgent(struct run *run)
{
    int least, most;
    cudaStream_t stream;
    CUDA_TRY(run, cudaDeviceGetStreamPriorityRange(&least, &most));
    CUDA_TRY(run, cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, most));
    BENCH_TRY(run, ceclStreamDestroy(run->comm, run->stream));
    run->stream = stream;
    return true;
}

static bool enqueue(struct gpu *g, const struct run *run, const struct load *load)
{
    CUDA_TRY(run, cudaLaunchHostFunc(g->start, pass_gate, &g->gate));
    CUDA_TRY(run, cudaEventRecord(g->begun, g->start));
    if (load->gemm) {
        CUDA_TRY(run, cudaStreamWaitEvent(g->compute, g->begun, 0));
        if (!gemm(g, run))
            return false;
        CUDA_TRY(run, cudaEventRecord(g->gemm_done, g->compute));
    }
    if (load->side) {
        CUDA_TRY(run, cudaStreamWaitEvent(run->stream, load->after ? g->gemm_done : g->begun, 0));
        if (!load->side->call(load->side, run, load->send, load->block))
            return false;
        CUDA_TRY(run, cudaEventRecord(g->call_done, run->stream));
    }
    return true;
}

/* Waits for all earlier work, and starts a GEMM that is not timed. */
static bool settle(struct gpu *g, const struct run *run)
{
    /* until the last load's host function has passed the gate */
    CUDA_TRY(run, cudaStreamSynchronize(g->start));
    CUDA_TRY(run, cudaStreamSynchronize(run->stream));
    if (!gemm(g, run))
        return false;
    CUDA_TRY(run, cudaStreamSynchronize(g->compute));
    return true;
}

bool gpu_start(struct gpu *g, const struct run *run, const struct load *load)
{
    if (!settle(g, run))
        return false;
    atomic_store(&g->gate.outlasted, false);
    atomic_store(&g->gate.open, false);
    const bool fine = enqueue(g, run, load);
    if (fine)
        MPI_Barrier(MPI_COMM_WORLD);
    atomic_store(&g->gate.open, true); /* also after an error, because the streams must end */
    return fine;
}

/* Waits for `done`. If the time from the start to `done` is longer than *ms, *ms becomes that time. */
static bool add(struct gpu *g, const struct run *run, cudaEvent_t done, double *ms)
{
    float took = 0;
    CUDA_TRY(run, cudaEventSynchronize(done));
    CUDA_TRY(run, cudaEventElapsedTime(&took, g->begun, done));
    if ((double)took > *ms)
        *ms = (double)took;
    return true;
}

bool gpu_time(struct gpu *g, const struct run *run, const struct load *load, double *ms)
{
    *ms = 0;
    if (!gpu_start(g, run, load) || (load->gemm && !add(g, run, g->gemm_done, ms)) ||
        (load->side && !add(g, run, g->call_done, ms)))
        return false;
    if (atomic_load(&g->gate.outlasted))
        return complain(run, load->side ? load->side->name : "GEMM",
                        "not enqueued by all ranks within 10 s: the start did not wait for it");
    return true;
}
