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
    void *workspace; /* cuBLAS uses it in all calls, so that results repeat bit for bit */
    float *scratch;  /* partial sums of blocks of rows */
    int lanes;
    cudaEvent_t ready; /* end of the compute that the last stream_after_compute found */
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

/* Each block of rows writes a partial sum, and one thread adds these in order. Atomics would not give
 * the same bits in each run. */
enum { THREADS = 256, CHUNKS = 64, WIDEST = 65536, LOSS_BLOCKS = 1024 };

/* Eight elements, which one instruction loads or stores. */
struct alignas(16) pack {
    element e[8];
};

static inline unsigned blocks_for(size_t threads)
{
    const size_t blocks = (threads + THREADS - 1) / THREADS;
    return blocks < 8192 ? (unsigned)blocks : 8192; /* kernels stride over the rest */
}

/* The sum or the maximum of the values of all THREADS threads of the block. Each thread gets it. */
template <bool sums> __device__ static inline float block_reduce(float value)
{
    __shared__ float parts[THREADS / 32];
    const auto both = [](float a, float b) { return sums ? a + b : fmaxf(a, b); };
    for (int lane = 16; lane > 0; lane /= 2)
        value = both(value, __shfl_xor_sync(0xffffffffu, value, lane));
    __syncthreads(); /* all threads have read the last call's result */
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
