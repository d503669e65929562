/* Random data for calls: a byte is a hash of its place. */
#ifndef CECL_TESTS_WORLD_BYTES_H
#define CECL_TESTS_WORLD_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Byte `index` of the input of rank `rank` under `seed`. */
static inline unsigned char model_byte(uint64_t seed, int rank, size_t index)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1b54a32d192ed03u + index / 8;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (unsigned char)(x >> (8 * (index % 8)));
}

static inline void model_fill(unsigned char *out, uint64_t seed, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = model_byte(seed, rank, i);
}

#endif
