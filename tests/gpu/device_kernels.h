/* The kernels of the tests of cecl_device.h, and functions that launch them. */
#ifndef CECL_TEST_DEVICE_KERNELS_H
#define CECL_TEST_DEVICE_KERNELS_H

#include <cecl/cecl.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernels onto the current GPU. Without this, a first launch may wait for running kernels. */
cudaError_t kernels_load(void);

/* Exchanges words `rounds` times in one launch. Each block writes its words to all peers, passes a barrier with them,
 * and checks what they wrote. `words` is symmetric, [CECL_DEVICE_BLOCKS][nranks][threads]. Adds the number of wrong
 * words to *wrong, and the number of failed barriers to *ended; both lie on this GPU or in pinned memory. */
cudaError_t launch_exchange(ceclDeviceComm_t dc, int blocks, int threads, uint32_t *words,
                            uint32_t seed, int rounds, uint32_t *wrong, uint32_t *ended,
                            cudaStream_t stream);

/* Sends the values first .. last around the ring of ranks by a signal, each value with a word. The first launch that uses
 * a signal has first = 1, a later one the value after `last` of the launch before. */
cudaError_t launch_ring(ceclDeviceComm_t dc, int signal, uint32_t first, uint32_t last,
                        uint32_t *word, uint32_t *wrong, uint32_t *ended, cudaStream_t stream);

/* When its block reaches the barrier, each thread has RUSHED writes to the next rank and as many loads from it in
 * flight. After the barrier, the loaded words may be overwritten. `words` is symmetric and zeroed, [2][RUSHED][blocks *
 * threads]. Other arguments: as for launch_exchange. */
#define RUSHED 8
cudaError_t launch_rush(ceclDeviceComm_t dc, int blocks, int threads, uint32_t *words, int rounds,
                        uint32_t *wrong, uint32_t *ended, cudaStream_t stream);

/* One barrier by one block. Sets *came to 1 on success, else to 0. */
cudaError_t launch_barrier(ceclDeviceComm_t dc, int slot, int *came, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
