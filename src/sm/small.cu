/* The kernels of small calls. small.h describes how they exchange data. */
#include "sm/meeting.cuh"
#include "sm/reduce.cuh"
#include "sm/small_args.h"

#define PER CECL_SMALL_VECTORS
#define LINES CECL_SMALL_LINES
#define TOGETHER 4 /* a thread polls the lines of this many ranks at once */
#define POLLS 64   /* polls between two looks at the clock and at `end` */

/* The GPU's timer in ns, which is the same for all SMs. */
DEVICE uint64_t now_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* ---- lines: 12 bytes of data and the epoch. A line is written and read whole, because a relaxed
 * access of 128 bits is indivisible for the whole system. */

DEVICE void line_store(unsigned char *at, uint32_t a, uint32_t b, uint32_t c, uint32_t epoch)
{
    asm volatile("{.reg .b64 low, high;\n\t.reg .b128 line;\n\t"
                 "mov.b64 low, {%1, %2};\n\tmov.b64 high, {%3, %4};\n\t"
                 "mov.b128 line, {low, high};\n\t"
                 "st.relaxed.sys.global.b128 [%0], line;}" ::"l"(at),
                 "r"(a), "r"(b), "r"(c), "r"(epoch)
                 : "memory");
}

DEVICE void line_load(const unsigned char *at, uint32_t words[4])
{
    asm volatile("{.reg .b64 low, high;\n\t.reg .b128 line;\n\t"
                 "ld.relaxed.sys.global.b128 line, [%4];\n\t"
                 "mov.b128 {low, high}, line;\n\t"
                 "mov.b64 {%0, %1}, low;\n\tmov.b64 {%2, %3}, high;}"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(at)
                 : "memory");
}

/* Tells the host for which rank's data the call gave up waiting: see struct cecl_small. The fence
 * makes this visible before the call is done. */
DEVICE void give_up(const cecl_small_args &args, uint32_t rank)
{
    word_store(args.late, 1 + rank);
    fence_sys();
}

/* ---- shares: what a thread moves at a time, three vectors of 16 bytes in four lines. The 32 threads of a warp load
 * and store contiguous bytes, so that NVLink carries whole packets. */

struct share {
    uint32_t vector; /* index of the first vector; the next two are 32 and 64 vectors further on */
    /* how many of these vectors the block has, 0 to 3; n vectors take n + 1 lines, 0 vectors take none */
    uint32_t vectors;
    /* offset of the first line in the slot; each further line lies LINE_APART bytes after the previous one */
    uint32_t line;
};
#define LINE_APART CECL_SMALL_ROW

/* This thread's share in group number `group` of its warp, for a block of `vectors` vectors. */
DEVICE share share_of(uint32_t group, uint32_t vectors)
{
    const uint32_t lane = threadIdx.x % 32, first = group * (32 * PER) + lane;
    const uint32_t there = first < vectors ? (vectors - first + 31) / 32 : 0;
    return {first, there < PER ? there : PER, group * (LINES * LINE_APART) + lane * 16};
}

/* The call's epoch, the flag in its lines, and the bytes from the slots in `args` to those of the call's half. */
struct turn {
    uint32_t epoch, line;
    uint64_t half;
};

template <bool counted> DEVICE turn turn_of(const cecl_small_args &args)
{
    if (!counted)
        return {args.epoch, args.epoch, 0};
    const uint32_t epoch = meet_base<counted>(args.counting) + 1;
    return {epoch, epoch ^ args.mark, (epoch & 1) * args.half};
}

/* ---- the user's buffers: the vectors that a block has, at any alignment */

/* Loads or stores the first `left` bytes of a vector, 16 at most. Not inlined, to keep the code of the usual path
 * short. */
static __device__ __noinline__ vector bytes_load(const unsigned char *at, uint32_t left)
{
    vector v = {{0, 0, 0, 0}};
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (k < left) {
            uint8_t byte;
            single_load(at + k, &byte);
            v.w[k / 4] |= (uint32_t)byte << (k % 4 * 8);
        }
    return v;
}

static __device__ __noinline__ void bytes_store(unsigned char *at, uint32_t left, vector v)
{
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (k < left)
            single_store(at + k, (uint8_t)(v.w[k / 4] >> (k % 4 * 8)));
}

/* Whether all vectors of the share are whole and aligned. */
DEVICE bool share_is_whole(const unsigned char *block, const share &s, uint32_t bytes)
{
    return (uintptr_t)block % 16 == 0 && (s.vector + 32 * s.vectors - 31) * 16 <= bytes;
}

DEVICE void whole_load(const unsigned char *block, const share &s, vector v[PER])
{
#pragma unroll
    for (int k = 0; k < PER; k++) {
        v[k] = {{0, 0, 0, 0}};
        if (k < s.vectors)
            v[k] = vector_load(block + (s.vector + 32 * k) * 16);
    }
}

DEVICE void share_load(const unsigned char *block, const share &s, uint32_t bytes, vector v[PER])
{
    if (share_is_whole(block, s, bytes)) {
        whole_load(block, s, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < PER; k++) {
        v[k] = {{0, 0, 0, 0}};
        if (k < s.vectors)
            v[k] = bytes_load(block + (s.vector + 32 * k) * 16, bytes - (s.vector + 32 * k) * 16);
    }
}

/* Stores the results of a share: `n` vectors for each vector of input. A block of input has `bytes` bytes. */
template <int n>
DEVICE void share_store(unsigned char *block, const share &s, uint32_t bytes,
                        const vector v[PER * n])
{
    const bool whole = share_is_whole(block, s, bytes);
#pragma unroll
    for (int k = 0; k < PER; k++)
        if (k < s.vectors)
#pragma unroll
            for (int i = 0; i < n; i++) {
                const uint32_t at = (s.vector + 32 * k) * 16 * n + i * 16;
                if (whole)
                    vector_store(block + at, v[k * n + i]);
                else if (n == 1 || at < bytes * n)
                    bytes_store(block + at, bytes * n - at, v[k * n + i]);
            }
}

/* ---- sending and receiving */

DEVICE void share_send(unsigned char *slot, const share &s, const vector v[PER], uint32_t epoch)
{
    uint32_t words[LINES][3];
#pragma unroll
    for (int w = 0; w < 4 * PER; w++)
        words[w / 3][w % 3] = v[w / 4].w[w % 4];
#pragma unroll
    for (int l = 0; l < LINES; l++)
        if (l <= s.vectors)
            line_store(slot + s.line + l * LINE_APART, words[l][0], words[l][1], words[l][2],
                       epoch);
}

/* The lines of a share, as they arrived. */
struct lines {
    uint32_t words[LINES][4];
};

DEVICE void lines_open(const lines &from, vector v[PER])
{
#pragma unroll
    for (int w = 0; w < 4 * PER; w++)
        v[w / 4].w[w % 4] = from.words[w / 3][w % 3];
}

/* A rank of [first, first + TOGETHER) whose lines of a share have not come; this rank if all have come. */
DEVICE uint32_t missing(const cecl_small_args &args, const turn &now, uint32_t first,
                        const share &s, const lines got[TOGETHER])
{
    uint32_t rank = args.rank;
#pragma unroll
    for (int j = 0; j < TOGETHER; j++)
        if (first + j < args.nranks && first + j != args.rank)
#pragma unroll
            for (int l = 0; l < LINES; l++)
                if (l <= s.vectors && got[j].words[l][3] != now.line)
                    rank = first + j;
    return rank;
}

/* Receives a share from ranks [first, first + TOGETHER), except this rank and numbers from nranks on. Returns false if
 * the wait has ended early; then some of the share is undefined. */
DEVICE bool receive(const cecl_small_args &args, const turn &now, uint32_t first, const share &s,
                    lines got[TOGETHER])
{
    const unsigned char *const at = args.from + now.half + first * args.slot + s.line;
    uint64_t begin = 0;
    for (uint32_t polls = 1;; polls++) {
        bool here = true;
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
            if (first + j < args.nranks && first + j != args.rank)
#pragma unroll
                for (int l = 0; l < LINES; l++)
                    if (l <= s.vectors)
                        line_load(at + j * args.slot + l * LINE_APART, got[j].words[l]);
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
            if (first + j < args.nranks && first + j != args.rank)
#pragma unroll
                for (int l = 0; l < LINES; l++)
                    here = here && (l > s.vectors || got[j].words[l][3] == now.line);
        if (here)
            return true;
        if (polls % POLLS != 0)
            continue;
        const uint64_t at_ns = now_ns();
        begin = begin ? begin : at_ns;
        if (word_load(args.end) != 0 ||
            (args.timeout_ns > 0 && (int64_t)(at_ns - begin) >= (int64_t)args.timeout_ns)) {
            give_up(args, missing(args, now, first, s, got));
            return false;
        }
    }
}

/* The rank whose slot is args.to[k]. */
DEVICE uint32_t peer_after(const cecl_small_args &args, uint32_t k)
{
    return rank_after(args.rank, 1 + k, args.nranks);
}

/* Sends a share of each rank's block; all vectors must be whole. The loads for several ranks are issued together.
 * Returns false if the communicator has failed; then nothing was sent. */
DEVICE bool send_vectors(const cecl_small_args &args, const turn &now, const share &s,
                         uint32_t ended)
{
    for (uint32_t first = 0; first + 1 < args.nranks; first += TOGETHER) {
        vector v[TOGETHER][PER];
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
            if (first + j + 1 < args.nranks)
                whole_load(args.send + (uint64_t)peer_after(args, first + j) * args.send_stride, s,
                           v[j]);
        if (ended != 0)
            return false;
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
            if (first + j + 1 < args.nranks)
                share_send(args.to[first + j] + now.half, s, v[j], now.line);
    }
    return true;
}

/* Sends a share of the one block that goes to all ranks, or of each rank's block at any alignment.
 * Returns as send_vectors does. */
DEVICE bool send_bytes(const cecl_small_args &args, const turn &now, const share &s, uint32_t ended)
{
    vector v[PER];
    if (args.send_stride == 0)
        share_load(args.send, s, args.bytes, v);
    if (ended != 0)
        return false;
    for (uint32_t k = 0; k + 1 < args.nranks; k++) {
        if (args.send_stride != 0)
            share_load(args.send + (uint64_t)peer_after(args, k) * args.send_stride, s, args.bytes,
                       v);
        share_send(args.to[k] + now.half, s, v, now.line);
    }
    return true;
}

/* Sends all that this warp sends, before it waits for any data. Returns false if the communicator had already failed;
 * then nothing of sendbuff may reach a peer. */
DEVICE bool send_all(const cecl_small_args &args, const turn &now, uint32_t group, uint32_t step,
                     uint32_t vectors)
{
    const uint32_t ended = word_load(args.end); /* loaded at the same time as the first data */
    const bool whole = args.send_stride != 0 && ((uintptr_t)args.send | args.bytes) % 16 == 0;
    for (share s = share_of(group, vectors); s.vectors > 0;
         group += step, s = share_of(group, vectors))
        if (!(whole ? send_vectors(args, now, s, ended) : send_bytes(args, now, s, ended))) {
            give_up(args, args.rank);
            return false;
        }
    return true;
}

/* Writes a far-away epoch (CECL_SMALL_FAR) into a row of this call's half of the slots, except into lines that the call
 * uses. Calls take the rows in turn. args_renew in small.c chooses the row, or this function if the call is counted. */
template <bool counted>
DEVICE void renew(const cecl_small_args &args, const turn &now, uint32_t vectors)
{
    const uint32_t lane = threadIdx.x % 32;
    unsigned char *row = args.renewed + now.half;
    uint32_t vector = args.renewed_vector;
    if (counted) {
        const uint32_t in_slot = (uint32_t)args.slot / CECL_SMALL_ROW;
        const uint32_t index = (now.epoch >> 1) % (in_slot * args.nranks), at = index % in_slot;
        const uint32_t line = at % LINES;
        row += (uint64_t)index * CECL_SMALL_ROW;
        vector = 32 * (at / LINES * PER + (line > 0 ? line - 1 : 0));
    }
    if (vector + lane >= vectors)
        line_store(row + lane * 16, 0, 0, 0, now.epoch ^ CECL_SMALL_FAR);
}

/* One warp of the grid runs this while the others send and wait.
 *
 * First the warp tells the peers that this rank has begun; in a captured call it tells the hosts instead. Then it
 * renews lines. No other thread writes the renewed lines before this kernel ends. The fence is needed because the next
 * call writes the same words, and no kernel waits for these stores. */
template <bool counted>
DEVICE void tell(const cecl_small_args &args, const turn &now, uint32_t vectors)
{
    if (word_load(args.end) != 0)
        return;
    if (args.meeting.does & CECL_MEET_SIGNAL_FIRST)
        meet_tell(args.meeting, args.meeting.first);
    if (counted) {
        if (threadIdx.x % 32 == 0)
            word_store(args.meeting.done, args.counting.begun_value);
        meet_tell_hosts(args.meeting, args.counting, now.epoch, threadIdx.x % 32, 32);
    }
    renew<counted>(args, now, vectors);
    fence_sys();
}

/* ---- using the ranks' shares, in rank order */

template <int type, int op> struct reduction {
    typedef element<type> E;
    typename E::acc acc[PER][E::per];

    INLINE void take(const cecl_small_args &args, uint32_t rank, const share &, const vector v[PER])
    {
#pragma unroll
        for (int k = 0; k < PER; k++)
            if (rank == 0)
                vector_begin<type, op>(acc[k], v[k], args.average);
            else
                vector_combine<type, op>(acc[k], v[k], args.average);
    }

    INLINE void end(const cecl_small_args &args, const share &s)
    {
        const int n = result_vectors<type>();
        vector v[PER * n];
#pragma unroll
        for (int k = 0; k < PER; k++) {
            const results<type> out = vector_end<type, op>(acc[k], args.average);
#pragma unroll
            for (int i = 0; i < n; i++)
                v[k * n + i] = out.v[i];
        }
        share_store<n>(args.recv, s, args.bytes, v);
    }
};

/* A thread reads its share of every block of sendbuff before it writes any of recvbuff, so the call may be in place. */
struct move {
    INLINE void take(const cecl_small_args &args, uint32_t rank, const share &s,
                     const vector v[PER])
    {
        share_store<1>(args.recv + (uint64_t)rank * args.bytes, s, args.bytes, v);
    }

    INLINE void end(const cecl_small_args &, const share &)
    {
    }
};

/* Receives one share from all ranks and uses it. Returns false if a wait has ended early. */
template <typename Use>
DEVICE bool take_share(const cecl_small_args &args, const turn &now, const share &s)
{
    vector own[PER];
    Use use;
    share_load(args.send + (uint64_t)args.rank * args.send_stride, s, args.bytes, own);
    for (uint32_t first = 0; first < args.nranks; first += TOGETHER) {
        lines got[TOGETHER];
        if (!receive(args, now, first, s, got))
            return false;
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            vector v[PER];
#pragma unroll
            for (int k = 0; k < PER; k++)
                v[k] = own[k];
            if (first + j != args.rank)
                lines_open(got[j], v);
            if (first + j < args.nranks)
                use.take(args, first + j, s, v);
        }
    }
    use.end(args, s);
    return true;
}

/* In each block, all warps but the last move data. The last warp of block 0 runs `tell`. */
template <typename Use, bool counted> DEVICE void exchange(const cecl_small_args &args)
{
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32 - 1;
    const uint32_t step = gridDim.x * warps, vectors = (args.bytes + 15) / 16;
    const turn now = turn_of<counted>(args);
    uint32_t group = blockIdx.x * warps + warp;
    if (warp < warps) {
        bool going = send_all(args, now, group, step, vectors);
        for (share s = share_of(group, vectors); going && s.vectors > 0;
             group += step, s = share_of(group, vectors))
            going = take_share<Use>(args, now, s);
    } else if (blockIdx.x == 0) {
        tell<counted>(args, now, vectors);
    }
    if ((args.meeting.does & CECL_MEET_DONE) && meet_ends(args.meeting)) {
        if (counted)
            word_store(args.counting.count, now.epoch);
        word_store(args.meeting.done, args.meeting.done_value);
    }
}

#define KERNEL(type_name, type, op_name, op) \
    extern "C" __global__ void __launch_bounds__(CECL_SMALL_THREADS, 1) \
        cecl_small_##type_name##_##op_name(const __grid_constant__ cecl_small_args args) \
    { \
        exchange<reduction<type, op>, false>(args); \
    }
CECL_REDUCE_PAIRS(KERNEL)

extern "C" __global__ void __launch_bounds__(CECL_SMALL_THREADS, 1)
    cecl_small_move(const __grid_constant__ cecl_small_args args)
{
    exchange<move, false>(args);
}

#define COUNTED_KERNEL(type_name, type) \
    extern "C" __global__ void __launch_bounds__(CECL_SMALL_THREADS, 1) \
        cecl_small_counted_##type_name(const __grid_constant__ cecl_small_args args) \
    { \
        exchange<reduction<type, ceclSum>, true>(args); \
    }
CECL_REDUCE_COUNTED(COUNTED_KERNEL)

extern "C" __global__ void __launch_bounds__(CECL_SMALL_THREADS, 1)
    cecl_small_move_counted(const __grid_constant__ cecl_small_args args)
{
    exchange<move, true>(args);
}
