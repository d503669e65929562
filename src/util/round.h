/* Rounding sizes up to whole units. */
#ifndef CECL_UTIL_ROUND_H
#define CECL_UTIL_ROUND_H

#include <stdint.h>

static inline uint64_t cecl_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

#endif
