/* Checks the form of plans: copies and reductions stay within the areas that they may use, and flags within the plan's
 * phases. Calls (which the test describes) and indices (which the plan's builder sets) are taken to be right. */
#include <inttypes.h>
#include <stdio.h>

#include "verify/internal.h"

/* The end of the part of staging that a plan may use. */
static uint64_t staging_end(const struct cecl_plan *plan)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < cecl_plan_parts(plan); i++) {
        const struct cecl_part *part = cecl_plan_part(plan, i);
        const struct cecl_means *means = &part->means;
        const uint64_t slots =
            2 * (uint64_t)part->call.nranks * CECL_SLOT_FACTOR * means->slot_bytes;
        if (means->staging_offset + means->staging_bytes > end)
            end = means->staging_offset + means->staging_bytes;
        if (part->way.small)
            end = means->slots_offset + slots;
        if (part->call.op->family == CECL_FAMILY_SPLITS &&
            means->table_offset + means->table_bytes > end)
            end = means->table_offset + means->table_bytes;
    }
    return end;
}

static uint64_t size_of_area(const struct cecl_plan *plan, const struct cecl_call *call,
                             uint32_t kind)
{
    return kind == CECL_AREA_SEND   ? verify_send_bytes(call)
           : kind == CECL_AREA_RECV ? verify_recv_bytes(call)
           : kind == CECL_AREA_HOST ? 2 * plan->part.means.host_bytes
                                    : staging_end(plan);
}

static ceclResult_t check_place(const struct verifier *v, const struct cecl_plan *plan,
                                const struct cecl_place *place, const struct cecl_copy *copy,
                                uint64_t pitch, const char *what)
{
    const uint32_t part = place->area / CECL_AREA_COUNT, kind = place->area % CECL_AREA_COUNT;
    const uint64_t bytes = cecl_rows_extent(copy->bytes, copy->rows, pitch);
    if (place->rank >= v->nranks || part >= cecl_plan_parts(plan) ||
        (part > 0 && kind >= CECL_AREA_STAGING))
        return VERIFY_FAULT("%s of a copy is in area %u of rank %u: there is none", what,
                            place->area, place->rank);
    const struct cecl_call *call = &verify_part_at(v, plan, part, place->rank)->call;
    const uint64_t size = size_of_area(plan, call, kind);
    if (bytes > size || place->offset > size - bytes)
        return VERIFY_FAULT("%s of a copy is out of its area: offset %" PRIu64 ", %" PRIu64
                            " bytes, the area has %" PRIu64,
                            what, place->offset, bytes, size);
    if (kind == CECL_AREA_SEND && verify_input_area(call) != CECL_AREA_SEND)
        return VERIFY_FAULT("%s of a copy is in sendbuff, which an in-place call does not have",
                            what);
    return ceclSuccess;
}

/* Whether any of these bytes of recvbuff belongs to the rank's own block. */
static bool is_own(const struct cecl_call *call, int rank, uint64_t low, uint64_t bytes)
{
    const struct cecl_shape *shape = &call->view.shape;
    const struct cecl_block own = cecl_call_block(call, rank, rank);
    const uint64_t width = shape->width ? shape->width : own.bytes,
                   rows = shape->width ? shape->rows : 1;
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t first = own.recv_offset + row * shape->recv_pitch;
        if (low < first + width && first < low + bytes)
            return true;
    }
    return false;
}

/* A copy must write to the output or to staging: not to an input, nor to the own block of a rank in place. */
static ceclResult_t check_target(const struct verifier *v, const struct cecl_plan *plan,
                                 const struct cecl_copy *copy)
{
    const uint32_t kind = copy->dst.area % CECL_AREA_COUNT;
    const struct cecl_call *call =
        &verify_part_at(v, plan, copy->dst.area / CECL_AREA_COUNT, copy->dst.rank)->call;
    if (kind == CECL_AREA_SEND)
        return VERIFY_FAULT("a copy writes to the sendbuff of rank %u", copy->dst.rank);
    if (kind == CECL_AREA_RECV && call->in_place && call->op->family != CECL_FAMILY_REDUCTION)
        for (uint64_t row = 0; row < copy->rows; row++)
            if (is_own(call, copy->dst.rank, copy->dst.offset + row * copy->dst_pitch, copy->bytes))
                return VERIFY_FAULT("a copy writes to rank %u's own part of an in-place call",
                                    copy->dst.rank);
    return ceclSuccess;
}

/* In a late call, a rank knows only its own buffers and those of ranks that published before it. */
static ceclResult_t check_known(const struct cecl_plan *plan, const struct cecl_place *place)
{
    const struct cecl_part *part = &plan->part;
    const bool is_users = cecl_area_is_users(place->area);
    if (part->means.late && is_users && place->rank != part->call.rank &&
        (place->rank >= 64 || (part->earlier >> place->rank & 1) == 0))
        return VERIFY_FAULT("rank %d touches a buffer of rank %u, which comes later",
                            part->call.rank, place->rank);
    return ceclSuccess;
}

/* A reduction may have sources on any rank. Its result must be on the rank that runs it. */
static ceclResult_t check_reduction(const struct verifier *v, const struct cecl_plan *plan,
                                    int rank, const struct cecl_reduce *reduce)
{
    const struct cecl_copy input = {.bytes = reduce->bytes, .rows = 1},
                           result = {.dst = reduce->dst,
                                     .bytes = verify_result_bytes(plan, reduce),
                                     .rows = 1};
    CECL_TRY(check_place(v, plan, &reduce->dst, &result, 0, "the result"));
    CECL_TRY(check_target(v, plan, &result));
    for (uint32_t i = 0; i < reduce->nsrc; i++) {
        const struct cecl_place source = verify_source(v, plan, &plan->sources[reduce->first + i]);
        CECL_TRY(check_known(plan, &source));
        CECL_TRY(check_place(v, plan, &source, &input, 0, "a source"));
    }
    const struct cecl_call *call = &cecl_plan_part(plan, reduce->part)->call;
    if (reduce->dst.rank != rank || call->element == 0 || reduce->bytes % call->element != 0)
        return VERIFY_FAULT("a reduction writes %" PRIu64 " bytes, in elements of %" PRIu32
                            ", at rank %u",
                            reduce->bytes, call->element, reduce->dst.rank);
    return ceclSuccess;
}

static ceclResult_t check_reductions(const struct verifier *v, const struct cecl_plan *plan,
                                     int rank, const struct cecl_step *step)
{
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(check_reduction(v, plan, rank, &plan->reductions[step->first + i]));
    return ceclSuccess;
}

/* Whether a step of a plan may use this counter. A lane signals no other lane's epoch. */
static bool has_counter(const struct verifier *v, const struct cecl_plan *plan,
                        const struct cecl_step *step)
{
    const uint32_t counter = step->counter;
    if (v->program && counter == CECL_COUNTER_TURN) /* a wait is for a single bit */
        return step->phase % (1u << VERIFY_BITS) != 0 &&
               (step->kind == CECL_STEP_SIGNAL ||
                (step->phase < 1u << VERIFY_BITS && (step->phase & (step->phase - 1)) == 0));
    if (v->program && counter == CECL_COUNTER_CALL)
        return step->kind == CECL_STEP_SIGNAL || step->phase >= 1;
    if (v->program && counter >= CECL_COUNTERS && counter < v->ncounters)
        return step->phase >= 1;
    return counter < CECL_PHASED && step->phase >= 1 && step->phase <= plan->phases[counter] &&
           (counter == CECL_COUNTER_SLOTS || counter < (uint32_t)v->nlanes) &&
           (step->kind == CECL_STEP_WAIT || counter == step->lane);
}

/* Whether the step's peer is this rank itself, which means a signal to all peers. */
static bool is_at_itself(const struct cecl_step *step)
{
    return verify_is_bits(step->counter) && step->kind == CECL_STEP_SIGNAL;
}

/* Checks a flag step, or a step at which lanes meet. */
static ceclResult_t check_meeting(const struct verifier *v, const struct cecl_plan *plan, int rank,
                                  const struct cecl_step *step)
{
    const bool fine = step->kind == CECL_STEP_AFTER
                          ? step->first < (uint32_t)v->nlanes && step->first != step->lane
                      : step->counter == CECL_COUNTER_BEGUN ||
                              (v->program && step->counter == CECL_COUNTER_REPLAY)
                          ? step->kind == CECL_STEP_SIGNAL && step->peer == rank
                          : has_counter(v, plan, step) && step->peer < v->nranks &&
                                (step->peer == rank) == is_at_itself(step);
    if (step->kind > CECL_STEP_POST || !fine)
        return VERIFY_FAULT("an invalid step: kind %u, row %" PRIu32 ", peer %u, phase %" PRIu32,
                            step->kind, step->counter, step->peer, step->phase);
    return ceclSuccess;
}

static ceclResult_t check_copy(const struct verifier *v, const struct cecl_plan *plan,
                               const struct cecl_copy *copy)
{
    CECL_TRY(check_known(plan, &copy->dst));
    CECL_TRY(check_known(plan, &copy->src));
    CECL_TRY(check_place(v, plan, &copy->dst, copy, copy->dst_pitch, "the target"));
    CECL_TRY(check_place(v, plan, &copy->src, copy, copy->src_pitch, "the source"));
    return check_target(v, plan, copy);
}

static ceclResult_t check_step(const struct verifier *v, const struct cecl_plan *plan, int rank,
                               const struct cecl_step *step)
{
    if (step->kind == CECL_STEP_SPLITS)
        return verify_splits_form(v, plan, step);
    if (step->kind == CECL_STEP_REDUCE)
        return check_reductions(v, plan, rank, step);
    if (step->kind == CECL_STEP_POST)
        return check_copy(v, plan, &plan->copies[step->first]);
    if (step->kind != CECL_STEP_COPY)
        return check_meeting(v, plan, rank, step);
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(check_copy(v, plan, &plan->copies[step->first + i]));
    return ceclSuccess;
}

static ceclResult_t check_phases(const struct verifier *v, int call, const struct cecl_plan *plan)
{
    const struct cecl_plan *first = verify_plan(v, call, 0);
    for (int row = 0; row < CECL_PHASED; row++)
        if (plan->phases[row] != first->phases[row])
            return VERIFY_FAULT("ranks have different phases: row %d: %" PRIu32
                                " on rank 0, %" PRIu32 " here",
                                row, first->phases[row], plan->phases[row]);
    return ceclSuccess;
}

/* *step: the step that is checked now; unchanged before the first one */
static ceclResult_t check_plan(const struct verifier *v, int call, int rank, uint32_t *step)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank);
    CECL_TRY(check_phases(v, call, plan));
    for (*step = 0; *step < plan->nsteps; ++*step)
        CECL_TRY(check_step(v, plan, rank, &plan->steps[*step]));
    return ceclSuccess;
}

ceclResult_t verify_form(const struct verifier *v)
{
    for (int i = 0; i < v->ncalls * v->nranks; i++) {
        const int c = i / v->nranks, r = i % v->nranks;
        uint32_t step = UINT32_MAX;
        if (check_plan(v, c, r, &step) == ceclSuccess)
            continue;
        char at[32] = "", words[CECL_MESSAGE_BYTES];
        if (step != UINT32_MAX)
            snprintf(at, sizeof(at), ", step %" PRIu32, step);
        cecl_keep_message(words);
        return VERIFY_FAULT("call %d, rank %d%s: %s", c, r, at, words);
    }
    return ceclSuccess;
}
