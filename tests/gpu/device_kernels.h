/* The kernels of the tests of cecl_device.h, and functions that launch them. */
#ifndef CECL_TEST_DEVICE_KERNELS_H
#define CECL_TEST_DEVICE_KERNELS_H

#include <cecl/cecl.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernels onto the current GPU: otherwise a first launch may wait for what runs there. */
cudaError_t kernels_load(void);

/* Exchanges words `rounds` times in one launch. Each block writes its words to all peers, passes a
 * barrier with them, and checks what they wrote. `words` is symmetric,
 * [CECL_DEVICE_BLOCKS][nranks][threads]. Adds wrong words to *wrong, and barriers that ended
 * without success to *ended; both lie on this GPU or in pinned memory. */
cudaError_t launch_exchange(ceclDeviceComm_t dc, int blocks, int threads, uint32_t *words,
                            uint32_t seed, int rounds, uint32_t *wrong, uint32_t *ended,
                            cudaStream_t stream);

/* Sends the values first .. last around the ring of ranks by a signal, each with a word beside it.
 * The first launch on a signal begins at 1, a later one where the launch before ended. */
cudaError_t launch_ring(ceclDeviceComm_t dc, int signal, uint32_t first, uint32_t last,
                        uint32_t *word, uint32_t *wrong, uint32_t *ended, cudaStream_t stream);

/* Each thread writes RUSHED words at the next rank, and has as many loads from there in flight,
 * when its block comes to the barrier. After the barrier the loaded words may be written again.
 * `words` is symmetric and zeroed, [2][RUSHED][blocks * threads]. The other arguments are as for
 * launch_exchange. */
#define RUSHED 8
cudaError_t launch_rush(ceclDeviceComm_t dc, int blocks, int threads, uint32_t *words, int rounds,
                        uint32_t *wrong, uint32_t *ended, cudaStream_t stream);

/* One barrier by one block. *came is set to 1 on success, else to 0. */
cudaError_t launch_barrier(ceclDeviceComm_t dc, int slot, int *came, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
