/* What the CUDA files share: the state behind struct compute, launching, and sums over a block. */
#ifndef CECL_FSDP_CUDA_COMPUTE_H
#define CECL_FSDP_CUDA_COMPUTE_H

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "compute.h"
#include "constants.h"
#include "shape.h"

typedef __nv_bfloat16 element;

struct gpu {
    cudaStream_t stream; /* the compute stream: everything lies on it, in the order of the calls */
    cublasHandle_t blas;
    void *workspace; /* cuBLAS' own, one for all calls: results repeat bit for bit */
    float *scratch;  /* sums of blocks of rows */
    int lanes;
    cudaEvent_t *ready; /* [lanes] compute has come so far */
    cudaEvent_t *done;  /* [lanes] a stream has */
    cudaEvent_t *ticks; /* [room] */
    int used, room;
    bool failed;
};

/* Keeps the first failure and says what it was. */
bool gpu_check(struct gpu *g, cudaError_t error, const char *what);
#define GPU_CHECK(g, expr) gpu_check((g), (expr), #expr)

static inline struct gpu *gpu_of(const struct compute *c)
{
    return (struct gpu *)c->state;
}

/* Sums over blocks of rows that one after the other adds up: no atomics, so that results repeat. */
enum { THREADS = 256, CHUNKS = 64, WIDEST = 65536, LOSS_BLOCKS = 1024 };

/* Eight elements that are moved at once. */
struct alignas(16) pack {
    element e[8];
};

static inline unsigned blocks_for(size_t threads)
{
    const size_t blocks = (threads + THREADS - 1) / THREADS;
    return blocks < 8192 ? (unsigned)blocks : 8192; /* kernels stride over the rest */
}

/* The sum over a block of THREADS threads, for all of them. */
__device__ static inline float block_sum(float value)
{
    __shared__ float parts[THREADS / 32];
    for (int lane = 16; lane > 0; lane /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lane);
    __syncthreads(); /* a sum before this one was read by all */
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < THREADS / 32; i++)
        sum += parts[i];
    return sum;
}

__device__ static inline float block_max(float value)
{
    __shared__ float parts[THREADS / 32];
    for (int lane = 16; lane > 0; lane /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lane));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    float most = parts[0];
    for (int i = 1; i < THREADS / 32; i++)
        most = fmaxf(most, parts[i]);
    return most;
}

/* The operations of each file, put into the table. */
void cuda_network(struct compute *table);
void cuda_loss(struct compute *table);
void cuda_shards(struct compute *table);

#endif
