/* The kernels of sums.h. Each team of threads takes a token at a time; neighbouring threads take
 * neighbouring vectors of its rows. */
#include "sm/number.cuh"
#include "sm/sums.h"

#define TEAM (CECL_ROW_SUMS_THREADS / CECL_ROW_SUMS_TEAMS)

/* Adds a product to a sum, or begins a sum with the product. */
DEVICE float add(float total, bool any, const float *weight, float x)
{
    const float product = weight ? __fmul_rn(*weight, x) : x;
    return any ? __fadd_rn(total, product) : product;
}

DEVICE const float *weight_at(const cecl_row_sums &s, uint64_t j)
{
    return s.weights ? s.weights + j : nullptr;
}

/* One vector of a token's sum, at byte `at` of the rows. */
template <int type>
DEVICE void sum_vector(const cecl_row_sums &s, uint64_t token, uint64_t row_bytes, uint64_t at)
{
    float total[element<type>::per] = {0};
    bool any = false;
    vector v;
    for (uint64_t j = token * s.each; j < (token + 1) * s.each; j++) {
        float x[element<type>::per];
        if (s.places[j] >= s.nrows)
            continue;
        v = vector_load((const unsigned char *)s.rows + s.places[j] * row_bytes + at);
        element<type>::unpack(v, x);
#pragma unroll
        for (int i = 0; i < element<type>::per; i++)
            total[i] = add(total[i], any, weight_at(s, j), x[i]);
        any = true;
    }
    element<type>::pack(total, v);
    vector_store((unsigned char *)s.sums + token * row_bytes + at, v);
}

/* One element of a token's sum, for rows that do not consist of whole and aligned vectors. */
template <int type> DEVICE void sum_single(const cecl_row_sums &s, uint64_t token, uint64_t i)
{
    typedef typename element<type>::raw raw;
    float total = 0;
    bool any = false;
    for (uint64_t j = token * s.each; j < (token + 1) * s.each; j++) {
        raw x;
        if (s.places[j] >= s.nrows)
            continue;
        single_load((const unsigned char *)s.rows + (s.places[j] * s.count + i) * sizeof(raw), &x);
        total = add(total, any, weight_at(s, j), element<type>::widen(x));
        any = true;
    }
    single_store((unsigned char *)s.sums + (token * s.count + i) * sizeof(raw),
                 element<type>::narrow(total));
}

template <int type> DEVICE void sum_rows(const cecl_row_sums &s)
{
    const uint64_t row_bytes = s.count * sizeof(typename element<type>::raw);
    const bool whole = ((uintptr_t)s.rows | (uintptr_t)s.sums | row_bytes) % 16 == 0;
    const uint32_t first = threadIdx.x % TEAM;
    for (uint64_t token = blockIdx.x * CECL_ROW_SUMS_TEAMS + threadIdx.x / TEAM; token < s.tokens;
         token += gridDim.x * CECL_ROW_SUMS_TEAMS) {
        for (uint64_t i = first; whole && i < row_bytes / 16; i += TEAM)
            sum_vector<type>(s, token, row_bytes, i * 16);
        for (uint64_t i = first; !whole && i < s.count; i += TEAM)
            sum_single<type>(s, token, i);
    }
}

#define KERNEL(name, type) \
    extern "C" __global__ void __launch_bounds__(CECL_ROW_SUMS_THREADS, 1) \
        cecl_row_sums_##name(const __grid_constant__ cecl_row_sums sums) \
    { \
        sum_rows<type>(sums); \
    }
CECL_ROW_SUMS_TYPES(KERNEL)
