/* The kernels of small collectives; how they meet is told in small.h. */
#include "sm/meeting.cuh"
#include "sm/reduce.cuh"
#include "sm/small_args.h"

#define THREADS CECL_SMALL_THREADS
#define TOGETHER 4 /* ranks whose lines are polled at once */
#define POLLS 64   /* between two looks at the clock and at the word that ends waits */

/* ---- lines: twice 4 bytes of data below the epoch. Volatile is relaxed, for the whole system; of a
 * vector of 64-bit words each word is read and written as one. */

DEVICE void line_store(unsigned char *at, uint32_t a, uint32_t b, uint32_t epoch)
{
    const uint64_t flag = (uint64_t)epoch << 32;
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(flag | a), "l"(flag | b)
                 : "memory");
}

DEVICE void line_load(const unsigned char *at, uint64_t words[2])
{
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words[0]), "=l"(words[1])
                 : "l"(at)
                 : "memory");
}

DEVICE uint64_t now_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* The first of the two lines of vector i in a slot; the other one is LINE_APART on. What 32 threads
 * store together lies together: over NVLink whole packets go. */
#define LINE_APART 512
DEVICE uint64_t line_at(uint64_t i)
{
    return i / 32 * (2 * LINE_APART) + i % 32 * 16;
}

/* Where what `sender` sends in this call lies at `holder`. */
DEVICE unsigned char *slot_of(const cecl_small_args &args, int holder, int sender)
{
    const uint64_t half = (args.epoch & 1) * (uint64_t)args.nranks;
    return args.slots[holder] + (half + (uint64_t)sender) * 2 * args.slot_bytes;
}

/* ---- the user's buffers: the bytes from 16 * i on, as far as the block has them */

DEVICE vector block_load(const unsigned char *block, uint64_t i, uint64_t bytes)
{
    const unsigned char *at = block + i * 16;
    const uint64_t left = bytes - i * 16;
    vector v = {{0, 0, 0, 0}};
    if (left >= 16 && (uintptr_t)at % 16 == 0)
        return vector_load(at);
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (k < left) {
            uint8_t byte;
            single_load(at + k, &byte);
            v.w[k / 4] |= (uint32_t)byte << (k % 4 * 8);
        }
    return v;
}

DEVICE void block_store(unsigned char *block, uint64_t i, uint64_t bytes, const vector &v)
{
    unsigned char *at = block + i * 16;
    const uint64_t left = bytes - i * 16;
    if (left >= 16 && (uintptr_t)at % 16 == 0) {
        vector_store(at, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (k < left)
            single_store(at + k, (uint8_t)(v.w[k / 4] >> (k % 4 * 8)));
}

/* ---- sending and receiving */

DEVICE void send(const cecl_small_args &args, int peer, uint64_t i, const vector &v)
{
    unsigned char *at = slot_of(args, peer, args.rank) + line_at(i);
    line_store(at, v.w[0], v.w[1], args.epoch);
    line_store(at + LINE_APART, v.w[2], v.w[3], args.epoch);
}

/* Vector i of ranks [first, first + TOGETHER), as far as there are so many; of this rank itself what
 * v holds stays. False: the wait has ended, some of v is undefined. */
DEVICE bool receive(const cecl_small_args &args, int first, uint64_t i, vector v[TOGETHER])
{
    uint64_t begin = 0;
    for (uint32_t polls = 1;; polls++) {
        uint64_t words[TOGETHER][4];
        bool here = true;
#pragma unroll
        for (int k = 0; k < TOGETHER; k++)
            if (first + k < args.nranks && first + k != args.rank) {
                const unsigned char *at = slot_of(args, args.rank, first + k) + line_at(i);
                line_load(at, &words[k][0]);
                line_load(at + LINE_APART, &words[k][2]);
            }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++)
            if (first + k < args.nranks && first + k != args.rank)
#pragma unroll
                for (int w = 0; w < 4; w++) {
                    here = here && (uint32_t)(words[k][w] >> 32) == args.epoch;
                    v[k].w[w] = (uint32_t)words[k][w];
                }
        if (here)
            return true;
        if (polls % POLLS != 0)
            continue;
        const uint64_t now = now_ns();
        begin = begin ? begin : now;
        if (word_load(args.end) != 0 ||
            (args.timeout_ns > 0 && (int64_t)(now - begin) >= (int64_t)args.timeout_ns)) {
            *(volatile uint32_t *)args.late = 1;
            return false;
        }
    }
}

/* Some lines of this half that the call leaves alone get an epoch that is far away: all of them by
 * and by, calls after calls. Nobody writes there before this kernel has ended. */
DEVICE void renew(const cecl_small_args &args, uint64_t vectors)
{
    const uint64_t lines = (uint64_t)args.nranks * args.slot_bytes / 8;
    const uint64_t line = ((uint64_t)(args.epoch >> 1) * THREADS + threadIdx.x) % lines;
    const uint64_t in_slot = line % (args.slot_bytes / 8);
    if (blockIdx.x == 0 && in_slot / 64 * 32 + in_slot % 32 >= vectors)
        line_store(slot_of(args, args.rank, 0) + line * 16, 0, 0, args.epoch ^ 0x80000000u);
}

/* All threads of the grid. What peers are to have goes out before anything is waited for. False: the
 * communicator has failed before, and what stands in sendbuff is not to be told to anybody. */
DEVICE bool send_all(const cecl_small_args &args, uint64_t first, uint64_t step, uint64_t vectors)
{
    const uint32_t ended = word_load(args.end);
    vector v = block_load(args.send, first < vectors ? first : 0, args.bytes);
    if (ended != 0) {
        *(volatile uint32_t *)args.late = 1;
        return false;
    }
    for (uint64_t i = first; i < vectors; i += step) {
        if (i != first)
            v = block_load(args.send, i, args.bytes);
        for (int k = 1; k < args.nranks; k++) {
            const int peer = (args.rank + k) % args.nranks;
            if (args.send_stride != 0)
                v = block_load(args.send + (uint64_t)peer * args.send_stride, i, args.bytes);
            send(args, peer, i, v);
        }
    }
    if (args.meeting.does != 0 && blockIdx.x == 0)
        meet_tell(args.meeting, args.meeting.first, THREADS);
    renew(args, vectors);
    return true;
}

/* All threads of the grid, however it went. */
DEVICE void leave(const cecl_small_args &args)
{
    if (!meets_last(args.meeting))
        return;
    __syncthreads();
    if (threadIdx.x < 32)
        meet_last(args.meeting);
}

template <int type, int op> DEVICE void reduce_slots(const cecl_small_args &args)
{
    typedef element<type> E;
    const unsigned char *mine = args.send + (uint64_t)args.rank * args.send_stride;
    const uint64_t step = (uint64_t)gridDim.x * THREADS, vectors = (args.bytes + 15) / 16;
    const uint64_t thread = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    cecl_reduce_args ends; /* of which only this is read */
    ends.divisor = args.divisor;
    ends.inverse = args.inverse;
    if (!send_all(args, thread, step, vectors))
        return;
    for (uint64_t i = thread; i < vectors; i += step) {
        const vector own = block_load(mine, i, args.bytes);
        typename E::acc acc[E::per];
        for (int first = 0; first < args.nranks; first += TOGETHER) {
            vector v[TOGETHER];
#pragma unroll
            for (int k = 0; k < TOGETHER; k++)
                v[k] = own;
            if (!receive(args, first, i, v))
                return;
#pragma unroll
            for (int k = 0; k < TOGETHER; k++)
                if (first + k == 0)
                    E::unpack(v[k], acc);
                else if (first + k < args.nranks)
                    vector_combine<type, op>(acc, v[k]);
        }
        block_store(args.recv, i, args.bytes, vector_end<type, op>(acc, ends));
    }
}

template <int type, int op>
__global__ void __launch_bounds__(THREADS)
    small_reduce(const __grid_constant__ cecl_small_args args)
{
    reduce_slots<type, op>(args);
    leave(args);
}

/* A thread reads vector i of all blocks before it writes vector i of any: so it may be in place. */
DEVICE void move_slots(const cecl_small_args &args)
{
    const uint64_t step = (uint64_t)gridDim.x * THREADS, vectors = (args.bytes + 15) / 16;
    const uint64_t thread = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const unsigned char *mine = args.send + (uint64_t)args.rank * args.send_stride;
    if (!send_all(args, thread, step, vectors))
        return;
    for (uint64_t i = thread; i < vectors; i += step) {
        const vector own = block_load(mine, i, args.bytes);
        for (int first = 0; first < args.nranks; first += TOGETHER) {
            vector v[TOGETHER];
#pragma unroll
            for (int k = 0; k < TOGETHER; k++)
                v[k] = own;
            if (!receive(args, first, i, v))
                return;
#pragma unroll
            for (int k = 0; k < TOGETHER; k++)
                if (first + k < args.nranks)
                    block_store(args.recv + (uint64_t)(first + k) * args.bytes, i, args.bytes,
                                v[k]);
        }
    }
}

static __global__ void __launch_bounds__(THREADS)
    small_move(const __grid_constant__ cecl_small_args args)
{
    move_slots(args);
    leave(args);
}

extern "C" const void *cecl_small_reduce_kernel(ceclDataType_t type, ceclRedOp_t op)
{
#define PICK(type, op) return (const void *)small_reduce<type, op>
    CECL_REDUCE_PICK(type, op, PICK);
#undef PICK
    return nullptr;
}

extern "C" const void *cecl_small_move_kernel(void)
{
    return (const void *)small_move;
}
