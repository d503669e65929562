/* The correct result of a reduction, element by element, in plain loops. Sums and products of integers wrap around.
 * Floats are computed step by step in the type in which they are accumulated, and rounded by reference_number.h. Call
 * reference_start first. */
#ifndef CECL_TEST_REDUCE_REFERENCE_H
#define CECL_TEST_REDUCE_REFERENCE_H

#include <math.h>

#include "reduce_inputs.h"
#include "reference_number.h"

static inline uint64_t read_element(const void *at, unsigned bytes)
{
    uint64_t element = 0;
    memcpy(&element, at, bytes);
    return element;
}

static inline uint64_t integer_step(ceclDataType_t type, ceclRedOp_t op, uint64_t a, uint64_t x)
{
    const unsigned unused = 64 - 8 * formats[type].bytes;
    const int64_t sa = (int64_t)(a << unused) >> unused, sx = (int64_t)(x << unused) >> unused;
    const int is_signed = type == ceclInt8 || type == ceclInt32 || type == ceclInt64;
    const int less = is_signed ? sx < sa : x < a;
    switch (op) {
    case ceclSum: return (a + x) << unused >> unused;
    case ceclProd: return (a * x) << unused >> unused;
    case ceclMax: return less ? a : x;
    default: return less ? x : a;
    }
}

/* Whether x is less than a; -0 is less than 0. */
static inline int before(double x, double a)
{
    return x < a || (x == 0 && a == 0 && signbit(x) && !signbit(a));
}

static inline double float_step(int is_double, ceclRedOp_t op, double a, double x)
{
    volatile float fa = (float)a, fx = (float)x, f = 0; /* each step is rounded to fp32 */
    volatile double d = 0;
    if (op == ceclMax || op == ceclMin) {
        if (isnan(a) || isnan(x))
            return (double)NAN;
        return before(x, a) == (op == ceclMin) ? x : a;
    }
    if (is_double) {
        d = op == ceclProd ? a * x : a + x;
        return d;
    }
    f = op == ceclProd ? fa * fx : fa + fx;
    return (double)f;
}

static inline int small_format(ceclDataType_t type)
{
    return type == ceclFloat16      ? FP16
           : type == ceclBfloat16   ? BF16
           : type == ceclFloat8e4m3 ? E4M3
                                    : E5M2;
}

static inline double float_value(ceclDataType_t type, uint64_t bits)
{
    float f;
    double d;
    const uint32_t low = (uint32_t)bits;
    memcpy(&f, &low, sizeof(f));
    memcpy(&d, &bits, sizeof(d));
    return type == ceclFloat64   ? d
           : type == ceclFloat32 ? (double)f
                                 : reference_value(small_format(type), low);
}

static inline uint64_t float_bits(ceclDataType_t type, double value)
{
    uint64_t bits;
    const float f = (float)value;
    uint32_t low;
    memcpy(&bits, &value, sizeof(bits));
    memcpy(&low, &f, sizeof(low));
    if (type == ceclFloat64)
        return isnan(value) ? 0x7fffffffffffffffu : bits;
    if (type == ceclFloat32)
        return isnan(value) ? 0x7fffffffu : low;
    return reference_narrow(small_format(type), f);
}

/* value / 2^halvings, rounded to the accumulator's type */
static inline double float_halved(int is_double, double value, int halvings)
{
    const double d = ldexp(value, -halvings);
    volatile float f = (float)d;
    return is_double ? d : (double)f;
}

static inline uint64_t expected_element(const struct cecl_reduction *r, uint64_t i)
{
    const unsigned bytes = formats[r->type].bytes;
    uint64_t bits = read_element((const char *)r->src[0] + i * bytes, bytes);
    double value = 0;
    const int is_float = formats[r->type].fraction > 0, is_double = r->type == ceclFloat64;
    int halvings = 0; /* an average halves its elements so often that their sum cannot overflow */
    while (r->op == ceclAvg && 1u << halvings < r->divisor)
        halvings++;
    if (is_float)
        value = float_halved(is_double, float_value(r->type, bits), halvings);
    for (uint32_t s = 1; s < r->nsrc; s++) {
        const uint64_t next = read_element((const char *)r->src[s] + i * bytes, bytes);
        if (is_float)
            value = float_step(is_double, r->op, value,
                               float_halved(is_double, float_value(r->type, next), halvings));
        else
            bits = integer_step(r->type, r->op, bits, next);
    }
    if (!is_float)
        return bits;
    if (r->op == ceclAvg && r->divisor > 1) {
        volatile float f = (float)value;
        const double by = ldexp(r->divisor, -halvings);
        volatile double d = value / by;
        f = f / (float)by;
        value = is_double ? d : (double)f;
    }
    return float_bits(r->widens ? ceclFloat32 : r->type, value);
}

#endif
