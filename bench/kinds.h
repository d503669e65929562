/* Kinds of memory in which the programs put the buffers of collectives, as a table. */
#ifndef CECL_BENCH_KINDS_H
#define CECL_BENCH_KINDS_H

#include <cecl/cecl.h>
#include <stddef.h>

/* What did not succeed, and why. `call` is NULL on success. */
struct memory_failure {
    const char *call, *why;
};

struct memory_kind {
    const char *name; /* for options */
    const char *what; /* for people */
    /* Takes memory of the current GPU, for a rank of `comm`. */
    struct memory_failure (*take)(ceclComm_t comm, size_t bytes, void **ptr);
    void (*give)(ceclComm_t comm, size_t bytes, void *ptr);
};

enum { MEMORY_POOL, MEMORY_MALLOC, MEMORY_PIECES, MEMORY_PRIVATE, MEMORY_KINDS };
/* kinds_cuda.c or kinds_absent.c: for ranks on GPUs. kinds_host.c: for ranks on the host device. */
extern const struct memory_kind memory_on_gpus[MEMORY_KINDS], memory_on_host[MEMORY_KINDS];

/* kinds_pool.c: memory of ceclMemAlloc, which is in both tables. */
struct memory_failure memory_take_pool(ceclComm_t comm, size_t bytes, void **ptr);
void memory_give_pool(ceclComm_t comm, size_t bytes, void *ptr);
#define MEMORY_OF_POOL \
    { \
        "pool", "ceclMemAlloc", memory_take_pool, memory_give_pool \
    }

#endif
