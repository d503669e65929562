/* Declarations that the lowerings share. Internal to src/ce. */
#ifndef CECL_CE_LOWERING_H
#define CECL_CE_LOWERING_H

#include "ce/lower.h"

#define CECL_PIECE_ALIGN 256u

cecl_lower_fn cecl_lower_spread; /* the only block of a call, in pieces that peers pass on */
cecl_lower_fn cecl_lower_small;
cecl_lower_fn cecl_lower_host; /* through memory of the host */

static inline struct cecl_place cecl_place_at(enum cecl_area area, int rank, uint64_t offset)
{
    return (struct cecl_place){.offset = offset, .area = (uint16_t)area, .rank = (uint16_t)rank};
}

/* A place in the part of a rank's staging that this call uses. */
static inline struct cecl_place cecl_staging_at(const struct cecl_part *part, int rank,
                                                uint64_t offset)
{
    return cecl_place_at(CECL_AREA_STAGING, rank, part->means.staging_offset + offset);
}
/* Where a sender's place in a receiver's staging begins. Each rank except the receiver has a place
 * of `bytes` bytes, in rank order. */
static inline uint64_t cecl_sender_place(int sender, int receiver, uint64_t bytes)
{
    return (uint64_t)(sender - (sender > receiver)) * bytes;
}

/* lower.c: for ceclExplain, why a plan that only moves data needs no SM, or that it needs SMs because ranks share a
 * GPU. NULL: it needs SMs for copies within this rank's memory; the caller says why it has such copies. */
const char *cecl_reason_of_moving(const struct cecl_plan *plan);

/* up to cecl_pieces_of: functions of lower_block.c, unless a comment names another file */
/* Where a block, or a part of a block, lies in memory. */
struct cecl_extent {
    struct cecl_place at; /* where byte `from` of the block lies */
    uint64_t from;
    uint64_t pitch; /* the pitch of the block's rows, if it has rows (`from` is then 0); 0: dense */
};
/* The block from rank `from` to rank `to`, in the receiver's recvbuff. (If each rank's block goes to all ranks, the
 * block has the same place in all recvbuffs.) */
static inline struct cecl_extent cecl_received(const struct cecl_part *part, int from, int to)
{
    const struct cecl_call *call = &part->call;
    const uint64_t at = cecl_call_block(call, from, to).recv_offset;
    return (struct cecl_extent){.at = cecl_place_at(CECL_AREA_RECV, to, at),
                                .pitch = call->view.shape.width ? call->view.shape.recv_pitch : 0};
}
/* The block from rank `from` to rank `to`, in the sender's input. */
static inline struct cecl_extent cecl_sent(const struct cecl_part *part, int from, int to)
{
    const struct cecl_call *call = &part->call;
    const struct cecl_shape *shape = &call->view.shape;
    const bool in_recv = cecl_call_is_one_buffer(call);
    const uint64_t pitch = in_recv ? shape->recv_pitch : shape->send_pitch;
    return (struct cecl_extent){.at = cecl_place_at(in_recv ? CECL_AREA_RECV : CECL_AREA_SEND, from,
                                                    cecl_call_block(call, from, to).send_offset),
                                .pitch = shape->width ? pitch : 0};
}
/* Copies bytes [first, first + bytes) of a block. `src` and `dst` say where the block lies. Adds up to three copies to
 * the plan: the rest of a row, whole rows, and the beginning of a row. */
void cecl_lower_copy(const struct cecl_part *part, struct cecl_plan *plan, struct cecl_extent dst,
                     struct cecl_extent src, uint64_t first, uint64_t bytes);
/* How a call of a group is combined with the others: see lower_group.c. */
enum cecl_together { CECL_IN_BUNDLE, CECL_IN_PIPELINE, CECL_BY_ITSELF };
/* lower_reduce.c: how a reduction is combined with other calls. The plan of a reduction in a bundle uses only the main
 * lane, and reduces only between its first and second barrier, or only after the second. Sets *staging to the bytes of
 * staging that this plan takes. Equal on all ranks. */
enum cecl_together cecl_reduction_together(const struct cecl_part *part, uint64_t *staging);
/* reduce_chunks.c: sets the chunk size of a reduction of a pipeline, so that a chunk takes at most half of staging.
 * Every reduction but the pipeline's last has as few chunks as this limit allows. */
void cecl_staged_follow(struct cecl_part *part, bool last);
/* lower_staged.c: appends the reductions parts[which[0]], parts[which[1]], ... to a group's plan, as a pipeline. All
 * use the same part of staging. */
ceclResult_t cecl_lower_pipeline(const struct cecl_part *parts, const uint32_t *which,
                                 uint32_t count, struct cecl_plan *plan);
/* lower_block.c: copies bytes [first, first + bytes) of this rank's tiles for rank `to` to `dst`. Bytes are
 * counted as if the tiles were dense. */
void cecl_lower_tiles(const struct cecl_part *part, struct cecl_plan *plan, struct cecl_place dst,
                      int to, uint64_t first, uint64_t bytes);
/* Copies the whole block from rank `from` to rank `to`, straight to its place. */
void cecl_lower_block(const struct cecl_part *part, struct cecl_plan *plan, int from, int to);

/* Copies the block of a communicator's only rank, unless the call is in place. */
void cecl_lower_alone(const struct cecl_part *part, struct cecl_plan *plan);

/* Steps between cecl_begin_side and cecl_end_side are on the side lane. They run after all steps that the main lane had
 * before, and beside later steps of the main lane, until cecl_plan_after_other makes that lane wait for them. */
static inline void cecl_begin_side(struct cecl_plan *plan)
{
    cecl_plan_on(plan, CECL_LANE_SIDE);
    cecl_plan_after_other(plan);
}
static inline void cecl_end_side(struct cecl_plan *plan)
{
    cecl_plan_on(plan, CECL_LANE_MAIN);
}

/* The pieces in which a rank's own block comes into its recvbuff without an SM. The owner sends the pieces to
 * the `count` ranks after it (piece i to rank + 1 + i). Each of these ranks returns its piece from its own
 * memory. */
struct cecl_pieces {
    int count;
    uint64_t bytes; /* bytes of each piece; the last may be smaller */
};
/* Divides `bytes` into pieces. If `bytes` is more than `most`, the block takes several rounds; then these are the
 * pieces of one round, with at most `most` bytes together. */
struct cecl_pieces cecl_pieces_of(const struct cecl_part *part, uint64_t bytes, uint64_t most);
/* How many bytes piece `i` has if the pieces begin at byte `first` of a block of `bytes` bytes. */
static inline uint64_t cecl_piece_bytes(const struct cecl_pieces *pieces, uint64_t bytes,
                                        uint64_t first, int i)
{
    const uint64_t at = first + (uint64_t)i * pieces->bytes;
    const uint64_t left = at < bytes ? bytes - at : 0;
    return left < pieces->bytes ? left : pieces->bytes;
}

/* The i-th peer before this rank; cecl_part_peer is the i-th after it. Lowerings take peers in one of these orders, so
 * that ranks do not all send to the same GPU at once. */
static inline int cecl_peer_before(const struct cecl_part *part, int i)
{
    return cecl_part_peer(part, part->call.nranks - i);
}

static inline const char *cecl_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* route.c: rewrites a late call's plan, which was made from `parts`. `parts` must be as they were before lowering.
 * Pure. On ceclOutOfMemory the caller still has to free the plan. */
ceclResult_t cecl_route(const struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan);

#endif
