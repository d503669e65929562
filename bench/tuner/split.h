/* Where one way becomes better than another. */
#ifndef CECL_BENCH_SPLIT_H
#define CECL_BENCH_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

/* Both ways at one size. */
struct point {
    uint64_t bytes;
    double us[2]; /* of the way below the threshold, and of the way above it */
};

/* The value that loses the least time over all points, which are in order of size. Being at most 2 % slower
 * counts as no loss. Among values that lose equally, the value nearest to `current` is taken.
 * Sizes beyond the last point change their way only if the other way wins at the last point.
 * is_min: the second way begins at the value; otherwise it begins behind the value. `least`: the
 * value with which all sizes go the second way. */
uint64_t split_value(const struct point *points, int count, bool is_min, uint64_t current,
                     uint64_t least);

#endif
