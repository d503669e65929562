/* The kernels of tests/gpu/test_device_kernels.c. */
#include "device_kernels.h"

#include <cecl/cecl_device.h>

static __device__ uint32_t word_of(uint32_t seed, int round, int block, int writer, int reader,
                                   int thread)
{
    return (seed + (uint32_t)round * 65537u + (uint32_t)block * 257u) * 2654435761u +
           (uint32_t)(writer * 64 + reader) * 4099u + (uint32_t)thread;
}

/* In every second round, ranks write to their own memory, and peers read it there. */
static __global__ void exchange(ceclDeviceComm_t dc, uint32_t *words, uint32_t seed, int rounds,
                                uint32_t *wrong, uint32_t *ended)
{
    const int block = (int)blockIdx.x, thread = (int)threadIdx.x, threads = (int)blockDim.x;
    uint32_t *row = words + (size_t)block * dc.nranks * threads + thread;
    for (int round = 0; round < rounds; round++) {
        const bool pull = round % 2 != 0;
        for (int p = 0; p < dc.nranks; p++) {
            uint32_t *to = pull ? row + p * threads
                                : (uint32_t *)ceclPeerPointer(dc, row + dc.rank * threads, p);
            *to = word_of(seed, round, block, dc.rank, p, thread);
        }
        if (!ceclBarrierBlock(dc, block)) {
            atomicAdd(ended, 1u);
            return;
        }
        /* checks another thread's words: the barrier must cover the whole block */
        const int other = (thread + 1) % threads;
        for (int p = 0; p < dc.nranks; p++) {
            const uint32_t *at = pull ? (uint32_t *)ceclPeerPointer(dc, row + dc.rank * threads, p)
                                      : row + p * threads;
            if (at[other - thread] != word_of(seed, round, block, p, dc.rank, other))
                atomicAdd(wrong, 1u);
        }
        if (!ceclBarrierBlock(dc, block)) {
            atomicAdd(ended, 1u);
            return;
        }
    }
}

static __global__ void rush(ceclDeviceComm_t dc, uint32_t *words, int rounds, uint32_t *wrong,
                            uint32_t *ended)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    const size_t first = (size_t)blockIdx.x * blockDim.x, at = first + threadIdx.x;
    const size_t other = first + (threadIdx.x + 96) % blockDim.x; /* a word of another warp */
    uint32_t *got = words, *mine = words + RUSHED * step;
    uint32_t *const to = (uint32_t *)ceclPeerPointer(dc, got, (dc.rank + 1) % dc.nranks);
    uint32_t *const theirs = (uint32_t *)ceclPeerPointer(dc, mine, (dc.rank + 1) % dc.nranks);
    for (uint32_t round = 1; round <= (uint32_t)rounds; round++) {
        uint32_t read[RUSHED], bad = 0;
#pragma unroll
        for (int k = 0; k < RUSHED; k++)
            to[at + k * step] = round;
#pragma unroll
        for (int k = 0; k < RUSHED; k++)
            read[k] = theirs[at + k * step];
        bool came = ceclBarrierBlock(dc, (int)blockIdx.x);
#pragma unroll
        for (int k = 0; k < RUSHED; k++)
            mine[at + k * step] = round; /* the rank before this one has read the old word */
#pragma unroll
        for (int k = 0; k < RUSHED; k++)
            bad += (read[k] != round - 1) + (got[other + k * step] != round);
        came = ceclBarrierBlock(dc, (int)blockIdx.x) && came;
        if (bad && came)
            atomicAdd(wrong, bad);
        if (!came) {
            atomicAdd(ended, 1u);
            return;
        }
    }
}

static __global__ void ring(ceclDeviceComm_t dc, int signal, uint32_t first, uint32_t last,
                            uint32_t *word, uint32_t *wrong, uint32_t *ended)
{
    const int left = (dc.rank + dc.nranks - 1) % dc.nranks, right = (dc.rank + 1) % dc.nranks;
    for (uint32_t v = first; v != last + 1; v++) {
        /* Rank 0 begins a turn once the previous one, which may be of an earlier launch, has passed all ranks: until
         * then the next rank may not have read the word. */
        if ((dc.rank > 0 || v > 1) &&
            !ceclDeviceWaitSignal(dc, left, signal, dc.rank > 0 ? v : v - 1)) {
            atomicAdd(ended, 1u);
            return;
        }
        const uint32_t carried = dc.rank > 0 ? *(volatile uint32_t *)word + 1 : v;
        if (carried != v + (uint32_t)dc.rank)
            atomicAdd(wrong, 1u);
        *(uint32_t *)ceclPeerPointer(dc, word, right) = carried;
        ceclDeviceSignal(dc, right, signal, v);
    }
}

static __global__ void barrier(ceclDeviceComm_t dc, int slot, int *came)
{
    const bool here = ceclBarrierBlock(dc, slot);
    if (threadIdx.x == 0)
        *came = here;
}

extern "C" cudaError_t kernels_load(void)
{
    const void *const kernels[] = {(const void *)exchange, (const void *)rush, (const void *)ring,
                                   (const void *)barrier};
    cudaError_t error = cudaSuccess;
    for (int k = 0; k < 4 && error == cudaSuccess; k++) {
        cudaFuncAttributes attributes;
        error = cudaFuncGetAttributes(&attributes, kernels[k]);
    }
    return error;
}

extern "C" cudaError_t launch_exchange(ceclDeviceComm_t dc, int blocks, int threads,
                                       uint32_t *words, uint32_t seed, int rounds, uint32_t *wrong,
                                       uint32_t *ended, cudaStream_t stream)
{
    exchange<<<blocks, threads, 0, stream>>>(dc, words, seed, rounds, wrong, ended);
    return cudaGetLastError();
}

extern "C" cudaError_t launch_rush(ceclDeviceComm_t dc, int blocks, int threads, uint32_t *words,
                                   int rounds, uint32_t *wrong, uint32_t *ended,
                                   cudaStream_t stream)
{
    rush<<<blocks, threads, 0, stream>>>(dc, words, rounds, wrong, ended);
    return cudaGetLastError();
}

extern "C" cudaError_t launch_ring(ceclDeviceComm_t dc, int signal, uint32_t first, uint32_t last,
                                   uint32_t *word, uint32_t *wrong, uint32_t *ended,
                                   cudaStream_t stream)
{
    ring<<<1, 1, 0, stream>>>(dc, signal, first, last, word, wrong, ended);
    return cudaGetLastError();
}

extern "C" cudaError_t launch_barrier(ceclDeviceComm_t dc, int slot, int *came, cudaStream_t stream)
{
    barrier<<<1, 96, 0, stream>>>(dc, slot, came);
    return cudaGetLastError();
}
