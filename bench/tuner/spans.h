/* Finds the sizes at which one library is faster than another. */
#ifndef CECL_BENCH_SPANS_H
#define CECL_BENCH_SPANS_H

#include "split.h"

struct span {
    uint64_t least, most; /* bytes, both measured */
};

/* The sizes at which us[1] is less than us[0] by 2 % at least; neighbours are one span. The points are in
 * order of size. Returns how many spans there are, at most (count + 1) / 2. */
int spans_of(const struct point *points, int count, struct span *spans);

#endif
