/* The real NCCL: the library to which calls are passed on. */
#ifndef CECL_NCCL_REAL_H
#define CECL_NCCL_REAL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

struct cecl_nccl_real {
    void *handle;         /* NULL: none is open */
    uintptr_t begin, end; /* the addresses of its code in this process */
    int version;          /* as ncclGetVersion gives it */
    char path[PATH_MAX];
};

/* Finds the real NCCL (util/find_nccl.h) and opens it. */
ceclResult_t cecl_nccl_real_open(struct cecl_nccl_real *real);

/* Finds another NCCL library, besides `real`, that this process has loaded. Returns false if there is
 * none. */
bool cecl_nccl_real_other(const struct cecl_nccl_real *real, char path[PATH_MAX]);

/* Whether code at `address` is the real NCCL's own. */
static inline bool cecl_nccl_real_has(const struct cecl_nccl_real *real, const void *address)
{
    return (uintptr_t)address - real->begin < real->end - real->begin;
}

#endif
