/* Finds a threshold between two ways. */
#ifndef CECL_BENCH_SPLIT_H
#define CECL_BENCH_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

/* Both ways at one size. */
struct point {
    uint64_t bytes;
    double us[2]; /* of the way below the threshold, and of the way above it */
};

/* Returns the value that loses the least time over all points, which are in the order of size. A way that is at most
 * 2 % slower loses nothing. Of values that lose equally, the one nearest to `current` is taken. Sizes beyond the last
 * point change their way only if the other way wins at the last point. With is_min a size equal to the value goes the
 * second way, as larger sizes do; otherwise it goes the first way. With the value `least` all go the second way. */
uint64_t split_value(const struct point *points, int count, bool is_min, uint64_t current,
                     uint64_t least);

#endif
