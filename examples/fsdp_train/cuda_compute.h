/* What the CUDA files share: the state behind struct compute, launching, and sums over a block. */
#ifndef CECL_FSDP_CUDA_COMPUTE_H
#define CECL_FSDP_CUDA_COMPUTE_H

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "compute.h"
#include "model.h"

typedef __nv_bfloat16 element;

struct gpu {
    /* the compute stream: all operations are enqueued on it, in the order of the calls */
    cudaStream_t stream;
    cublasHandle_t blas;
    void *workspace; /* of cuBLAS, one for all calls, so that results repeat bit for bit */
    float *scratch;  /* sums of blocks of rows */
    int lanes;
    cudaEvent_t ready; /* the end of the compute for which a stream was last told to wait */
    /* [lanes] the end of the work that the lane's stream held when it was marked */
    cudaEvent_t *done;
    cudaEvent_t *ticks; /* [room] */
    int used, room;
    bool failed;
};

static inline struct gpu *gpu_of(const struct compute *c)
{
    return (struct gpu *)c->state;
}

/* Blocks of rows have partial sums, which one thread adds in order. There are no atomics, so that
 * results repeat. */
enum { THREADS = 256, CHUNKS = 64, WIDEST = 65536, LOSS_BLOCKS = 1024 };

/* Eight elements that are moved at a time. */
struct alignas(16) pack {
    element e[8];
};

static inline unsigned blocks_for(size_t threads)
{
    const size_t blocks = (threads + THREADS - 1) / THREADS;
    return blocks < 8192 ? (unsigned)blocks : 8192; /* kernels stride over the rest */
}

/* The sum, or the largest, over a block of THREADS threads. Every thread gets it. */
template <bool sums> __device__ static inline float block_reduce(float value)
{
    __shared__ float parts[THREADS / 32];
    const auto both = [](float a, float b) { return sums ? a + b : fmaxf(a, b); };
    for (int lane = 16; lane > 0; lane /= 2)
        value = both(value, __shfl_xor_sync(0xffffffffu, value, lane));
    __syncthreads(); /* all threads have read the result before this one */
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    float result = parts[0];
    for (int i = 1; i < THREADS / 32; i++)
        result = both(result, parts[i]);
    return result;
}
#define block_sum block_reduce<true>
#define block_max block_reduce<false>

void cuda_network(
    struct compute *table); /* puts the operations of cuda_network.cu into the table */

#endif
