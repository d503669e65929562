/* Measures with the host's clock, for the host device. */
#ifndef CECL_CLOCK_WALL_H
#define CECL_CLOCK_WALL_H

#include <time.h>

#include "bench.h"

static inline double wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static inline double wall_time(struct side *side, const struct run *run, const void *send,
                               size_t block, int iterations)
{
    const double start = wall_us();
    for (int i = 0; i < iterations; i++)
        if (!side->call(side, run, send, block))
            return -1;
    if (ceclStreamSynchronize(run->comm, run->stream) != ceclSuccess)
        return -1;
    return wall_us() - start;
}

#endif
