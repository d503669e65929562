/* Memory of several kinds: for --memory, --first-use and --late. */
#ifndef CECL_BENCH_MEMORY_H
#define CECL_BENCH_MEMORY_H

#include "bench.h"
#include "kinds.h"

/* The first kind that --memory may name. --first-use measures the kinds from there on. */
#define MEMORY_NAMED (MEMORY_POOL + 1)

static inline const struct memory_kind *memory_of(const struct run *run, int kind)
{
    return run->cuda ? &memory_on_gpus[kind] : &memory_on_host[kind];
}

/* Takes memory for a rank of `comm`. Returns false after a message. */
bool memory_take(const struct run *run, ceclComm_t comm, int kind, size_t bytes, void **ptr);

/* The kind, from MEMORY_NAMED on, whose name is the first `length` characters of `name`; -1: none. */
int memory_named(const char *name, size_t length);

/* --first-use: host time of the first call on new memory of each kind, and of later calls. --late: what a late rank
 * costs its peers. Both return false on failure. */
bool extra_first_use(const struct run *run);
bool extra_late(const struct run *run);

#endif
