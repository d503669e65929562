/* Reduce-scatter, all-reduce, reduce. Each rank has a share, which it reduces for all ranks. If peers can reach
 * every sendbuff, SMs may read all inputs in the peers' memory; otherwise inputs go through staging
 * (lower_staged.c).
 *
 *     main | barrier | reduce my block out of all sendbuffs | -> recvbuffs | barrier |
 *
 * Nothing is gained by pushing the results of one chunk while SMs read the next, because both fill the same link. But
 * the link is idle for a while when copy engines take over from SMs. In that time SMs may reduce the end of a large
 * block (way.reduce.sms_end), as many bytes as they can read and send meanwhile:
 *
 *     main | barrier | reduce all but the end | -> recvbuffs             | after side | barrier |
 *     side |                                  | reduce the end | -> recvbuffs |
 *
 * In a small all-reduce through staging every rank sends its input to all ranks and reduces everything, which saves the
 * exchange of results. */
#include "ce/reducing.h"

/* Sends this rank's whole input to every peer's staging; every rank reduces everything. */
static void everyone_reduces(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    struct cecl_place sources[CECL_MAX_RANKS];
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_plan_copy(plan,
                       cecl_staging_at(part, peer, cecl_sender_place(me, peer, total_of(part))),
                       input_at(part, me, 0, 0), total_of(part));
    }
    cecl_plan_barrier(plan);
    for (int r = 0; r < part->call.nranks; r++)
        sources[r] = r == me ? input_at(part, me, 0, 0)
                             : cecl_staging_at(part, me, cecl_sender_place(r, me, total_of(part)));
    cecl_plan_reduce(plan, output_at(part, me, 0, 0), sources, (uint32_t)part->call.nranks,
                     total_of(part));
}

/* Reduces at most `most` bytes of this rank's block, from byte `first` on. SMs read all inputs in the peers'
 * memory. */
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

/* The byte of a share from which SMs reduce the share's end separately; 0: they reduce the whole share at once. */
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

enum cecl_together cecl_reduction_together(const struct cecl_part *part, uint64_t *staging)
{
    struct cecl_chunks chunks;
    *staging = 0;
    if (is_alone(part))
        return CECL_IN_BUNDLE;
    if (part->way.reduce.read_at_peers)
        return end_begin(part) == 0 ? CECL_IN_BUNDLE : CECL_BY_ITSELF;
    if (is_one_shot(part)) {
        *staging = ((uint64_t)part->call.nranks - 1) * total_of(part);
        return CECL_IN_BUNDLE;
    }
    if (cecl_chunks_of(part, &chunks) != ceclSuccess)
        return CECL_BY_ITSELF;
    *staging = chunks.room;
    return chunks.count == 1              ? CECL_IN_BUNDLE
           : cecl_staged_may_follow(part) ? CECL_IN_PIPELINE
                                          : CECL_BY_ITSELF;
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
        return cecl_lower_staged(part, plan);
    }
    return ceclSuccess;
}
