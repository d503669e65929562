/* What the lowerings share. Internal to src/ce. */
#ifndef CECL_CE_LOWERING_H
#define CECL_CE_LOWERING_H

#include "ce/lower.h"

#define CECL_PIECE_ALIGN 256u

void cecl_lower_all_gather(const struct cecl_call *call, struct cecl_plan *plan);
ceclResult_t cecl_lower_all_to_all(const struct cecl_call *call, struct cecl_plan *plan);
ceclResult_t cecl_lower_variable(const struct cecl_call *call, struct cecl_plan *plan);
void cecl_lower_broadcast(const struct cecl_call *call, struct cecl_plan *plan);

void cecl_lower_small(const struct cecl_call *call, struct cecl_plan *plan);
ceclResult_t cecl_lower_reduction(const struct cecl_call *call, struct cecl_plan *plan);

static inline struct cecl_place cecl_place_at(enum cecl_window window, int rank, uint64_t offset)
{
    return (struct cecl_place){
        .offset = offset, .window = (uint16_t)window, .rank = (uint16_t)rank};
}

/* In this call's share of a rank's staging. */
static inline struct cecl_place cecl_staging_at(const struct cecl_call *call, int rank,
                                                uint64_t offset)
{
    return cecl_place_at(CECL_WINDOW_STAGING, rank, call->staging_offset + offset);
}
/* A sender's place in a receiver's staging, of `bytes` each: ranks but the receiver, in order. */
static inline uint64_t cecl_sender_place(int sender, int receiver, uint64_t bytes)
{
    return (uint64_t)(sender - (sender > receiver)) * bytes;
}

/* A block, or what of it is at hand, as it lies in memory. */
struct cecl_view {
    struct cecl_place at; /* where byte `from` of the block lies */
    uint64_t from;
    uint64_t pitch; /* of its rows, where the call has any (`from` is then 0); 0: dense */
};
/* A rank's block of a buffer of its user's. */
static inline struct cecl_view cecl_recv_block(const struct cecl_call *call, int rank, int block)
{
    const struct cecl_place at =
        cecl_place_at(CECL_WINDOW_RECV, rank, cecl_block_offset(call, block));
    return (struct cecl_view){.at = at, .pitch = call->shape.width ? call->shape.recv_pitch : 0};
}
static inline struct cecl_view cecl_send_block(const struct cecl_call *call, int rank, int block)
{
    const struct cecl_place at = cecl_place_at(
        CECL_WINDOW_SEND, rank, call->op == ceclOpAllGather ? 0 : cecl_send_offset(call, block));
    return (struct cecl_view){.at = at, .pitch = call->shape.width ? call->shape.send_pitch : 0};
}
/* Bytes [first, first + bytes) of a block: from where it lies in `src` to where it lies in `dst`.
 * None, one or up to three copies: a row that is begun, whole rows, a row that is not ended. */
void cecl_lower_copy(const struct cecl_call *call, struct cecl_plan *plan, struct cecl_view dst,
                     struct cecl_view src, uint64_t first, uint64_t bytes);

/* What stands between these two is on the side lane, behind what the main lane did so far; what follows
 * on the main lane is beside it until cecl_plan_after_other. */
static inline void cecl_begin_side(struct cecl_plan *plan)
{
    cecl_plan_on(plan, CECL_LANE_SIDE);
    cecl_plan_after_other(plan);
}
static inline void cecl_end_side(struct cecl_plan *plan)
{
    cecl_plan_on(plan, CECL_LANE_MAIN);
}

/* How a rank's own block comes into its recvbuff without an SM: pieces of it go to the `count` ranks
 * after it, and each of these returns its piece from its own memory. Piece i is rank + 1 + i's. */
struct cecl_pieces {
    int count;
    uint64_t bytes; /* of each piece but the last, which may be less */
};
/* `bytes` in pieces: one more peer is asked for each `piece_worth` of them. All pieces together have
 * `most` bytes at most; if that is too little, they are the first round of several. */
static inline struct cecl_pieces cecl_pieces_of(const struct cecl_call *call, uint64_t bytes,
                                                uint64_t most)
{
    const uint64_t peers = (uint64_t)call->nranks - 1, worth = bytes / call->piece_worth + 1;
    const uint64_t count = worth < peers ? worth : peers;
    const uint64_t align = call->shape.width                      ? call->shape.width
                           : call->piece_worth < CECL_PIECE_ALIGN ? 1
                                                                  : CECL_PIECE_ALIGN;
    const uint64_t whole = ((bytes + count - 1) / count + align - 1) / align * align;
    const uint64_t room = most / count < align ? most / count : most / count / align * align;
    return (struct cecl_pieces){(int)count, whole < room ? whole : room};
}
/* Bytes of piece `i` of what begins at `first` of `bytes`. */
static inline uint64_t cecl_piece_bytes(const struct cecl_pieces *pieces, uint64_t bytes,
                                        uint64_t first, int i)
{
    const uint64_t at = first + (uint64_t)i * pieces->bytes;
    const uint64_t left = at < bytes ? bytes - at : 0;
    return left < pieces->bytes ? left : pieces->bytes;
}

/* The i-th rank after `rank`: each starts with its right neighbour, so no GPU is everyone's target
 * at once. */
static inline int cecl_peer_after(const struct cecl_call *call, int i)
{
    return (call->rank + i) % call->nranks;
}
/* The i-th before it. */
static inline int cecl_peer_before(const struct cecl_call *call, int i)
{
    return (call->rank + call->nranks - i) % call->nranks;
}

#endif
