/* The GPU of an NCCL rank, through the CUDA driver that the process has loaded. If no driver is loaded,
 * NCCL must be a stand-in that works on memory of the host. */
#ifndef CECL_NCCL_GPU_H
#define CECL_NCCL_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/abi.h"
#include "util/error.h"

/* A stream, and memory of a GPU, with which a rank exchanges bytes of the host through NCCL. */
struct cecl_nccl_gpu {
    int ordinal;
    void *context;
    int capture_mode; /* the thread's capture mode, which cecl_nccl_gpu_pause restores */
    cudaStream_t stream;
    unsigned long long memory; /* a CUdeviceptr */
    size_t bytes;
};

/* Whether this process uses the GPU with this number. */
bool cecl_nccl_gpu_is_used(int ordinal);

/* Writes the GPU's name. Leaves `name` unchanged if the driver does not know it. */
void cecl_nccl_gpu_name(int ordinal, char *name, size_t bytes);

/* Whether `stream` is being captured into a CUDA graph. Also true if an error has broken the capture, or if CUDA
 * cannot tell because another stream of this process is being captured. NCCL's rules require this to be equal on all
 * ranks.
 * is_sound  [out] the stream is being captured, and the capture is not broken */
bool cecl_nccl_gpu_captures(cudaStream_t stream, bool *is_sound);

/* Makes work that is enqueued on stream `then` from now on wait for the work that is on stream `first`
 * now. Both streams are on GPU `ordinal`. */
ceclResult_t cecl_nccl_gpu_order(int ordinal, cudaStream_t first, cudaStream_t then);

/* Makes the GPU the calling thread's current one until cecl_nccl_gpu_leave. On failure the thread's
 * device is unchanged. */
ceclResult_t cecl_nccl_gpu_enter(struct cecl_nccl_gpu *gpu, int ordinal);
void cecl_nccl_gpu_leave(struct cecl_nccl_gpu *gpu);

/* cecl_nccl_gpu_pause gives the thread its own context back, and cecl_nccl_gpu_return makes the GPU
 * current again; `gpu` keeps its stream and its memory. Calls between _return and _pause do not disturb a
 * capture. */
void cecl_nccl_gpu_pause(struct cecl_nccl_gpu *gpu);
bool cecl_nccl_gpu_return(struct cecl_nccl_gpu *gpu);

/* Makes sure that there are a stream and `bytes` bytes of memory, whose contents may be lost. */
ceclResult_t cecl_nccl_gpu_reserve(struct cecl_nccl_gpu *gpu, size_t bytes);

ceclResult_t cecl_nccl_gpu_put(struct cecl_nccl_gpu *gpu, size_t at, const void *from,
                               size_t bytes);
ceclResult_t cecl_nccl_gpu_get(struct cecl_nccl_gpu *gpu, size_t at, void *to, size_t bytes);

/* Whether the stream has done all its work. Errors: ceclUnhandledCudaError. */
ceclResult_t cecl_nccl_gpu_is_done(struct cecl_nccl_gpu *gpu, bool *is_done);

/* Events that note times on streams of GPU `ordinal`. Makes all or none. */
ceclResult_t cecl_nccl_gpu_make_events(int ordinal, void **events, int count);
void cecl_nccl_gpu_free_events(int ordinal, void **events, int count);
/* Records the time at which `stream` reaches this point. */
bool cecl_nccl_gpu_note(void *event, cudaStream_t stream);
/* Makes work that is enqueued on `stream` from now on wait for the point at which `event` was last
 * recorded. */
ceclResult_t cecl_nccl_gpu_await(void *event, cudaStream_t stream);
/* The time between two events. Returns false until both have happened. *ns is 0 if CUDA cannot tell. The
 * last three functions do not disturb a capture. */
bool cecl_nccl_gpu_elapsed(void *from, void *to, uint64_t *ns);

#endif
