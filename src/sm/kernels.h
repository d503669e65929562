/* Loads the embedded kernels onto GPUs, and launches them, by the driver API alone. The host's part of all kernels uses
 * this file. Only builds with CUDA include it. */
#ifndef CECL_SM_KERNELS_H
#define CECL_SM_KERNELS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "sm/images.h"
#include "sm/kernel_names.h"
#include "util/driver.h"

/* The GPU of the calling thread's current context. */
struct cecl_gpu {
    const char *who; /* what the kernels are for, such as "reduction"; for messages */
    const struct cecl_driver *cu;
    CUdevice device; /* below CECL_GPUS_MAX */
};

ceclResult_t cecl_gpu_attribute(const struct cecl_gpu *gpu, CUdevice_attribute which, int *value);

/* Where the kernels of one purpose, `who` (such as "reduction"), are loaded. For each GPU, `loaded` is 1 + the id of
 * the context in which they are loaded, or 0. `loaded` is atomic, so launches need no lock. A kernel's handle serves
 * all contexts, but each context loads the kernel at its first use. So a context that replaces a destroyed one must
 * load the kernels again. */
struct cecl_gpus {
    const char *who;
    ceclResult_t (*load)(const struct cecl_gpu *gpu);
    _Atomic unsigned long long loaded[CECL_GPUS_MAX];
};

/* Calls `load`, unless the kernels are loaded in the current context. Only one thread of the process is in `load` at a
 * time. */
ceclResult_t cecl_gpus_prepare(struct cecl_gpus *gpus);
/* Finds the current GPU, for a launch. Calls `load` if no context of this GPU has had the kernels yet. */
ceclResult_t cecl_gpus_current(struct cecl_gpus *gpus, struct cecl_gpu *gpu);

/* Finds a kernel and loads it into the current context. To be called by `load`.
 *
 * shared  bytes of dynamic shared memory that a launch may ask for
 * kernel [out] a kernel of the library, which lives as long as the process */
ceclResult_t cecl_kernel_load(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                              const char *name, int shared, CUkernel *kernel);

struct cecl_launch {
    CUkernel kernel;
    uint32_t blocks, threads, shared;
};

/* Enqueues a kernel on `stream` of the current context. `arguments` has an address for each parameter. */
ceclResult_t cecl_kernel_launch(const struct cecl_gpu *gpu, const struct cecl_launch *launch,
                                ceclStream_t stream, void **arguments);

/* A kernel that waits for peers takes at most 1 / CECL_GPU_WAITING_SHARE of a GPU's SMs. Ranks that wait in kernels of
 * several communicators may wait for each other, so these kernels must fit on the GPU at the same time. */
#define CECL_GPU_WAITING_SHARE 4u

static inline uint32_t cecl_gpu_waiting_sms(uint32_t sms)
{
    return sms < CECL_GPU_WAITING_SHARE ? 1 : sms / CECL_GPU_WAITING_SHARE;
}

/* -- kernel_table.c: the kernels of one kind for all types and operations of reductions, on one GPU -- */

struct cecl_kernel_table {
    /* NULL: this type and operation use the kernel of another pair */
    CUkernel kernel[CECL_KERNEL_TYPES][CECL_NUM_RED_OPS];
};

/* Loads kernels named PREFIX_TYPE_OP, as cecl_kernel_load does. */
ceclResult_t cecl_kernel_table_load(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                                    const char *prefix, int shared,
                                    struct cecl_kernel_table *table);

/* Loads kernels named PREFIX_counted_TYPE. Entries of types without such a kernel stay as they are. */
ceclResult_t cecl_kernels_counted_load(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                                       const char *prefix, int shared,
                                       CUkernel kernels[CECL_KERNEL_TYPES]);

/* The kernel of a pair that has passed cecl_reduction_check. `type` is from cecl_kernel_type. */
CUkernel cecl_kernel_table_at(const struct cecl_kernel_table *table, int type, ceclRedOp_t op);

#endif
