/* Reduce-scatter, all-reduce, reduce. Each rank has a share, which it reduces for all ranks. Copy engines
 * bring the peers' parts of the share to the rank's staging, in chunks. SMs only reduce what lies in their
 * own GPU's memory; meanwhile the next chunk arrives.
 *
 *     main | barrier | for each chunk k: once peers sent chunk k - 1 and reduced k - IN_FLIGHT:
 *          |   chunk k of my block p -> its room in p's staging, for all p; signal "it is there"
 *     side | for each chunk k: once it is there from all: reduce it; signal "its room is free"
 *
 * Ranks send each chunk in step. A rank that ran ahead would send to the same peer as another rank,
 * and each would get half of that peer's link.
 *
 * That is a reduce-scatter. Its last chunk is cut into smaller and smaller chunks, because nothing
 * is sent while the last reduction runs. An all-reduce sends results during its last reduction:
 * first the results of all chunks except the last, then the rest. (Sending each result behind the
 * chunk that follows it would cost one more exchange for each chunk.) A reduce sends a chunk's
 * result to the root's recvbuff behind the next chunk:
 *
 *     main | ... chunk k + 1 -> staging | after side | reduced chunk k -> root | ... | barrier |
 *
 * Lanes may share a queue of the hardware. The queue runs steps in the order of issue, which is the
 * order of the plan. So chunk k + 1 is sent before chunk k is reduced, and every wait comes behind
 * its signal.
 *
 * A reduced chunk lies in the rank's own recvbuff. In a reduce it lies in staging until it is
 * sent, because only the root has a recvbuff. With one chunk, everything is on one lane:
 *
 *     main | barrier | my block p -> p's staging, for all p | barrier | reduce | -> recvbuffs | ...
 *
 * In a small all-reduce every rank sends its input to all ranks and reduces everything. This takes
 * one exchange less.
 *
 * If peers can reach every sendbuff, SMs may read all inputs in the peers' memory:
 *
 *     main | barrier | reduce my block out of all sendbuffs | -> recvbuffs | barrier |
 *
 * Pushing the results of one chunk while SMs read the next gained nothing, because both fill the
 * same link. But the link is idle for a while when copy engines take over from SMs. In that time
 * SMs may reduce the end of a large block (way.reduce.sms_end), which is as large as SMs can read
 * and send meanwhile:
 *
 *     main | barrier | reduce all but the end | -> recvbuffs             | after side | barrier |
 *     side |                                  | reduce the end | -> recvbuffs |
 *
 * If a rank came late to the call (way.reduce.meet_first), the receiver of a result may have to fetch it. So
 * all ranks meet before results are copied: an all-reduce copies all of them at the end, and a reduce goes
 * through these steps once for each chunk:
 *
 *     main | barrier | my block p -> p's staging, for all p | barrier | reduce | barrier | result
 *     -> root |
 *
 * The input may be tiles (call/tiles.h), whose rows copy engines move to staging, where they lie densely. A
 * rank copies its own tiles to its own staging, too, because kernels read contiguous blocks. With several
 * chunks the side lane makes these copies, so that lanes need not wait for each other more often.
 *
 * In place, the recvbuff is the input. When rank p pushes its result to a peer, the result overwrites that
 * peer's input to block p. This is safe, because p reduced block p only after the peer's input had arrived. */
#include <inttypes.h>

#include "ce/lowering.h"
#include "util/round.h"

#define IN_FLIGHT CECL_CHUNKS_IN_FLIGHT

/* how often the last chunk may be halved */
#define HALVINGS 4

/* How a share is divided into chunks. */
struct chunks {
    uint64_t bytes; /* the size of a chunk; the last ones may be smaller */
    uint64_t count;
    uint64_t equal; /* how many chunks have `bytes` */
    /* where in a share each chunk after the first `equal` ones begins, and where the last chunk ends */
    uint64_t begin[HALVINGS + 2];
    /* bytes of staging that a chunk takes, for all senders together */
    uint64_t room;
    /* where in `room` a reduce has its reduced chunk, or this rank has a chunk of its own tiles */
    uint64_t own;
};

/* The three kinds: each rank receives its own share, all ranks receive everything, or the root
 * receives everything. */
static bool scatters(const struct cecl_part *part)
{
    return part->call.op->to == CECL_TO_EACH;
}
static bool to_root(const struct cecl_part *part)
{
    return part->call.op->to == CECL_TO_ROOT;
}
static bool to_all(const struct cecl_part *part)
{
    return part->call.op->to == CECL_TO_ALL;
}

/* Bytes of every rank's input. */
static uint64_t total_of(const struct cecl_part *part)
{
    return part->call.bytes * cecl_call_input_blocks(&part->call);
}

/* Where a rank's share begins. The share is the part that this rank reduces for all. */
static uint64_t share_begin(const struct cecl_part *part, int rank)
{
    return (uint64_t)rank * part->way.reduce.share;
}

/* How many of the bytes [first, first + most) a rank's block has. */
static uint64_t bytes_of(const struct cecl_part *part, int block, uint64_t first, uint64_t most)
{
    const uint64_t begin = share_begin(part, block) + first;
    const uint64_t in_block = first < part->way.reduce.share ? part->way.reduce.share - first : 0;
    const uint64_t in_all = begin < total_of(part) ? total_of(part) - begin : 0;
    const uint64_t left = in_block < in_all ? in_block : in_all;
    return left < most ? left : most;
}

static struct cecl_place input_at(const struct cecl_part *part, int rank, int block, uint64_t first)
{
    return cecl_place_at(part->call.in_place ? CECL_AREA_RECV : CECL_AREA_SEND, rank,
                         share_begin(part, block) + first);
}

/* Where a rank's result lies. Out of place, the recvbuff of a reduce-scatter holds only the result. */
static struct cecl_place output_at(const struct cecl_part *part, int rank, int block,
                                   uint64_t first)
{
    const bool alone = scatters(part) && !part->call.in_place;
    return cecl_place_at(CECL_AREA_RECV, rank, (alone ? 0 : share_begin(part, block)) + first);
}

static bool has_results(const struct cecl_part *part)
{
    return to_root(part) && part->call.rank != part->call.root;
}

/* The unit in which chunks of about `bytes` bytes are measured. */
static uint64_t unit_of(const struct cecl_part *part, uint64_t bytes)
{
    return bytes >= CECL_CHUNK_ALIGN ? CECL_CHUNK_ALIGN : part->call.element;
}

/* The largest chunk that has at most `bytes`. */
static uint64_t aligned(const struct cecl_part *part, uint64_t bytes)
{
    return bytes - bytes % unit_of(part, bytes);
}

/* How many bytes a chunk has. A chunk has at most `most` bytes, chunks are as few as that allows, and they
 * have about equal sizes, so that the last chunk is not small. */
static uint64_t even(const struct cecl_part *part, uint64_t most)
{
    const uint64_t count = (part->way.reduce.share + most - 1) / most, unit = unit_of(part, most);
    return cecl_round_up((part->way.reduce.share + count - 1) / count, unit);
}

/* Cuts the share into chunks. The last of several chunks is halved repeatedly, to make the last
 * reduction short: nothing is sent while it runs. */
static void cut(const struct cecl_part *part, struct chunks *chunks)
{
    const uint64_t share = part->way.reduce.share, least = part->way.reduce.halved;
    uint64_t begin, half, parts = 0;
    chunks->equal = (share - 1) / chunks->bytes;
    begin = chunks->equal * chunks->bytes;
    do {
        chunks->begin[parts++] = begin;
        half = aligned(part, (share - begin) / 2);
        begin += half;
    } while (chunks->equal > 0 && least > 0 && half >= least && parts <= HALVINGS);
    chunks->begin[parts] = share;
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

static ceclResult_t chunks_of(const struct cecl_part *part, struct chunks *chunks)
{
    /* how many blocks the room of a chunk holds */
    const uint64_t places =
        (uint64_t)part->call.nranks - !(to_root(part) || part->call.op->has_tiles);
    const uint64_t whole = part->means.staging_bytes / places,
                   room = part->means.staging_bytes / IN_FLIGHT / places;
    uint64_t most = part->way.reduce.share;
    if (most > whole || most > part->way.reduce.chunk)
        most = aligned(part, room < part->way.reduce.chunk ? room : part->way.reduce.chunk);
    if (most == 0)
        return cecl_fail(ceclInvalidUsage,
                         "stagingBytes (CECL_STAGING_BYTES) %" PRIu64
                         ": a reduction among %d ranks needs %" PRIu64 " at least",
                         part->means.staging_bytes, part->call.nranks,
                         IN_FLIGHT * places * part->call.element);
    chunks->bytes = most < part->way.reduce.share ? even(part, most) : part->way.reduce.share;
    cut(part, chunks);
    chunks->room = places * chunks->bytes;
    chunks->own = ((uint64_t)part->call.nranks - 1) * chunks->bytes;
    return ceclSuccess;
}

static uint64_t room_at(const struct chunks *chunks, uint64_t k)
{
    return k % IN_FLIGHT * chunks->room;
}

/* Copies to staging, at `dst`, a range of this rank's input to block `block`. */
static void stage(const struct cecl_part *part, struct cecl_plan *plan, struct cecl_place dst,
                  int block, uint64_t first, uint64_t bytes)
{
    if (part->call.op->has_tiles)
        cecl_lower_tiles(part, plan, dst, block, first, bytes);
    else
        cecl_plan_copy(plan, dst, input_at(part, part->call.rank, block, first), bytes);
}

/* Copies chunk k of my own tiles to my own staging. Other inputs are reduced where they lie. */
static void stage_own(const struct cecl_part *part, struct cecl_plan *plan,
                      const struct chunks *chunks, uint64_t k)
{
    const int me = part->call.rank;
    if (part->call.op->has_tiles)
        stage(part, plan, cecl_staging_at(part, me, room_at(chunks, k) + chunks->own), me,
              chunk_begin(chunks, k), chunk_bytes(chunks, k));
}

/* For every peer's block, sends chunk k of this rank's input to the peer's staging. */
static void send_parts(const struct cecl_part *part, struct cecl_plan *plan,
                       const struct chunks *chunks, uint64_t k)
{
    const uint64_t first = chunk_begin(chunks, k);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        const uint64_t bytes = bytes_of(part, peer, first, chunk_bytes(chunks, k));
        if (bytes > 0)
            stage(part, plan,
                  cecl_staging_at(part, peer,
                                  room_at(chunks, k) + cecl_sender_place(part, part->call.rank,
                                                                         peer, chunks->bytes)),
                  peer, first, bytes);
    }
}

static struct cecl_place result_at(const struct cecl_part *part, const struct chunks *chunks,
                                   uint64_t k)
{
    return has_results(part)
               ? cecl_staging_at(part, part->call.rank, room_at(chunks, k) + chunks->own)
               : output_at(part, part->call.rank, part->call.rank, chunk_begin(chunks, k));
}

static void reduce_staged(const struct cecl_part *part, struct cecl_plan *plan,
                          const struct chunks *chunks, uint64_t k)
{
    const int me = part->call.rank;
    const uint64_t first = chunk_begin(chunks, k);
    const uint64_t bytes = bytes_of(part, me, first, chunk_bytes(chunks, k));
    const struct cecl_place own = part->call.op->has_tiles
                                      ? cecl_staging_at(part, me, room_at(chunks, k) + chunks->own)
                                      : input_at(part, me, me, first);
    struct cecl_place sources[CECL_MAX_RANKS];
    for (int r = 0; r < part->call.nranks; r++)
        sources[r] = r == me ? own
                             : cecl_staging_at(part, me,
                                               room_at(chunks, k) +
                                                   cecl_sender_place(part, r, me, chunks->bytes));
    if (bytes > 0)
        cecl_plan_reduce(plan, result_at(part, chunks, k), sources, (uint32_t)part->call.nranks,
                         bytes);
}

/* Sends the result of this rank's reduction to all ranks, or to the root. */
static void send_result(const struct cecl_part *part, struct cecl_plan *plan,
                        struct cecl_place result, uint64_t first, uint64_t most)
{
    const uint64_t bytes = bytes_of(part, part->call.rank, first, most);
    for (int i = 1; i < part->call.nranks && bytes > 0; i++) {
        const int peer = cecl_part_peer(part, i);
        if (to_all(part) || (to_root(part) && peer == part->call.root))
            cecl_plan_copy(plan, output_at(part, peer, part->call.rank, first), result, bytes);
    }
}

/* Sends a range of the result of an all-reduce. The result lies in this rank's own recvbuff. */
static void send_own(const struct cecl_part *part, struct cecl_plan *plan, uint64_t first,
                     uint64_t most)
{
    send_result(part, plan, output_at(part, part->call.rank, part->call.rank, first), first, most);
}

static void send_chunk(const struct cecl_part *part, struct cecl_plan *plan,
                       const struct chunks *chunks, uint64_t k)
{
    send_result(part, plan, result_at(part, chunks, k), chunk_begin(chunks, k),
                chunk_bytes(chunks, k));
}

/* Waits until all ranks have sent their last chunk, then sends all results that an all-reduce has so far. */
static void send_reduced(const struct cecl_part *part, struct cecl_plan *plan, uint64_t bytes)
{
    cecl_plan_wait_all(plan, CECL_LANE_MAIN, plan->phases[CECL_LANE_MAIN]);
    cecl_plan_after_other(plan);
    send_own(part, plan, 0, bytes);
}

/* Steps that are added to the side lane from now on run after all steps that the main lane has so far. */
static void side_follows(struct cecl_plan *plan)
{
    cecl_begin_side(plan);
    cecl_end_side(plan);
}

/* The side lane's steps for chunk k. All ranks' parts of the chunk have arrived when main phase `arrived`
 * is reached. */
static void side_turn(const struct cecl_part *part, struct cecl_plan *plan,
                      const struct chunks *chunks, uint64_t k, uint32_t arrived)
{
    cecl_plan_on(plan, CECL_LANE_SIDE);
    stage_own(part, plan, chunks, k);
    cecl_plan_wait_all(plan, CECL_LANE_MAIN, arrived);
    reduce_staged(part, plan, chunks, k);
    if (k + IN_FLIGHT < chunks->count)
        cecl_plan_signal_all(plan);
    cecl_plan_on(plan, CECL_LANE_MAIN);
}

/* The main lane's steps for chunk k: they send the chunk to the peers' staging. Returns the phase that
 * shows that the chunk has arrived. */
static uint32_t main_turn(const struct cecl_part *part, struct cecl_plan *plan,
                          const struct chunks *chunks, uint64_t k)
{
    if (k >= chunks->count)
        return 0;
    if (k > 0)
        cecl_plan_wait_all(plan, CECL_LANE_MAIN, plan->phases[CECL_LANE_MAIN]);
    if (k >= IN_FLIGHT)
        cecl_plan_wait_all(plan, CECL_LANE_SIDE, (uint32_t)(k - IN_FLIGHT + 1));
    send_parts(part, plan, chunks, k);
    return cecl_plan_signal_all(plan);
}

static void in_chunks(const struct cecl_part *part, struct cecl_plan *plan,
                      const struct chunks *chunks)
{
    /* the result of each chunk lies in staging, and is sent separately */
    const bool each = to_root(part), meet = part->way.reduce.meet_first;
    cecl_plan_barrier(plan);
    /* flags would order the inputs too, but CUDA does not see flags as dependencies */
    side_follows(plan);
    uint32_t arrived = main_turn(part, plan, chunks, 0);
    for (uint64_t k = 0; k < chunks->count; k++) {
        const uint32_t next = main_turn(part, plan, chunks, k + 1);
        const bool last = k + 1 == chunks->count;
        if (last && to_all(part) && !meet)
            send_reduced(part, plan, chunk_begin(chunks, k));
        side_turn(part, plan, chunks, k, arrived);
        arrived = next;
        if (!each && !last)
            continue;
        cecl_plan_after_other(plan);
        if (meet)
            break;
        /* a reduce-scatter copies nothing here */
        send_chunk(part, plan, chunks, k);
        if (each)
            side_follows(plan); /* a result may be overwritten once it is sent */
    }
    if (meet) {
        cecl_plan_barrier(plan);
        send_own(part, plan, 0, UINT64_MAX);
    }
    if (!scatters(part))
        cecl_plan_barrier(plan);
}

static void at_once(const struct cecl_part *part, struct cecl_plan *plan,
                    const struct chunks *chunks)
{
    cecl_plan_barrier(plan);
    send_parts(part, plan, chunks, 0);
    stage_own(part, plan, chunks, 0);
    cecl_plan_barrier(plan);
    reduce_staged(part, plan, chunks, 0);
    if (part->way.reduce.meet_first)
        cecl_plan_barrier(plan);
    if (!scatters(part)) {
        send_chunk(part, plan, chunks, 0);
        cecl_plan_barrier(plan);
    }
}

/* A reduce in which receivers may fetch results. Chunks alternate between two halves of staging. */
static void in_rounds(const struct cecl_part *part, struct cecl_plan *plan,
                      const struct chunks *chunks)
{
    for (uint64_t k = 0; k < chunks->count; k++) {
        cecl_plan_barrier(plan);
        send_parts(part, plan, chunks, k);
        cecl_plan_barrier(plan);
        reduce_staged(part, plan, chunks, k);
        cecl_plan_barrier(plan);
        send_chunk(part, plan, chunks, k);
    }
    cecl_plan_barrier(plan);
}

/* Sends all of an input to every peer's staging; every rank reduces everything. */
static void everyone_reduces(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    struct cecl_place sources[CECL_MAX_RANKS];
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_plan_copy(
            plan, cecl_staging_at(part, peer, cecl_sender_place(part, me, peer, total_of(part))),
            input_at(part, me, 0, 0), total_of(part));
    }
    cecl_plan_barrier(plan);
    for (int r = 0; r < part->call.nranks; r++)
        sources[r] =
            r == me ? input_at(part, me, 0, 0)
                    : cecl_staging_at(part, me, cecl_sender_place(part, r, me, total_of(part)));
    cecl_plan_reduce(plan, output_at(part, me, 0, 0), sources, (uint32_t)part->call.nranks,
                     total_of(part));
}

/* Reduces bytes [first, first + most) of this rank's block, or fewer where the block ends before. SMs read
 * all inputs in the peers' memory. */
static void reduce_at_peers(const struct cecl_part *part, struct cecl_plan *plan, uint64_t first,
                            uint64_t most)
{
    const int me = part->call.rank;
    const uint64_t bytes = bytes_of(part, me, first, most);
    struct cecl_place sources[CECL_MAX_RANKS];
    for (int r = 0; r < part->call.nranks; r++)
        sources[r] = input_at(part, r, me, first);
    if (bytes > 0)
        cecl_plan_reduce(plan, output_at(part, me, me, first), sources, (uint32_t)part->call.nranks,
                         bytes);
}

static void read_at_peers(const struct cecl_part *part, struct cecl_plan *plan)
{
    cecl_plan_barrier(plan);
    reduce_at_peers(part, plan, 0, UINT64_MAX);
    send_own(part, plan, 0, UINT64_MAX);
    cecl_plan_barrier(plan);
}

static void read_in_two(const struct cecl_part *part, struct cecl_plan *plan, uint64_t end)
{
    cecl_plan_barrier(plan);
    reduce_at_peers(part, plan, 0, end);
    cecl_begin_side(plan);
    reduce_at_peers(part, plan, end, UINT64_MAX);
    send_own(part, plan, end, UINT64_MAX);
    cecl_end_side(plan);
    send_own(part, plan, 0, end);
    cecl_plan_after_other(plan);
    cecl_plan_barrier(plan);
}

/* ---- which way, and how ceclExplain describes it */

/* Whether every rank gets all inputs and reduces everything. */
static bool is_one_shot(const struct cecl_part *part)
{
    return to_all(part) && total_of(part) <= part->way.reduce.one_shot &&
           total_of(part) <= part->means.staging_bytes / ((uint64_t)part->call.nranks - 1);
}

/* The byte of a share from which SMs reduce the end of the share separately; 0: they do not reduce it
 * separately. */
static uint64_t end_begin(const struct cecl_part *part)
{
    const uint64_t share = part->way.reduce.share, end = part->way.reduce.sms_end;
    return end > 0 && end < share ? aligned(part, share - end) : 0;
}

static bool is_alone(const struct cecl_part *part)
{
    return part->call.nranks == 1 && !part->call.op->has_tiles;
}

static void alone(const struct cecl_part *part, struct cecl_plan *plan)
{
    const struct cecl_place input = input_at(part, part->call.rank, 0, 0);
    if (!part->call.in_place)
        cecl_plan_reduce(plan, output_at(part, 0, 0, 0), &input, 1, total_of(part));
    cecl_plan_say(plan, "local copy by a kernel");
}

static void read_inputs(const struct cecl_part *part, struct cecl_plan *plan)
{
    const uint64_t begin = end_begin(part);
    if (begin > 0)
        read_in_two(part, plan, begin);
    else
        read_at_peers(part, plan);
    cecl_plan_say(plan, "SMs read at the peers%s",
                  part->way.reduce.sms_send      ? " and write to all"
                  : part->way.reduce.sms_end > 0 ? ", pushed to all, the end written"
                  : scatters(part)               ? ""
                                                 : ", pushed to all");
}

static ceclResult_t by_staging(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct chunks chunks;
    CECL_TRY(chunks_of(part, &chunks));
    if (chunks.count == 1)
        at_once(part, plan, &chunks);
    else if (to_root(part) && part->way.reduce.meet_first)
        in_rounds(part, plan, &chunks);
    else
        in_chunks(part, plan, &chunks);
    cecl_plan_say(plan, "push to staging, %" PRIu32 " chunk%s%s", plan->nreductions,
                  cecl_plural(plan->nreductions),
                  scatters(part)  ? ""
                  : to_root(part) ? ", pushed to the root"
                                  : ", pushed to all");
    return ceclSuccess;
}

bool cecl_reduces_at_once(const struct cecl_part *part, uint64_t *staging)
{
    struct chunks chunks;
    *staging = 0;
    if (is_alone(part))
        return true;
    if (part->way.reduce.read_at_peers)
        return end_begin(part) == 0;
    if (is_one_shot(part)) {
        *staging = ((uint64_t)part->call.nranks - 1) * total_of(part);
        return true;
    }
    if (chunks_of(part, &chunks) != ceclSuccess)
        return false;
    *staging = chunks.room;
    return chunks.count == 1;
}

ceclResult_t cecl_lower_reduction(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (is_alone(part)) {
        alone(part, plan);
    } else if (part->way.reduce.read_at_peers) {
        read_inputs(part, plan);
    } else if (is_one_shot(part)) {
        everyone_reduces(part, plan);
        cecl_plan_say(plan, "all pushed to all, everyone reduces");
    } else {
        return by_staging(part, plan);
    }
    return ceclSuccess;
}
