/* Reduce-scatter, all-reduce, reduce. Every rank reduces one block, for all ranks: its own. Peers'
 * parts of it come by copy engine into its staging, in chunks, and SMs do no more than add up what
 * lies in their own memory; while they do, the next chunk is on its way.
 *
 *     main | barrier | for each chunk k: once peers have sent chunk k - 1 and reduced chunk k - SLOTS:
 *          |   chunk k of my block p -> its slot in p's staging, for all p; signal "it is there"
 *     side | for each chunk k: once it is there from all: reduce it; signal "its slot is free"
 *
 * Ranks send each chunk in step: a rank that runs ahead sends to the same peer as another one, and
 * both get half of its link.
 *
 * That is a reduce-scatter. The last chunk is cut into smaller and smaller ones, for nothing is sent
 * beside the last reduction. An all-reduce has something to send: what it has reduced till then, to
 * everyone's recvbuff, and then the rest. (All results behind the chunk that follows theirs would cost
 * an exchange more for each.) A reduce's result of a chunk goes to the root's behind the chunk after it:
 *
 *     main | ... chunk k + 1 -> staging | after side | reduced chunk k -> recvbuff | ... | barrier |
 *
 * Lanes may share a queue of the hardware, which then takes their steps in the order in which they are
 * issued, that of the plan: so chunk k + 1 is sent before chunk k is reduced, and every wait stands
 * behind its signal.
 *
 * A reduced chunk stands in the rank's own recvbuff but for a reduce, whose recvbuff is the root's
 * alone: there it stands in staging until it is sent. With one chunk all of it is one lane:
 *
 *     main | barrier | my block p -> p's staging, for all p | barrier | reduce | -> recvbuffs | barrier |
 *
 * A small all-reduce sends all to all, and everyone reduces everything: one exchange less.
 *
 * Where sendbuff is symmetric, SMs may read it at the peers, all of it:
 *
 *     main | barrier | reduce my block out of all sendbuffs | -> recvbuffs | barrier |
 *
 * Pushing the results of one chunk while the next is read gained nothing: both fill the same link. But
 * from SMs to copy engines it takes a while, in which the link is idle. The end of a large block may
 * be left for then (cecl_tune says whether), no more of it than SMs can read and send in that time:
 *
 *     main | barrier | reduce all but the end | -> recvbuffs             | after side | barrier |
 *     side |                                  | reduce the end | -> recvbuffs |
 *
 * In place the recvbuff is the input: what is pushed over a block p at a peer was its part of p's
 * block, which has arrived at p before p could reduce it. */
#include <inttypes.h>

#include "ce/lowering.h"

#define SLOTS CECL_CHUNKS_UNDER_WAY

/* The last chunk may be halved so often. */
#define HALVINGS 4

/* How a call goes in chunks. */
struct chunks {
    uint64_t bytes; /* of a block at a time; the last ones may have less */
    uint64_t count;
    uint64_t equal;               /* so many have `bytes`, then come */
    uint64_t begin[HALVINGS + 2]; /* these: where each begins in a block, and where the last ends */
    uint64_t slot;                /* bytes of staging that a chunk takes: of all senders, */
    uint64_t results;             /* and where in a slot the reduced chunk of a reduce stands */
};

static uint64_t block_begin(const struct cecl_call *call, int block)
{
    return (uint64_t)block * call->bytes;
}

/* Bytes [first, ...) of a block of which `most` are wanted, as far as it has them. */
static uint64_t bytes_of(const struct cecl_call *call, int block, uint64_t first, uint64_t most)
{
    const uint64_t begin = block_begin(call, block) + first;
    const uint64_t in_block = first < call->bytes ? call->bytes - first : 0;
    const uint64_t in_all = begin < call->total ? call->total - begin : 0;
    const uint64_t left = in_block < in_all ? in_block : in_all;
    return left < most ? left : most;
}

static struct cecl_place input_at(const struct cecl_call *call, int rank, int block, uint64_t first)
{
    return cecl_place_at(call->in_place ? CECL_WINDOW_RECV : CECL_WINDOW_SEND, rank,
                         block_begin(call, block) + first);
}

/* Where a rank's result stands: of a reduce-scatter out of place its recvbuff holds that block only. */
static struct cecl_place output_at(const struct cecl_call *call, int rank, int block,
                                   uint64_t first)
{
    const bool alone = call->op == ceclOpReduceScatter && !call->in_place;
    return cecl_place_at(CECL_WINDOW_RECV, rank, (alone ? 0 : block_begin(call, block)) + first);
}

static bool has_results(const struct cecl_call *call)
{
    return call->op == ceclOpReduce && call->rank != call->root;
}

/* Chunks of so many bytes are multiples of this. */
static uint64_t unit_of(const struct cecl_call *call, uint64_t bytes)
{
    return bytes >= CECL_PIECE_ALIGN ? CECL_PIECE_ALIGN : call->element;
}

/* The largest chunk of no more than `bytes`. */
static uint64_t aligned(const struct cecl_call *call, uint64_t bytes)
{
    return bytes - bytes % unit_of(call, bytes);
}

/* The block in as few chunks as `most` allows, all about as large: none is for a small rest. */
static uint64_t even(const struct cecl_call *call, uint64_t most)
{
    const uint64_t count = (call->bytes + most - 1) / most, unit = unit_of(call, most);
    return ((call->bytes + count - 1) / count + unit - 1) / unit * unit;
}

/* Cuts the block. The last of several chunks goes in parts, each half of what is left: its reduction,
 * beside which nothing is sent, is to be short. */
static void cut(const struct cecl_call *call, struct chunks *chunks)
{
    uint64_t begin, part, parts = 0;
    chunks->equal = (call->bytes - 1) / chunks->bytes;
    begin = chunks->equal * chunks->bytes;
    do {
        chunks->begin[parts++] = begin;
        part = aligned(call, (call->bytes - begin) / 2);
        begin += part;
    } while (chunks->equal > 0 && call->halved > 0 && part >= call->halved && parts <= HALVINGS);
    chunks->begin[parts] = call->bytes;
    chunks->count = chunks->equal + parts;
}

static uint64_t chunk_begin(const struct chunks *chunks, uint64_t k)
{
    return k <= chunks->equal ? k * chunks->bytes : chunks->begin[k - chunks->equal];
}

static uint64_t chunk_bytes(const struct chunks *chunks, uint64_t k)
{
    return chunk_begin(chunks, k + 1) - chunk_begin(chunks, k);
}

static ceclResult_t chunks_of(const struct cecl_call *call, struct chunks *chunks)
{
    const uint64_t places = (uint64_t)call->nranks - (call->op != ceclOpReduce); /* of a slot */
    const uint64_t whole = call->staging_bytes / places,
                   slot = call->staging_bytes / SLOTS / places;
    uint64_t most = call->bytes;
    if (most > whole || most > call->chunk)
        most = aligned(call, slot < call->chunk ? slot : call->chunk);
    if (most == 0)
        return cecl_fail(ceclInvalidUsage,
                         "stagingBytes (CECL_STAGING_BYTES) %" PRIu64
                         ": a reduction among %d ranks needs %" PRIu64 " at least",
                         call->staging_bytes, call->nranks, SLOTS * places * call->element);
    chunks->bytes = most < call->bytes ? even(call, most) : call->bytes;
    cut(call, chunks);
    chunks->slot = places * chunks->bytes;
    chunks->results = ((uint64_t)call->nranks - 1) * chunks->bytes;
    return ceclSuccess;
}

static uint64_t slot_at(const struct chunks *chunks, uint64_t k)
{
    return k % SLOTS * chunks->slot;
}

/* Chunk k of my part of every peer's block, to its staging. */
static void send_parts(const struct cecl_call *call, struct cecl_plan *plan,
                       const struct chunks *chunks, uint64_t k)
{
    const uint64_t first = chunk_begin(chunks, k);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        const uint64_t bytes = bytes_of(call, peer, first, chunk_bytes(chunks, k));
        if (bytes > 0)
            cecl_plan_copy(plan,
                           cecl_staging_at(call, peer,
                                           slot_at(chunks, k) +
                                               cecl_sender_place(call->rank, peer, chunks->bytes)),
                           input_at(call, call->rank, peer, first), bytes);
    }
}

static struct cecl_place result_at(const struct cecl_call *call, const struct chunks *chunks,
                                   uint64_t k)
{
    return has_results(call)
               ? cecl_staging_at(call, call->rank, slot_at(chunks, k) + chunks->results)
               : output_at(call, call->rank, call->rank, chunk_begin(chunks, k));
}

static void reduce_staged(const struct cecl_call *call, struct cecl_plan *plan,
                          const struct chunks *chunks, uint64_t k)
{
    const int me = call->rank;
    const uint64_t first = chunk_begin(chunks, k);
    const uint64_t bytes = bytes_of(call, me, first, chunk_bytes(chunks, k));
    struct cecl_place sources[CECL_MAX_RANKS];
    for (int r = 0; r < call->nranks; r++)
        sources[r] =
            r == me ? input_at(call, me, me, first)
                    : cecl_staging_at(call, me,
                                      slot_at(chunks, k) + cecl_sender_place(r, me, chunks->bytes));
    if (bytes > 0)
        cecl_plan_reduce(plan, result_at(call, chunks, k), sources, (uint32_t)call->nranks, bytes);
}

/* What this rank reduced, to those who want it: all, or the root. */
static void send_result(const struct cecl_call *call, struct cecl_plan *plan,
                        struct cecl_place result, uint64_t first, uint64_t most)
{
    const uint64_t bytes = bytes_of(call, call->rank, first, most);
    for (int i = 1; i < call->nranks && bytes > 0; i++) {
        const int peer = cecl_peer_after(call, i);
        if (call->op == ceclOpAllReduce || (call->op == ceclOpReduce && peer == call->root))
            cecl_plan_copy(plan, output_at(call, peer, call->rank, first), result, bytes);
    }
}

/* Of an all-reduce, where it stands in the rank's own recvbuff. */
static void send_own(const struct cecl_call *call, struct cecl_plan *plan, uint64_t first,
                     uint64_t most)
{
    send_result(call, plan, output_at(call, call->rank, call->rank, first), first, most);
}

static void send_chunk(const struct cecl_call *call, struct cecl_plan *plan,
                       const struct chunks *chunks, uint64_t k)
{
    send_result(call, plan, result_at(call, chunks, k), chunk_begin(chunks, k),
                chunk_bytes(chunks, k));
}

/* What an all-reduce has of its block so far; as soon as all have sent their last chunk. */
static void send_reduced(const struct cecl_call *call, struct cecl_plan *plan, uint64_t bytes)
{
    cecl_plan_wait_all(plan, CECL_LANE_MAIN, plan->phases);
    cecl_plan_after_other(plan);
    send_own(call, plan, 0, bytes);
}

/* What the side lane does from here on comes after what the main lane did so far. */
static void side_follows(struct cecl_plan *plan)
{
    cecl_begin_side(plan);
    cecl_end_side(plan);
}

/* The side lane's turn: chunk k has come from all by main phase `arrived`. */
static void side_turn(const struct cecl_call *call, struct cecl_plan *plan,
                      const struct chunks *chunks, uint64_t k, uint32_t arrived)
{
    cecl_plan_on(plan, CECL_LANE_SIDE);
    cecl_plan_wait_all(plan, CECL_LANE_MAIN, arrived);
    reduce_staged(call, plan, chunks, k);
    if (k + SLOTS < chunks->count)
        cecl_plan_signal_all(plan);
    cecl_plan_on(plan, CECL_LANE_MAIN);
}

/* Chunk k goes to staging; the phase by which it is there. */
static uint32_t main_turn(const struct cecl_call *call, struct cecl_plan *plan,
                          const struct chunks *chunks, uint64_t k)
{
    if (k >= chunks->count)
        return 0;
    if (k > 0)
        cecl_plan_wait_all(plan, CECL_LANE_MAIN, plan->phases);
    if (k >= SLOTS)
        cecl_plan_wait_all(plan, CECL_LANE_SIDE, (uint32_t)(k - SLOTS + 1));
    send_parts(call, plan, chunks, k);
    return cecl_plan_signal_all(plan);
}

static void in_chunks(const struct cecl_call *call, struct cecl_plan *plan,
                      const struct chunks *chunks)
{
    const bool each = call->op == ceclOpReduce; /* its results stand in staging */
    cecl_plan_barrier(plan);
    side_follows(plan); /* flags would order the inputs too, but CUDA knows nothing of flags */
    uint32_t arrived = main_turn(call, plan, chunks, 0);
    for (uint64_t k = 0; k < chunks->count; k++) {
        const uint32_t next = main_turn(call, plan, chunks, k + 1);
        const bool last = k + 1 == chunks->count;
        if (last && call->op == ceclOpAllReduce)
            send_reduced(call, plan, chunk_begin(chunks, k));
        side_turn(call, plan, chunks, k, arrived);
        arrived = next;
        if (!each && !last)
            continue;
        cecl_plan_after_other(plan);
        send_chunk(call, plan, chunks, k); /* of a reduce-scatter nobody wants it */
        if (each)
            side_follows(plan); /* a result is replaced when it was sent */
    }
    if (call->op != ceclOpReduceScatter)
        cecl_plan_barrier(plan);
}

static void at_once(const struct cecl_call *call, struct cecl_plan *plan,
                    const struct chunks *chunks)
{
    cecl_plan_barrier(plan);
    send_parts(call, plan, chunks, 0);
    cecl_plan_barrier(plan);
    reduce_staged(call, plan, chunks, 0);
    if (call->op != ceclOpReduceScatter) {
        send_chunk(call, plan, chunks, 0);
        cecl_plan_barrier(plan);
    }
}

/* All of an input in every peer's staging; everyone reduces all. */
static void everyone_reduces(const struct cecl_call *call, struct cecl_plan *plan)
{
    const int me = call->rank;
    struct cecl_place sources[CECL_MAX_RANKS];
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_plan_copy(plan, cecl_staging_at(call, peer, cecl_sender_place(me, peer, call->total)),
                       input_at(call, me, 0, 0), call->total);
    }
    cecl_plan_barrier(plan);
    for (int r = 0; r < call->nranks; r++)
        sources[r] = r == me ? input_at(call, me, 0, 0)
                             : cecl_staging_at(call, me, cecl_sender_place(r, me, call->total));
    cecl_plan_reduce(plan, output_at(call, me, 0, 0), sources, (uint32_t)call->nranks, call->total);
}

/* Bytes [first, first + most) of this rank's block, as far as it has them, out of all inputs. */
static void reduce_at_peers(const struct cecl_call *call, struct cecl_plan *plan, uint64_t first,
                            uint64_t most)
{
    const int me = call->rank;
    const uint64_t bytes = bytes_of(call, me, first, most);
    struct cecl_place sources[CECL_MAX_RANKS];
    for (int r = 0; r < call->nranks; r++)
        sources[r] = input_at(call, r, me, first);
    if (bytes > 0)
        cecl_plan_reduce(plan, output_at(call, me, me, first), sources, (uint32_t)call->nranks,
                         bytes);
}

static void read_at_peers(const struct cecl_call *call, struct cecl_plan *plan)
{
    cecl_plan_barrier(plan);
    reduce_at_peers(call, plan, 0, UINT64_MAX);
    send_own(call, plan, 0, UINT64_MAX);
    cecl_plan_barrier(plan);
}

static void read_in_two(const struct cecl_call *call, struct cecl_plan *plan, uint64_t end)
{
    cecl_plan_barrier(plan);
    reduce_at_peers(call, plan, 0, end);
    cecl_begin_side(plan);
    reduce_at_peers(call, plan, end, UINT64_MAX);
    send_own(call, plan, end, UINT64_MAX);
    cecl_end_side(plan);
    send_own(call, plan, 0, end);
    cecl_plan_after_other(plan);
    cecl_plan_barrier(plan);
}

ceclResult_t cecl_lower_reduction(const struct cecl_call *call, struct cecl_plan *plan)
{
    struct chunks chunks;
    const struct cecl_place input = input_at(call, call->rank, 0, 0);
    if (call->nranks == 1) {
        if (!call->in_place)
            cecl_plan_reduce(plan, output_at(call, 0, 0, 0), &input, 1, call->total);
        return ceclSuccess;
    }
    if (call->peers_read) {
        const bool in_two = call->sms_end > 0 && call->sms_end < call->bytes;
        const uint64_t end = in_two ? aligned(call, call->bytes - call->sms_end) : 0;
        if (end > 0)
            read_in_two(call, plan, end);
        else
            read_at_peers(call, plan);
        return ceclSuccess;
    }
    if (call->op == ceclOpAllReduce && call->total <= call->one_shot &&
        call->total <= call->staging_bytes / ((uint64_t)call->nranks - 1)) {
        everyone_reduces(call, plan);
        return ceclSuccess;
    }
    CECL_TRY(chunks_of(call, &chunks));
    if (chunks.count == 1)
        at_once(call, plan, &chunks);
    else
        in_chunks(call, plan, &chunks);
    return ceclSuccess;
}
