/* What the guide's loop needs of a device: memory, and layers that compute. device_host.c and
 * device_cuda.cu implement these functions. */
#ifndef CECL_FSDP_LOOP_H
#define CECL_FSDP_LOOP_H

#include <cecl/cecl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../bfloat16.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint16_t element; /* a bfloat16 */

extern ceclComm_t comm;

extern const bool device_is_gpu;

/* Zeroed memory of the device, or NULL; if CUDA refuses it, there is also a message on stderr. */
void *device_alloc(size_t bytes);
void device_free(void *memory);

/* ---- a small network whose results are easy to compute. All of its calls are enqueued on
 * `compute`. */

/* For each layer: x = 2 x + parameters. */
void layer_forward(float *x, const element *whole, size_t count, ceclStream_t compute);
/* gradient = (rank + 1) * parameters. */
void layer_backward(element *gradient, const element *whole, size_t count, int rank,
                    ceclStream_t compute);
/* shard -= gradient. */
void layer_update(element *shard, const element *gradient, size_t count, ceclStream_t compute);

#ifdef __cplusplus
}
#endif
#endif
