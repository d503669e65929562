/* Ranges that NVIDIA's profilers show. Of a library built without CUDA: none. */
#ifndef CECL_DEVICE_NVTX_H
#define CECL_DEVICE_NVTX_H

#include <stdbool.h>

bool cecl_nvtx_open(void); /* whether there can be any; before the first of them */
/* Ranges of the calling thread, one inside the other. */
void cecl_nvtx_push(const char *name);
void cecl_nvtx_pop(void);

#endif
