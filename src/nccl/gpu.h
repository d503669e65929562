/* What this library asks of the GPU of an NCCL rank, through the CUDA driver that the process has loaded. If no driver
 * is loaded, NCCL must be a stand-in that works on memory of the host. */
#ifndef CECL_NCCL_GPU_H
#define CECL_NCCL_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl/abi.h"
#include "util/error.h"

/* Whether this process uses the GPU with this number. */
bool cecl_nccl_gpu_is_used(int ordinal);

/* Whether `stream` is being captured into a CUDA graph. Also true if an error has broken the capture, or if CUDA cannot
 * tell because another stream of this process is being captured. By NCCL's rules the result is equal on all ranks.
 * is_sound  [out] the stream is being captured, and the capture is not broken */
bool cecl_nccl_gpu_captures(cudaStream_t stream, bool *is_sound);

/* Makes later work on stream `then` wait for all work that is now on stream `first`. Both streams are on GPU
 * `ordinal`. */
ceclResult_t cecl_nccl_gpu_order(int ordinal, cudaStream_t first, cudaStream_t then);

/* Makes events that note times on streams of GPU `ordinal`: all `count` events, or none. */
ceclResult_t cecl_nccl_gpu_make_events(int ordinal, void **events, int count);
void cecl_nccl_gpu_free_events(int ordinal, void **events, int count);
/* Records the time at which `stream` reaches this point. */
bool cecl_nccl_gpu_note(void *event, cudaStream_t stream);
/* The time between two events. Returns false until both have happened. *ns is 0 if CUDA cannot tell the time. Neither
 * this function nor cecl_nccl_gpu_note disturbs another thread's capture. */
bool cecl_nccl_gpu_elapsed(void *from, void *to, uint64_t *ns);

#endif
