/* Checks the form of plans: every index, area and size is within bounds. After this check, the rest of the
 * verifier cannot read out of range, whatever plan it gets. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "verify/internal.h"

#define PHASES_MAX (1u << 20)
/* The most bytes that an area may have on all ranks together, because each used byte costs a tag on every
 * rank. */
#define AREA_MAX (1u << 26)

/* Whether an area of `bytes` on each rank can be tracked. The product must not overflow. */
static bool trackable(const struct verifier *v, uint64_t bytes)
{
    return bytes <= AREA_MAX / (uint64_t)v->nranks;
}

/* Checks that a rank's private layout is small enough to track. */
static ceclResult_t check_own_layout(const struct cecl_call *mine)
{
    for (uint32_t w = 0; w < mine->layout_words; w++)
        if (mine->view.layout[w] > AREA_MAX)
            return VERIFY_FAULT("word %" PRIu32 " of the layout is %" PRIu64
                                ": too far to be tracked",
                                w, mine->view.layout[w]);
    return ceclSuccess;
}

/* If each rank has a private layout, checks that both ends of each block agree on its size and place. */
static ceclResult_t check_pairs(const struct verifier *v, const struct cecl_plan *plan,
                                uint32_t part)
{
    const struct cecl_call *mine = &cecl_plan_part(plan, part)->call;
    for (int p = 0; cecl_op_has_both_buffers(mine->op) && p < v->nranks; p++) {
        const struct cecl_call *theirs = &verify_part_at(v, plan, part, p)->call;
        const struct cecl_block sent = cecl_call_block(mine, mine->rank, p),
                                received = cecl_call_block(theirs, mine->rank, p);
        if (sent.bytes != received.bytes ||
            (sent.bytes > 0 && sent.recv_offset != received.recv_offset))
            return VERIFY_FAULT("the block for rank %d is not the one that it receives", p);
    }
    return ceclSuccess;
}

/* Whether a layout has the required length, and is present if the call needs one. */
static bool has_its_layout(const struct cecl_call *call)
{
    const uint32_t words = call->view.layout ? cecl_layout_words(call->op, call->nranks) : 0;
    if (call->op->has_tiles)
        return call->view.layout && call->layout_words > 1 && call->view.layout[0] > 0 &&
               call->view.layout[0] <= CECL_TILES_MAX / (uint64_t)call->nranks &&
               call->layout_words == 1 + call->view.layout[0] * (uint64_t)call->nranks;
    const bool needs_one =
        call->op->family == CECL_FAMILY_OWN_LAYOUT || call->op->family == CECL_FAMILY_SPLITS;
    return call->layout_words == words && (words > 0 || !needs_one);
}

/* Checks that the blocks of a layout end within the trackable range, and are equal on all ranks. */
static ceclResult_t check_layout(const struct cecl_call *mine, const struct cecl_call *zero)
{
    if (!mine->view.layout != !zero->view.layout || mine->layout_words != zero->layout_words)
        return VERIFY_FAULT("ranks are in different calls");
    if (!has_its_layout(mine))
        return VERIFY_FAULT("a layout of %" PRIu32 " words: missing, or not of this call",
                            mine->layout_words);
    if (mine->op->has_tiles && mine->view.layout[0] != zero->view.layout[0])
        return VERIFY_FAULT("ranks differ in the number of tiles");
    if (mine->op->family == CECL_FAMILY_OWN_LAYOUT || mine->op->has_tiles)
        return check_own_layout(mine);
    if (mine->op->family == CECL_FAMILY_SPLITS)
        return verify_splits_alike(mine, zero);
    for (int r = 0; mine->view.layout && r < mine->nranks; r++) {
        const struct cecl_block one = cecl_call_block(mine, r, 0),
                                other = cecl_call_block(zero, r, 0);
        if (one.bytes != other.bytes || one.recv_offset != other.recv_offset)
            return VERIFY_FAULT("ranks differ in the block of rank %d", r);
        if (one.bytes > mine->bytes || one.recv_offset > AREA_MAX)
            return VERIFY_FAULT("block of rank %d: %" PRIu64 " bytes at %" PRIu64
                                ": larger than the largest, or too far to be tracked",
                                r, one.bytes, one.recv_offset);
    }
    return ceclSuccess;
}

/* Checks that rows and blocks do not overlap, end within the trackable range, and are equal on all ranks. */
static ceclResult_t check_shape(const struct cecl_call *mine, const struct cecl_call *zero)
{
    const struct cecl_shape *s = &mine->view.shape;
    const uint64_t largest[] = {s->width,       s->rows,       s->send_pitch,
                                s->send_stride, s->recv_pitch, s->recv_stride};
    if (memcmp(s, &zero->view.shape, sizeof(*s)) != 0)
        return VERIFY_FAULT("ranks differ in the shape of blocks");
    if (s->width == 0 && !mine->op->has_tiles)
        return ceclSuccess;
    for (size_t i = 0; i < sizeof(largest) / sizeof(largest[0]); i++)
        if (largest[i] > AREA_MAX)
            return VERIFY_FAULT("a shape of %" PRIu64 ": more than can be tracked", largest[i]);
    if (s->rows < 1 || s->width * s->rows != mine->bytes || s->send_pitch < s->width ||
        s->recv_pitch < s->width || !mine->view.layout != !mine->op->has_tiles ||
        (mine->op->has_tiles && s->rows % mine->view.layout[0] != 0))
        return VERIFY_FAULT("a shape of %" PRIu64 " rows of %" PRIu64 " in blocks of %" PRIu64,
                            s->rows, s->width, mine->bytes);
    return ceclSuccess;
}

static ceclResult_t check_call(const struct verifier *v, const struct cecl_call *call)
{
    /* This check comes last: a tag that wraps around would represent two bytes. */
    const uint64_t send = verify_send_bytes(call), recv = verify_recv_bytes(call);
    if (cecl_call_is_empty(call) || call->bytes > AREA_MAX || !trackable(v, recv) ||
        !trackable(v, send) ||
        (uint64_t)v->ncalls * v->nparts * (uint64_t)v->nranks * (send > recv ? send : recv) >=
            UINT32_MAX)
        return VERIFY_FAULT("blocks of %" PRIu64
                            " bytes: 1 at least, and no more than can be tracked byte by byte",
                            call->bytes);
    return ceclSuccess;
}

/* Returns the end of the part of staging that a plan may use. */
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

static ceclResult_t check_rows(const struct cecl_copy *copy, uint64_t pitch, const char *what)
{
    if (copy->rows < 1 || copy->rows > AREA_MAX || copy->bytes > AREA_MAX ||
        (copy->rows > 1 && (pitch < copy->bytes || pitch > AREA_MAX)))
        return VERIFY_FAULT("%s of a copy: %" PRIu64 " rows of %" PRIu64 " bytes, %" PRIu64
                            " apart",
                            what, copy->rows, copy->bytes, pitch);
    return ceclSuccess;
}

/* Returns the number of bytes of the area that `place` is in. */
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
    CECL_TRY(check_rows(copy, pitch, what));
    const uint64_t bytes = copy->bytes ? cecl_rows_extent(copy->bytes, copy->rows, pitch) : 0;
    if (place->rank >= v->nranks || part >= cecl_plan_parts(plan) ||
        (part > 0 && kind >= CECL_AREA_STAGING))
        return VERIFY_FAULT("%s of a copy is in area %u of rank %u: there is none", what,
                            place->area, place->rank);
    const struct cecl_call *call = &verify_part_at(v, plan, part, place->rank)->call;
    const uint64_t size = size_of_area(plan, call, kind);
    if (bytes == 0 || bytes > size || place->offset > size - bytes)
        return VERIFY_FAULT("%s of a copy is out of its area: offset %" PRIu64 ", %" PRIu64
                            " bytes, the area has %" PRIu64,
                            what, place->offset, bytes, size);
    if (!trackable(v, place->offset + bytes))
        return VERIFY_FAULT("%s of a copy ends at byte %" PRIu64
                            " of staging: more than can be tracked byte by byte",
                            what, place->offset + bytes);
    if (kind == CECL_AREA_SEND && verify_input_area(call) != CECL_AREA_SEND)
        return VERIFY_FAULT("%s of a copy is in sendbuff, which an in-place call does not have",
                            what);
    return ceclSuccess;
}

/* Whether any of these bytes of recvbuff belong to the rank's own block. */
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

/* Checks that a copy writes to the output or to staging. A copy must not write to an input, nor to the
 * rank's own block of an in-place call. */
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

/* If ranks came late, a rank knows its own buffers and those of ranks that came before it. */
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

/* Checks a reduction. Its sources may be on any rank; its result is on the rank that runs it. */
static ceclResult_t check_reduction(const struct verifier *v, const struct cecl_plan *plan,
                                    int rank, const struct cecl_reduce *reduce)
{
    if (reduce->part >= cecl_plan_parts(plan))
        return VERIFY_FAULT("a reduction is of part %" PRIu32 ": there is none", reduce->part);
    const struct cecl_copy input = {.bytes = reduce->bytes, .rows = 1},
                           result = {.dst = reduce->dst,
                                     .bytes = verify_result_bytes(plan, reduce),
                                     .rows = 1};
    if (reduce->nsrc < 1 || reduce->nsrc > (uint32_t)v->nranks || reduce->nsrc > plan->nsources ||
        reduce->first > plan->nsources - reduce->nsrc)
        return VERIFY_FAULT("a reduction is out of the plan's sources: %" PRIu32 " from %" PRIu32
                            " of %" PRIu32,
                            reduce->nsrc, reduce->first, plan->nsources);
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
    if (step->count < 1 || step->count > plan->nreductions ||
        step->first > plan->nreductions - step->count)
        return VERIFY_FAULT("a step is out of the plan's reductions: %" PRIu32 " from %" PRIu32
                            " of %" PRIu32,
                            step->count, step->first, plan->nreductions);
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(check_reduction(v, plan, rank, &plan->reductions[step->first + i]));
    return ceclSuccess;
}

/* Whether a step of a plan may use this counter. Only a lane signals its own epoch. */
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

/* Whether the step's peer is this rank itself: a signal to all peers. */
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

/* Checks that data and its flags go to one peer's staging, from the main lane. */
static ceclResult_t check_post(const struct verifier *v, const struct cecl_plan *plan, int rank,
                               const struct cecl_step *step)
{
    if (step->first >= plan->ncopies || step->peer >= v->nranks || step->peer == rank ||
        step->lane != CECL_LANE_MAIN || step->phase < 1 ||
        step->phase > plan->phases[CECL_COUNTER_SLOTS])
        return VERIFY_FAULT("a post is out of the plan: copy %" PRIu32 ", peer %u, phase %" PRIu32,
                            step->first, step->peer, step->phase);
    const struct cecl_copy *copy = &plan->copies[step->first];
    if (copy->dst.rank != step->peer || copy->dst.area != CECL_AREA_STAGING || copy->rows != 1)
        return VERIFY_FAULT("a post to rank %u goes to area %u of rank %u", step->peer,
                            copy->dst.area, copy->dst.rank);
    return check_copy(v, plan, copy);
}

static ceclResult_t check_step(const struct verifier *v, const struct cecl_plan *plan, int rank,
                               const struct cecl_step *step)
{
    if (step->lane >= CECL_LANES)
        return VERIFY_FAULT("a step is on lane %u: there is none", step->lane);
    if (step->kind == CECL_STEP_SPLITS)
        return verify_splits_form(v, plan, step);
    if (step->kind == CECL_STEP_REDUCE)
        return check_reductions(v, plan, rank, step);
    if (step->kind == CECL_STEP_POST)
        return check_post(v, plan, rank, step);
    if (step->kind != CECL_STEP_COPY)
        return check_meeting(v, plan, rank, step);
    if (step->count < 1 || step->count > plan->ncopies || step->first > plan->ncopies - step->count)
        return VERIFY_FAULT("a batch is out of the plan's copies: %" PRIu32 " from %" PRIu32
                            " of %" PRIu32,
                            step->count, step->first, plan->ncopies);
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(check_copy(v, plan, &plan->copies[step->first + i]));
    return ceclSuccess;
}

/* Whether everything that ranks must agree on is equal, except the shape of their blocks. */
static bool is_same_call(const struct cecl_part *mine, const struct cecl_part *zero)
{
    const struct cecl_call *a = &mine->call, *b = &zero->call;
    const struct cecl_means *m = &mine->means, *n = &zero->means;
    return a->op == b->op && a->bytes == b->bytes &&
           cecl_call_is_in_place_on_all(a) == cecl_call_is_in_place_on_all(b) &&
           a->root == b->root && a->element == b->element && mine->way.small == zero->way.small &&
           mine->way.by_host == zero->way.by_host && m->host_bytes == n->host_bytes &&
           m->staging_bytes == n->staging_bytes && m->staging_offset == n->staging_offset &&
           m->half == n->half && m->late == n->late && m->slots_offset == n->slots_offset &&
           m->slot_bytes == n->slot_bytes && m->table_offset == n->table_offset &&
           m->table_bytes == n->table_bytes;
}

static ceclResult_t check_one_call(const struct verifier *v, int rank, const struct cecl_part *mine,
                                   const struct cecl_part *zero)
{
    const struct cecl_call *call = &mine->call;
    if (!call->op || !call->op->block)
        return VERIFY_FAULT("the plan is of no collective");
    if (call->rank != rank || call->nranks != v->nranks)
        return VERIFY_FAULT("the plan is of rank %d of %d", call->rank, call->nranks);
    if (call->root < 0 || call->root >= v->nranks || !is_same_call(mine, zero))
        return VERIFY_FAULT("ranks are in different calls");
    CECL_TRY(check_layout(call, &zero->call));
    CECL_TRY(check_shape(call, &zero->call));
    return check_call(v, call);
}

static ceclResult_t check_phases(const struct verifier *v, int call, const struct cecl_plan *plan)
{
    const struct cecl_plan *first = verify_plan(v, call, 0);
    for (int row = 0; row < CECL_PHASED; row++)
        if (plan->phases[row] != first->phases[row] || plan->phases[row] > PHASES_MAX)
            return VERIFY_FAULT("ranks have different phases: row %d: %" PRIu32
                                " on rank 0, %" PRIu32 " here",
                                row, first->phases[row], plan->phases[row]);
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
    for (uint32_t i = 0; i < nparts; i++)
        CECL_TRY(check_one_call(v, rank, cecl_plan_part(plan, i), cecl_plan_part(first, i)));
    return check_phases(v, call, plan);
}

/* Runs the checks that require all calls to be valid. *step: the step that is checked; unchanged before the
 * first step. */
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
        /* the first pass checks all calls, the second all steps */
        const bool steps = i >= v->ncalls * v->nranks;
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
