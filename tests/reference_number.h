/* A reference for small floating-point formats: the list of their values, made with ldexp, and rounding by a search for
 * the nearest value. It does not use src/sm. */
#ifndef CECL_TEST_REFERENCE_NUMBER_H
#define CECL_TEST_REFERENCE_NUMBER_H

#include <math.h>
#include <stdint.h>

enum format { FP16, BF16, E4M3, E5M2, NFORMATS };

static const struct {
    const char *name;
    int fraction, bias;
    uint32_t sign;    /* the sign bit; a result that is NaN has the bits sign - 1 */
    uint32_t largest; /* bits of the largest finite value */
    uint32_t beyond;  /* result of an overflow */
} reference[NFORMATS] = {
    {"fp16", 10, 15, 0x8000, 0x7bff, 0x7c00},
    {"bf16", 7, 127, 0x8000, 0x7f7f, 0x7f80},
    {"e4m3", 3, 7, 0x80, 0x7e, 0x7e},
    {"e5m2", 2, 15, 0x80, 0x7b, 0x7c},
};

static double reference_values[NFORMATS]
                              [0x8000]; /* values of patterns without sign; NaN beyond infinity */

/* The value of a pattern without sign, as if the format had no infinity and no NaN. */
static inline double reference_finite(int format, uint32_t bits)
{
    const int fraction = reference[format].fraction;
    const int exponent = (int)(bits >> fraction);
    const double digits = (double)(bits & ((1u << fraction) - 1)) / (1u << fraction);
    return exponent ? ldexp(1 + digits, exponent - reference[format].bias)
                    : ldexp(digits, 1 - reference[format].bias);
}

static inline void reference_start(void)
{
    for (int f = 0; f < NFORMATS; f++)
        for (uint32_t bits = 0; bits < reference[f].sign; bits++)
            reference_values[f][bits] = bits <= reference[f].largest  ? reference_finite(f, bits)
                                        : bits == reference[f].beyond ? INFINITY
                                                                      : (double)NAN;
}

static inline double reference_value(int format, uint32_t bits)
{
    const double value = reference_values[format][bits & (reference[format].sign - 1)];
    return bits & reference[format].sign ? -value : value;
}

/* The next larger value than that of `bits`; for the largest value, the one that would follow it. */
static inline double reference_next(int format, uint32_t bits)
{
    return reference_finite(format, bits + 1);
}

static inline uint32_t reference_narrow(int format, float value)
{
    const double magnitude = fabs((double)value);
    const uint32_t sign = signbit(value) ? reference[format].sign : 0;
    if (isnan(value))
        return reference[format].sign - 1;
    uint32_t low = 0, high = reference[format].largest; /* the result is in [low, high] */
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        if (reference_values[format][middle] <= magnitude)
            low = middle;
        else
            high = middle - 1;
    }
    const double up = reference_next(format, low) - magnitude;
    const double down = magnitude - reference_values[format][low];
    if (down < up || (down == up && low % 2 == 0))
        return sign | low;
    return sign | (low == reference[format].largest ? reference[format].beyond : low + 1);
}

#endif
