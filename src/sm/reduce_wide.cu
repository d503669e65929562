/* Reductions by 16-byte loads into registers: any GPU, any alignment, any number of sources.
 *
 * The number of bytes in flight to an SM limits the kernel's speed, above all over NVLink. So a thread issues 8 to 16
 * loads, of several vectors from several sources, before it uses the first. This keeps 64 to 128 KiB in flight to each
 * SM. */
#include "sm/reduce.cuh"

#define THREADS CECL_REDUCE_WIDE_THREADS

template <bool counted> DEVICE void end(const cecl_reduce_args &args)
{
    if (!reduce_has_end(args))
        return;
    __syncthreads();
    if (threadIdx.x < 32)
        reduce_end<counted>(args);
}

/* Exactly `nsrc` sources. A thread takes up to 4 vectors at a time, so 8 to 16 loads are issued together.
 * Head and tail are short. */
template <int type, int op, int nsrc> DEVICE void reduce_wide(const cecl_reduce_args &args)
{
    typedef element<type> E;
    const int turn = 16 / nsrc < 4 ? 16 / nsrc : 4;
    meet_first<false>(args.meeting, args.counting);
    reduce_singles<type, op, 1>(args);
    for (uint64_t first = (uint64_t)blockIdx.x * THREADS * turn + threadIdx.x; first < args.vectors;
         first += (uint64_t)gridDim.x * THREADS * turn) {
        vector v[turn][nsrc];
#pragma unroll
        for (int t = 0; t < turn; t++)
            if (first + t * THREADS < args.vectors)
#pragma unroll
                for (int s = 0; s < nsrc; s++)
                    v[t][s] = vector_load(args.src[s] + (first + t * THREADS) * 16);
#pragma unroll
        for (int t = 0; t < turn; t++) {
            typename E::acc acc[E::per];
            vector_begin<type, op>(acc, v[t][0], args.average);
#pragma unroll
            for (int s = 1; s < nsrc; s++)
                vector_combine<type, op>(acc, v[t][s], args.average);
            if (first + t * THREADS < args.vectors)
                results_store(args, first + t * THREADS, vector_end<type, op>(acc, args.average));
        }
    }
    end<false>(args);
}

/* Any number of sources and any alignment. A thread takes two vectors of four sources at a time. */
template <int type, int op, bool counted> DEVICE void reduce_any(const cecl_reduce_args &args)
{
    typedef element<type> E;
    const int turn = 2, together = 4;
    meet_first<counted>(args.meeting, args.counting);
    reduce_singles<type, op, 4>(args);
    for (uint64_t first = (uint64_t)blockIdx.x * THREADS * turn + threadIdx.x; first < args.vectors;
         first += (uint64_t)gridDim.x * THREADS * turn) {
        typename E::acc acc[turn][E::per];
        for (uint32_t s = 0; s < args.nsrc; s += together) {
            vector v[together][turn];
#pragma unroll
            for (int j = 0; j < together; j++)
#pragma unroll
                for (int t = 0; t < turn; t++)
                    if (s + j < args.nsrc && first + t * THREADS < args.vectors)
                        v[j][t] = vector_load(args.src[s + j] + (first + t * THREADS) * 16);
#pragma unroll
            for (int j = 0; j < together; j++)
#pragma unroll
                for (int t = 0; t < turn; t++)
                    if (s + j == 0)
                        vector_begin<type, op>(acc[t], v[j][t], args.average);
                    else if (s + j < args.nsrc)
                        vector_combine<type, op>(acc[t], v[j][t], args.average);
        }
#pragma unroll
        for (int t = 0; t < turn; t++)
            if (first + t * THREADS < args.vectors)
                results_store(args, first + t * THREADS,
                              vector_end<type, op>(acc[t], args.average));
    }
    end<counted>(args);
}

#define KERNEL(type_name, type, op_name, op) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) \
        cecl_reduce_any_##type_name##_##op_name(const __grid_constant__ cecl_reduce_args args) \
    { \
        reduce_any<type, op, false>(args); \
    }
CECL_REDUCE_PAIRS(KERNEL)

#define SUM_KERNEL(type_name, type, nsrc) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) \
        cecl_reduce_sum_##type_name##_of_##nsrc(const __grid_constant__ cecl_reduce_args args) \
    { \
        reduce_wide<type, ceclSum, nsrc>(args); \
    }
CECL_REDUCE_SUMS(SUM_KERNEL)

#define COUNTED_KERNEL(type_name, type) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) \
        cecl_reduce_any_counted_##type_name(const __grid_constant__ cecl_reduce_args args) \
    { \
        reduce_any<type, ceclSum, true>(args); \
    }
CECL_REDUCE_COUNTED(COUNTED_KERNEL)
