/* Reductions by bulk asynchronous copies: from sm_90 on, if all buffers have the same alignment.
 *
 *     one thread:    for each tile, for each source: wait until a place of the ring is free, copy
 *     all others:    for each tile: add up, source by source, what arrives; then write
 *
 * Data in flight needs no registers, so a few SMs keep as many bytes in flight as many SMs do with the wide kernel. The
 * ring never runs empty between tiles: the next tile arrives while the readers write the result of the previous one. */
#include "sm/reduce.cuh"

#define READERS CECL_REDUCE_BULK_READERS
#define TILES CECL_REDUCE_TILES
#define TILE_VECTORS (CECL_REDUCE_TILE_BYTES / 16)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* A place in the ring; `phase` changes each time a thread has gone once around the ring. */
struct ring {
    uint32_t place, phase;
};

DEVICE void ring_advance(ring &at)
{
    if (++at.place == TILES) {
        at.place = 0;
        at.phase ^= 1;
    }
}

DEVICE uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

DEVICE void barrier_start(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

/* Waits until the mbarrier's phase with this parity is over. No pause is needed: try_wait itself suspends the thread
 * for a while. */
DEVICE void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t over;
    do
        asm volatile("{.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(over)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    while (!over);
}

/* Arrives at the mbarrier once the earlier loads are done. `brought` combines one word of each
 * load; `none` is 0.
 *
 * An arrival is issued after the loads, but does not wait for them. If the loads queue behind writes to a peer, the
 * arrival comes microseconds before the loads are done, and a copy overwrites the tile too early. So the arrival's
 * address is computed from the loaded words, in a way that the compiler cannot remove. */
DEVICE void barrier_arrive_after(uint64_t *barrier, uint32_t brought, uint32_t none)
{
    uint32_t zero;
    asm volatile("and.b32 %0, %1, %2;" : "=r"(zero) : "r"(brought), "r"(none));
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier) + zero)
                 : "memory");
}

/* Starts a copy of `bytes` bytes to shared memory. The mbarrier's phase is over when they have arrived. */
DEVICE void bulk_load(void *to, const unsigned char *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared.b64 _, [%3], %2;\n\t"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

/* Loads the 16 bytes of a tile that this reader reduces in turn `t`. If their results fill two vectors, the 16
 * bytes are two halves that lie apart, so that neighbouring readers store neighbouring vectors of results. */
template <int pieces> DEVICE vector shared_load(const unsigned char *tile, int t)
{
    vector v;
    const uint32_t at = shared_address(tile) + (t * READERS * pieces + threadIdx.x) * (16 / pieces);
    if constexpr (pieces == 1)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                     : "r"(at));
    else
#pragma unroll
        for (int i = 0; i < 2; i++)
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                         : "=r"(v.w[2 * i]), "=r"(v.w[2 * i + 1])
                         : "r"(at + i * READERS * 8));
    return v;
}

/* Waits for the next tile, loads this reader's part of it, and arrives at the mbarrier that frees the tile's place once
 * all readers have arrived. (To have one thread arrive for a warp, the warp would first have to be synchronized, which
 * is slower.) Beyond the end of a short tile lies old data; the caller does not write its results. */
template <int pieces>
DEVICE void tile_take(const unsigned char *tiles, uint64_t *full, uint64_t *empty, ring &at,
                      vector v[TILE_VECTORS / READERS], uint32_t none)
{
    uint32_t brought = 0;
    barrier_wait(&full[at.place], at.phase);
#pragma unroll
    for (int t = 0; t < TILE_VECTORS / READERS; t++)
        v[t] = shared_load<pieces>(tiles + at.place * CECL_REDUCE_TILE_BYTES, t);
#pragma unroll
    for (int t = 0; t < TILE_VECTORS / READERS; t++)
        brought |= pieces == 1 ? v[t].w[3] : v[t].w[1] | v[t].w[3];
    barrier_arrive_after(&empty[at.place], brought, none);
    ring_advance(at);
}

/* Synchronizes the readers of the block. The thread that copies does not take part, because it may
 * have ended. */
DEVICE void readers_meet(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(READERS) : "memory");
}

DEVICE uint32_t tile_vectors(const cecl_reduce_args &args, uint64_t first)
{
    return args.vectors - first < TILE_VECTORS ? (uint32_t)(args.vectors - first) : TILE_VECTORS;
}

#endif

/* This is one function, because it is slower when divided into several (docs/experiments.md). */
template <int type, int op, bool counted> DEVICE void reduce_bulk(const cecl_reduce_args &args)
{
#if __CUDA_ARCH__ >= 900
    typedef element<type> E;
    const int turn = TILE_VECTORS / READERS; /* vectors of a tile that one thread reduces */
    const int n = result_vectors<type>();
    const uint64_t stride = (uint64_t)gridDim.x * TILE_VECTORS;
    const uint32_t none = args.nsrc >> 31; /* always 0, which the compiler cannot know */
    extern __shared__ __align__(128) unsigned char shared[];
    uint64_t *const full = (uint64_t *)(shared + TILES * CECL_REDUCE_TILE_BYTES);
    uint64_t *const empty = full + TILES;
    ring at = {0, 0};

    if (threadIdx.x == 0) {
        for (int i = 0; i < TILES; i++) {
            barrier_start(&full[i], 1);
            barrier_start(&empty[i], READERS);
        }
        /* makes the mbarriers visible to the asynchronous copies */
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    meet_first<counted>(args.meeting, args.counting);

    if (threadIdx.x >= READERS) {
        if (threadIdx.x > READERS)
            return;
        /* orders the copies after the wait for flags */
        if (args.meeting.does & CECL_MEET_WAIT_FIRST)
            asm volatile("fence.proxy.async;" ::: "memory");
        for (uint64_t first = (uint64_t)blockIdx.x * TILE_VECTORS; first < args.vectors;
             first += stride)
            for (uint32_t s = 0; s < args.nsrc; s++) {
                /* the first time around the ring this wait ends at once */
                barrier_wait(&empty[at.place], at.phase ^ 1);
                bulk_load(shared + at.place * CECL_REDUCE_TILE_BYTES, args.src[s] + first * 16,
                          tile_vectors(args, first) * 16, &full[at.place]);
                ring_advance(at);
            }
        return;
    }

    reduce_singles<type, op, 1>(args);
    for (uint64_t first = (uint64_t)blockIdx.x * TILE_VECTORS; first < args.vectors;
         first += stride) {
        typename E::acc acc[turn][E::per];
        vector v[turn];
        tile_take<n>(shared, full, empty, at, v, none);
#pragma unroll
        for (int t = 0; t < turn; t++)
            vector_begin<type, op>(acc[t], v[t], args.average);
        for (uint32_t s = 1; s < args.nsrc; s++) {
            tile_take<n>(shared, full, empty, at, v, none);
#pragma unroll
            for (int t = 0; t < turn; t++)
                vector_combine<type, op>(acc[t], v[t], args.average);
        }
        const uint32_t there = tile_vectors(args, first) * n;
#pragma unroll
        for (int t = 0; t < turn; t++) {
            const results<type> out = vector_end<type, op>(acc[t], args.average);
#pragma unroll
            for (int i = 0; i < n; i++)
                if (threadIdx.x + (t * n + i) * READERS < there)
                    result_store(args, first * n + threadIdx.x + (t * n + i) * READERS, out.v[i]);
        }
    }
    if (!reduce_has_end(args))
        return;
    readers_meet();
    if (threadIdx.x < 32)
        reduce_end<counted>(args);
#endif
}

#define KERNEL(type_name, type, op_name, op) \
    extern "C" __global__ void __launch_bounds__(CECL_REDUCE_BULK_THREADS, 1) \
        cecl_reduce_bulk_##type_name##_##op_name(const __grid_constant__ cecl_reduce_args args) \
    { \
        reduce_bulk<type, op, false>(args); \
    }
CECL_REDUCE_PAIRS(KERNEL)

#define COUNTED_KERNEL(type_name, type) \
    extern "C" __global__ void __launch_bounds__(CECL_REDUCE_BULK_THREADS, 1) \
        cecl_reduce_bulk_counted_##type_name(const __grid_constant__ cecl_reduce_args args) \
    { \
        reduce_bulk<type, ceclSum, true>(args); \
    }
CECL_REDUCE_COUNTED(COUNTED_KERNEL)
