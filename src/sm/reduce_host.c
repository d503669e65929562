/* Reductions on the host, in blocks that stay in the cache. A block of the first source is widened
 * to the type in which it is accumulated. The blocks of the other sources are combined with it one
 * after another, and the result is narrowed. Each step is a loop that compilers turn into vector
 * code.
 *
 * A block of all sources is read before the result's block is written, so dst may be one of the sources. */
#include <stddef.h>

#include "sm/number.h"
#include "sm/reduce_args.h"

#define BLOCK 512 /* elements */

/* A block of accumulators of one type. */
union block {
    int8_t i8[BLOCK];
    uint8_t u8[BLOCK];
    int32_t i32[BLOCK];
    uint32_t u32[BLOCK];
    int64_t i64[BLOCK];
    uint64_t u64[BLOCK];
    float f32[BLOCK];
    double f64[BLOCK];
};

typedef void combine_function(union block *restrict a, const union block *restrict x, size_t n);
typedef void widen_function(union block *restrict a, const unsigned char *restrict src, size_t n);
typedef void narrow_function(unsigned char *restrict dst, const union block *restrict a, size_t n);

/* ---- combining: a = a op x */

#define COMBINE(name, kind, type, expression) \
    static void name##_##kind(union block *restrict acc, const union block *restrict more, \
                              size_t n) \
    { \
        for (size_t i = 0; i < n; i++) { \
            const type a = acc->kind[i], x = more->kind[i]; \
            acc->kind[i] = (expression); \
        } \
    }

/* Sums and products of integers use an unsigned type, in which C defines wrapping around. The type has at least 32
 * bits, because C would promote a narrower one to int. */
#define COMBINE_INTEGERS(kind, type, wide) \
    COMBINE(sum, kind, type, (type)((wide)a + (wide)x)) \
    COMBINE(prod, kind, type, (type)((wide)a * (wide)x)) \
    COMBINE(max, kind, type, x > a ? x : a) \
    COMBINE(min, kind, type, x < a ? x : a)

COMBINE_INTEGERS(i8, int8_t, uint32_t)
COMBINE_INTEGERS(u8, uint8_t, uint32_t)
COMBINE_INTEGERS(i32, int32_t, uint32_t)
COMBINE_INTEGERS(u32, uint32_t, uint32_t)
COMBINE_INTEGERS(i64, int64_t, uint64_t)
COMBINE_INTEGERS(u64, uint64_t, uint64_t)

COMBINE(sum, f32, float, a + x)
COMBINE(prod, f32, float, a *x)
COMBINE(sum, f64, double, a + x)
COMBINE(prod, f64, double, a *x)

static inline uint64_t bits_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline double from_bits_f64(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Turns numbers into integers of the same order, with -0 before +0. (A floating-point comparison takes -0 and +0 as
 * equal.) */
static inline int32_t key_f32(float value)
{
    const uint32_t bits = number_bits(value);
    return (int32_t)(bits ^ (-(bits >> 31) & 0x7fffffffu));
}

static inline int64_t key_f64(double value)
{
    const uint64_t bits = bits_f64(value);
    return (int64_t)(bits ^ (-(bits >> 63) & 0x7fffffffffffffffu));
}

/* Any NaN will do here: narrowing makes all NaNs equal. */
COMBINE(max, f32, float, a != a ? a : (x != x || key_f32(x) > key_f32(a)) ? x : a)
COMBINE(min, f32, float, a != a ? a : (x != x || key_f32(x) < key_f32(a)) ? x : a)
COMBINE(max, f64, double, a != a ? a : (x != x || key_f64(x) > key_f64(a)) ? x : a)
COMBINE(min, f64, double, a != a ? a : (x != x || key_f64(x) < key_f64(a)) ? x : a)

/* ---- widening and narrowing; memory of any alignment */

#define CONVERT(name, kind, type, widen, narrow) \
    static void widen_##name(union block *restrict a, const unsigned char *restrict src, size_t n) \
    { \
        for (size_t i = 0; i < n; i++) { \
            type v; \
            memcpy(&v, src + i * sizeof(v), sizeof(v)); \
            a->kind[i] = widen(v); \
        } \
    } \
    static void narrow_##name(unsigned char *restrict dst, const union block *restrict a, \
                              size_t n) \
    { \
        for (size_t i = 0; i < n; i++) { \
            const type v = narrow(a->kind[i]); \
            memcpy(dst + i * sizeof(v), &v, sizeof(v)); \
        } \
    }

static inline float one_nan_f32(float value)
{
    return value != value ? number_from_bits(CECL_NAN_F32) : value;
}

static inline double one_nan_f64(double value)
{
    return value != value ? from_bits_f64(CECL_NAN_F64) : value;
}

CONVERT(i8, i8, int8_t, , )
CONVERT(u8, u8, uint8_t, , )
CONVERT(i32, i32, int32_t, , )
CONVERT(u32, u32, uint32_t, , )
CONVERT(i64, i64, int64_t, , )
CONVERT(u64, u64, uint64_t, , )
CONVERT(f16, f32, uint16_t, number_from_f16, number_to_f16)
CONVERT(f32, f32, float, , one_nan_f32)
CONVERT(f64, f64, double, , one_nan_f64)
CONVERT(bf16, f32, uint16_t, number_from_bf16, number_to_bf16)
CONVERT(e4m3, f32, uint8_t, number_from_e4m3, number_to_e4m3)
CONVERT(e5m2, f32, uint8_t, number_from_e5m2, number_to_e5m2)

/* ---- the reduction */

#define TYPE(name, kind) \
    { \
        widen_##name, narrow_##name, \
        { \
            sum_##kind, prod_##kind, max_##kind, min_##kind, sum_##kind \
        } \
    }

/* In the order of ceclDataType_t; `combine` in the order of ceclRedOp_t. */
static const struct {
    widen_function *widen;
    narrow_function *narrow;
    combine_function *combine[CECL_NUM_RED_OPS];
} table[CECL_NUM_TYPES] = {
    TYPE(i8, i8),   TYPE(u8, u8),    TYPE(i32, i32),  TYPE(u32, u32),
    TYPE(i64, i64), TYPE(u64, u64),  TYPE(f16, f32),  TYPE(f32, f32),
    TYPE(f64, f64), TYPE(bf16, f32), TYPE(e4m3, f32), TYPE(e5m2, f32),
};

static void scale(union block *a, ceclDataType_t type, float by, size_t n)
{
    if (type == ceclFloat64)
        for (size_t i = 0; i < n; i++)
            a->f64[i] *= (double)by;
    else
        for (size_t i = 0; i < n; i++)
            a->f32[i] *= by;
}

static void divide(union block *a, ceclDataType_t type, float by, size_t n)
{
    if (type == ceclFloat64)
        for (size_t i = 0; i < n; i++)
            a->f64[i] /= (double)by;
    else
        for (size_t i = 0; i < n; i++)
            a->f32[i] /= by;
}

void cecl_reduce_host(const struct cecl_reduction *reduction)
{
    const struct cecl_reduction r = *reduction;
    const uint64_t size = cecl_reduction_element_bytes(r.type),
                   result_size = cecl_reduction_result_bytes(r.widens, size);
    narrow_function *const narrow = r.widens ? narrow_f32 : table[r.type].narrow;
    const struct cecl_average average = cecl_average_of(r.op, r.divisor);
    union block acc, more;

    for (uint64_t first = 0; first < r.count; first += BLOCK) {
        const size_t n = r.count - first < BLOCK ? (size_t)(r.count - first) : BLOCK;
        table[r.type].widen(&acc, (const unsigned char *)r.src[0] + first * size, n);
        if (average.scale != 1)
            scale(&acc, r.type, average.scale, n);
        for (uint32_t s = 1; s < r.nsrc; s++) {
            table[r.type].widen(&more, (const unsigned char *)r.src[s] + first * size, n);
            if (average.scale != 1)
                scale(&more, r.type, average.scale, n);
            table[r.type].combine[r.op](&acc, &more, n);
        }
        if (average.divisor != 1)
            divide(&acc, r.type, average.divisor, n);
        narrow((unsigned char *)r.dst + first * result_size, &acc, n);
    }
}
