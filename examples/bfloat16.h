/* Elements of type bfloat16: the upper half of a float. */
#ifndef CECL_EXAMPLES_BFLOAT16_H
#define CECL_EXAMPLES_BFLOAT16_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define ON_DEVICES __host__ __device__ static inline
#else
#define ON_DEVICES static inline
#endif

/* Rounds a finite float to nearest even, as cecl's reductions do. */
ON_DEVICES uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

ON_DEVICES float widen(uint16_t element)
{
    const uint32_t bits = (uint32_t)element << 16;
    float wide;
    memcpy(&wide, &bits, sizeof(wide));
    return wide;
}

#endif
