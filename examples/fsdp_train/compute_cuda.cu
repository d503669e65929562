/* Compute on a GPU: memory, matrix products by cuBLAS (bfloat16, sums in float), and the table of
 * operations. Events order compute with the communication streams, and measure time. A step
 * allocates nothing, and the host waits only in operations that block according to compute.h. */
#include "cuda_compute.h"

#include <cstdio>
#include <cstdlib>

static const size_t workspace_bytes = (size_t)64 << 20;

static bool check(struct gpu *g, bool fine, const char *what, const char *why)
{
    if (!fine && !g->failed)
        fprintf(stderr, "compute: %s: %s\n", what, why);
    g->failed = g->failed || !fine;
    return fine;
}
#define GPU_CHECK(g, expr) gpu_check((g), (expr), #expr)

static bool gpu_check(struct gpu *g, cudaError_t error, const char *what)
{
    return check(g, error == cudaSuccess, what, cudaGetErrorString(error));
}

static bool gpu_check(struct gpu *g, cublasStatus_t status, const char *what)
{
    return check(g, status == CUBLAS_STATUS_SUCCESS, what, cublasGetStatusString(status));
}

/* ---- opening and closing */

static bool make_events(struct gpu *g, cudaEvent_t **events, int count, unsigned flags)
{
    *events = (cudaEvent_t *)calloc((size_t)count, sizeof(cudaEvent_t));
    for (int i = 0; *events && i < count; i++)
        if (!GPU_CHECK(g, cudaEventCreateWithFlags(&(*events)[i], flags)))
            return false;
    return *events != nullptr;
}

static bool gpu_open(struct compute *c, int device, int lanes, int ticks)
{
    struct gpu *g = (struct gpu *)calloc(1, sizeof(*g));
    c->state = g;
    if (!g)
        return false;
    g->lanes = lanes;
    g->room = ticks;
    return GPU_CHECK(g, cudaSetDevice(device)) &&
           GPU_CHECK(g, cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking)) &&
           GPU_CHECK(g, cudaMalloc(&g->workspace, workspace_bytes)) &&
           GPU_CHECK(g, cudaMalloc(&g->scratch, (size_t)CHUNKS * 2 * WIDEST * sizeof(float))) &&
           GPU_CHECK(g, cudaEventCreateWithFlags(&g->ready, cudaEventDisableTiming)) &&
           make_events(g, &g->done, lanes, cudaEventDisableTiming) &&
           make_events(g, &g->ticks, ticks, cudaEventDefault) &&
           GPU_CHECK(g, cublasCreate(&g->blas)) &&
           GPU_CHECK(g, cublasSetStream(g->blas, g->stream)) &&
           GPU_CHECK(g, cublasSetWorkspace(g->blas, g->workspace, workspace_bytes));
}

static void free_events(cudaEvent_t *events, int count)
{
    for (int i = 0; events && i < count; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    free(events);
}

static void gpu_close(struct compute *c)
{
    struct gpu *g = gpu_of(c);
    if (g->blas)
        cublasDestroy(g->blas);
    if (g->ready)
        cudaEventDestroy(g->ready);
    free_events(g->done, g->lanes);
    free_events(g->ticks, g->room);
    cudaFree(g->workspace);
    cudaFree(g->scratch);
    if (g->stream)
        cudaStreamDestroy(g->stream);
    free(g);
    c->state = nullptr;
}

/* ---- memory */

static void *gpu_alloc(struct compute *c, size_t bytes)
{
    struct gpu *g = gpu_of(c);
    void *memory = nullptr;
    char what[64];
    snprintf(what, sizeof(what), "%zu bytes of the GPU's memory", bytes);
    if (!gpu_check(g, cudaMalloc(&memory, bytes), what))
        return nullptr;
    GPU_CHECK(g, cudaMemsetAsync(memory, 0, bytes, g->stream));
    return memory;
}

static void gpu_free(struct compute *c, void *memory)
{
    (void)c;
    cudaFree(memory);
}

static bool gpu_wait(struct compute *c)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaGetLastError()); /* an error of the kernels launched so far */
    GPU_CHECK(g, cudaStreamSynchronize(g->stream));
    return !g->failed;
}

static void gpu_copy(struct compute *c, void *dst, const void *src, size_t bytes)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, g->stream));
}

static void gpu_zero(struct compute *c, void *dst, size_t bytes)
{
    struct gpu *g = gpu_of(c);
    if (bytes > 0)
        GPU_CHECK(g, cudaMemsetAsync(dst, 0, bytes, g->stream));
}

/* cuBLAS sees each row-major matrix as its transpose, and C' = B' A'. So the operands are swapped, and
 * each keeps its own op. */
static void gpu_matmul(struct compute *c, const struct matmul *m)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cublasGemmStridedBatchedEx(g->blas, m->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
                                            m->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, m->n, m->m,
                                            m->k, &m->alpha, m->b, CUDA_R_16BF, m->ldb, m->stride_b,
                                            m->a, CUDA_R_16BF, m->lda, m->stride_a, &m->beta, m->c,
                                            m->wide ? CUDA_R_32F : CUDA_R_16BF, m->ldc, m->stride_c,
                                            m->batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/* ---- shards: conversion to bfloat16, and Adam. Counts are multiples of 128. */

__global__ void to_elements_kernel(pack *dst, const float4 *src, size_t packs)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < packs;
         i += (size_t)gridDim.x * THREADS) {
        const float4 a = src[2 * i], b = src[2 * i + 1];
        const float in[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        pack out;
        for (int k = 0; k < 8; k++)
            out.e[k] = __float2bfloat16(in[k]);
        dst[i] = out;
    }
}

static void gpu_to_elements(struct compute *c, void *dst, const float *src, size_t count)
{
    struct gpu *g = gpu_of(c);
    to_elements_kernel<<<blocks_for(count / 8), THREADS, 0, g->stream>>>(
        (pack *)dst, (const float4 *)src, count / 8);
}

/* Four numbers, which a thread loads at once. */
struct alignas(16) four {
    float at[4];
};
struct alignas(8) four_elements {
    element at[4];
};

__global__ void adam_kernel(four *parameters, four *first, four *second,
                            const four_elements *gradients, size_t fours, adam a)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < fours;
         i += (size_t)gridDim.x * THREADS) {
        four p = parameters[i], m = first[i], v = second[i];
        const four_elements gradient = gradients[i];
        for (int k = 0; k < 4; k++) {
            const float g = __bfloat162float(gradient.at[k]);
            m.at[k] = a.beta1 * m.at[k] + (1 - a.beta1) * g;
            v.at[k] = a.beta2 * v.at[k] + (1 - a.beta2) * g * g;
            p.at[k] -=
                a.rate * m.at[k] * a.correction1 / (sqrtf(v.at[k] * a.correction2) + a.epsilon);
        }
        parameters[i] = p;
        first[i] = m;
        second[i] = v;
    }
}

static void gpu_adam(struct compute *c, float *parameters, float *first, float *second,
                     const void *gradients, size_t count, const struct adam *a)
{
    adam_kernel<<<blocks_for(count / 4), THREADS, 0, gpu_of(c)->stream>>>(
        (four *)parameters, (four *)first, (four *)second, (const four_elements *)gradients,
        count / 4, *a);
}

/* ---- order and time */

static void gpu_stream_after_compute(struct compute *c, ceclStream_t stream)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaEventRecord(g->ready, g->stream));
    GPU_CHECK(g, cudaStreamWaitEvent(stream, g->ready, 0));
}

static void gpu_mark(struct compute *c, ceclStream_t stream, int lane)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaEventRecord(g->done[lane], stream));
}

static void gpu_compute_after_mark(struct compute *c, int lane)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaStreamWaitEvent(g->stream, g->done[lane], 0));
}

static void gpu_tick(struct compute *c)
{
    struct gpu *g = gpu_of(c);
    if (g->used < g->room)
        GPU_CHECK(g, cudaEventRecord(g->ticks[g->used++], g->stream));
}

static bool gpu_ticks(struct compute *c, double *ms, int count)
{
    struct gpu *g = gpu_of(c);
    const int used = g->used;
    g->used = 0;
    if (!gpu_wait(c))
        return false;
    if (used != count) {
        fprintf(stderr, "compute: %d time stamps, %d expected\n", used, count);
        return false;
    }
    for (int i = 0; i < count; i++) {
        float since = 0;
        GPU_CHECK(g, cudaEventElapsedTime(&since, g->ticks[0], g->ticks[i]));
        ms[i] = since;
    }
    return !g->failed;
}

extern "C" const struct compute *compute_cuda(void)
{
    static struct compute table;
    table.name = "GPU (cuBLAS, bfloat16, sums in float)";
    table.element = sizeof(element);
    table.type = ceclBfloat16;
    table.open = gpu_open;
    table.close = gpu_close;
    table.alloc = gpu_alloc;
    table.free = gpu_free;
    table.wait = gpu_wait;
    table.copy = gpu_copy;
    table.zero = gpu_zero;
    table.matmul = gpu_matmul;
    table.stream_after_compute = gpu_stream_after_compute;
    table.mark = gpu_mark;
    table.compute_after_mark = gpu_compute_after_mark;
    table.to_elements = gpu_to_elements;
    table.adam = gpu_adam;
    table.tick = gpu_tick;
    table.ticks = gpu_ticks;
    cuda_network(&table);
    return &table;
}
