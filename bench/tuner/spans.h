/* Finds the sizes at which one library is faster than another. */
#ifndef CECL_BENCH_SPANS_H
#define CECL_BENCH_SPANS_H

#include "split.h"

struct span {
    uint64_t least, most; /* bytes, both measured */
};

/* Finds the spans: neighbouring points at which us[1] is at least 2 % less than us[0]. The points are in the order of
 * size. Returns the number of spans, at most (count + 1) / 2. */
int spans_of(const struct point *points, int count, struct span *spans);

#endif
