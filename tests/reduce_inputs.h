/* Inputs for tests of reductions, as bits of elements: a mix of numbers near 1, random bits, and special values. */
#ifndef CECL_TEST_REDUCE_INPUTS_H
#define CECL_TEST_REDUCE_INPUTS_H

#include <stdint.h>
#include <string.h>

#include "sm/reduce.h"

/* Indexed by ceclDataType_t. `fraction` and `exponent` are in bits, 0 for integers. e4m3 has no infinity. */
static const struct {
    const char *name;
    unsigned bytes, fraction, exponent;
} formats[CECL_NUM_TYPES] = {
    {"int8", 1, 0, 0},   {"uint8", 1, 0, 0},  {"int32", 4, 0, 0}, {"uint32", 4, 0, 0},
    {"int64", 8, 0, 0},  {"uint64", 8, 0, 0}, {"fp16", 2, 10, 5}, {"fp32", 4, 23, 8},
    {"fp64", 8, 52, 11}, {"bf16", 2, 7, 8},   {"e4m3", 1, 3, 4},  {"e5m2", 1, 2, 5},
};
static const char *const op_names[CECL_NUM_RED_OPS] = {"sum", "prod", "max", "min", "avg"};

static inline uint64_t random_bits(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed * 0x2545f4914f6cdd1du;
}

static inline uint64_t random_element(ceclDataType_t type, uint64_t *seed)
{
    const unsigned f = formats[type].fraction, e = formats[type].exponent;
    const uint64_t any = random_bits(seed), sign = (any >> 20 & 1) << (f + e);
    const uint64_t infinity = ((1ull << e) - 1) << f, one = (infinity >> 1) & infinity;
    if (f == 0 || any % 8 < 3)
        return random_bits(seed);
    if (any % 8 < 7) { /* 1/8 .. 16 */
        const uint64_t fraction = random_bits(seed) & ((1ull << f) - 1);
        return sign | (one + (((any >> 24) % 7) << f) - (3ull << f)) | fraction;
    }
    switch (any >> 8 & 7) {
    case 0: return sign | infinity;                                           /* e4m3: 256 */
    case 1: return sign | infinity | (random_bits(seed) & ((1ull << f) - 1)); /* mostly NaN */
    case 2: return sign | 1;                                                  /* smallest */
    case 3: return sign | (infinity - 1);                                     /* largest */
    case 4: return sign | (random_bits(seed) & ((1ull << f) - 1));            /* subnormal */
    default: return sign;                                                     /* 0 */
    }
}

/* Fills `count` elements at any address. */
static inline void random_fill(void *at, ceclDataType_t type, uint64_t count, uint64_t *seed)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t element = random_element(type, seed);
        memcpy((char *)at + i * formats[type].bytes, &element, formats[type].bytes);
    }
}

/* Elements of a floating-point type, from half of the largest number up to the largest; every eighth is the largest.
 * (e4m3: 128 to 240.) Signs alternate, and are the same in all buffers, so the sum of two buffers overflows. */
static inline void large_fill(void *at, ceclDataType_t type, uint64_t count, uint64_t *seed)
{
    const unsigned f = formats[type].fraction, e = formats[type].exponent;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t infinity = ((1ull << e) - 1) << f, sign = (i & 1) << (f + e);
        const uint64_t less = i % 8 ? random_bits(seed) & ((1ull << f) - 1) : 0;
        const uint64_t element = sign | (infinity - 1 - less);
        memcpy((char *)at + i * formats[type].bytes, &element, formats[type].bytes);
    }
}

/* Whether all exponent bits are set: in all types but e4m3, that is an infinity or a NaN. */
static inline int not_finite(ceclDataType_t type, uint64_t bits)
{
    const uint64_t infinity = ((1ull << formats[type].exponent) - 1) << formats[type].fraction;
    return (bits & infinity) == infinity;
}

#endif
