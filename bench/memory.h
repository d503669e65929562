/* Memory of several kinds, for --memory: where a collective's buffers may lie. */
#ifndef CECL_BENCH_MEMORY_H
#define CECL_BENCH_MEMORY_H

#include "bench.h"

/* A kind of memory. take returns false after a message. */
struct memory_kind {
    const char *name;
    const char *what; /* for --help */
    bool (*take)(const struct run *run, size_t bytes, void **ptr);
    void (*give)(const struct run *run, size_t bytes, void *ptr);
};

/* memory_cuda.c or memory_absent.c: what there is besides memory of ceclMemAlloc. */
enum { MEMORY_MALLOC, MEMORY_PIECES, MEMORY_PRIVATE, MEMORY_KINDS };
extern const struct memory_kind memory_on_gpus[MEMORY_KINDS];
/* memory.c: the same kinds for ranks on the host device. */
extern const struct memory_kind memory_on_host[MEMORY_KINDS];

static inline const struct memory_kind *memory_of(const struct run *run, int kind)
{
    return run->cuda ? &memory_on_gpus[kind] : &memory_on_host[kind];
}

/* The kind with this name, of `length` characters; -1: there is none. */
int memory_named(const char *name, size_t length);

/* A side that calls cecl with buffers of this kind. */
struct side side_memory_make(const struct run *run, int kind);

/* --first-use: host time of the first call on new memory of each kind, and of later ones. --late:
 * what a rank that comes late costs its peers. Both return false on failure. */
bool extra_first_use(const struct run *run);
bool extra_late(const struct run *run);

#endif
