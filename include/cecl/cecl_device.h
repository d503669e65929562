/* cecl in kernels: reaching the peers' symmetric memory, and waiting for the peers' kernels.
 *
 * Header only. The host asks ceclCommGetDeviceComm once and passes the ceclDeviceComm_t to its
 * kernels by value (examples/one_shot_all_reduce.cu is a complete program):
 *
 *     __global__ void neighbours(ceclDeviceComm_t dc, float *mine, float *out)
 *     {
 *         mine[threadIdx.x] = ...;
 *         if (!ceclBarrierBlock(dc, blockIdx.x)) // now the blocks of all ranks have written
 *             return;
 *         const int next = (dc.rank + 1) % dc.nranks;
 *         const float *theirs = (const float *)ceclPeerPointer(dc, mine, next);
 *         out[threadIdx.x] = theirs[threadIdx.x];
 *         ceclBarrierBlock(dc, blockIdx.x); // now all have read, so mine may be written again
 *     }
 *
 * Launching: a kernel that waits for peers needs the peers' kernels to run at the same time. Launch
 * it on every rank. A block that waits keeps its place on its SM, so launch no more blocks than fit
 * on the GPU beside other work. Kernels that use the same barriers or signals of a communicator
 * must run one after the other, in the same order on all ranks.
 *
 * Graphs: kernels that wait in barriers may be captured and replayed, because barriers are counted in
 * memory and no launch has to pass a count. A kernel that signals must itself compute a greater value in
 * each replay.
 *
 * Reading: use plain pointers for memory that peers write. A load through a `const __restrict__`
 * pointer may come from a cache that a barrier does not refresh.
 *
 * Ends of waits: a wait returns false when dc.timeoutNs has passed on the GPU's global timer, or
 * soon after the communicator has failed (for example because a peer died). The contents of the
 * memory for which it waited are then undefined.
 *
 * Host device: if a C or C++ compiler compiles this file instead of nvcc, its functions run on the
 * host. A host thread then stands for a block of one thread.
 *
 * Names that begin with cecl_ are internal to this file. */
#ifndef CECL_CECL_DEVICE_H
#define CECL_CECL_DEVICE_H

#include <cecl/cecl.h>
#include <stdbool.h>

#if defined(__CUDACC__)
#define CECL_DEVICE_API static __device__ __forceinline__
#else
#include <sched.h>
#include <time.h>
#define CECL_DEVICE_API static inline
#endif

/* ---- what differs between GPU and host */

#if defined(__CUDACC__)

CECL_DEVICE_API uint32_t cecl_device_load(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

CECL_DEVICE_API void cecl_device_store(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

/* The table of slices is never written while a kernel runs, so a load may come from any cache, and
 * the compiler may reuse the loaded value. */
CECL_DEVICE_API char *cecl_device_slice(ceclDeviceComm_t dc, int rank)
{
    uint64_t slice;
    asm("ld.global.nc.u64 %0, [%1];" : "=l"(slice) : "l"(dc.slices + rank));
    return (char *)slice;
}

CECL_DEVICE_API uint64_t cecl_device_now_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

CECL_DEVICE_API int cecl_device_thread(void)
{
    return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

CECL_DEVICE_API int cecl_device_threads(void)
{
    return (int)(blockDim.x * blockDim.y * blockDim.z);
}

/* Waits until all threads of the block have called this. Returns whether `all` was true in all
 * threads. */
CECL_DEVICE_API bool cecl_device_meet(bool all)
{
    return __syncthreads_and(all) != 0;
}

CECL_DEVICE_API void cecl_device_pause(void)
{
}

#else

CECL_DEVICE_API uint32_t cecl_device_load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

CECL_DEVICE_API void cecl_device_store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

CECL_DEVICE_API char *cecl_device_slice(ceclDeviceComm_t dc, int rank)
{
    return dc.slices[rank];
}

CECL_DEVICE_API uint64_t cecl_device_now_ns(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

CECL_DEVICE_API int cecl_device_thread(void)
{
    return 0;
}

CECL_DEVICE_API int cecl_device_threads(void)
{
    return 1;
}

CECL_DEVICE_API bool cecl_device_meet(bool all)
{
    return all;
}

CECL_DEVICE_API void cecl_device_pause(void)
{
    sched_yield();
}

#endif

/* ---- what a kernel calls */

/* Translates a pointer into this rank's symmetric memory to the same place at a peer. Reads two
 * entries of dc.slices, so call it once, before a loop. Nothing is checked.
 * dc    of ceclCommGetDeviceComm.
 * ptr   into memory of ceclMemAlloc on this rank.
 * peer  0 .. nranks-1; this rank's own number gives ptr.
 * Local. Threads: any. Ownership: the peer's. Errors: none. */
CECL_DEVICE_API void *ceclPeerPointer(ceclDeviceComm_t dc, const void *ptr, int peer)
{
    return cecl_device_slice(dc, peer) + ((const char *)ptr - cecl_device_slice(dc, dc.rank));
}

/* The word of this rank that rank `writer` writes: of barrier `slot` if slot < dc.blocks, otherwise of
 * signal slot - dc.blocks. */
CECL_DEVICE_API uint32_t *cecl_device_word(ceclDeviceComm_t dc, int slot, int writer)
{
    return dc.pads + slot * dc.nranks + writer;
}

/* Whether a word has reached `value`, modulo 2^32. */
CECL_DEVICE_API bool cecl_device_reached(const uint32_t *word, uint32_t value)
{
    return (int32_t)(cecl_device_load(word) - value) >= 0;
}

/* Waits until a word of this rank has reached `value`. False: the wait ended before that. Most waits
 * are short, so the clock and the word that ends all waits are read only once in 64 polls. */
CECL_DEVICE_API bool cecl_device_await(ceclDeviceComm_t dc, const uint32_t *word, uint32_t value)
{
    const uint32_t *ended = dc.pads + (dc.blocks + dc.signals) * dc.nranks;
    uint64_t begin = 0;
    for (uint32_t polls = 1; !cecl_device_reached(word, value); polls++) {
        cecl_device_pause();
        if (polls % 64 != 0)
            continue;
        const uint64_t now = cecl_device_now_ns();
        begin = begin ? begin : now;
        if (cecl_device_load(ended) != 0 ||
            (dc.timeoutNs > 0 && (int64_t)(now - begin) >= (int64_t)dc.timeoutNs))
            return false;
    }
    return true;
}

/* Signals `value` to a peer. Release: a thread of the peer that has seen the value also sees what
 * the calling thread wrote before the call, and what other threads wrote before they met the
 * calling thread in __syncthreads.
 * dc      of ceclCommGetDeviceComm.
 * peer    0 .. nranks-1.
 * signal  0 .. dc.signals-1. Peers hold a word for each signal of this rank; it is 0 after init.
 * value   greater than the last value of this signal, by less than 2^31; it may wrap around.
 *         Signals are never reset.
 * Local; does not wait. Threads: any, but one at a time for each peer and signal. Ownership: the words
 * are comm's. Errors: none; a signal or peer out of range is not noticed. */
CECL_DEVICE_API void ceclDeviceSignal(ceclDeviceComm_t dc, int peer, int signal, uint32_t value)
{
    uint32_t *own = cecl_device_word(dc, dc.blocks + signal, dc.rank);
    cecl_device_store((uint32_t *)ceclPeerPointer(dc, own, peer), value);
}

/* Waits until a peer has signalled `value` or a later one to this rank. Acquire: the calling thread
 * then sees what ceclDeviceSignal released, and so do threads that meet it afterwards in __syncthreads.
 * dc, peer, signal, value  as ceclDeviceSignal.
 * Returns true, or false if the wait ended without the signal, which may still come later.
 * Local; waits, at most dc.timeoutNs. Threads: any. Ownership: the words are comm's. Errors:
 * returns false. */
CECL_DEVICE_API bool ceclDeviceWaitSignal(ceclDeviceComm_t dc, int peer, int signal, uint32_t value)
{
    return cecl_device_await(dc, cecl_device_word(dc, dc.blocks + signal, peer), value);
}

/* A barrier among one block of each rank: returns when all these blocks have called it. Acquire and
 * release: after the barrier all threads of these blocks see what any of them wrote before it, also
 * to a peer's memory. They also see writes of other blocks that one of these threads had seen before
 * the barrier.
 * dc    of ceclCommGetDeviceComm.
 * slot  0 .. dc.blocks-1: which barrier. Usually blockIdx.x, so that blocks of equal index wait for
 *       each other. Blocks of a rank that run at the same time need different slots.
 * Returns false if a peer did not come within dc.timeoutNs, if the communicator has failed, or (at
 * once) if slot is out of range; otherwise true. All threads of the block get the same
 * result. Nothing has to be reset between launches: each slot counts its barriers in memory, even
 * those that returned false. After a barrier that returned false, ranks are in step again once all
 * have made equally many barriers of that slot; until then a barrier may end early on a rank that
 * is behind.
 * Collective: each rank makes equally many barriers of a slot. Threads: all threads of the block
 * call it, with equal arguments. Ownership: the words are comm's. Errors: returns false. */
CECL_DEVICE_API bool ceclBarrierBlock(ceclDeviceComm_t dc, int slot)
{
    bool came = true;
    if (slot < 0 || slot >= dc.blocks)
        return false;
    cecl_device_meet(true); /* what the block wrote comes before its signals */
    /* This rank's own word counts its barriers: all threads read it here, thread 0 writes it last. */
    uint32_t *own = cecl_device_word(dc, slot, dc.rank);
    const int64_t offset = (char *)own - cecl_device_slice(dc, dc.rank);
    const uint32_t epoch = *(volatile uint32_t *)own + 1;
    const int first = 1 + cecl_device_thread(), step = cecl_device_threads();
    for (int i = first; i < dc.nranks; i += step)
        cecl_device_store(
            (uint32_t *)(void *)(cecl_device_slice(dc, (dc.rank + i) % dc.nranks) + offset), epoch);
    for (int i = first; i < dc.nranks; i += step)
        if (!cecl_device_await(dc, cecl_device_word(dc, slot, (dc.rank + i) % dc.nranks), epoch))
            came = false;
    came = cecl_device_meet(came);
    if (cecl_device_thread() == 0)
        *(volatile uint32_t *)own = epoch;
    return came;
}

#endif
