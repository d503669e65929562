/* What the host's part of small calls and their kernels agree upon. Plain C, for both. */
#ifndef CECL_SM_SMALL_ARGS_H
#define CECL_SM_SMALL_ARGS_H

#include "sm/reduce_args.h"
#include "sm/small.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_SMALL_WARPS 7                               /* warps of a block that move data */
#define CECL_SMALL_THREADS (32 * (CECL_SMALL_WARPS + 1)) /* and one warp more for `tell` */

/* A slot is made of rows of 512 bytes: one line of 16 bytes for each thread of a warp. Each thread
 * of a warp has three vectors of 16 bytes, which fill four lines, so a warp fills four rows.
 * Neighbouring threads take neighbouring vectors of a block. */
#define CECL_SMALL_ROW 512
#define CECL_SMALL_VECTORS 3
#define CECL_SMALL_LINES 4

/* Slots are not larger, because offsets within them are 32-bit numbers. */
#define CECL_SMALL_SLOT_MAX ((uint64_t)1 << 30)

struct cecl_small_args {
    const unsigned char *send;
    unsigned char *recv;
    uint32_t bytes; /* bytes of a block */
    /* bytes from one rank's block to the next rank's; 0: one block goes to all ranks */
    uint32_t send_stride;
    /* The slots of this call. `to`: this rank's slot at each peer, beginning with rank + 1. `from`:
     * rank 0's slot here. `slot`: bytes from one rank's slot to the next rank's. */
    unsigned char *to[CECL_SMALL_RANKS_MAX - 1];
    const unsigned char *from;
    uint64_t slot;
    /* A row here that gets a far-away epoch, except in lines that hold data of this call. Those are
     * the lines of threads for which the block has the vector `renewed_vector` + thread. */
    unsigned char *renewed;
    uint32_t renewed_vector;
    uint32_t rank, nranks;
    uint32_t epoch;
    const uint32_t *end;
    uint32_t *late;
    uint64_t timeout_ns;
    struct cecl_meeting meeting;
    struct cecl_division division;
};

/* The kernels. Each is launched with one argument, a struct cecl_small_args. */
const void *cecl_small_reduce_kernel(ceclDataType_t type, ceclRedOp_t op);
const void *cecl_small_move_kernel(void);

#ifdef __cplusplus
}
#endif
#endif
