/* The arguments of a small call, for the kernels and for the host's function. Plain C. */
#ifndef CECL_SM_SMALL_ARGS_H
#define CECL_SM_SMALL_ARGS_H

#include "sm/reduce_args.h"
#include "sm/small.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_SMALL_WARPS 7                               /* warps of a block that move data */
#define CECL_SMALL_THREADS (32 * (CECL_SMALL_WARPS + 1)) /* one warp more, for `tell` */

/* A slot is made of rows of 512 bytes: one line of 16 bytes for each thread of a warp. A share is what a thread moves
 * at a time: three vectors of 16 bytes, which fill four lines. Neighbouring threads take neighbouring vectors of a
 * block. A group is what a warp moves at a time: 32 shares, which are 1536 bytes of a block, in 4 rows. */
#define CECL_SMALL_SHARES 32
#define CECL_SMALL_ROW (CECL_SMALL_SHARES * 16)
#define CECL_SMALL_VECTORS 3
#define CECL_SMALL_LINES 4
#define CECL_SMALL_GROUP_BYTES (CECL_SMALL_SHARES * CECL_SMALL_VECTORS * 16)

/* A call renews a line that it does not use by writing its own epoch, with this bit flipped, into the line. That value
 * is 2^31 calls away from the current epoch. */
#define CECL_SMALL_FAR 0x80000000u

/* The most bytes of a slot, because offsets within slots are 32-bit numbers. */
#define CECL_SMALL_SLOT_MAX ((uint64_t)1 << 30)

struct cecl_small_args {
    const unsigned char *send;
    unsigned char *recv;
    uint32_t bytes; /* bytes of a block */
    /* bytes from one rank's block to the next rank's; 0: one block goes to all ranks */
    uint32_t send_stride;
    /* The slots of this call. `to` has this rank's slot at each peer, beginning with rank + 1; `from` is rank 0's slot
     * here; `slot` is the bytes from one rank's slot to the next rank's. */
    unsigned char *to[CECL_SMALL_RANKS_MAX - 1];
    const unsigned char *from;
    uint64_t slot;
    /* The row of this rank's slots that the call renews, except lines that hold data of this call. The line of thread t
     * holds such data if the block has vector `renewed_vector` + t. In a captured call `renewed` is the first row of
     * the slots, and the kernel finds the row to renew. */
    unsigned char *renewed;
    uint32_t renewed_vector;
    uint32_t rank, nranks;
    uint32_t epoch;
    uint32_t mark; /* a line holds epoch ^ mark; 0 unless the call is captured (cecl_small_mark) */
    const uint32_t *end;
    uint32_t *late;
    uint64_t timeout_ns;
    struct cecl_meeting meeting;
    struct cecl_average average;
    /* In a captured call `to` and `from` are the slots of half 0, and half 1 begins `half` bytes later. */
    uint64_t half;
    struct cecl_counting counting; /* for captured calls; in others `count` is NULL */
};

/* small.c. Fills in `args` for a call that has passed cecl_small_check. */
void cecl_small_args_make(const struct cecl_small *small, struct cecl_small_args *args);
/* A captured call's number, shifted to the upper bits of an epoch. It distinguishes the call's lines from lines of
 * other calls with the same epoch. The lower bits are left to the epoch. They distinguish all epochs that lines hold at
 * a time, because no line is left unchanged for more than twice as many calls as a half has rows. The highest bit is
 * left to CECL_SMALL_FAR. */
uint32_t cecl_small_mark(const struct cecl_small *small);
/* Whether the call is an all-reduce or a reduce-scatter. */
bool cecl_small_reduces(const struct cecl_small *small);

#ifdef __cplusplus
}
#endif
#endif
