/* The parts of a meeting that kernels carry out; see meeting.h. */
#ifndef CECL_SM_MEETING_CUH
#define CECL_SM_MEETING_CUH

#include "sm/meeting.h"
#include "sm/number.cuh"

DEVICE uint32_t word_load(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

DEVICE uint32_t word_acquire(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

DEVICE void word_release(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

DEVICE void word_store(uint32_t *word, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

DEVICE void word_store(uint64_t *word, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/* Adds 1 to *word, or sets it to 0 if it was `last`. Returns the value before. */
DEVICE uint32_t word_count(uint32_t *word, uint32_t last)
{
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(last)
                 : "memory");
    return before;
}

DEVICE void fence_gpu(void)
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

DEVICE void fence_sys(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* The i-th rank after `rank`, cyclically; i < nranks. */
DEVICE uint32_t rank_after(uint32_t rank, uint32_t i, uint32_t nranks)
{
    return rank + i < nranks ? rank + i : rank + i - nranks;
}

DEVICE uint32_t meet_peer(const cecl_meeting &m, uint32_t i)
{
    return rank_after(m.rank, i, m.nranks);
}

DEVICE uint32_t *meet_word(const cecl_meeting &m, uint32_t i)
{
    return (uint32_t *)((char *)m.word + meet_peer(m, i) * m.apart);
}

/* A captured call's kernel counts its own runs (struct cecl_counting). Such kernels are separate instances (`counted`),
 * because the additional reads would cost other kernels 1 to 2 %. */

/* What the kernel adds to the values of a meeting: nothing, unless the call is counted. */
template <bool counted> DEVICE uint32_t meet_base(const cecl_counting &c)
{
    return counted ? word_load(c.count) : 0;
}

/* What a rank writes to a word to show `value`, to which meet_base is already added. */
#define MEET_BITS 12 /* bits of the value in a word of a counted call */
template <bool counted> DEVICE uint32_t meet_held(const cecl_counting &c, uint32_t value)
{
    return counted ? c.number << MEET_BITS | (value & ((1u << MEET_BITS) - 1)) : value;
}

/* Whether a word has reached `held`. If `same`, the word must also have the number of the same captured call. */
template <bool counted> DEVICE bool meet_reached(uint32_t word, uint32_t held, bool same)
{
    if (!counted)
        return (int32_t)(word - held) >= 0;
    return (int32_t)((word - held) << (32 - MEET_BITS)) >= 0 &&
           (!same || (word ^ held) >> MEET_BITS == 0);
}

/* Shows the progress of a counted call to all hosts, including this rank's. */
DEVICE void meet_tell_hosts(const cecl_meeting &m, const cecl_counting &c, uint32_t value,
                            uint32_t thread, uint32_t threads)
{
    for (uint32_t i = thread; i < m.nranks; i += threads)
        word_store((uint64_t *)((char *)c.told + meet_peer(m, i) * c.told_apart),
                   (uint64_t)c.number << 32 | value);
}

/* A warp writes `value` to this rank's words at the peers. Peers may see the value before earlier writes, which does no
 * harm, because the value only shows this rank's progress. */
DEVICE void meet_tell(const cecl_meeting &m, uint32_t value)
{
#pragma unroll 1
    for (uint32_t i = 1 + threadIdx.x % 32; i < m.nranks; i += 32)
        word_store(meet_word(m, i), value);
}

/* Signals all peers. Called by threads [0, threads) of a block; each takes some peers. */
template <bool counted>
DEVICE void meet_signal(const cecl_meeting &m, const cecl_counting &c, uint32_t value,
                        uint32_t threads)
{
    if (word_load(m.ended) != 0)
        return;
    for (uint32_t i = 1 + threadIdx.x; i < m.nranks; i += threads)
        word_release(meet_word(m, i), meet_held<counted>(c, value));
    if (counted)
        meet_tell_hosts(m, c, value, threadIdx.x, threads);
}

/* Waits for all peers' words. The wait also ends when the communicator has failed; then the data is undefined. `same`
 * is as for meet_reached. */
template <bool counted>
DEVICE void meet_wait(const cecl_meeting &m, const cecl_counting &c, uint32_t value,
                      uint32_t threads, bool same)
{
    const uint32_t held = meet_held<counted>(c, value);
    for (uint32_t i = 1 + threadIdx.x; i < m.nranks; i += threads) {
        const uint32_t *word = m.row + meet_peer(m, i);
        for (uint32_t polls = 1; !meet_reached<counted>(word_acquire(word), held, same); polls++)
            if (polls % 64 == 0 && word_load(m.ended) != 0)
                break;
    }
}

/* All threads of every block call this before the work. */
template <bool counted> DEVICE void meet_first(const cecl_meeting &m, const cecl_counting &c)
{
    if ((m.does & (CECL_MEET_SIGNAL_FIRST | CECL_MEET_WAIT_FIRST)) == 0)
        return;
    if ((m.does & CECL_MEET_SIGNAL_FIRST) && blockIdx.x == 0) {
        if (counted && threadIdx.x == 0)
            word_store(m.done, c.begun_value);
        meet_signal<counted>(m, c, meet_base<counted>(c) + m.first, blockDim.x);
    }
    if (m.does & CECL_MEET_WAIT_FIRST)
        meet_wait<counted>(m, c, meet_base<counted>(c) + m.first, blockDim.x, true);
    __syncthreads();
}

DEVICE bool meets_last(const cecl_meeting &m)
{
    return (m.does & (CECL_MEET_SIGNAL_LAST | CECL_MEET_WAIT_LAST | CECL_MEET_DONE)) != 0;
}

/* If meets_last is true, the first warp of every block calls this, after all threads of the block have done their work
 * and synchronized. */
template <bool counted> DEVICE void meet_last(const cecl_meeting &m, const cecl_counting &c)
{
    uint32_t before = gridDim.x - 1;
    if (gridDim.x > 1) {
        if (threadIdx.x == 0)
            before = word_count(m.leaving, gridDim.x - 1);
        before = __shfl_sync(0xffffffffu, before, 0);
        /* a shuffle orders no memory: __syncwarp passes what thread 0 acquired to the threads that signal */
        __syncwarp();
    }
    if (before != gridDim.x - 1)
        return;
    if (m.does & CECL_MEET_SIGNAL_LAST)
        meet_signal<counted>(m, c, meet_base<counted>(c) + m.last, 32);
    if (m.does & CECL_MEET_WAIT_LAST)
        meet_wait<counted>(m, c, meet_base<counted>(c) + m.last, 32, false);
    __syncwarp();
    if (counted && threadIdx.x == 0)
        word_store(c.count, meet_base<counted>(c) + m.last);
    if ((m.does & CECL_MEET_DONE) && threadIdx.x == 0)
        word_release(m.done, m.done_value);
}

/* All threads of every block call this at the end. Returns true to a single thread of the grid: to a thread of the last
 * block that comes.
 *
 * Another stream that sees `done` starts the next call. By then every block has finished reading its sources,
 * and its writes to this GPU's memory are visible to the whole GPU, to its copies, and to peers that read
 * there. This order is weaker than a release for the whole system, which would also wait for writes to peers
 * and to host memory. So a block that writes to peers or to host memory needs a fence of its own if the next
 * call may write the same words, or if the host reads the words after `done`. */
DEVICE bool meet_ends(const cecl_meeting &m)
{
    __syncthreads();
    if (threadIdx.x != 0)
        return false;
    if (gridDim.x == 1)
        fence_gpu();
    else if (word_count(m.leaving, gridDim.x - 1) != gridDim.x - 1)
        return false;
    return true;
}

#endif
