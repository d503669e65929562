/* Compute on a GPU: memory, matrix products by cuBLAS (bfloat16, sums in float), and the table of
 * operations. Events order compute with the communication streams, and measure time. A step
 * allocates nothing, and the host waits only in the operations that compute.h says block. */
#include "cuda_compute.h"

#include <cstdio>
#include <cstdlib>

static const size_t workspace_bytes = (size_t)64 << 20;

bool gpu_check(struct gpu *g, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    if (!g->failed)
        fprintf(stderr, "compute: %s: %s\n", what, cudaGetErrorString(error));
    g->failed = true;
    return false;
}

static bool blas_check(struct gpu *g, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    if (!g->failed)
        fprintf(stderr, "compute: %s: %s\n", what, cublasGetStatusString(status));
    g->failed = true;
    return false;
}
#define BLAS_CHECK(g, expr) blas_check((g), (expr), #expr)

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
           make_events(g, &g->ready, lanes, cudaEventDisableTiming) &&
           make_events(g, &g->done, lanes, cudaEventDisableTiming) &&
           make_events(g, &g->ticks, ticks, cudaEventDefault) &&
           BLAS_CHECK(g, cublasCreate(&g->blas)) &&
           BLAS_CHECK(g, cublasSetStream(g->blas, g->stream)) &&
           BLAS_CHECK(g, cublasSetWorkspace(g->blas, g->workspace, workspace_bytes));
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
    free_events(g->ready, g->lanes);
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
    GPU_CHECK(g, cudaStreamSynchronize(g->stream));
    return !g->failed;
}

static void gpu_write(struct compute *c, void *dst, const void *host, size_t bytes)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, g->stream));
    (void)gpu_wait(c);
}

static bool gpu_read(struct compute *c, void *host, const void *src, size_t bytes)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, g->stream));
    return gpu_wait(c);
}

static void gpu_copy(struct compute *c, void *dst, const void *src, size_t elements)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaMemcpyAsync(dst, src, elements * sizeof(element), cudaMemcpyDeviceToDevice,
                                 g->stream));
}

static void gpu_zero(struct compute *c, void *dst, size_t elements)
{
    struct gpu *g = gpu_of(c);
    if (elements > 0)
        GPU_CHECK(g, cudaMemsetAsync(dst, 0, elements * sizeof(element), g->stream));
}

/* Row-major C = A B is column-major C' = B' A'. A matrix that is transposed in one view is
 * transposed in the other too. */
static void gpu_matmul(struct compute *c, const struct matmul *m)
{
    struct gpu *g = gpu_of(c);
    BLAS_CHECK(g, cublasGemmStridedBatchedEx(
                      g->blas, m->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
                      m->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, m->n, m->m, m->k, &m->alpha, m->b,
                      CUDA_R_16BF, m->ldb, m->stride_b, m->a, CUDA_R_16BF, m->lda, m->stride_a,
                      &m->beta, m->c, m->wide ? CUDA_R_32F : CUDA_R_16BF, m->ldc, m->stride_c,
                      m->batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/* ---- order and time */

static void gpu_stream_after_compute(struct compute *c, ceclStream_t stream, int lane)
{
    struct gpu *g = gpu_of(c);
    GPU_CHECK(g, cudaEventRecord(g->ready[lane], g->stream));
    GPU_CHECK(g, cudaStreamWaitEvent(stream, g->ready[lane], 0));
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
    if (!gpu_wait(c) || !ms)
        return !g->failed;
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
    table.wide = sizeof(float);
    table.type = ceclBfloat16;
    table.open = gpu_open;
    table.close = gpu_close;
    table.alloc = gpu_alloc;
    table.free = gpu_free;
    table.write = gpu_write;
    table.read = gpu_read;
    table.wait = gpu_wait;
    table.copy = gpu_copy;
    table.zero = gpu_zero;
    table.matmul = gpu_matmul;
    table.stream_after_compute = gpu_stream_after_compute;
    table.mark = gpu_mark;
    table.compute_after_mark = gpu_compute_after_mark;
    table.tick = gpu_tick;
    table.ticks = gpu_ticks;
    cuda_network(&table);
    cuda_loss(&table);
    cuda_shards(&table);
    return &table;
}
