/* What the lowerings of reductions share (lower_reduce.c, lower_staged.c): which ranks get
 * results, and where inputs and results lie. A rank's share is the part that it reduces for all ranks. */
#ifndef CECL_CE_REDUCING_H
#define CECL_CE_REDUCING_H

#include "ce/lowering.h"

/* The three kinds of reductions: each rank receives its own share, all ranks receive everything, or the root does. */
static inline bool scatters(const struct cecl_part *part)
{
    return part->call.op->to == CECL_TO_EACH;
}
static inline bool to_root(const struct cecl_part *part)
{
    return part->call.op->to == CECL_TO_ROOT;
}
static inline bool to_all(const struct cecl_part *part)
{
    return part->call.op->to == CECL_TO_ALL;
}

/* Bytes of every rank's input. */
static inline uint64_t total_of(const struct cecl_part *part)
{
    return part->call.bytes * cecl_call_input_blocks(&part->call);
}

/* Where a rank's share begins. */
static inline uint64_t share_begin(const struct cecl_part *part, int rank)
{
    return (uint64_t)rank * part->way.reduce.share;
}

/* How many bytes of [first, first + most) lie within a rank's block. */
static inline uint64_t bytes_of(const struct cecl_part *part, int block, uint64_t first,
                                uint64_t most)
{
    const uint64_t begin = share_begin(part, block) + first;
    const uint64_t in_block = first < part->way.reduce.share ? part->way.reduce.share - first : 0;
    const uint64_t in_all = begin < total_of(part) ? total_of(part) - begin : 0;
    const uint64_t left = in_block < in_all ? in_block : in_all;
    return left < most ? left : most;
}

static inline struct cecl_place input_at(const struct cecl_part *part, int rank, int block,
                                         uint64_t first)
{
    return cecl_place_at(part->call.in_place ? CECL_AREA_RECV : CECL_AREA_SEND, rank,
                         share_begin(part, block) + first);
}

/* Where a rank's result lies. The recvbuff of a reduce-scatter out of place holds only the result. */
static inline struct cecl_place output_at(const struct cecl_part *part, int rank, int block,
                                          uint64_t first)
{
    const bool alone = scatters(part) && !part->call.in_place;
    return cecl_place_at(CECL_AREA_RECV, rank,
                         alone ? cecl_call_result_bytes(&part->call, first)
                               : share_begin(part, block) + first);
}

/* The size of a chunk of about `bytes` bytes is a multiple of this. */
static inline uint64_t unit_of(const struct cecl_part *part, uint64_t bytes)
{
    return bytes >= CECL_CHUNK_ALIGN ? CECL_CHUNK_ALIGN : part->call.element;
}

/* The largest size of a chunk that is at most `bytes`. */
static inline uint64_t aligned(const struct cecl_part *part, uint64_t bytes)
{
    return bytes - bytes % unit_of(part, bytes);
}

/* Sends the result of this rank's reduction to all ranks, or to the root. */
static inline void send_result(const struct cecl_part *part, struct cecl_plan *plan,
                               struct cecl_place result, uint64_t first, uint64_t most)
{
    const uint64_t bytes = bytes_of(part, part->call.rank, first, most);
    for (int i = 1; i < part->call.nranks && bytes > 0; i++) {
        const int peer = cecl_part_peer(part, i);
        if (to_all(part) || (to_root(part) && peer == part->call.root))
            cecl_plan_copy(plan, output_at(part, peer, part->call.rank, first), result, bytes);
    }
}

/* Sends a range of an all-reduce's result from this rank's own recvbuff to all peers. */
static inline void send_own(const struct cecl_part *part, struct cecl_plan *plan, uint64_t first,
                            uint64_t most)
{
    send_result(part, plan, output_at(part, part->call.rank, part->call.rank, first), first, most);
}

/* ---- reduce_chunks.c: the chunks of a reduction through staging */

/* how often the last chunk may be halved */
#define CECL_HALVINGS 4

/* How a share is divided into chunks. */
struct cecl_chunks {
    uint64_t bytes; /* the size of a chunk; the last ones may be smaller */
    uint64_t count;
    uint64_t equal; /* how many chunks have `bytes` */
    /* where in a share each chunk after the `equal` first ones begins; then where the last chunk ends */
    uint64_t begin[CECL_HALVINGS + 2];
    /* `room` is the bytes of staging that a chunk takes, for the blocks of all senders; `at` is where in staging the
     * current chunk's room begins */
    uint64_t room, at;
    /* the offset in the room at which a reduce leaves a reduced chunk, and at which this rank puts its own tiles */
    uint64_t own;
};

static inline uint64_t cecl_chunk_begin(const struct cecl_chunks *chunks, uint64_t k)
{
    return k <= chunks->equal ? k * chunks->bytes : chunks->begin[k - chunks->equal];
}

static inline uint64_t cecl_chunk_bytes(const struct cecl_chunks *chunks, uint64_t k)
{
    return cecl_chunk_begin(chunks, k + 1) - cecl_chunk_begin(chunks, k);
}

/* Divides the rank's share into chunks. Fails if staging is too small. */
ceclResult_t cecl_chunks_of(const struct cecl_part *part, struct cecl_chunks *chunks);
/* In a pipeline, half of staging is the room of one chunk. Returns how many bytes of that half each sender gets. */
uint64_t cecl_staged_slice(const struct cecl_part *part);
/* Whether a reduction in several chunks may be in a pipeline. */
bool cecl_staged_may_follow(const struct cecl_part *part);

/* lower_staged.c: a reduction whose inputs come to staging in chunks. */
ceclResult_t cecl_lower_staged(const struct cecl_part *part, struct cecl_plan *plan);

#endif
