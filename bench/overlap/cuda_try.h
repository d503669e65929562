/* Reports CUDA's errors in functions that then return false. */
#ifndef CECL_OVERLAP_CUDA_TRY_H
#define CECL_OVERLAP_CUDA_TRY_H

#include <cuda_runtime_api.h>

#include "overlap.h"

#define CUDA_TRY(run, expr) \
    do { \
        const cudaError_t cuda_error_ = (expr); \
        if (cuda_error_ != cudaSuccess) \
            return complain((run), #expr, cudaGetErrorString(cuda_error_)); \
    } while (0)

#endif
