/* A kernel that holds every SM of a GPU, to see which work runs without an SM. Tests and tools
 * use it. It has two blocks of 1024 threads for each SM, which take all of
 * the SM's threads. (One block would leave room for a block of another kernel.) The caller provides the words
 * and the stream, and waits. CUDA only. */
#ifndef CECL_SM_HOLD_H
#define CECL_SM_HOLD_H

#include <stdbool.h>

#include "sm/hold_args.h"
#include "util/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The launch that holds a GPU. */
struct cecl_hold_size {
    int blocks; /* all resident at once: 2 for each SM */
    int threads;
};

/* Loads the kernel onto the calling thread's current GPU. Otherwise the first launch would load it, and
 * loading may wait for work that runs there. Refuses with ceclInvalidUsage a GPU that has more SMs than
 * there are words. */
ceclResult_t cecl_hold_prepare(struct cecl_hold_size *size);

/* Enqueues the kernel, which cecl_hold_prepare has loaded, on `stream` of the current GPU. Each block
 * ends once the host has set let_go, or `limit_ns` after its start by the GPU's timer. */
ceclResult_t cecl_hold_launch(ceclStream_t stream, struct cecl_hold_size size,
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

/* Whether every SM is held. A block that gives up writes `gave_up` before it leaves its SM. So if
 * this returns true, all SMs were held until now. Work that the caller has seen finished before
 * this call has then finished while all SMs were held. */
static inline bool cecl_hold_holds(const struct cecl_hold_words *words, struct cecl_hold_size size)
{
    /* orders the loads below behind earlier loads of the caller */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return size.blocks > 0 && cecl_hold_all_run(words, size) && !words->gave_up && !words->let_go;
}

#ifdef __cplusplus
}
#endif
#endif
