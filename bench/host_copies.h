/* The bulk "calls" of cecl_perf --bulk copies: copies to and from the host at the same time. */
#ifndef BENCH_HOST_COPIES_H
#define BENCH_HOST_COPIES_H

#include "bench.h"

/* A side whose calls copy a block to pinned memory of the host and another one from there. Returns
 * false where there is no GPU. */
bool side_host_copies_make(struct side *side);

#endif
