/* A program's own kernel on cecl's symmetric memory: an all-reduce in which each GPU reads all other
 * GPUs' inputs, in the memory of those GPUs. Here one process drives all GPUs; with a process for each
 * GPU the kernel would be the same.
 *
 *     build/examples/example_one_shot_all_reduce */
#include <cecl/cecl_device.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT (1 << 16)
#define BLOCKS 16 /* at most CECL_DEVICE_BLOCKS: each block has its own barrier */
#define MOST_GPUS 16
#define LAUNCHES 10
#define CHECK(call) \
    do { \
        if ((call) != 0) { \
            fprintf(stderr, "%s: cecl: %s, CUDA: %s\n", #call, ceclGetLastError(NULL), \
                    cudaGetErrorString(cudaGetLastError())); \
            exit(1); \
        } \
    } while (0)

/* in: symmetric memory. Block i works on the same elements on all ranks, so it waits only for the
 * blocks i of the other ranks. */
__global__ void all_reduce(ceclDeviceComm_t dc, float *in, const float *fresh, float *out,
                           int *late)
{
    const int step = (int)(gridDim.x * blockDim.x);
    const int first = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    for (int i = first; i < COUNT; i += step)
        in[i] = fresh[i];
    const float *from[MOST_GPUS];
    for (int r = 0; r < dc.nranks; r++)
        from[r] = (const float *)ceclPeerPointer(dc, in, r);
    bool came = ceclBarrierBlock(dc, (int)blockIdx.x); /* all inputs are written */
    for (int i = first; i < COUNT && came; i += step) {
        float sum = 0;
        for (int r = 0; r < dc.nranks; r++) /* in rank order, so all ranks get the same bits */
            sum += from[r][i];
        out[i] = sum;
    }
    /* once all blocks have read, the next launch may write `in` */
    came = came && ceclBarrierBlock(dc, (int)blockIdx.x);
    if (!came && threadIdx.x == 0)
        *late = 1;
}

int main(void)
{
    static float host[COUNT];
    ceclComm_t comms[MOST_GPUS];
    ceclDeviceComm_t dc;
    cudaStream_t streams[MOST_GPUS];
    cudaFuncAttributes attributes;
    float *in[MOST_GPUS], *fresh[MOST_GPUS], *out[MOST_GPUS];
    int n = 0, *late, wrong = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 2) {
        printf("skipped: two GPUs are needed\n");
        return 77;
    }
    n = n < MOST_GPUS ? n : MOST_GPUS;
    /* outside a group one thread cannot grow the pools of several ranks: make them large enough at once */
    setenv("CECL_SEGMENT_BYTES", "256M", 0);
    CHECK(ceclCommInitAll(comms, n, NULL));
    CHECK(cudaMallocHost(&late, sizeof(*late)));
    *late = 0;
    for (int g = 0; g < n; g++) {
        CHECK(cudaSetDevice(g));
        /* loads the kernel now: later, loading could wait for a kernel that waits for this one */
        CHECK(cudaFuncGetAttributes(&attributes, all_reduce));
        CHECK(cudaStreamCreate(&streams[g]));
        CHECK(ceclMemAlloc(comms[g], (void **)&in[g], sizeof(host)));
        CHECK(cudaMalloc(&fresh[g], sizeof(host)));
        CHECK(cudaMalloc(&out[g], sizeof(host)));
        for (int i = 0; i < COUNT; i++)
            host[i] = (float)(i % 1000 + g);
        CHECK(cudaMemcpy(fresh[g], host, sizeof(host), cudaMemcpyDefault));
    }
    for (int launch = 0; launch < LAUNCHES; launch++)
        for (int g = 0; g < n; g++) {
            CHECK(cudaSetDevice(g));
            CHECK(ceclCommGetDeviceComm(comms[g], &dc));
            all_reduce<<<BLOCKS, 512, 0, streams[g]>>>(dc, in[g], fresh[g], out[g], late);
            CHECK(cudaGetLastError());
        }
    for (int g = 0; g < n; g++) {
        CHECK(cudaSetDevice(g));
        CHECK(cudaStreamSynchronize(streams[g]));
        CHECK(cudaMemcpy(host, out[g], sizeof(host), cudaMemcpyDefault));
        for (int i = 0; i < COUNT; i++)
            wrong += host[i] != (float)(n * (i % 1000) + n * (n - 1) / 2);
    }
    printf("%d GPUs: %d sums of all, %d wrong%s\n", n, COUNT, wrong,
           *late ? ", a peer did not come in time" : "");
    for (int g = 0; g < n; g++)
        CHECK(ceclCommDestroy(comms[g]));
    return wrong != 0 || *late != 0;
}
