/* Ranges that NVIDIA's profilers show. A library built without CUDA has none. */
#ifndef CECL_DEVICE_NVTX_H
#define CECL_DEVICE_NVTX_H

#include <stdbool.h>

bool cecl_nvtx_open(void); /* Whether ranges can be shown. Call it before the first push. */
/* Ranges of the calling thread; they nest. */
void cecl_nvtx_push(const char *name);
void cecl_nvtx_pop(void);

#endif
