/* Reductions through staging. Each rank has a share, which it reduces for all ranks. Copy engines bring the
 * peers' parts of the share to the rank's staging, in chunks. SMs only reduce what lies in their own GPU's
 * memory; meanwhile the next chunk arrives.
 *
 *     main | barrier | for each chunk k: once peers sent chunk k - 1 and reduced k - IN_FLIGHT:
 *          |   chunk k of my block p -> its room in p's staging, for all p; signal "it is there"
 *     side | for each chunk k: once it is there from all: reduce it; signal "its room is free"
 *
 * All ranks send the same chunk at the same time. A rank that ran ahead would send to a peer to which another rank is
 * sending, and both would share that peer's link.
 *
 * These steps are a reduce-scatter. Its last chunk is cut into smaller and smaller chunks, so that the last reduction
 * is short: the links are idle while it runs. An all-reduce sends the results of all chunks but the last during its
 * last reduction, and the last chunk's result after it. (Sending each result after the next chunk would cost one more
 * exchange for each chunk.) A reduce sends a chunk's result to the root's recvbuff after the next chunk:
 *
 *     main | ... chunk k + 1 -> staging | after side | reduced chunk k -> root | ... | barrier |
 *
 * Several reductions of a group are a pipeline: the first chunk of a call follows the last chunk of the call before, as
 * if they were chunks of one call. So the links are busy while SMs reduce any chunk but the very last, and only the
 * last call ends with smaller and smaller chunks. The other calls have as few chunks as staging allows. An all-reduce
 * that is not the last call sends all its results after the next call's first chunk.
 *
 * Lanes may share a hardware queue, which runs steps in the order of issue: the order of the plan. So in the plan chunk
 * k + 1 is sent before chunk k is reduced, and every wait comes after its signal.
 *
 * A reduced chunk lies in the rank's own recvbuff; in a reduce it lies in staging until it is sent, because only the
 * root has a recvbuff. With one chunk, all steps are on one lane:
 *
 *     main | barrier | my block p -> p's staging, for all p | barrier | reduce | -> recvbuffs | ...
 *
 * If a rank came late to the call (way.reduce.meet_first), the receiver of a result may have to fetch it. So a barrier
 * comes before results are copied. An all-reduce copies all results at the end; a reduce takes these steps for each
 * chunk:
 *
 *     main | barrier | my block p -> p's staging, for all p | barrier | reduce | barrier | result
 *     -> root |
 *
 * The input may be tiles (plan/block.h). Copy engines move the tiles' rows to staging, where they lie densely. A rank
 * also copies its own tiles to its own staging, because kernels read contiguous blocks. With several chunks the side
 * lane copies a rank's own tiles, which saves waits between the lanes.
 *
 * In place, the recvbuff is the input. When rank p pushes its result to a peer, the result overwrites that
 * peer's input to block p. This is safe, because p reduced block p only after the peer's input had arrived. */
#include <inttypes.h>

#include "ce/reducing.h"

#define IN_FLIGHT CECL_CHUNKS_IN_FLIGHT

/* Copies a range of this rank's input for block `block` to `dst`, in staging. */
static void stage(const struct cecl_part *part, struct cecl_plan *plan, struct cecl_place dst,
                  int block, uint64_t first, uint64_t bytes)
{
    if (part->call.op->has_tiles)
        cecl_lower_tiles(part, plan, dst, block, first, bytes);
    else
        cecl_plan_copy(plan, dst, input_at(part, part->call.rank, block, first), bytes);
}

/* Copies chunk k of my own tiles to my own staging. If there are no tiles, does nothing: my own input is reduced where
 * it lies. */
static void stage_own(const struct cecl_part *part, struct cecl_plan *plan,
                      const struct cecl_chunks *chunks, uint64_t k)
{
    const int me = part->call.rank;
    if (part->call.op->has_tiles)
        stage(part, plan, cecl_staging_at(part, me, chunks->at + chunks->own), me,
              cecl_chunk_begin(chunks, k), cecl_chunk_bytes(chunks, k));
}

/* For every peer's block, sends chunk k of this rank's input to the peer's staging. */
static void send_parts(const struct cecl_part *part, struct cecl_plan *plan,
                       const struct cecl_chunks *chunks, uint64_t k)
{
    const uint64_t first = cecl_chunk_begin(chunks, k);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        const uint64_t bytes = bytes_of(part, peer, first, cecl_chunk_bytes(chunks, k));
        if (bytes > 0)
            stage(part, plan,
                  cecl_staging_at(part, peer,
                                  chunks->at +
                                      cecl_sender_place(part->call.rank, peer, chunks->bytes)),
                  peer, first, bytes);
    }
}

static struct cecl_place result_at(const struct cecl_part *part, const struct cecl_chunks *chunks,
                                   uint64_t k)
{
    return to_root(part) && part->call.rank != part->call.root
               ? cecl_staging_at(part, part->call.rank, chunks->at + chunks->own)
               : output_at(part, part->call.rank, part->call.rank, cecl_chunk_begin(chunks, k));
}

static void reduce_staged(const struct cecl_part *part, struct cecl_plan *plan,
                          const struct cecl_chunks *chunks, uint64_t k)
{
    const int me = part->call.rank;
    const uint64_t first = cecl_chunk_begin(chunks, k);
    const uint64_t bytes = bytes_of(part, me, first, cecl_chunk_bytes(chunks, k));
    const struct cecl_place own = part->call.op->has_tiles
                                      ? cecl_staging_at(part, me, chunks->at + chunks->own)
                                      : input_at(part, me, me, first);
    struct cecl_place sources[CECL_MAX_RANKS];
    for (int r = 0; r < part->call.nranks; r++)
        sources[r] =
            r == me
                ? own
                : cecl_staging_at(part, me, chunks->at + cecl_sender_place(r, me, chunks->bytes));
    if (bytes > 0)
        cecl_plan_reduce(plan, result_at(part, chunks, k), sources, (uint32_t)part->call.nranks,
                         bytes);
}

static void send_chunk(const struct cecl_part *part, struct cecl_plan *plan,
                       const struct cecl_chunks *chunks, uint64_t k)
{
    send_result(part, plan, result_at(part, chunks, k), cecl_chunk_begin(chunks, k),
                cecl_chunk_bytes(chunks, k));
}

/* Waits until all ranks have sent their last chunk, then sends the all-reduce's results so far: the first `bytes` bytes
 * of this rank's share. */
static void send_reduced(const struct cecl_part *part, struct cecl_plan *plan, uint64_t bytes)
{
    cecl_plan_wait_all(plan, CECL_LANE_MAIN, plan->phases[CECL_LANE_MAIN]);
    cecl_plan_after_other(plan);
    send_own(part, plan, 0, bytes);
}

/* From now on, steps added to the side lane run after all steps that the main lane has so far. */
static void side_follows(struct cecl_plan *plan)
{
    cecl_begin_side(plan);
    cecl_end_side(plan);
}

/* Reductions whose chunks follow each other: parts[which[0]], parts[which[1]], ... */
struct pipeline {
    const struct cecl_part *parts;
    const uint32_t *which;
    uint32_t count;
    uint64_t room; /* bytes from a chunk's room in staging to the next chunk's */
    /* as in struct cecl_chunks, but equal for all members: while a result lies there, a later chunk may arrive in the
     * same room */
    uint64_t own;
    uint32_t side_from; /* the side lane's phase before the pipeline */
};

/* A chunk of a pipeline: chunk k of a member, which is one of the pipeline's reductions. */
struct turn {
    uint32_t member; /* its index in `which`; equal to the pipeline's count: no chunk is left */
    uint32_t number; /* the chunk's number among the chunks of all members */
    uint64_t k;
    const struct cecl_part *part; /* the member's */
    struct cecl_chunks chunks;
};

static ceclResult_t begin_member(const struct pipeline *pipeline, struct turn *turn)
{
    turn->k = 0;
    if (turn->member < pipeline->count) {
        turn->part = &pipeline->parts[pipeline->which[turn->member]];
        CECL_TRY(cecl_chunks_of(turn->part, &turn->chunks));
        turn->chunks.own = pipeline->own;
    }
    turn->chunks.at = turn->number % IN_FLIGHT * pipeline->room;
    return ceclSuccess;
}

static ceclResult_t go_on(const struct pipeline *pipeline, struct turn *turn)
{
    turn->number++;
    if (turn->k + 1 == turn->chunks.count) {
        turn->member++;
        return begin_member(pipeline, turn);
    }
    turn->k++;
    turn->chunks.at = turn->number % IN_FLIGHT * pipeline->room;
    return ceclSuccess;
}

/* Whether the pipeline has no chunk after this one. */
static bool is_last(const struct pipeline *pipeline, const struct turn *turn)
{
    return turn->member + 1 == pipeline->count && turn->k + 1 == turn->chunks.count;
}

/* Adds the side lane's steps for a chunk. All ranks' parts of the chunk have arrived when main phase `arrived` is
 * reached. `follows` says that a later chunk will take this chunk's room in staging. */
static void side_turn(const struct turn *turn, struct cecl_plan *plan, uint32_t arrived,
                      bool follows)
{
    cecl_plan_on(plan, CECL_LANE_SIDE);
    stage_own(turn->part, plan, &turn->chunks, turn->k);
    cecl_plan_wait_all(plan, CECL_LANE_MAIN, arrived);
    reduce_staged(turn->part, plan, &turn->chunks, turn->k);
    if (follows)
        cecl_plan_signal_all(plan);
    cecl_plan_on(plan, CECL_LANE_MAIN);
}

/* Adds the main lane's steps for a chunk, which send the chunk to the peers' staging. Returns the phase that shows that
 * the chunk has arrived. */
static uint32_t main_turn(const struct pipeline *pipeline, const struct turn *turn,
                          struct cecl_plan *plan)
{
    if (turn->member == pipeline->count)
        return 0;
    cecl_plan_of(plan, pipeline->which[turn->member]);
    if (turn->number > 0)
        cecl_plan_wait_all(plan, CECL_LANE_MAIN, plan->phases[CECL_LANE_MAIN]);
    if (turn->number >= IN_FLIGHT)
        cecl_plan_wait_all(plan, CECL_LANE_SIDE,
                           pipeline->side_from + turn->number - IN_FLIGHT + 1);
    send_parts(turn->part, plan, &turn->chunks, turn->k);
    return cecl_plan_signal_all(plan);
}

/* Sends the results that the main lane may send after a chunk's reduction. */
static void send_behind(const struct pipeline *pipeline, const struct turn *turn,
                        struct cecl_plan *plan)
{
    const struct cecl_part *part = turn->part;
    const bool ends = turn->k + 1 == turn->chunks.count, last = is_last(pipeline, turn),
               sends = to_root(part) || (to_all(part) && ends && !part->way.reduce.meet_first);
    if (!sends && !last)
        return;
    cecl_plan_after_other(plan);
    if (!sends)
        return;
    if (to_root(part) || last)
        send_chunk(part, plan, &turn->chunks, turn->k);
    else
        send_own(part, plan, 0, UINT64_MAX);
    if (to_root(part))
        side_follows(plan); /* the side lane may overwrite the result once it is sent */
}

/* Sends the results of reductions with meet_first, after a barrier. A last barrier says that all results are there. */
static void end_pipeline(const struct pipeline *pipeline, struct cecl_plan *plan)
{
    bool meets = false, sends = false;
    for (uint32_t i = 0; i < pipeline->count; i++) {
        meets = meets || pipeline->parts[pipeline->which[i]].way.reduce.meet_first;
        sends = sends || !scatters(&pipeline->parts[pipeline->which[i]]);
    }
    if (meets)
        cecl_plan_barrier(plan);
    for (uint32_t i = 0; i < pipeline->count; i++) {
        const struct cecl_part *part = &pipeline->parts[pipeline->which[i]];
        cecl_plan_of(plan, pipeline->which[i]);
        if (part->way.reduce.meet_first)
            send_own(part, plan, 0, UINT64_MAX);
    }
    if (sends)
        cecl_plan_barrier(plan);
}

static ceclResult_t run(const struct pipeline *pipeline, struct cecl_plan *plan)
{
    struct turn sent = {.member = 0}, reduced = {.member = 0};
    CECL_TRY(begin_member(pipeline, &sent));
    CECL_TRY(begin_member(pipeline, &reduced));
    cecl_plan_barrier(plan);
    /* the flags that the side lane awaits come after this barrier, but CUDA does not see flags as dependencies */
    side_follows(plan);
    uint32_t arrived = main_turn(pipeline, &sent, plan);
    while (reduced.member < pipeline->count) {
        CECL_TRY(go_on(pipeline, &sent));
        const bool last = sent.member == pipeline->count;
        const uint32_t next = main_turn(pipeline, &sent, plan);
        cecl_plan_of(plan, pipeline->which[reduced.member]);
        if (last && to_all(reduced.part) && !reduced.part->way.reduce.meet_first)
            send_reduced(reduced.part, plan, cecl_chunk_begin(&reduced.chunks, reduced.k));
        side_turn(&reduced, plan, arrived, !last && !is_last(pipeline, &sent));
        send_behind(pipeline, &reduced, plan);
        arrived = next;
        CECL_TRY(go_on(pipeline, &reduced));
    }
    end_pipeline(pipeline, plan);
    return ceclSuccess;
}

static ceclResult_t in_chunks(const struct cecl_part *part, struct cecl_plan *plan,
                              const struct cecl_chunks *chunks)
{
    const struct pipeline alone = {.parts = part,
                                   .which = (const uint32_t[]){0},
                                   .count = 1,
                                   .room = chunks->room,
                                   .own = chunks->own};
    return run(&alone, plan);
}

ceclResult_t cecl_lower_pipeline(const struct cecl_part *parts, const uint32_t *which,
                                 uint32_t count, struct cecl_plan *plan)
{
    const uint64_t slice = cecl_staged_slice(&parts[which[0]]),
                   nranks = (uint64_t)parts[0].call.nranks;
    const struct pipeline pipeline = {.parts = parts,
                                      .which = which,
                                      .count = count,
                                      .room = nranks * slice,
                                      .own = (nranks - 1) * slice,
                                      .side_from = plan->phases[CECL_LANE_SIDE]};
    return run(&pipeline, plan);
}

static void at_once(const struct cecl_part *part, struct cecl_plan *plan,
                    const struct cecl_chunks *chunks)
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
                      struct cecl_chunks *chunks)
{
    for (uint64_t k = 0; k < chunks->count; k++) {
        chunks->at = k % IN_FLIGHT * chunks->room;
        cecl_plan_barrier(plan);
        send_parts(part, plan, chunks, k);
        cecl_plan_barrier(plan);
        reduce_staged(part, plan, chunks, k);
        cecl_plan_barrier(plan);
        send_chunk(part, plan, chunks, k);
    }
    cecl_plan_barrier(plan);
}

ceclResult_t cecl_lower_staged(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_chunks chunks;
    CECL_TRY(cecl_chunks_of(part, &chunks));
    if (chunks.count == 1)
        at_once(part, plan, &chunks);
    else if (to_root(part) && part->way.reduce.meet_first)
        in_rounds(part, plan, &chunks);
    else
        CECL_TRY(in_chunks(part, plan, &chunks));
    cecl_plan_say(plan, "push to staging, %" PRIu32 " chunk%s%s", plan->nreductions,
                  cecl_plural(plan->nreductions),
                  scatters(part)  ? ""
                  : to_root(part) ? ", pushed to the root"
                                  : ", pushed to all");
    return ceclSuccess;
}
