/* Reductions by 16-byte loads into registers: any GPU, any alignment, any number of sources.
 *
 * The number of bytes in flight to an SM limits such a kernel, above all over NVLink. So a thread
 * issues the loads of several vectors from several sources, 8 to 16 in all, before it uses the
 * first. That is 64 to 128 KiB in flight for each SM. */
#include "sm/reduce.cuh"

#define THREADS CECL_REDUCE_WIDE_THREADS

DEVICE void end(const cecl_reduce_args &args)
{
    if (!reduce_has_end(args))
        return;
    __syncthreads();
    if (threadIdx.x < 32)
        reduce_end(args);
}

/* Exactly `nsrc` sources. Takes so many vectors at a time that 12 to 16 loads are issued together.
 * Requires short heads and tails. */
template <int type, int op, int nsrc>
__global__ void __launch_bounds__(THREADS, 1)
    reduce_wide(const __grid_constant__ cecl_reduce_args args)
{
    typedef element<type> E;
    const int turn = 16 / nsrc < 4 ? 16 / nsrc : 4;
    meet_first(args.meeting);
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
            E::unpack(v[t][0], acc);
#pragma unroll
            for (int s = 1; s < nsrc; s++)
                vector_combine<type, op>(acc, v[t][s]);
            if (first + t * THREADS < args.vectors)
                result_store(args, (first + t * THREADS) * 16,
                             vector_end<type, op>(acc, args.division));
        }
    }
    end(args);
}

/* Any number of sources and any alignment. Takes two vectors of four sources at a time. */
template <int type, int op>
__global__ void __launch_bounds__(THREADS, 1)
    reduce_any(const __grid_constant__ cecl_reduce_args args)
{
    typedef element<type> E;
    const int turn = 2, together = 4;
    meet_first(args.meeting);
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
                        E::unpack(v[j][t], acc[t]);
                    else if (s + j < args.nsrc)
                        vector_combine<type, op>(acc[t], v[j][t]);
        }
#pragma unroll
        for (int t = 0; t < turn; t++)
            if (first + t * THREADS < args.vectors)
                result_store(args, (first + t * THREADS) * 16,
                             vector_end<type, op>(acc[t], args.division));
    }
    end(args);
}

extern "C" const void *cecl_reduce_any_kernel(ceclDataType_t type, ceclRedOp_t op)
{
#define PICK(type, op) return (const void *)reduce_any<type, op>
    CECL_REDUCE_PICK(type, op, PICK);
#undef PICK
    return nullptr;
}

/* Sums of floating-point numbers are the usual reductions. They have special kernels for the usual
 * numbers of ranks. */
template <int type> static const void *sum_kernel(uint32_t nsrc)
{
    switch (nsrc) {
    case 2: return (const void *)reduce_wide<type, ceclSum, 2>;
    case 3: return (const void *)reduce_wide<type, ceclSum, 3>;
    case 4: return (const void *)reduce_wide<type, ceclSum, 4>;
    case 8: return (const void *)reduce_wide<type, ceclSum, 8>;
    default: return nullptr;
    }
}

extern "C" const void *cecl_reduce_wide_kernel(ceclDataType_t type, ceclRedOp_t op, uint32_t nsrc)
{
    const void *kernel = nullptr;
    if (op == ceclSum || op == ceclAvg)
        switch (type) {
        case ceclFloat16: kernel = sum_kernel<ceclFloat16>(nsrc); break;
        case ceclBfloat16: kernel = sum_kernel<ceclBfloat16>(nsrc); break;
        case ceclFloat32: kernel = sum_kernel<ceclFloat32>(nsrc); break;
        case ceclFloat64: kernel = sum_kernel<ceclFloat64>(nsrc); break;
        default: break;
        }
    return kernel ? kernel : cecl_reduce_any_kernel(type, op);
}
