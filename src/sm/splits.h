/* Calls by splits on the device: only the device knows how many rows each rank sends. Kernels exchange these numbers,
 * and move the rows.
 *
 * This file knows pointers and rank numbers, but no communicator. Every rank has one block for each rank, or one for
 * each expert of each rank. A block is some rows of equal size; a split is a block's number of rows. Splits lie in
 * memory of the device. A call has two steps:
 *
 *     tell | this rank's splits, and where its recvbuff lies -> its line in every rank's table
 *     (all ranks meet)
 *     move | reads the own table: where each block belongs | my blocks -> the recvbuffs of all
 *          | splits and places of the received blocks -> `out`
 *     (all ranks meet)
 *
 * No kernel waits (streams meet around them), so a rank's kernels need not run at the same time as its peers' kernels.
 *
 * Blocks lie in recvbuff one after another, in one of two orders:
 *
 *     out     expert 0: of rank 0, of rank 1, ... | expert 1: of rank 0, ...
 *             Each expert begins at a multiple of `align` rows. If `align` is more than 1, an expert
 *             without rows takes the room of `align` rows.
 *     back    of rank 0: expert 0, expert 1, ... | of rank 1: expert 0, ...
 *
 * The splits that the caller gives (the input) are in the other order. With one expert on each rank, both orders are
 * the order of ranks.
 *
 * The tables of all ranks are equal, so ranks agree on what fits. Rows for which a recvbuff has no room are not sent,
 * and rows beyond sendbuff are not read. In both cases every rank tells its host.
 *
 * Each line has a seal: a hash of the call's number, of its sizes and of the line. No rank moves rows by a line with a
 * wrong seal. A seal is wrong if the communicator failed before a peer's line had come, or if a rank made the call with
 * other sizes. */
#ifndef CECL_SM_SPLITS_H
#define CECL_SM_SPLITS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_SPLITS_RANKS_MAX 16
#define CECL_SPLITS_BLOCKS_MAX 512       /* ranks times experts */
#define CECL_SPLITS_ROWS_MAX 0x7fffffffu /* rows of a buffer */

/* What is equal on all ranks. */
struct cecl_splits_form {
    uint32_t nranks;               /* 1 .. CECL_SPLITS_RANKS_MAX */
    uint32_t experts;              /* experts on each rank */
    bool back;                     /* received blocks lie in the order `back` */
    uint32_t align;                /* rows, >= 1; 1 for `back` */
    uint64_t send_rows, recv_rows; /* how many rows the buffers have */
    uint64_t row_bytes;
    /* bytes of each row of a second array, whose rows go the same way; 0: there is no second
     * array */
    uint64_t scale_bytes;
};

/* A block in its sender's sendbuff: how many rows it has, and the first row. */
struct cecl_splits_block {
    uint32_t rows, at;
} __attribute__((aligned(8))); /* a thread of a GPU writes it in one store */

/* A rank's line in a table. It tells where the rank's recvbuff and its second array for received rows lie, where its
 * blocks lie in its sendbuff, which of them is the first that ends beyond sendbuff, and which call the line is from.
 * Block `to * experts + expert` goes to rank `to`. */
struct cecl_splits_line {
    uint64_t recv_offset, scales_offset; /* bytes from the start of the rank's slice */
    uint64_t beyond; /* 1 + the number of the first block that ends beyond sendbuff; 0: none */
    uint64_t seal;   /* see cecl_splits_seal */
    /* after it: [nranks * experts] blocks; see cecl_splits_blocks */
};

/* Functions that the host and kernels share. */
#ifdef __CUDACC__
#define CECL_SPLITS_BOTH static __host__ __device__ inline
#else
#define CECL_SPLITS_BOTH static inline
#endif

CECL_SPLITS_BOTH const struct cecl_splits_block *
cecl_splits_blocks(const struct cecl_splits_line *line)
{
    return (const struct cecl_splits_block *)(line + 1);
}
CECL_SPLITS_BOTH uint64_t cecl_splits_line_bytes(uint32_t nranks, uint32_t experts)
{
    return sizeof(struct cecl_splits_line) +
           (uint64_t)nranks * experts * sizeof(struct cecl_splits_block);
}
static inline uint64_t cecl_splits_table_bytes(uint32_t nranks, uint32_t experts)
{
    return nranks * cecl_splits_line_bytes(nranks, experts);
}

/* Words that the host reads. `what` is written last. */
enum cecl_splits_trouble_kind {
    CECL_SPLITS_FINE,
    CECL_SPLITS_SEND, /* a block of a rank ends beyond its sendbuff */
    CECL_SPLITS_RECV, /* a recvbuff has no room for all of its blocks */
    CECL_SPLITS_OTHER /* the line of a rank is from another call; `rank` alone is set */
};
struct cecl_splits_trouble {
    uint32_t what; /* enum cecl_splits_trouble_kind */
    uint32_t rank; /* whose buffer is too small; OTHER: whose line is from another call */
    uint32_t to;   /* SEND: the receiver of the first block that does not fit */
    /* the expert of the first block that does not fit; how many experts each rank has */
    uint32_t expert, experts;
    uint32_t rows; /* RECV: rows that the rank would receive, CECL_SPLITS_ROWS_MAX + 1 at most */
    uint32_t room; /* rows of the buffer */
};
#define CECL_SPLITS_TROUBLE_WORDS (sizeof(struct cecl_splits_trouble) / sizeof(uint32_t))

enum cecl_splits_step { CECL_SPLITS_TELL, CECL_SPLITS_MOVE };

struct cecl_splits {
    uint32_t step; /* enum cecl_splits_step */
    uint32_t rank;
    struct cecl_splits_form form;
    uint32_t shape; /* a hash of what must be equal on all ranks */
    /* a word on this rank's device, 0 at first: in how many calls this rank has told its splits. A graph runs a call
     * repeatedly, so only the device can count. */
    uint32_t *number;
    const void *rows, *scales; /* sendbuff, and the second array */
    const uint64_t *splits; /* [nranks * experts] rows of each block, in the order of the input */
    /* [nranks * experts] the row at which each block begins in sendbuff; NULL: blocks lie one after another */
    const uint64_t *offsets;
    /* [2][nranks * experts] written: rows of each received block, and where it begins in recvbuff,
     * in rows; both in the order of the received blocks */
    uint64_t *out;
    /* where rank 0's slice begins; a rank's slice holds its recvbuff and its table */
    unsigned char *slices;
    uint64_t slice;        /* bytes from one rank's slice to the next */
    uint64_t table_offset; /* bytes from a slice's start; a multiple of 8 */
    uint64_t recv_offset,
        scales_offset; /* TELL: offsets of recvbuff and its second array in the slice */
    /* a word on this rank's device; once it is not 0, a kernel that begins does nothing */
    const uint32_t *end;
    struct cecl_splits_trouble *trouble;
    uint32_t max_sms; /* CUDA: the most SMs to use; 0: CECL_SPLITS_SMS */
};
#define CECL_SPLITS_SMS 16u

/* splits.c: pure functions on tables */

/* Refuses shapes out of range, with ceclInvalidArgument. */
ceclResult_t cecl_splits_check(const struct cecl_splits_form *form);

/* The number of the block that lies at index `at` of the input's order: to * experts + expert. */
CECL_SPLITS_BOTH uint32_t cecl_splits_input(const struct cecl_splits_form *form, uint32_t at)
{
    return form->back ? at % form->nranks * form->experts + at / form->nranks : at;
}

/* Sets *from and *expert to the sender and the expert of the block at index `at` of the received
 * order. */
CECL_SPLITS_BOTH void cecl_splits_received(const struct cecl_splits_form *form, uint32_t at,
                                           uint32_t *from, uint32_t *expert)
{
    const uint32_t minors = form->back ? form->experts : form->nranks;
    *from = form->back ? at / minors : at % minors;
    *expert = form->back ? at % minors : at / minors;
}

CECL_SPLITS_BOTH const struct cecl_splits_line *
cecl_splits_line_at(const struct cecl_splits_form *form, const void *table, uint32_t rank)
{
    const uint64_t apart = cecl_splits_line_bytes(form->nranks, form->experts);
    return (const struct cecl_splits_line *)((const unsigned char *)table + rank * apart);
}

/* Finds where the blocks for rank `to` lie in that rank's recvbuff. Blocks are cut off where recvbuff ends. Returns
 * the rows that the rank would receive if there were room, CECL_SPLITS_ROWS_MAX + 1 at most.
 * rows, places  [out, nranks * experts] each block's number of rows and first row, in the order of received blocks
 * first         [out] the index of the first block that does not fit; untouched if all fit */
uint64_t cecl_splits_place(const struct cecl_splits_form *form, const void *table, uint32_t to,
                           uint64_t *rows, uint64_t *places, uint32_t *first);

/* Whether `bytes` bytes from `offset` on lie in a slice. Ranks check this, because they do not trust a peer's
 * line. */
CECL_SPLITS_BOTH bool cecl_splits_lies(const struct cecl_splits *call, uint64_t offset,
                                       uint64_t bytes)
{
    return bytes <= call->slice && offset <= call->slice - bytes;
}

CECL_SPLITS_BOTH uint64_t cecl_splits_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 32);
}

/* The seal of rank `rank`'s line in call number `number`. It covers the line's other words, so it is valid only once
 * all of them have arrived, in whatever order. It does not cover the blocks: whatever these say, rows stay within the
 * recvbuffs of the call. */
CECL_SPLITS_BOTH uint64_t cecl_splits_seal(const struct cecl_splits *call, uint32_t rank,
                                           uint32_t number, const struct cecl_splits_line *line)
{
    uint64_t hash = cecl_splits_mix(rank, (uint64_t)call->shape << 32 | number);
    hash = cecl_splits_mix(hash, line->recv_offset);
    hash = cecl_splits_mix(hash, line->scales_offset);
    return cecl_splits_mix(hash, line->beyond);
}

/* How many of a block's rows lie in sendbuff. No step reads rows beyond sendbuff, whatever a line says. */
CECL_SPLITS_BOTH uint64_t cecl_splits_here(const struct cecl_splits_form *form, uint64_t at,
                                           uint64_t rows)
{
    const uint64_t left = at < form->send_rows ? form->send_rows - at : 0;
    return rows < left ? rows : left;
}

/* The trouble that all ranks find in a table. It names the lowest rank that sends beyond its
 * sendbuff or, if there is none, the lowest rank whose recvbuff has too little room. */
struct cecl_splits_trouble cecl_splits_judge(const struct cecl_splits_form *form,
                                             const void *table);

/* Makes this rank's line for call number `number` from its splits. Rows beyond sendbuff are left out of the
 * line. */
void cecl_splits_line_make(const struct cecl_splits *call, uint32_t number,
                           struct cecl_splits_line *line);

void cecl_splits_host(const struct cecl_splits *call);

/* Loads the kernels onto the calling thread's current GPU: see cecl_reduce_cuda_prepare. */
ceclResult_t cecl_splits_cuda_prepare(void);
/* Enqueues a step on `stream` of the calling thread's current GPU. */
ceclResult_t cecl_splits_cuda(ceclStream_t stream, const struct cecl_splits *call);

#ifdef __cplusplus
}
#endif
/* -- what the kernels of splits.cu and the code that launches them share -- */

#define CECL_SPLITS_THREADS 512
#define CECL_SPLITS_CHUNK 8192u   /* bytes that a warp copies at a time */
#define CECL_SPLITS_SHARED 45648u /* shared memory of a thread block that moves rows, in bytes */

#endif
