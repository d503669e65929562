/* Holds every SM of a GPU: see hold_sms.h. One block of 1024 threads an SM would leave room for a second and prove nothing. */
#include "hold_sms.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <ctime>

struct hold_sms {
    cudaStream_t stream;
    volatile int *words; /* pinned: [0] let go, [1] blocks that run, [2] blocks that gave up */
    int blocks;
};

__global__ void __launch_bounds__(1024, 2) spin(volatile int *words, long long limit)
{
    if (threadIdx.x == 0)
        atomicAdd_system((int *)&words[1], 1);
    const long long start = clock64();
    while (words[0] == 0) {
        if (clock64() - start > limit) {
            if (threadIdx.x == 0)
                atomicAdd_system((int *)&words[2], 1);
            return;
        }
        __nanosleep(1000);
    }
}

static void nap()
{
    const struct timespec pause = {0, 100000};
    nanosleep(&pause, nullptr);
}

extern "C" struct hold_sms *hold_sms_start(void)
{
    int device = 0, sms = 0, khz = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device) != cudaSuccess)
        return nullptr;
    struct hold_sms *hold = (struct hold_sms *)calloc(1, sizeof(*hold));
    if (!hold)
        return nullptr;
    hold->blocks = 2 * sms;
    if (cudaStreamCreateWithFlags(&hold->stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaHostAlloc((void **)&hold->words, 3 * sizeof(int), cudaHostAllocPortable) != cudaSuccess) {
        free(hold);
        return nullptr;
    }
    hold->words[0] = hold->words[1] = hold->words[2] = 0;
    spin<<<hold->blocks, 1024, 0, hold->stream>>>(hold->words, (long long)khz * 1000 * 20);
    if (cudaGetLastError() == cudaSuccess)
        for (int tries = 0; tries < 50000 && hold->words[1] < hold->blocks; tries++)
            nap();
    if (hold_sms_held(hold))
        return hold;
    hold_sms_stop(hold);
    return nullptr;
}

extern "C" int hold_sms_held(const struct hold_sms *hold)
{
    return hold->words[1] == hold->blocks && hold->words[2] == 0;
}

extern "C" void hold_sms_stop(struct hold_sms *hold)
{
    hold->words[0] = 1;
    cudaStreamSynchronize(hold->stream);
    cudaStreamDestroy(hold->stream);
    cudaFreeHost((void *)hold->words);
    free(hold);
}
