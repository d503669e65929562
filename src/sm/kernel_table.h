/* The kernels of one kind for all types and operations of reductions, on one GPU. Only builds with CUDA
 * include this file. */
#ifndef CECL_SM_KERNEL_TABLE_H
#define CECL_SM_KERNEL_TABLE_H

#include "sm/kernel_names.h"
#include "sm/kernels.h"

struct cecl_kernel_table {
    /* NULL: the pair uses the kernel of another pair */
    CUkernel kernel[CECL_NUM_TYPES][CECL_NUM_RED_OPS];
};

/* Loads kernels named PREFIX_TYPE_OP, as cecl_kernel_load does. */
ceclResult_t cecl_kernel_table_load(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                                    const char *prefix, int shared,
                                    struct cecl_kernel_table *table);

/* Loads kernels named PREFIX_counted_TYPE. Entries of types without such a kernel stay as they are. */
ceclResult_t cecl_kernels_counted_load(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                                       const char *prefix, int shared,
                                       CUkernel kernels[CECL_NUM_TYPES]);

/* The kernel of a pair that has passed cecl_reduction_check. */
CUkernel cecl_kernel_table_at(const struct cecl_kernel_table *table, ceclDataType_t type,
                              ceclRedOp_t op);

#endif
