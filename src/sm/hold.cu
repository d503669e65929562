/* The kernel that holds every SM; see hold.h. */
#include "sm/hold.h"

#include "sm/clock.cuh"

/* Thread 0 polls. The other threads wait at the barrier, which keeps their places on the SM. */
static __global__ void __launch_bounds__(1024, 2)
    hold(struct cecl_hold_words *words, uint64_t limit_ns)
{
    if (threadIdx.x == 0) {
        const uint64_t start = now_ns();
        words->runs[blockIdx.x] = 1;
        __threadfence_system();
        while (!words->let_go) {
            if (now_ns() - start > limit_ns) {
                words->gave_up = 1;
                __threadfence_system();
                break;
            }
            __nanosleep(1000);
        }
    }
    __syncthreads();
}

extern "C" cudaError_t cecl_hold_prepare(int ordinal, struct cecl_hold_size *size)
{
    int sms = 0, threads = 0;
    cudaFuncAttributes attributes;
    cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, ordinal);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, ordinal);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, (const void *)hold);
    if (error == cudaSuccess && 2 * sms > CECL_HOLD_BLOCKS_MAX)
        error = cudaErrorNotSupported;
    if (error == cudaSuccess)
        *size = {2 * sms, threads / 2};
    return error;
}

extern "C" cudaError_t cecl_hold_launch(cudaStream_t stream, struct cecl_hold_size size,
                                        struct cecl_hold_words *words, uint64_t limit_ns)
{
    void *arguments[] = {&words, &limit_ns};
    return cudaLaunchKernel((const void *)hold, dim3((unsigned)size.blocks),
                            dim3((unsigned)size.threads), arguments, 0, stream);
}
