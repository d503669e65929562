/* Inside small collectives: what the GPU's kernels and the host's function agree upon. Plain C, for
 * both. */
#ifndef CECL_SM_SMALL_ARGS_H
#define CECL_SM_SMALL_ARGS_H

#include "sm/reduce_args.h"
#include "sm/small.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_SMALL_WARPS 7                               /* of a block, that move data; */
#define CECL_SMALL_THREADS (32 * (CECL_SMALL_WARPS + 1)) /* and one more */

/* A slot is made of rows of lines: of 16 bytes, one of each thread of a warp. A warp's threads have
 * three vectors of 16 bytes each (vectors of a block go around among them), and so four rows. A group
 * is what a warp moves at once: 32 shares, 1536 bytes of a block, in 4 rows. */
#define CECL_SMALL_SHARES 32
#define CECL_SMALL_ROW (CECL_SMALL_SHARES * 16)
#define CECL_SMALL_VECTORS 3
#define CECL_SMALL_LINES 4
#define CECL_SMALL_GROUP_BYTES (CECL_SMALL_SHARES * CECL_SMALL_VECTORS * 16)

/* A line that a call does not use may be renewed by it: the line's epoch becomes the call's epoch with
 * this bit turned over, half a cycle away from all epochs that come soon. */
#define CECL_SMALL_FAR 0x80000000u

/* Slots are not larger: places within them are numbers of 32 bits. */
#define CECL_SMALL_SLOT_MAX ((uint64_t)1 << 30)

struct cecl_small_args {
    const unsigned char *send;
    unsigned char *recv;
    uint32_t bytes;       /* of a block */
    uint32_t send_stride; /* from the block for a rank to that for the next: 0, they are one */
    /* Of this call: its slot at each peer, that of rank + 1 first; here, rank 0's, and bytes from it
     * to the next rank's. */
    unsigned char *to[CECL_SMALL_RANKS_MAX - 1];
    const unsigned char *from;
    uint64_t slot;
    /* A row here that gets an epoch that is far away, but for the lines that have data of this call:
     * those of threads whose vectors begin with this one, if the block has it. */
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

/* small.c: for a call that cecl_small_check has passed. */
void cecl_small_args_make(const struct cecl_small *small, struct cecl_small_args *args);
/* Whether the call is an all-reduce or a reduce-scatter. */
bool cecl_small_reduces(const struct cecl_small *small);

/* To be launched with one argument, a struct cecl_small_args. */
const void *cecl_small_reduce_kernel(ceclDataType_t type, ceclRedOp_t op);
const void *cecl_small_move_kernel(void);

#ifdef __cplusplus
}
#endif
#endif
