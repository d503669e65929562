/* A kernel that holds every SM of a GPU, so that it is seen what runs without one: for the device's
 * probe of local copies, and for the tests and tools that hold SMs. One block of 1024 threads an SM
 * would leave room for a second and prove nothing, so there are two, each with half of an SM's
 * threads. Whoever launches it has the words, the streams and the waiting. CUDA alone. */
#ifndef CECL_SM_HOLD_H
#define CECL_SM_HOLD_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_HOLD_BLOCKS_MAX 1022

/* Pinned, and zeroed before a launch. Each word is written by the host or by thread 0 of one block,
 * `gave_up` by any block but always the same value: atomic operations on host memory are not to be
 * had on every machine. */
struct cecl_hold_words {
    volatile uint32_t let_go;  /* by the host: the kernel ends */
    volatile uint32_t gave_up; /* by a block that ends since its time is over */
    volatile uint32_t runs[CECL_HOLD_BLOCKS_MAX];
};

/* What it takes to hold a GPU. */
struct cecl_hold_size {
    int blocks; /* all at once: 2 for each SM */
    int threads;
};

/* Loads the kernel onto the current GPU, which is `ordinal`: a first launch would, and may wait then
 * for what runs there. cudaErrorNotSupported where it has more SMs than there are words. */
cudaError_t cecl_hold_prepare(int ordinal, struct cecl_hold_size *size);

/* Enqueues it on `stream`, of the current GPU. Each block ends once the host has set let_go, and by
 * itself `limit_ns` after its start by the GPU's timer. */
cudaError_t cecl_hold_launch(cudaStream_t stream, struct cecl_hold_size size,
                             struct cecl_hold_words *words, uint64_t limit_ns);

/* Whether every block has started. */
static inline bool cecl_hold_all_run(const struct cecl_hold_words *words,
                                     struct cecl_hold_size size)
{
    for (int i = 0; i < size.blocks; i++)
        if (!words->runs[i])
            return false;
    return true;
}

/* Whether every SM is held. A block that gives up says so before it makes room: what was seen
 * finished before this is asked, finished while all were held. */
static inline bool cecl_hold_holds(const struct cecl_hold_words *words, struct cecl_hold_size size)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* what was seen before stays before */
    return size.blocks > 0 && cecl_hold_all_run(words, size) && !words->gave_up && !words->let_go;
}

#ifdef __cplusplus
}
#endif
#endif
