/* Ranges that NVIDIA's profilers show. A library built without CUDA has none. */
#ifndef CECL_DEVICE_NVTX_H
#define CECL_DEVICE_NVTX_H

#include <stdbool.h>

bool cecl_nvtx_open(void); /* Whether ranges can be shown. Call it before the first push. */
/* The next two functions begin and end a range of the calling thread. Ranges nest. `name` must stay valid. */
void cecl_nvtx_push(const char *name);
void cecl_nvtx_pop(void);

/* Begins a range that ends with the block, if ranges can be shown. It shows time on the host, because an event on a
 * stream would change what is measured. */
#define CECL_NVTX_RANGE(has_ranges, name) \
    __attribute__((cleanup(cecl_nvtx_end), unused)) const bool cecl_range_ = \
        cecl_nvtx_begin(has_ranges, name)
static inline bool cecl_nvtx_begin(bool has_ranges, const char *name)
{
    if (has_ranges)
        cecl_nvtx_push(name);
    return has_ranges;
}

static inline void cecl_nvtx_end(const bool *has_ranges)
{
    if (*has_ranges)
        cecl_nvtx_pop();
}

#endif
