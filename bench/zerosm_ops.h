/* The operations of cecl_zerosm's cases: their blocks, and how they are called. */
#ifndef CECL_ZEROSM_OPS_H
#define CECL_ZEROSM_OPS_H

#include "zerosm.h"

#define ZEROSM_ROOT 1 /* the root of broadcast, gather and scatter */

/* One operation: the case's own, or one of its group. Each uses a part of the buffers. */
struct zerosm_part {
    enum zerosm_op op;
    bool in_place;
    int gpus;
    size_t bytes; /* of the largest block */
    size_t at;    /* where its part begins in both buffers; it has gpus * bytes bytes */
};
/* Lists the operations of a case, at most ZEROSM_PARTS. */
#define ZEROSM_PARTS 9
int zerosm_parts(const struct zerosm_case *c, int gpus, struct zerosm_part *parts);

/* The block that goes from one rank to another: its bytes, and where it begins in the sender's input and in the
 * receiver's part of recvbuff. */
struct zerosm_block {
    size_t bytes, sent_at, wanted_at;
    size_t width, sent_pitch, wanted_pitch; /* rows of `width` bytes; width 0: one row */
};
static inline size_t zerosm_width(const struct zerosm_block *block)
{
    return block->width > 0 ? block->width : block->bytes;
}
static inline size_t zerosm_rows(const struct zerosm_block *block)
{
    return block->bytes > 0 ? block->bytes / zerosm_width(block) : 0;
}
struct zerosm_block zerosm_block(const struct zerosm_part *p, int from, int to);

/* Bytes of rank g's input. */
size_t zerosm_input_bytes(const struct zerosm_part *p, int g);
/* Whether the input lies in recvbuff, and where it begins in its buffer. */
bool zerosm_input_is_recv(const struct zerosm_part *p, int g);
size_t zerosm_input_at(const struct zerosm_part *p, int g);

/* Makes the call of rank g, with the whole buffers. */
ceclResult_t zerosm_call(const struct zerosm_part *p, int g, unsigned char *send,
                         unsigned char *recv, ceclComm_t comm, ceclStream_t stream);

#endif
