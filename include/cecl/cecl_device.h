/* cecl in kernels: reaching the peers' symmetric memory, and meeting the peers' kernels.
 *
 * Header only. The host asks ceclCommGetDeviceComm once and passes the ceclDeviceComm_t to its
 * kernels by value (examples/one_shot_all_reduce.cu is the whole of a program):
 *
 *     __global__ void neighbours(ceclDeviceComm_t dc, float *mine, float *out)
 *     {
 *         mine[threadIdx.x] = ...;
 *         if (!ceclBarrierBlock(dc, blockIdx.x)) // now all ranks' blocks have written
 *             return;
 *         const float *theirs = (const float *)ceclPeerPointer(dc, mine, (dc.rank + 1) % dc.nranks);
 *         out[threadIdx.x] = theirs[threadIdx.x];
 *         ceclBarrierBlock(dc, blockIdx.x); // now all have read: mine may be written again
 *     }
 *
 * Who waits for peers needs them to run: launch the kernel on every rank, and no more blocks than
 * can be resident together with what else runs, for a block that waits holds its place. Kernels that
 * use the same barriers or signals of a communicator run one after the other, on each rank in the
 * same order. They may be captured in graphs and replayed: what counts stands in memory. What peers
 * write is read through plain pointers: a `const __restrict__` one may be read from a cache that no
 * acquire empties.
 *
 * Waits end: when dc.timeoutNs has passed (of the GPU's global timer), or soon after the communicator
 * has failed, which it does when a peer dies. Then they return false, and what was to be waited for
 * is undefined.
 *
 * Compiled by a C or C++ compiler instead of nvcc, these are functions of the host, for the host
 * device: a thread of the host is then a block of one thread. Names that begin with cecl_ are inner
 * parts of this file. */
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

/* The table is never written while a kernel runs, so it may be read from any cache, and the compiler
 * may keep what was read. */
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

/* All threads of the block have come; whether `all` is true for each of them. */
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
 * entries of dc.slices; nothing is checked. A loop that needs the pointer again and again keeps it.
 * dc    of ceclCommGetDeviceComm.
 * ptr   into memory of ceclMemAlloc on this rank.
 * peer  0 .. nranks-1; one's own rank gives ptr.
 * Local. Threads: any. Ownership: the peer's. Errors: none. Since 0.1. */
CECL_DEVICE_API void *ceclPeerPointer(ceclDeviceComm_t dc, const void *ptr, int peer)
{
    return cecl_device_slice(dc, peer) + ((const char *)ptr - cecl_device_slice(dc, dc.rank));
}

/* The word here that `writer` writes: of a barrier (slot below dc.blocks), or a signal behind those. */
CECL_DEVICE_API uint32_t *cecl_device_word(ceclDeviceComm_t dc, int slot, int writer)
{
    return dc.pads + slot * dc.nranks + writer;
}

/* Waits until an own word has come to `value`, counting cyclically. The clock and the word that ends
 * waits are looked at now and then: a wait is short as a rule. */
CECL_DEVICE_API bool cecl_device_await(ceclDeviceComm_t dc, const uint32_t *word, uint32_t value)
{
    const uint32_t *end = dc.pads + (dc.blocks + dc.signals) * dc.nranks;
    uint64_t begin = 0;
    for (uint32_t polls = 1; (int32_t)(cecl_device_load(word) - value) < 0; polls++) {
        cecl_device_pause();
        if (polls % 64 != 0)
            continue;
        const uint64_t now = cecl_device_now_ns();
        begin = begin ? begin : now;
        if (cecl_device_load(end) != 0 ||
            (dc.timeoutNs > 0 && (int64_t)(now - begin) >= (int64_t)dc.timeoutNs))
            return false;
    }
    return true;
}

/* Tells a peer that this rank has come to `value`. Release: whoever has seen it sees what the calling
 * thread wrote before, and what others wrote that it had met (__syncthreads).
 * dc      of ceclCommGetDeviceComm.
 * peer    0 .. nranks-1.
 * signal  0 .. dc.signals-1. Each peer has a word for this rank in each; all are 0 after init.
 * value   larger than the one before, by less than 2^31: it may wrap around. Nothing resets it.
 * Local; does not wait. Threads: any, one at a time for each word. Ownership: comm's words.
 * Errors: none; a signal or peer out of range is the caller's to avoid. Since 0.1. */
CECL_DEVICE_API void ceclSignal(ceclDeviceComm_t dc, int peer, int signal, uint32_t value)
{
    uint32_t *own = cecl_device_word(dc, dc.blocks + signal, dc.rank);
    cecl_device_store((uint32_t *)ceclPeerPointer(dc, own, peer), value);
}

/* Waits until a peer has signalled `value` or a later one to this rank. Acquire: the calling thread
 * then sees what ceclSignal released, and so do those that meet it afterwards (__syncthreads).
 * dc, peer, signal, value  as ceclSignal.
 * Returns true; false where the wait ended without it, and the signal may still come: the word is as
 * the peer leaves it.
 * Local; waits, within dc.timeoutNs. Threads: any. Ownership: comm's words. Errors: false, as told.
 * Since 0.1. */
CECL_DEVICE_API bool ceclWaitSignal(ceclDeviceComm_t dc, int peer, int signal, uint32_t value)
{
    return cecl_device_await(dc, cecl_device_word(dc, dc.blocks + signal, peer), value);
}

/* A barrier of one block of every rank: returns when all of them have come to it. Acquire and
 * release: what any thread of these blocks wrote before the barrier, also to a peer's memory, all of
 * them see after it. Other blocks are not in it; their writes are seen if this block had seen them.
 * dc    of ceclCommGetDeviceComm.
 * slot  0 .. dc.blocks-1: which barrier. As a rule blockIdx.x, so that a block meets those of the
 *       same index. Blocks that run at the same time need slots of their own.
 * Returns true, to all threads of the block alike; false where a peer did not come within
 * dc.timeoutNs, where the communicator has failed, and at once for a slot out of range.
 * Barriers of a slot are counted in the words themselves, those that returned false too, so nothing
 * is to be reset between launches. After a false one ranks are in step again as soon as all of them
 * have made equally many of that slot; until then a barrier may end early on a late rank.
 * Collective: each rank makes equally many barriers of a slot. Threads: all of the block call it, with
 * equal arguments. Ownership: comm's words. Errors: false, as told. Since 0.1. */
CECL_DEVICE_API bool ceclBarrierBlock(ceclDeviceComm_t dc, int slot)
{
    bool came = true;
    if (slot < 0 || slot >= dc.blocks)
        return false;
    cecl_device_meet(true); /* what the block wrote comes before its signals */
    /* A rank's own word is the count of its barriers; it is written when all have read it. */
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
