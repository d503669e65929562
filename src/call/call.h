/* What a call is: one collective, as one rank was asked for it.
 *
 * A description is made once, from the arguments of the public function (describe.h), and everything
 * else is derived from it: the buffers it touches, the key under which its plan is kept, what ranks
 * must agree on, its name in a trace, its result. It does not change once it is made, and it is
 * canonical: what a call does not have is 0, so calls with equal arguments have equal bytes. How the call is
 * carried out is no part of it: see way.h. */
#ifndef CECL_CALL_CALL_H
#define CECL_CALL_CALL_H

#include "alloc/window.h"
#include "call/op.h"

#define CECL_MAX_RANKS 1024

/* The shape of strided blocks, in bytes and equal on all ranks: a block is `rows` rows of `width`,
 * one pitch apart, and blocks are one stride apart. */
struct cecl_shape {
    uint64_t width; /* 0: blocks are contiguous, and nothing else here counts */
    uint64_t rows;
    uint64_t send_pitch, send_stride; /* the stride: where each rank is sent a block of its own */
    uint64_t recv_pitch, recv_stride;
};

/* How the blocks of a call lie in its buffers: dense, one behind the other in rank order; strided; or
 * where a layout says. */
struct cecl_view {
    struct cecl_shape shape;
    /* [layout_words] NULL: no layout. Alike on all ranks: [nranks] sizes, [nranks] offsets in recvbuff.
     * Known to each rank alone (op->per_rank), [nranks] words each: bytes for a rank, where they lie in
     * sendbuff, where they belong in that rank's recvbuff; bytes from a rank, and where they belong in
     * this rank's recvbuff. */
    const uint64_t *layout;
};

/* What the caller chose for a call, equal on all ranks. */
struct cecl_options {
    uint8_t sm_policy; /* ceclSmPolicy_t */
    uint8_t direction; /* ceclDirection_t */
    uint16_t max_sms;  /* for any kernel; 0: by measurement */
};

struct cecl_call {
    const struct cecl_op *op;
    struct cecl_buffer send; /* none in place (unless op->per_rank), and where nothing is sent */
    struct cecl_buffer recv; /* an in-place reduce-scatter's is its sendbuff */
    uint64_t count;          /* elements, as the caller gave them */
    uint64_t bytes;          /* the largest block that goes from one rank to another */
    int32_t rank, nranks;
    int32_t root; /* 0 where the op has none */
    uint8_t type; /* ceclDataType_t */
    uint8_t red_op;
    uint8_t element; /* bytes */
    bool in_place;
    struct cecl_options options;
    uint32_t layout_words;
    struct cecl_view view;
};
#define CECL_CALL_KEY_BYTES offsetof(struct cecl_call, view.layout)
_Static_assert(sizeof(struct cecl_call) == CECL_CALL_KEY_BYTES + sizeof(uint64_t *) &&
                   offsetof(struct cecl_call, view) == 3 * 8 + 4 * 8 + 6 * 4,
               "a description is compared by its bytes: it has no gaps");

/* A block that goes from one rank to another. Offsets are into the sender's input (in place: its
 * recvbuff) and the receiver's recvbuff. Bytes of a strided block count as if it were dense. */
struct cecl_block {
    uint64_t bytes, send_offset, recv_offset;
};

/* The block from rank `from` to rank `to`; none where this rank does not know of it. A reducing call
 * delivers to `to` the reduction of its blocks from all ranks. */
static inline struct cecl_block cecl_call_block(const struct cecl_call *call, int from, int to)
{
    return call->op->block(call, from, to);
}

/* Where byte `at` of a block lies, counted from the block's first; `pitch`: of its rows. */
static inline uint64_t cecl_offset_within(const struct cecl_call *call, uint64_t pitch, uint64_t at)
{
    const uint64_t width = call->view.shape.width;
    return width ? at / width * pitch + at % width : at;
}
/* Bytes from the first of `rows` rows to the end of the last. */
static inline uint64_t cecl_rows_extent(uint64_t bytes, uint64_t rows, uint64_t pitch)
{
    return (rows - 1) * pitch + bytes;
}

/* Bytes of an element; 0 for what is no type. */
static inline uint32_t cecl_type_bytes(ceclDataType_t type)
{
    return cecl_reduction_element_bytes(type);
}

/* A call that moves nothing, and is no meeting of ranks either. Alike on all ranks. */
static inline bool cecl_call_is_empty(const struct cecl_call *call)
{
    return call->bytes == 0 && !call->op->always;
}

/* Words of a layout, where the call has one. */
static inline uint32_t cecl_layout_words(const struct cecl_op *op, int nranks)
{
    return (op->per_rank ? 5u : 2u) * (uint32_t)nranks;
}
#define CECL_LAYOUT_WORDS_MAX(nranks) (5u * (uint32_t)(nranks))

/* The only rank that contributes anything to a call that sends one block to all, or -1. */
int cecl_only_contributor(const struct cecl_call *call);

/* -- key.c: descriptions as keys; nranks and all else counts -- */
uint64_t cecl_call_hash(uint64_t seed, const struct cecl_call *call);
bool cecl_call_equal(const struct cecl_call *a, const struct cecl_call *b);
/* Copies a description, its layout to `layout` [call->layout_words]. */
void cecl_call_keep(struct cecl_call *kept, const struct cecl_call *call, uint64_t *layout);

/* -- touched.c: which memory a call uses on this rank -- */
struct cecl_touched {
    struct cecl_buffer buffer;
    uint64_t low, high;    /* bytes of it, low < high */
    uint64_t width, pitch; /* `width` bytes of every `pitch` from `low` on; pitch 0: all of them */
    bool written;
};
/* Sendbuff and recvbuff, as far as the call uses them; how many. */
int cecl_call_touched(const struct cecl_call *call, struct cecl_touched touched[2]);
/* Bytes of sendbuff and recvbuff up to the last that is used, for people: traces. */
void cecl_call_sizes(const struct cecl_call *call, uint64_t *send_bytes, uint64_t *recv_bytes);
/* Bytes of recvbuff (from its start on) that the call needs on every rank, written here or not. */
uint64_t cecl_call_recv_needed(const struct cecl_call *call);
/* Refuses buffers of other devices, past the end of their allocations, or partly overlapping. */
ceclResult_t cecl_call_check_buffers(const struct cecl_call *call, const struct cecl_pool *pool);
/* apart.c: refuses calls of a group that share memory which one of them writes. */
ceclResult_t cecl_calls_check_apart(const struct cecl_call *calls, uint32_t count,
                                    const struct cecl_pool *pool);

#endif
