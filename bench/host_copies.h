/* The bulk "calls" of cecl_perf --bulk copies: copies to the host and from it, at the same time. */
#ifndef BENCH_HOST_COPIES_H
#define BENCH_HOST_COPIES_H

#include "bench.h"

/* Makes a side whose calls copy a block to pinned memory of the host, and another block from there. False without a
 * GPU. */
bool side_host_copies_make(struct side *side);

#endif
