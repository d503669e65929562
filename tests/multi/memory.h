/* Memory of all kinds that a rank may pass to a collective, for tests. On GPUs it comes from the
 * CUDA driver, which is found at run time. */
#ifndef CECL_TEST_MEMORY_H
#define CECL_TEST_MEMORY_H

#include "multi.h"

/* Whether tests use private memory. */
#define MEMORY_WITH_PRIVATE 1

enum memory_kind {
    MEMORY_POOL,   /* of ceclMemAlloc */
    MEMORY_SHARED, /* peers can open it: cudaMalloc; on the host device a memfd, mapped shared */
    /* Several handles behind one range of addresses (cuMemMap). On the host device as SHARED. */
    MEMORY_PIECES,
    MEMORY_PRIVATE, /* peers cannot open it: cudaMallocAsync; on the host device malloc */
    MEMORY_KINDS
};

struct memory {
    enum memory_kind kind;
    unsigned char *at;
    size_t bytes; /* what was asked for, or more */
    size_t seam;  /* where the second piece begins; 0: there are no pieces */
    int fd;       /* the file of a shared mapping; otherwise -1 */
    bool mapped;  /* host device: it is a mapping */
};

/* Allocates memory, or fails the test. Contents are undefined. Collective for MEMORY_POOL: equal
 * bytes in the same order. Other kinds are local. */
struct memory memory_new(ceclComm_t comm, enum memory_kind kind, size_t bytes);

/* Frees memory, and allocates as much of `kind`: at the same address on the host device, and on a GPU
 * if the driver gives it again. Not for MEMORY_POOL. */
void memory_renew(ceclComm_t comm, struct memory *memory, enum memory_kind kind);

/* No work may use the memory any more. Zeroed memory may be freed. */
void memory_free(ceclComm_t comm, struct memory *memory);

/* Pieces of memory that peers can open, which a test maps into addresses by itself: cuMemMap on GPUs; on
 * the host device a piece is a memfd. A call fails the test, or does what it is for. */
struct memory_pieces {
    size_t (*granule)(ceclComm_t comm); /* all sizes are multiples of it */
    unsigned char *(*reserve)(ceclComm_t comm, size_t bytes);
    void (*unreserve)(ceclComm_t comm, unsigned char *at,
                      size_t bytes); /* nothing is mapped there */
    uint64_t (*make)(ceclComm_t comm, size_t bytes);
    void (*free)(ceclComm_t comm, uint64_t piece); /* it lives on where it is mapped */
    void (*map)(ceclComm_t comm, unsigned char *at, uint64_t piece, size_t bytes);
    void (*unmap)(ceclComm_t comm, unsigned char *at, size_t bytes);
};
const struct memory_pieces *memory_pieces(ceclComm_t comm);

/* MiB in use on the GPU for which memory was allocated before, by whomever; 0 without a GPU. */
int memory_gpu_mib(void);

/* The kind to use where a test would take `kind`. */
static inline enum memory_kind memory_kind(int kind)
{
    return kind == MEMORY_PRIVATE && !MEMORY_WITH_PRIVATE ? MEMORY_SHARED : (enum memory_kind)kind;
}

#endif
