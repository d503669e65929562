/* Shared by the kernels of reductions: the operations, the last step of an element's reduction, and
 * the elements that do not fill a vector. */
#ifndef CECL_SM_REDUCE_CUH
#define CECL_SM_REDUCE_CUH

#include "sm/kernel_names.h"
#include "sm/meeting.cuh"
#include "sm/number.cuh"
#include "sm/reduce_args.h"

/* ---- elements whose results are fp32 */

template <int type> struct widening_element : element<type> {
    static INLINE float narrow(float x)
    {
        return element<ceclFloat32>::narrow(x);
    }
};

template <> struct element<CECL_TO_FLOAT32(ceclFloat16)> : widening_element<ceclFloat16> {
};
template <> struct element<CECL_TO_FLOAT32(ceclBfloat16)> : widening_element<ceclBfloat16> {
};

/* How many vectors the results of one vector of elements fill. */
template <int type> DEVICE constexpr int result_vectors(void)
{
    return sizeof(element<type>::narrow(0)) / sizeof(typename element<type>::raw);
}

template <int type> struct results {
    vector v[result_vectors<type>()];
};

/* ---- a op x. The compiler does not fuse these intrinsics with other operations. */

template <int op> DEVICE float combine(float a, float x)
{
    float r;
    if (op == ceclSum)
        return __fadd_rn(a, x);
    if (op == ceclProd)
        return __fmul_rn(a, x);
    if (op ==
        ceclMax) /* both instructions return NaN if an operand is NaN, and order -0 before +0 */
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(x));
    else
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(x));
    return r;
}

/* An integer made from the bits of `value`; such integers are ordered as the values are. */
DEVICE long long key_f64(double value)
{
    const long long bits = __double_as_longlong(value);
    return bits ^ (bits >> 63 & 0x7fffffffffffffffll);
}

template <int op> DEVICE double combine(double a, double x)
{
    if (op == ceclSum)
        return __dadd_rn(a, x);
    if (op == ceclProd)
        return __dmul_rn(a, x);
    const bool other = op == ceclMax ? key_f64(x) > key_f64(a) : key_f64(x) < key_f64(a);
    return a != a ? a : (x != x || other) ? x : a;
}

/* Sums and products are only instantiated for unsigned types. */
template <int op, typename Integer> DEVICE Integer combine(Integer a, Integer x)
{
    if (op == ceclSum)
        return a + x;
    if (op == ceclProd)
        return a * x;
    return op == ceclMax ? (x > a ? x : a) : (x < a ? x : a);
}

DEVICE float quotient(float a, float by)
{
    return __fdiv_rn(a, by);
}

DEVICE double quotient(double a, double by)
{
    return __ddiv_rn(a, by);
}

/* ---- sums and averages have the same kernels, which scale and divide only if the call is an average. scale_first and
 * divide take `n` elements, and test this once for all of them. */

template <int op, typename Acc> DEVICE constexpr bool averages(void)
{
    return op == ceclSum && Acc(0.5) != 0; /* not an integer */
}

template <int op, int n, typename Acc> DEVICE void scale_first(Acc a[n], const cecl_average &by)
{
    if constexpr (averages<op, Acc>())
        if (by.scale != 1)
#pragma unroll
            for (int i = 0; i < n; i++)
                a[i] = combine<ceclProd>(a[i], (Acc)by.scale);
}

/* a op x; in an average x is scaled first. For fp16, bf16 and fp8 the product is exact in fp32, so the multiplication
 * may be fused with the addition, and the scale costs no time. */
template <int type, int op, typename Acc>
DEVICE Acc combine_scaled(Acc a, Acc x, const cecl_average &by)
{
    if constexpr (!averages<op, Acc>())
        return combine<op>(a, x);
    else if constexpr (type == ceclFloat32 || type == ceclFloat64)
        return combine<ceclSum>(a, combine<ceclProd>(x, (Acc)by.scale));
    else
        return __fmaf_rn(x, by.scale, a);
}

template <int op, int n, typename Acc> DEVICE void divide(Acc a[n], const cecl_average &by)
{
    if constexpr (averages<op, Acc>())
        if (by.divisor != 1)
#pragma unroll
            for (int i = 0; i < n; i++)
                a[i] = quotient(a[i], (Acc)by.divisor);
}

/* ---- vectors */

template <int type, int op>
DEVICE void vector_begin(typename element<type>::acc acc[element<type>::per], const vector &v,
                         const cecl_average &by)
{
    element<type>::unpack(v, acc);
    scale_first<op, element<type>::per>(acc, by);
}

template <int type, int op>
DEVICE void vector_combine(typename element<type>::acc acc[element<type>::per], const vector &v,
                           const cecl_average &by)
{
    typedef element<type> E;
    typename E::acc x[E::per];
    E::unpack(v, x);
#pragma unroll
    for (int i = 0; i < E::per; i++)
        acc[i] = combine_scaled<type, op>(acc[i], x[i], by);
}

template <int type, int op>
DEVICE results<type> vector_end(typename element<type>::acc acc[element<type>::per],
                                const cecl_average &by)
{
    typedef element<type> E;
    results<type> out;
    divide<op, E::per>(acc, by);
    if constexpr (result_vectors<type>() == 1)
        E::pack(acc, out.v[0]);
    else
#pragma unroll
        for (int i = 0; i < result_vectors<type>(); i++)
            element<ceclFloat32>::pack(acc + i * element<ceclFloat32>::per, out.v[i]);
    return out;
}

/* Stores a vector of results at dst and at all other destinations. */
DEVICE void result_store(const cecl_reduce_args &args, uint64_t index, const vector &result)
{
    vector_store(args.dst + index * 16, result);
    for (uint32_t k = 0; k < args.nalso; k++)
        vector_store(args.also[k] + index * 16, result);
}

/* Stores the results of the vector with this index. */
template <int type>
DEVICE void results_store(const cecl_reduce_args &args, uint64_t index, const results<type> &out)
{
#pragma unroll
    for (int i = 0; i < result_vectors<type>(); i++)
        result_store(args, index * result_vectors<type>() + i, out.v[i]);
}

DEVICE bool reduce_has_end(const cecl_reduce_args &args)
{
    return args.nalso > 0 || meets_last(args.meeting);
}

/* Ends the kernel, if reduce_has_end is true. What each block wrote at peers must be visible before the last block
 * signals the peers, and also before the kernel ends, because a copied flag after the kernel may signal them. */
template <bool counted> DEVICE void reduce_end(const cecl_reduce_args &args)
{
    if (args.nalso > 0)
        __threadfence_system();
    if (meets_last(args.meeting))
        meet_last<counted>(args.meeting, args.counting);
}

/* ---- elements of head and tail. Neighbouring threads take neighbouring elements. A thread loads up to `strides`
 * elements of a source before it uses the first, so that many loads are in flight. All threads of the grid call this in
 * the wide kernel, all readers in the bulk kernel, where head and tail have fewer elements than a warp has threads. */

template <int type, int op, int strides> DEVICE void reduce_singles(const cecl_reduce_args &args)
{
    typedef element<type> E;
    typedef typename E::raw raw;
    const int together = strides == 1 ? 1 : 4;
    const uint64_t all = args.head + args.tail;
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (uint64_t first = thread; first < all; first += strides * stride) {
        typename E::acc acc[strides];
        int64_t at[strides]; /* bytes from where the body begins in a source */
#pragma unroll
        for (int k = 0; k < strides; k++) {
            const uint64_t i = first + k * stride;
            const int64_t place = i < args.head ? (int64_t)i - (int64_t)args.head
                                                : (int64_t)(args.vectors * E::per + i - args.head);
            at[k] = place * (int64_t)sizeof(raw);
        }
        for (uint32_t s = 0; s < args.nsrc; s += together) {
            raw x[together][strides];
#pragma unroll
            for (int j = 0; j < together; j++)
#pragma unroll
                for (int k = 0; k < strides; k++)
                    if (s + j < args.nsrc && first + k * stride < all)
                        single_load(args.src[s + j] + at[k], &x[j][k]);
#pragma unroll
            for (int j = 0; j < together; j++)
#pragma unroll
                for (int k = 0; k < strides; k++)
                    if (s + j == 0) {
                        acc[k] = E::widen(x[j][k]);
                        scale_first<op, 1>(&acc[k], args.average);
                    } else if (s + j < args.nsrc)
                        acc[k] = combine_scaled<type, op>(acc[k], E::widen(x[j][k]), args.average);
        }
        divide<op, strides>(acc, args.average);
#pragma unroll
        for (int k = 0; k < strides; k++)
            if (first + k * stride < all) {
                const auto value = E::narrow(acc[k]);
                const int64_t to = at[k] * result_vectors<type>();
                single_store(args.dst + to, value);
                for (uint32_t a = 0; a < args.nalso; a++)
                    single_store(args.also[a] + to, value);
            }
    }
}

#endif
