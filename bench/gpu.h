/* How the programs use GPUs: by the driver's functions, without the CUDA runtime. */
#ifndef CECL_BENCH_GPU_H
#define CECL_BENCH_GPU_H

#include "util/driver.h"

/* X(function, version of its signature): the driver's functions that only these programs use */
#define GPU_FUNCTIONS(X) \
    X(cuMemAlloc, 3020) \
    X(cuMemFree, 3020) \
    X(cuMemAllocAsync, 11020) \
    X(cuMemFreeAsync, 11020) \
    X(cuEventElapsedTime, 2000) \
    X(cuEventQuery, 2000) \
    X(cuEventSynchronize, 2000)

struct gpu {
    const struct cecl_driver *cu; /* NULL if there is no usable driver */
    const char *why;              /* the reason, if `cu` is NULL */
#define GPU_FIELD(function, version) PFN_##function##_v##version function;
    GPU_FUNCTIONS(GPU_FIELD)
#undef GPU_FIELD
};

const struct gpu *gpu_get(void);

/* CUDA's words for a result. */
const char *gpu_words(CUresult result);

#endif
