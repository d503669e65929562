/* The embedded kernels: for each source file an image for each kind of GPU. Only builds with CUDA include this file. */
#ifndef CECL_SM_IMAGES_H
#define CECL_SM_IMAGES_H

#include <stddef.h>

/* X(source file without .cu) */
#define CECL_KERNEL_FILES(X) \
    X(small) \
    X(reduce_wide) \
    X(reduce_bulk) \
    X(splits) \
    X(sums)
#define CECL_KERNEL_FILE(file) CECL_KERNELS_##file,
enum cecl_kernel_file { CECL_KERNEL_FILES(CECL_KERNEL_FILE) CECL_KERNELS_COUNT };
#undef CECL_KERNEL_FILE

struct cecl_image {
    enum cecl_kernel_file file;
    int capability; /* 90 is compute capability 9.0 */
    /* 1: PTX, for GPUs of this capability or a later one; 0: a cubin, for those of the same major version */
    int is_ptx;
    const void *data;
};
extern const struct cecl_image cecl_images[];
extern const size_t cecl_images_count;

/* Finds the image for a GPU of this capability: the cubin of the highest capability that the GPU can run or, if it can
 * run no cubin, the PTX of the highest; NULL if there is neither. */
const struct cecl_image *cecl_image_for(enum cecl_kernel_file file, int capability);

#endif
