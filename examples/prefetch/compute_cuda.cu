/* Compute on a GPU: half precision, cuBLAS with float accumulation, a few small kernels. */
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define OMPI_SKIP_MPICXX 1 /* the C++ bindings are not needed */
#include "prefetch.h"

struct gpu {
    cudaStream_t stream;
    cudaEvent_t events[4]; /* two slots, in each direction */
    cublasHandle_t blas;
    __half *x, *y;
    float *logits, *host_logits;
    unsigned char *text;
    void *workspace;
};

#define WORKSPACE ((size_t)64 << 20)
#define CUDA_TRY(expr)                                                                             \
    do {                                                                                           \
        cudaError_t cuda_error_ = (expr);                                                          \
        if (cuda_error_ != cudaSuccess) {                                                          \
            fprintf(stderr, "prefetch: %s: %s\n", #expr, cudaGetErrorString(cuda_error_));         \
            return false;                                                                          \
        }                                                                                          \
    } while (0)
#define BLAS_TRY(expr)                                                                             \
    do {                                                                                           \
        cublasStatus_t blas_status_ = (expr);                                                      \
        if (blas_status_ != CUBLAS_STATUS_SUCCESS) {                                               \
            fprintf(stderr, "prefetch: %s: %s\n", #expr, cublasGetStatusString(blas_status_));     \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static struct gpu *gpu_of(struct compute *c)
{
    return (struct gpu *)c->state;
}

__global__ void embed_kernel(__half *x, const __half *weights, const unsigned char *text, int width)
{
    const size_t b = blockIdx.x;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float sum = 0;
        for (int p = 0; p < CONTEXT; p++)
            sum += __half2float(weights[((size_t)p * SYMBOLS + text[b + p]) * width + i]);
        x[b * width + i] = __float2half(sum);
    }
}

__global__ void residual_kernel(__half *x, const __half *y, size_t count)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        x[i] = __float2half(__half2float(x[i]) + fmaxf(__half2float(y[i]), 0.0f));
}

__global__ void convert_kernel(__half *out, const float *in, size_t count)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        out[i] = __float2half(in[i]);
}

static bool gpu_setup(struct gpu *g, const struct shape *s, int device)
{
    const size_t cells = (size_t)s->batch * s->width;
    CUDA_TRY(cudaSetDevice(device));
    CUDA_TRY(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking));
    for (cudaEvent_t &event : g->events)
        CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_TRY(cudaMalloc(&g->x, cells * sizeof(__half)));
    CUDA_TRY(cudaMalloc(&g->y, cells * sizeof(__half)));
    CUDA_TRY(cudaMalloc(&g->logits, (size_t)s->batch * SYMBOLS * sizeof(float)));
    CUDA_TRY(cudaMalloc(&g->text, (size_t)s->batch + CONTEXT));
    CUDA_TRY(cudaMalloc(&g->workspace, WORKSPACE));
    CUDA_TRY(cudaMallocHost(&g->host_logits, (size_t)s->batch * SYMBOLS * sizeof(float)));
    BLAS_TRY(cublasCreate(&g->blas));
    BLAS_TRY(cublasSetStream(g->blas, g->stream));
    BLAS_TRY(cublasSetWorkspace(g->blas, g->workspace,
                                /* one for all calls, so that results repeat bit for bit */
                                WORKSPACE));
    return true;
}

static bool gpu_open(struct compute *c, const struct shape *s, int device)
{
    struct gpu *g = (struct gpu *)calloc(1, sizeof(*g));
    c->state = g;
    c->shape = s;
    return g && gpu_setup(g, s, device);
}

static void gpu_close(struct compute *c)
{
    struct gpu *g = gpu_of(c);
    cublasDestroy(g->blas);
    cudaFree(g->x);
    cudaFree(g->y);
    cudaFree(g->logits);
    cudaFree(g->text);
    cudaFree(g->workspace);
    cudaFreeHost(g->host_logits);
    for (cudaEvent_t event : g->events)
        cudaEventDestroy(event);
    cudaStreamDestroy(g->stream);
    free(g);
}

static void *gpu_alloc(struct compute *c, size_t bytes)
{
    void *memory = nullptr;
    (void)c;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}

static void gpu_free(struct compute *c, void *memory)
{
    (void)c;
    cudaFree(memory);
}

static bool gpu_fill(struct compute *c, void *dst, const float *values, size_t count)
{
    struct gpu *g = gpu_of(c);
    float *staged = nullptr;
    CUDA_TRY(cudaMalloc(&staged, count * sizeof(float)));
    CUDA_TRY(
        cudaMemcpyAsync(staged, values, count * sizeof(float), cudaMemcpyHostToDevice, g->stream));
    convert_kernel<<<1024, 256, 0, g->stream>>>((__half *)dst, staged, count);
    CUDA_TRY(cudaGetLastError());
    CUDA_TRY(cudaStreamSynchronize(g->stream));
    CUDA_TRY(cudaFree(staged));
    return true;
}

static bool gpu_embed(struct compute *c, const void *weights, const unsigned char *text)
{
    struct gpu *g = gpu_of(c);
    CUDA_TRY(cudaMemcpyAsync(g->text, text, (size_t)c->shape->batch + CONTEXT,
                             cudaMemcpyHostToDevice, g->stream));
    embed_kernel<<<c->shape->batch, 256, 0, g->stream>>>(g->x, (const __half *)weights, g->text,
                                                         c->shape->width);
    CUDA_TRY(cudaGetLastError());
    return true;
}

/* Row-major C = A B is column-major C' = B' A'. */
static bool multiply(struct gpu *g, const void *weights, int columns, const struct shape *s,
                     void *out, cudaDataType_t type)
{
    const float one = 1, zero = 0;
    BLAS_TRY(cublasGemmEx(g->blas, CUBLAS_OP_N, CUBLAS_OP_N, columns, s->batch, s->width, &one,
                          weights, CUDA_R_16F, columns, g->x, CUDA_R_16F, s->width, &zero, out,
                          type, columns, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    return true;
}

static bool gpu_layer(struct compute *c, const void *weights)
{
    struct gpu *g = gpu_of(c);
    if (!multiply(g, weights, c->shape->width, c->shape, g->y, CUDA_R_16F))
        return false;
    residual_kernel<<<1024, 256, 0, g->stream>>>(g->x, g->y,
                                                 (size_t)c->shape->batch * c->shape->width);
    CUDA_TRY(cudaGetLastError());
    return true;
}

static bool gpu_output(struct compute *c, const void *weights)
{
    return multiply(gpu_of(c), weights, SYMBOLS, c->shape, gpu_of(c)->logits, CUDA_R_32F);
}

static bool gpu_loss(struct compute *c, const unsigned char *text, double *sum, uint64_t *hash)
{
    struct gpu *g = gpu_of(c);
    CUDA_TRY(cudaMemcpyAsync(g->host_logits, g->logits,
                             (size_t)c->shape->batch * SYMBOLS * sizeof(float),
                             cudaMemcpyDeviceToHost, g->stream));
    CUDA_TRY(cudaStreamSynchronize(g->stream));
    logits_loss(c->shape, g->host_logits, text, sum, hash);
    return true;
}

static bool gpu_wait(struct compute *c)
{
    CUDA_TRY(cudaStreamSynchronize(gpu_of(c)->stream));
    return true;
}

static bool gpu_after_stream(struct compute *c, ceclComm_t comm, ceclStream_t stream, int slot)
{
    struct gpu *g = gpu_of(c);
    (void)comm;
    CUDA_TRY(cudaEventRecord(g->events[slot], stream));
    CUDA_TRY(cudaStreamWaitEvent(g->stream, g->events[slot], 0));
    return true;
}

static bool gpu_stream_after(struct compute *c, ceclStream_t stream, int slot)
{
    struct gpu *g = gpu_of(c);
    CUDA_TRY(cudaEventRecord(g->events[2 + slot], g->stream));
    CUDA_TRY(cudaStreamWaitEvent(stream, g->events[2 + slot], 0));
    return true;
}

extern "C" const struct compute *compute_cuda(void)
{
    static struct compute gpu;
    gpu.name = "GPU (cuBLAS, half, float accumulation)";
    gpu.element = sizeof(__half);
    gpu.open = gpu_open;
    gpu.close = gpu_close;
    gpu.alloc = gpu_alloc;
    gpu.free = gpu_free;
    gpu.fill = gpu_fill;
    gpu.embed = gpu_embed;
    gpu.layer = gpu_layer;
    gpu.output = gpu_output;
    gpu.loss = gpu_loss;
    gpu.wait = gpu_wait;
    gpu.after_stream = gpu_after_stream;
    gpu.stream_after = gpu_stream_after;
    return &gpu;
}
