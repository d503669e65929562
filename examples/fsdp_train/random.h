/* Random numbers that are functions of their index. Any rank and any device can compute any of
 * them, so neither the parameters nor the order of the data depend on the number of ranks. */
#ifndef CECL_FSDP_RANDOM_H
#define CECL_FSDP_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

ON_BOTH static inline uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Where sample `index` of the whole training begins in the text. `index` counts the samples of all
 * ranks: step * global batch + position in the global batch. */
ON_BOTH static inline size_t sample_start(uint64_t seed, uint64_t index, size_t text_bytes,
                                          int sequence)
{
    return (size_t)(scramble(scramble(seed) + index) % (text_bytes - (size_t)sequence));
}

#endif
