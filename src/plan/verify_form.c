/* The form of plans: every index, window and size within bounds, so that nothing after this can go
 * astray, whatever it was given. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan/verify_internal.h"

#define PHASES_MAX (1u << 20)
/* Every byte of a window that is used costs a tag on every rank; one window of all ranks may have so
 * many. */
#define WINDOWS_MAX (1u << 26)

/* Whether a window of `bytes` on each rank can be tracked; the product does not overflow. */
static bool trackable(const struct verifier *v, uint64_t bytes)
{
    return bytes <= WINDOWS_MAX / (uint64_t)v->nranks;
}

/* Of an all-to-all: whether what this rank says of itself can be tracked. */
static ceclResult_t check_own_layout(const struct cecl_call *mine)
{
    for (size_t w = 0; w < cecl_layout_words(mine->op, mine->nranks); w++)
        if (mine->layout[w] > WINDOWS_MAX)
            return VERIFY_FAULT("word %zu of the layout is %" PRIu64 ": too far to be tracked", w,
                                mine->layout[w]);
    return ceclSuccess;
}

/* And whether the ranks say the same of what goes from one to another. */
static ceclResult_t check_pairs(const struct verifier *v, const struct cecl_plan *plan,
                                uint32_t part)
{
    const struct cecl_call *mine = cecl_plan_part(plan, part);
    for (int p = 0; cecl_is_variable(mine) && p < v->nranks; p++) {
        const struct cecl_call *theirs = verify_part_at(v, plan, part, p);
        if (cecl_sent_bytes(mine, p) != cecl_received_bytes(theirs, mine->rank) ||
            (cecl_sent_bytes(mine, p) > 0 &&
             cecl_target_offset(mine, p) != cecl_received_offset(theirs, mine->rank)))
            return VERIFY_FAULT("the block for rank %d is not the one that it receives", p);
    }
    return ceclSuccess;
}

/* Blocks of a layout end within what can be tracked; alike on all ranks. */
static ceclResult_t check_layout(const struct cecl_call *mine, const struct cecl_call *zero)
{
    if (!mine->layout != !zero->layout)
        return VERIFY_FAULT("ranks are in different calls");
    if (cecl_is_variable(mine))
        return check_own_layout(mine);
    for (int r = 0; mine->layout && r < mine->nranks; r++) {
        const uint64_t bytes = cecl_block_bytes(mine, r), offset = cecl_block_offset(mine, r);
        if (bytes != cecl_block_bytes(zero, r) || offset != cecl_block_offset(zero, r))
            return VERIFY_FAULT("ranks differ in the block of rank %d", r);
        if (bytes > mine->bytes || offset > WINDOWS_MAX)
            return VERIFY_FAULT("block of rank %d: %" PRIu64 " bytes at %" PRIu64
                                ": larger than the largest, or too far to be tracked",
                                r, bytes, offset);
    }
    return ceclSuccess;
}

/* Rows and blocks that are apart, and end within what can be tracked; alike on all ranks. */
static ceclResult_t check_shape(const struct cecl_call *mine, const struct cecl_call *zero)
{
    const struct cecl_shape *s = &mine->shape;
    const uint64_t largest[] = {s->width,       s->rows,       s->send_pitch,
                                s->send_stride, s->recv_pitch, s->recv_stride};
    if (memcmp(s, &zero->shape, sizeof(*s)) != 0)
        return VERIFY_FAULT("ranks differ in the shape of blocks");
    if (s->width == 0)
        return ceclSuccess;
    for (size_t i = 0; i < sizeof(largest) / sizeof(largest[0]); i++)
        if (largest[i] > WINDOWS_MAX)
            return VERIFY_FAULT("a shape of %" PRIu64 ": more than can be tracked", largest[i]);
    if (s->rows < 1 || s->width * s->rows != mine->bytes || s->send_pitch < s->width ||
        s->recv_pitch < s->width || mine->layout)
        return VERIFY_FAULT("a shape of %" PRIu64 " rows of %" PRIu64 " in blocks of %" PRIu64,
                            s->rows, s->width, mine->bytes);
    return ceclSuccess;
}

static ceclResult_t check_call(const struct verifier *v, const struct cecl_call *call)
{
    if ((unsigned)call->op >= CECL_NUM_OPS)
        return VERIFY_FAULT("op %d is no collective that is defined here", (int)call->op);
    /* The last: a tag that wraps around would name two bytes. */
    const uint64_t send = verify_send_bytes(call, call->rank), recv = verify_recv_bytes(call);
    if (call->bytes < 1 || call->bytes > WINDOWS_MAX || !trackable(v, recv) ||
        !trackable(v, send) ||
        (uint64_t)v->ncalls * v->nparts * (uint64_t)v->nranks * (send > recv ? send : recv) >=
            UINT32_MAX)
        return VERIFY_FAULT("blocks of %" PRIu64
                            " bytes: 1 at least, and no more than can be tracked byte by byte",
                            call->bytes);
    return ceclSuccess;
}

/* Where the staging that a plan may use ends. */
static uint64_t staging_end(const struct cecl_plan *plan)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < cecl_plan_parts(plan); i++) {
        const struct cecl_call *call = cecl_plan_part(plan, i);
        const uint64_t slots = 2 * (uint64_t)call->nranks * CECL_SLOT_FACTOR * call->slot_bytes;
        if (call->staging_offset + call->staging_bytes > end)
            end = call->staging_offset + call->staging_bytes;
        if (call->small)
            end = call->slots_offset + slots;
    }
    return end;
}

static ceclResult_t check_place(const struct verifier *v, const struct cecl_plan *plan,
                                const struct cecl_place *place, const struct cecl_copy *copy,
                                uint64_t pitch, const char *what)
{
    if (copy->rows < 1 || copy->rows > WINDOWS_MAX || copy->bytes > WINDOWS_MAX ||
        (copy->rows > 1 && (pitch < copy->bytes || pitch > WINDOWS_MAX)))
        return VERIFY_FAULT("%s of a copy: %" PRIu64 " rows of %" PRIu64 " bytes, %" PRIu64
                            " apart",
                            what, copy->rows, copy->bytes, pitch);
    const uint64_t bytes = copy->bytes ? cecl_rows_extent(copy->bytes, copy->rows, pitch) : 0;
    const uint32_t part = place->window / CECL_WINDOW_COUNT,
                   kind = place->window % CECL_WINDOW_COUNT;
    if (place->rank >= v->nranks || part >= cecl_plan_parts(plan) ||
        (part > 0 && kind == CECL_WINDOW_STAGING))
        return VERIFY_FAULT("%s of a copy is in window %u of rank %u: there is none", what,
                            place->window, place->rank);
    const struct cecl_call *call = verify_part_at(v, plan, part, place->rank);
    const uint64_t size = kind == CECL_WINDOW_SEND   ? verify_send_bytes(call, place->rank)
                          : kind == CECL_WINDOW_RECV ? verify_recv_bytes(call)
                                                     : staging_end(plan);
    if (bytes == 0 || bytes > size || place->offset > size - bytes)
        return VERIFY_FAULT("%s of a copy is out of its window: offset %" PRIu64 ", %" PRIu64
                            " bytes, the window has %" PRIu64,
                            what, place->offset, bytes, size);
    if (!trackable(v, place->offset + bytes))
        return VERIFY_FAULT("%s of a copy ends at byte %" PRIu64
                            " of staging: more than can be tracked byte by byte",
                            what, place->offset + bytes);
    if (kind == CECL_WINDOW_SEND && call->in_place && !cecl_is_variable(call))
        return VERIFY_FAULT("%s of a copy is in sendbuff, which an in-place call does not have",
                            what);
    return ceclSuccess;
}

/* Whether some of these bytes of recvbuff belong to the rank's own block. */
static bool is_own(const struct cecl_call *call, int rank, uint64_t low, uint64_t bytes)
{
    const bool strided = call->shape.width > 0;
    uint64_t own;
    const uint64_t block = verify_block(call, rank, &own);
    const uint64_t width = strided ? call->shape.width : block,
                   rows = strided ? call->shape.rows : 1;
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t first = own + row * call->shape.recv_pitch;
        if (low < first + width && first < low + bytes)
            return true;
    }
    return false;
}

/* Writing goes to the output and to staging: not to inputs, and in place not to the rank's own
 * part. */
static ceclResult_t check_target(const struct verifier *v, const struct cecl_plan *plan,
                                 const struct cecl_copy *copy)
{
    const uint32_t kind = copy->dst.window % CECL_WINDOW_COUNT;
    const struct cecl_call *call =
        verify_part_at(v, plan, copy->dst.window / CECL_WINDOW_COUNT, copy->dst.rank);
    if (kind == CECL_WINDOW_SEND)
        return VERIFY_FAULT("a copy writes to the sendbuff of rank %u", copy->dst.rank);
    if (kind == CECL_WINDOW_RECV && call->in_place && !cecl_op_reduces(call->op))
        for (uint64_t row = 0; row < copy->rows; row++)
            if (is_own(call, copy->dst.rank, copy->dst.offset + row * copy->dst_pitch, copy->bytes))
                return VERIFY_FAULT("a copy writes to rank %u's own part of an in-place call",
                                    copy->dst.rank);
    return ceclSuccess;
}

/* Sources of a reduction are anywhere, and its result is at the rank that makes it. */
static ceclResult_t check_reduction(const struct verifier *v, const struct cecl_plan *plan,
                                    int rank, const struct cecl_reduce *reduce)
{
    const struct cecl_copy result = {.dst = reduce->dst, .bytes = reduce->bytes, .rows = 1};
    if (reduce->nsrc < 1 || reduce->nsrc > plan->nsources ||
        reduce->first > plan->nsources - reduce->nsrc)
        return VERIFY_FAULT("a reduction is out of the plan's sources: %" PRIu32 " from %" PRIu32
                            " of %" PRIu32,
                            reduce->nsrc, reduce->first, plan->nsources);
    CECL_TRY(check_place(v, plan, &reduce->dst, &result, 0, "the result"));
    CECL_TRY(check_target(v, plan, &result));
    for (uint32_t i = 0; i < reduce->nsrc; i++)
        CECL_TRY(check_place(v, plan, &plan->sources[reduce->first + i], &result, 0, "a source"));
    const struct cecl_call *call = cecl_plan_part(plan, cecl_reduce_part(plan, reduce));
    if (reduce->dst.rank != rank || call->element == 0 || reduce->bytes % call->element != 0)
        return VERIFY_FAULT("a reduction writes %" PRIu64 " bytes, in elements of %" PRIu32
                            ", at rank %u",
                            reduce->bytes, call->element, reduce->dst.rank);
    return ceclSuccess;
}

static ceclResult_t check_reductions(const struct verifier *v, const struct cecl_plan *plan,
                                     int rank, const struct cecl_step *step)
{
    if (step->count < 1 || step->count > plan->nreductions ||
        step->first > plan->nreductions - step->count)
        return VERIFY_FAULT("a step is out of the plan's reductions: %" PRIu32 " from %" PRIu32
                            " of %" PRIu32,
                            step->count, step->first, plan->nreductions);
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(check_reduction(v, plan, rank, &plan->reductions[step->first + i]));
    return ceclSuccess;
}

/* A flag, or lanes that meet. */
static ceclResult_t check_meeting(const struct verifier *v, const struct cecl_plan *plan, int rank,
                                  const struct cecl_step *step)
{
    const uint32_t lane = step->kind == CECL_STEP_SIGNAL ? step->lane : step->first;
    const uint32_t phases = lane == CECL_LANE_MAIN ? plan->phases : plan->side_phases;
    const bool fine = step->kind == CECL_STEP_AFTER
                          ? lane < (uint32_t)v->nlanes && lane != step->lane
                          : lane < (uint32_t)v->nlanes && step->peer < v->nranks &&
                                step->peer != rank && step->phase >= 1 && step->phase <= phases;
    if (step->kind > CECL_STEP_AFTER || !fine)
        return VERIFY_FAULT("a step is no step: kind %u, lane %" PRIu32 ", peer %u, phase %" PRIu32,
                            step->kind, lane, step->peer, step->phase);
    return ceclSuccess;
}

static ceclResult_t check_step(const struct verifier *v, const struct cecl_plan *plan, int rank,
                               const struct cecl_step *step)
{
    if (step->lane >= CECL_LANES)
        return VERIFY_FAULT("a step is on lane %u: there is none", step->lane);
    if (step->kind == CECL_STEP_REDUCE)
        return check_reductions(v, plan, rank, step);
    if (step->kind != CECL_STEP_COPY)
        return check_meeting(v, plan, rank, step);
    if (step->count < 1 || step->count > plan->ncopies || step->first > plan->ncopies - step->count)
        return VERIFY_FAULT("a batch is out of the plan's copies: %" PRIu32 " from %" PRIu32
                            " of %" PRIu32,
                            step->count, step->first, plan->ncopies);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        CECL_TRY(check_place(v, plan, &copy->dst, copy, copy->dst_pitch, "the target"));
        CECL_TRY(check_place(v, plan, &copy->src, copy, copy->src_pitch, "the source"));
        CECL_TRY(check_target(v, plan, copy));
    }
    return ceclSuccess;
}

static ceclResult_t check_calls(const struct verifier *v, int call, int rank)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank), *first = verify_plan(v, call, 0);
    const uint32_t nparts = cecl_plan_parts(plan);
    if (nparts != cecl_plan_parts(first) || nparts < 1 || nparts > CECL_GROUP_MAX)
        return VERIFY_FAULT("ranks are in groups of different size: %" PRIu32 " here, %" PRIu32
                            " on rank 0",
                            nparts, cecl_plan_parts(first));
    for (uint32_t i = 0; i < nparts; i++) {
        const struct cecl_call *mine = cecl_plan_part(plan, i), *zero = cecl_plan_part(first, i);
        if (mine->rank != rank || mine->nranks != v->nranks)
            return VERIFY_FAULT("the plan is of rank %d of %d", mine->rank, mine->nranks);
        if (mine->op != zero->op || mine->bytes != zero->bytes ||
            (mine->in_place != zero->in_place && !cecl_is_variable(mine)) ||
            mine->staging_bytes != zero->staging_bytes ||
            mine->staging_offset != zero->staging_offset || mine->small != zero->small ||
            mine->turn != zero->turn || mine->slots_offset != zero->slots_offset ||
            mine->slot_bytes != zero->slot_bytes)
            return VERIFY_FAULT("ranks are in different calls");
        CECL_TRY(check_layout(mine, zero));
        CECL_TRY(check_shape(mine, zero));
        if (mine->total != zero->total || mine->root != zero->root ||
            mine->element != zero->element || mine->total > WINDOWS_MAX)
            return VERIFY_FAULT("ranks are in different reductions");
        CECL_TRY(check_call(v, mine));
    }
    if (plan->phases != first->phases || plan->phases > PHASES_MAX ||
        plan->side_phases != first->side_phases || plan->side_phases > PHASES_MAX)
        return VERIFY_FAULT("ranks have different phases: %" PRIu32 " and %" PRIu32
                            " on rank 0, %" PRIu32 " and %" PRIu32 " here",
                            first->phases, first->side_phases, plan->phases, plan->side_phases);
    return ceclSuccess;
}

/* What can be asked once all calls are known to be fine. *step: the step that is looked at; left
 * alone before the first. */
static ceclResult_t check_plan(const struct verifier *v, int call, int rank, uint32_t *step)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank);
    for (uint32_t i = 0; i < cecl_plan_parts(plan); i++)
        CECL_TRY(check_pairs(v, plan, i));
    for (*step = 0; *step < plan->nsteps; ++*step)
        CECL_TRY(check_step(v, plan, rank, &plan->steps[*step]));
    return ceclSuccess;
}

ceclResult_t verify_form(const struct verifier *v)
{
    for (int i = 0; i < 2 * v->ncalls * v->nranks; i++) {
        const bool steps = i >= v->ncalls * v->nranks; /* all calls, then all steps */
        const int c = i / v->nranks % v->ncalls, r = i % v->nranks;
        uint32_t step = UINT32_MAX;
        if ((steps ? check_plan(v, c, r, &step) : check_calls(v, c, r)) == ceclSuccess)
            continue;
        char at[32] = "", words[CECL_MESSAGE_BYTES];
        if (step != UINT32_MAX)
            snprintf(at, sizeof(at), ", step %" PRIu32, step);
        cecl_keep_message(words);
        return VERIFY_FAULT("call %d, rank %d%s: %s", c, r, at, words);
    }
    return ceclSuccess;
}
