/* Kernels of the tests of cecl_device.h, and their launches. */
#ifndef CECL_TEST_DEVICE_KERNELS_H
#define CECL_TEST_DEVICE_KERNELS_H

#include <cecl/cecl.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Loads them onto the current GPU: a first launch may wait for what runs there. */
cudaError_t kernels_load(void);

/* `rounds` rounds in one launch: each block writes its words to all peers, meets theirs, and looks at
 * what they wrote. `words`: symmetric, [CECL_DEVICE_BLOCKS][nranks][threads]. Adds to *wrong what is
 * not as expected, and to *ended the barriers that came to nothing; both of this GPU or pinned. */
cudaError_t launch_exchange(ceclDeviceComm_t dc, int blocks, int threads, uint32_t *words,
                            uint32_t seed, int rounds, uint32_t *wrong, uint32_t *ended,
                            cudaStream_t stream);

/* Values first .. last go round the ring of ranks by a signal, with a word beside them: of a signal's
 * first launch from 1 on, then from where it ended. */
cudaError_t launch_ring(ceclDeviceComm_t dc, int signal, uint32_t first, uint32_t last,
                        uint32_t *word, uint32_t *wrong, uint32_t *ended, cudaStream_t stream);

/* Each thread writes RUSHED words at the next rank, and has as many loads from it under way, when its
 * block comes to the barrier; what they load may be written again behind it. `words`: symmetric,
 * zeroed, [2][RUSHED][blocks * threads]. Else as launch_exchange. */
#define RUSHED 8
cudaError_t launch_rush(ceclDeviceComm_t dc, int blocks, int threads, uint32_t *words, int rounds,
                        uint32_t *wrong, uint32_t *ended, cudaStream_t stream);

/* One barrier of one block: *came becomes 1 or 0. */
cudaError_t launch_barrier(ceclDeviceComm_t dc, int slot, int *came, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
