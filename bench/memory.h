/* Memory of several kinds: for --memory, --first-use and --late. */
#ifndef CECL_BENCH_MEMORY_H
#define CECL_BENCH_MEMORY_H

#include "bench.h"
#include "kinds.h"

/* The first kind that --memory may name, and that --first-use measures. */
#define MEMORY_NAMED (MEMORY_POOL + 1)

static inline const struct memory_kind *memory_of(const struct run *run, int kind)
{
    return run->cuda ? &memory_on_gpus[kind] : &memory_on_host[kind];
}

/* Takes memory for a rank of `comm`. Returns false after a message. */
bool memory_take(const struct run *run, ceclComm_t comm, int kind, size_t bytes, void **ptr);

/* Looks for this name of `length` characters among the kinds from MEMORY_NAMED on; -1: no kind has
 * it. */
int memory_named(const char *name, size_t length);

/* --first-use: host time of the first call on new memory of each kind, and of later ones. --late:
 * what a rank that comes late costs its peers. Both return false on failure. */
bool extra_first_use(const struct run *run);
bool extra_late(const struct run *run);

#endif
