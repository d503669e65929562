/* What the guide's loop needs from its surroundings: streams, events, and layers that compute. Two
 * files provide it, device_host.c and device_cuda.cu. For the host, this header also declares the
 * few CUDA names that the loop uses. */
#ifndef CECL_FSDP_LOOP_H
#define CECL_FSDP_LOOP_H

#include <cecl/cecl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../bfloat16.h"

#ifdef FSDP_LOOP_ON_HOST
/* The compute stream is the calling thread (NULL). When the thread records an event, it has done
 * all work before the event. A wait for an event waits for the whole stream of the event. That is
 * longer than a wait in CUDA, and still correct. */
typedef ceclStream_t cudaStream_t;
typedef struct loop_event {
    cudaStream_t stream;
} * cudaEvent_t;
void cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
void cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
#else
#include <cuda_runtime.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef uint16_t element; /* a bfloat16 */

extern ceclComm_t comm;

/* Returns false with a message on stderr. Memory is the device's, and zeroed. */
bool device_open(cudaStream_t *compute, cudaStream_t *transfer, cudaEvent_t *events[], int count);
void *device_alloc(size_t bytes);
void device_free(void *memory);
bool device_wait(cudaStream_t compute);
void device_close(cudaStream_t compute, cudaStream_t transfer, cudaEvent_t *events[], int count);

/* ---- a network that is as small as possible and has known results. All calls are enqueued on
 * `compute`. */

/* For each layer: x = 2 x + parameters. */
void layer_forward(float *x, const element *whole, size_t count, cudaStream_t compute);
/* gradient = (rank + 1) * parameters. */
void layer_backward(element *gradient, const element *whole, size_t count, int rank,
                    cudaStream_t compute);
/* shard -= gradient. */
void layer_update(element *shard, const element *gradient, size_t count, cudaStream_t compute);

#ifdef __cplusplus
}
#endif
#endif
