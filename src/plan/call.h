/* What a call is: one collective, as one rank describes it.
 *
 * A description is made once, from the arguments of the public function (describe.h). Everything else is
 * derived from it: which memory the call touches, the key under which its plan is kept, what ranks must agree
 * on, its name in profiles, and its result. A description never changes. It is canonical: fields that a call
 * does not use are 0, so calls with equal arguments have equal bytes. How the call is carried out is in
 * way.h. */
#ifndef CECL_PLAN_CALL_H
#define CECL_PLAN_CALL_H

#include "alloc/window.h"
#include "plan/layout.h"

/* The shape of strided blocks, in bytes. Equal on all ranks. A block is `rows` rows of `width` bytes. Rows
 * begin one pitch apart, and blocks begin one stride apart. */
struct cecl_shape {
    uint64_t width; /* 0: blocks are contiguous, and the other fields are 0 */
    uint64_t rows;
    /* send_stride: only for calls that send a different block to each rank */
    uint64_t send_pitch, send_stride;
    uint64_t recv_pitch, recv_stride;
};

/* How the blocks of a call lie in its buffers: dense (one after another in rank order), strided, or at the places of a
 * layout. */
struct cecl_view {
    struct cecl_shape shape;
    const uint64_t *layout; /* [layout_words] NULL: no layout */
};

/* What the caller chose for a call. Equal on all ranks. */
struct cecl_options {
    uint8_t sm_policy; /* ceclSmPolicy_t */
    uint8_t direction; /* ceclDirection_t */
    uint16_t max_sms;  /* most SMs of any kernel; 0: the tuning table decides */
};

struct cecl_call {
    const struct cecl_op *op;
    /* sendbuff; not used if the call has one buffer, or if this rank sends nothing */
    struct cecl_buffer send;
    struct cecl_buffer recv; /* recvbuff; for an in-place reduce-scatter, the caller's sendbuff */
    uint64_t count;          /* number of elements, by the caller's arguments */
    uint64_t bytes;          /* of the largest block; own layout: 0; splits: of all of recvbuff */
    int32_t rank, nranks;
    int32_t root; /* 0 if the op has no root; for a message, the peer */
    uint8_t type; /* ceclDataType_t */
    uint8_t red_op;
    uint8_t element; /* bytes of one element */
    bool in_place;
    struct cecl_options options;
    uint32_t layout_words;
    uint32_t captured; /* 1: a graph captures the call and replays it; else 0. Equal on all ranks */
    struct cecl_view view;
};
#define CECL_CALL_KEY_BYTES offsetof(struct cecl_call, view.layout)
_Static_assert(sizeof(struct cecl_call) == CECL_CALL_KEY_BYTES + sizeof(uint64_t *) &&
                   offsetof(struct cecl_call, view) == 3 * 8 + 4 * 8 + 8 * 4,
               "a description is compared by its bytes: it has no gaps");

/* A block that goes from one rank to another: from `send_offset` in the sender's input, which in place is its recvbuff,
 * to `recv_offset` in the receiver's recvbuff. `bytes` counts a strided block as if it were dense, and in a reduction
 * the input, even if the result is wider. */
struct cecl_block {
    uint64_t bytes, send_offset, recv_offset;
};

/* The block from rank `from` to rank `to`; empty if this rank does not know that block. In a reduction, rank `to`
 * receives the reduction of its blocks from all ranks. */
static inline struct cecl_block cecl_call_block(const struct cecl_call *call, int from, int to)
{
    return call->op->block(call, from, to);
}

/* The distance in memory, in bytes, from a block's first byte to its byte number `at`. `pitch` is that of the block's
 * rows. */
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

/* How many bytes of a result come from `bytes` bytes of a block. */
static inline uint64_t cecl_call_result_bytes(const struct cecl_call *call, uint64_t bytes)
{
    return cecl_reduction_result_bytes(call->op->widens, bytes);
}

/* Bytes of an element; 0 if `type` is no type. */
static inline uint32_t cecl_type_bytes(ceclDataType_t type)
{
    return cecl_reduction_element_bytes(type);
}

/* Whether a call has no bytes, and no effect without bytes (cecl_op_always). Equal on all ranks. */
static inline bool cecl_call_is_empty(const struct cecl_call *call)
{
    return call->bytes == 0 && !cecl_op_always(call->op);
}

/* Whether recvbuff is also the input, so that the call has no sendbuff: all blocks are in place. */
static inline bool cecl_call_is_one_buffer(const struct cecl_call *call)
{
    return call->in_place && !cecl_op_has_both_buffers(call->op);
}

/* How many blocks a rank's input has: one for each rank, or only one. */
static inline uint64_t cecl_call_input_blocks(const struct cecl_call *call)
{
    return call->op->to == CECL_TO_EACH ? (uint64_t)call->nranks : 1;
}

/* Whether the call is in place and must be in place on all ranks. Only an all-to-all must, because it takes other steps
 * in place than out of place. (A reduction takes the same steps in both cases. For calls that send one block to all
 * ranks, see cecl_call_is_outside.) */
static inline bool cecl_call_is_in_place_on_all(const struct cecl_call *call)
{
    return call->in_place && call->op->family == CECL_FAMILY_EXCHANGED;
}

/* Whether the call sends one block from a rank to all ranks, as an all-gather does, and this rank's block is not in
 * this rank's recvbuff yet. The answer may differ between ranks, and peers may have to return such a block, so ranks
 * tell each other. */
static inline bool cecl_call_is_outside(const struct cecl_call *call)
{
    return call->op->family == CECL_FAMILY_GATHERED && !call->in_place &&
           cecl_call_block(call, call->rank, call->rank).bytes > 0;
}

/* Half of the bytes that this rank sends to its peers and receives from them. Usually each sender moves its blocks. A
 * rank that comes later than its peers moves the bytes of both directions: about this many bytes more. */
uint64_t cecl_call_half_exchanged(const struct cecl_call *call);

/* The only rank that contributes data to a call of CECL_FAMILY_GATHERED (such as a broadcast), or -1. */
int cecl_only_contributor(const struct cecl_call *call);

/* -- key.c: descriptions as keys. All fields count, even nranks -- */
uint64_t cecl_call_hash(uint64_t seed, const struct cecl_call *call);
/* A hash of what must be equal on all ranks that make the call. */
uint32_t cecl_call_signature(const struct cecl_call *call);
/* The signature of calls that are carried out as one. Whether they are in place has no influence on it. */
uint32_t cecl_calls_signature(const struct cecl_call *calls, uint32_t count);
bool cecl_call_equal(const struct cecl_call *a, const struct cecl_call *b);
/* Copies a description to *copy, and its layout to `layout` [call->layout_words]. The copy has
 * references to its windows until cecl_call_let_go. */
void cecl_call_copy(struct cecl_call *copy, const struct cecl_call *call, uint64_t *layout);
/* cecl_call_hold takes references to the windows of a description, so that the call's buffers stay valid.
 * cecl_call_let_go gives the references back. */
static inline void cecl_call_hold(const struct cecl_call *call)
{
    cecl_window_hold(call->send.window);
    cecl_window_hold(call->recv.window);
}
static inline void cecl_call_let_go(const struct cecl_call *call)
{
    cecl_window_release(call->send.window);
    cecl_window_release(call->recv.window);
}

/* -- describe.c: describes a call of this rank as rank `rank` makes it, as far as this rank knows. Blocks between this
 * rank and `rank` are correct. If each rank has its own layout, all other blocks are unknown.
 *
 * outside  what cecl_call_is_outside returns on that rank
 * send_at  [nranks] where each rank has its block for this rank; used with CECL_FAMILY_OWN_LAYOUT,
 *          else NULL
 * layout room for CECL_LAYOUT_WORDS_MAX words, zeroed; must stay valid as long as *peer */
void cecl_call_of_peer(const struct cecl_call *call, int rank, bool outside,
                       const uint64_t *send_at, uint64_t *layout, struct cecl_call *peer);

/* -- touched.c: which memory a call uses on this rank -- */
struct cecl_touched {
    struct cecl_buffer buffer;
    uint64_t low, high; /* bytes [low, high) of the buffer; low < high */
    /* only the first `width` bytes of every `pitch` bytes, from `low` on; pitch 0: all bytes */
    uint64_t width, pitch;
    bool written;
};
/* The parts of sendbuff and recvbuff that the call uses. Returns their number. */
int cecl_call_touched(const struct cecl_call *call, struct cecl_touched touched[2]);
/* Whether the call writes recvbuff on this rank. (The root of a broadcast in place only reads it.) */
bool cecl_call_writes_recv(const struct cecl_call *call);
/* How many bytes the call needs from the start of recvbuff, and from the start of sendbuff (0 if there is one
 * buffer), on this rank. */
uint64_t cecl_call_recv_needed(const struct cecl_call *call);
uint64_t cecl_call_send_needed(const struct cecl_call *call);
/* Refuses buffers of other devices, buffers that end beyond their allocation, and buffers that overlap
 * partly. */
ceclResult_t cecl_call_check_buffers(const struct cecl_call *call,
                                     const struct cecl_windows *windows);
/* describe.c: refuses reductions, and calls by splits on the device, if their policy forbids the SMs that they need. */
ceclResult_t cecl_calls_check_arithmetic(const struct cecl_call *calls, uint32_t count);
/* apart.c: refuses a group in which one call writes memory that another call uses. The message
 * names the calls by `numbers`. */
ceclResult_t cecl_calls_check_apart(const struct cecl_call *calls, const uint32_t *numbers,
                                    uint32_t count);

#endif
