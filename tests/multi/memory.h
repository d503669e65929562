/* All kinds of memory that a rank may pass to a collective. On GPUs the CUDA driver, loaded at run time, makes it. */
#ifndef CECL_TEST_MEMORY_H
#define CECL_TEST_MEMORY_H

#include "multi.h"
#include <sys/mman.h>

enum memory_kind {
    MEMORY_POOL,   /* from ceclMemAlloc */
    MEMORY_SHARED, /* peers can open it: cudaMalloc; on the host device a memfd, mapped shared */
    /* Several handles in one range of addresses (cuMemMap); on the host device the same as SHARED. */
    MEMORY_PIECES,
    MEMORY_PRIVATE, /* peers cannot open it: cudaMallocAsync; on the host device malloc */
    MEMORY_KINDS
};

struct memory {
    enum memory_kind kind;
    unsigned char *at;
    size_t bytes; /* the requested size or more */
    size_t seam;  /* where the second piece begins; 0: one piece only */
    int fd;       /* file of a shared mapping; otherwise -1 */
    bool mapped;  /* on the host device: the memory is a mapping */
};

/* Allocates memory, or fails the test. Contents are undefined. MEMORY_POOL is collective: all ranks allocate equal
 * bytes in the same order. Other kinds are local. */
struct memory memory_new(ceclComm_t comm, enum memory_kind kind, size_t bytes);

/* Frees memory, and allocates the same size of `kind`. The address stays the same on the host device, and on a GPU if
 * the driver returns it again. Not for MEMORY_POOL. */
void memory_renew(ceclComm_t comm, struct memory *memory, enum memory_kind kind);

/* Frees memory that no work uses; no effect if zeroed. A failed communicator keeps its pool memory until it ends. */
void memory_free(ceclComm_t comm, struct memory *memory);

/* For the host device. host_file: a file of zeros, for a shared mapping. host_reserve: addresses without memory. host_map:
 * maps memory at `at`, for reading and writing. host_unmap: ends the mapping, but keeps the addresses reserved. */
int host_file(size_t bytes);
unsigned char *host_reserve(size_t bytes);
void host_map(void *at, size_t bytes, int flags, int fd, size_t offset);
void host_unmap(void *at, size_t bytes);

/* Pieces of memory that peers can open, and that a test maps to addresses by itself: cuMemMap on GPUs, a memfd on the
 * host device. A call that fails fails the test. */
struct memory_pieces {
    size_t (*granule)(ceclComm_t comm); /* all sizes are multiples of this */
    unsigned char *(*reserve)(ceclComm_t comm, size_t bytes);
    void (*unreserve)(ceclComm_t comm, unsigned char *at,
                      size_t bytes); /* frees what `reserve` returned: addresses without memory */
    uint64_t (*make)(ceclComm_t comm, size_t bytes);
    void (*free)(ceclComm_t comm, uint64_t piece); /* memory that is mapped stays */
    void (*map)(ceclComm_t comm, unsigned char *at, uint64_t piece, size_t bytes);
    void (*unmap)(ceclComm_t comm, unsigned char *at, size_t bytes);
};
const struct memory_pieces *memory_pieces(ceclComm_t comm);

/* MiB in use, by all processes, on the GPU of the latest allocation; 0 without a GPU. */
int memory_gpu_mib(void);

#endif
