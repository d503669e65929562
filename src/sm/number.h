/* Conversions between small floating-point formats and fp32. Widening is exact; narrowing rounds to
 * nearest even.
 *
 *            exponent  fraction  bias  largest  infinity  NaN
 *     fp16       5        10      15    65504     yes     as in IEEE 754
 *     bf16       8         7     127   3.39e38    yes     as in IEEE 754
 *     e5m2       5         2      15    57344     yes     as in IEEE 754
 *     e4m3       4         3       7      448      no     0x7f and 0xff alone
 *
 * Plain C. Compilers can turn every branch of it into a selection, so that loops become vector code. GPUs without
 * instructions for fp8 run the same code. */
#ifndef CECL_SM_NUMBER_H
#define CECL_SM_NUMBER_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define CECL_NUMBER static __host__ __device__ __forceinline__
#else
#define CECL_NUMBER static inline
#endif

/* The bits of every NaN result. */
#define CECL_NAN_F64 0x7fffffffffffffffull
#define CECL_NAN_F32 0x7fffffffu
#define CECL_NAN_16 0x7fffu /* fp16 and bf16 */
#define CECL_NAN_F8 0x7fu   /* e4m3 and e5m2 */

#define CECL_INFINITY_F32 0x7f800000u

CECL_NUMBER float number_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

CECL_NUMBER uint32_t number_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Widens the finite number `magnitude` of a format with `fraction` bits and `bias` to the bits of an fp32. A subnormal
 * number has no implicit leading 1: it is widened as if it had one, and an exact subtraction then removes the 1. No
 * subnormal fp32 arises, so flushing subnormals changes nothing. */
CECL_NUMBER uint32_t number_widen(uint32_t magnitude, unsigned fraction, unsigned bias)
{
    const uint32_t shifted = magnitude << (23 - fraction);
    const uint32_t least = (127 - bias + 1) << 23; /* the smallest normal number */
    const uint32_t normal = shifted + ((127 - bias) << 23);
    const uint32_t subnormal =
        number_bits(number_from_bits(shifted + least) - number_from_bits(least));
    return magnitude >> fraction ? normal : subnormal;
}

/* Rounds the bits of an fp32, without sign and not a NaN, to a format with `fraction` bits and `bias`. Numbers too
 * large become `largest`. If the result is subnormal in the format, an addition does the rounding: it adds a number
 * whose last bit has the weight of the format's last bit. */
CECL_NUMBER uint32_t number_narrow(uint32_t magnitude, unsigned fraction, unsigned bias,
                                   uint32_t largest)
{
    const unsigned shift = 23 - fraction;
    const uint32_t half = (1u << (shift - 1)) - 1 + ((magnitude >> shift) & 1);
    const uint32_t normal = (magnitude + half - ((127 - bias) << 23)) >> shift;
    const uint32_t adder = (127 + 24 - bias - fraction) << 23;
    const uint32_t subnormal =
        number_bits(number_from_bits(magnitude) + number_from_bits(adder)) - adder;
    const uint32_t rounded = magnitude < ((127 - bias + 1) << 23) ? subnormal : normal;
    return rounded < largest ? rounded : largest;
}

/* ---- fp16 */

CECL_NUMBER float number_from_f16(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    const uint32_t special = CECL_INFINITY_F32 | magnitude << 13;
    return number_from_bits(sign |
                            (magnitude >= 0x7c00u ? special : number_widen(magnitude, 10, 15)));
}

CECL_NUMBER uint16_t number_to_f16(float value)
{
    const uint32_t bits = number_bits(value), magnitude = bits & 0x7fffffffu;
    const uint32_t finite = (bits >> 16 & 0x8000u) | number_narrow(magnitude, 10, 15, 0x7c00u);
    return (uint16_t)(magnitude > CECL_INFINITY_F32 ? CECL_NAN_16 : finite);
}

/* ---- bf16: the upper half of an fp32 */

CECL_NUMBER float number_from_bf16(uint16_t bits)
{
    return number_from_bits((uint32_t)bits << 16);
}

CECL_NUMBER uint16_t number_to_bf16(float value)
{
    const uint32_t bits = number_bits(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > CECL_INFINITY_F32 ? CECL_NAN_16 : rounded);
}

/* ---- fp8 e5m2: the upper half of an fp16 */

CECL_NUMBER float number_from_e5m2(uint8_t bits)
{
    return number_from_f16((uint16_t)(bits << 8));
}

CECL_NUMBER uint8_t number_to_e5m2(float value)
{
    const uint32_t bits = number_bits(value), magnitude = bits & 0x7fffffffu;
    const uint32_t finite = (bits >> 24 & 0x80u) | number_narrow(magnitude, 2, 15, 0x7cu);
    return (uint8_t)(magnitude > CECL_INFINITY_F32 ? CECL_NAN_F8 : finite);
}

/* ---- fp8 e4m3 */

CECL_NUMBER float number_from_e4m3(uint8_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    return number_from_bits(
        sign | (magnitude == CECL_NAN_F8 ? CECL_NAN_F32 : number_widen(magnitude, 3, 7)));
}

/* Saturates: infinity also becomes 448 (0x7e). */
CECL_NUMBER uint8_t number_to_e4m3(float value)
{
    const uint32_t bits = number_bits(value), magnitude = bits & 0x7fffffffu;
    const uint32_t finite = (bits >> 24 & 0x80u) | number_narrow(magnitude, 3, 7, 0x7eu);
    return (uint8_t)(magnitude > CECL_INFINITY_F32 ? CECL_NAN_F8 : finite);
}

#endif
