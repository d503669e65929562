/* Shared by the host code of kernels: converts errors of the CUDA runtime, and keeps a word of
 * facts for each GPU once its kernels are loaded. Only builds with CUDA include this file. */
#ifndef CECL_SM_GPUS_H
#define CECL_SM_GPUS_H

#include <cuda_runtime_api.h>
#include <stdatomic.h>

#include "sm/reduce.h"

/* `who` names the kernel's owner in the message. */
static inline ceclResult_t cecl_gpu_result(const char *who, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return ceclSuccess;
    cudaGetLastError(); /* clears the error, which is reported here */
    return cecl_fail(error == cudaErrorMemoryAllocation ? ceclOutOfMemory : ceclUnhandledCudaError,
                     "%s: %s: %s", who, what, cudaGetErrorString(error));
}
#define CECL_GPU_TRY(who, function, ...)                                                           \
    CECL_TRY(cecl_gpu_result(who, function(__VA_ARGS__), #function))

/* Asking for a kernel's attributes loads it. */
static inline ceclResult_t cecl_gpu_load(const char *who, const void *kernel)
{
    struct cudaFuncAttributes attributes;
    CECL_GPU_TRY(who, cudaFuncGetAttributes, &attributes, kernel);
    return ceclSuccess;
}

/* Kernels that wait for peers take at most 1 / CECL_GPU_WAITING_SHARE of a GPU's SMs. Kernels of
 * several communicators may wait for each other's ranks, so they must all fit on the GPU at the
 * same time. */
#define CECL_GPU_WAITING_SHARE 4u

static inline uint32_t cecl_gpu_waiting_sms(uint32_t sms)
{
    return sms < CECL_GPU_WAITING_SHARE ? 1 : sms / CECL_GPU_WAITING_SHARE;
}

/* What is known of each GPU; 0 means nothing yet. Atomic words, so that threads need no lock. GPUs
 * with ordinal 64 and above are looked up again each time. */
#define CECL_GPUS_KEPT 64
struct cecl_gpus {
    _Atomic uint32_t known[CECL_GPUS_KEPT];
};

static inline uint32_t cecl_gpus_known(struct cecl_gpus *gpus, int ordinal)
{
    return ordinal < CECL_GPUS_KEPT ? atomic_load(&gpus->known[ordinal]) : 0;
}

static inline void cecl_gpus_keep(struct cecl_gpus *gpus, int ordinal, uint32_t word)
{
    if (ordinal < CECL_GPUS_KEPT)
        atomic_store(&gpus->known[ordinal], word);
}

#endif
