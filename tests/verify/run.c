/* Walks the plans of all ranks in an order that the flags allow. On the way, every event gets its
 * vector clock, every access to memory is noted, and tags that stand for source bytes move as the
 * copies would move the bytes.
 *
 * An actor is a lane of a rank. The events of one actor have an order. Between actors, only flags
 * and AFTER make an order. In every possible run, a wait ends with the first signal of at least its
 * value, because flags only grow and each flag has one writer. So what a wait guarantees does not
 * depend on the order of the walk, and neither do the clocks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "verify/internal.h"

static ceclResult_t note(struct verifier *v, const struct cecl_place *place, uint64_t low,
                         uint64_t bytes, int actor, bool write)
{
    struct verify_accesses *a = &v->accesses[place->area * v->nranks + place->rank];
    if (a->count == a->capacity) {
        const size_t capacity = a->capacity ? a->capacity * 2 : 64;
        struct verify_access *list = realloc(a->list, capacity * sizeof(*list));
        if (!list)
            return cecl_fail(ceclOutOfMemory, "no host memory for the verifier");
        a->list = list;
        a->capacity = capacity;
    }
    a->list[a->count++] = (struct verify_access){.low = low,
                                                 .high = low + bytes,
                                                 .actor = (uint32_t)actor,
                                                 .event = v->actors[actor].nevents,
                                                 .write = write};
    return ceclSuccess;
}

/* Adds an event to an actor, after its last one. `step`: the step that it is; UINT32_MAX: the
 * user's turn. */
static uint32_t *new_event(struct verifier *v, int actor, uint32_t step)
{
    struct verify_actor *me = &v->actors[actor];
    uint32_t *clock = verify_clock(v, actor, me->nevents + 1);
    memcpy(clock, verify_clock(v, actor, me->nevents), (size_t)v->nactors * sizeof(*clock));
    clock[actor] = ++me->nevents;
    *verify_origin(v, actor, me->nevents) =
        (struct verify_origin){v->ranks[actor / v->nlanes].call, step};
    return clock;
}

/* Orders `clock` after an event of another actor, and after all that precedes that event. */
static void join(const struct verifier *v, uint32_t *clock, int actor, uint32_t event)
{
    const uint32_t *theirs = verify_clock(v, actor, event);
    for (int a = 0; a < v->nactors; a++)
        if (theirs[a] > clock[a])
            clock[a] = theirs[a];
}

/* ---- the user's turns: the user may use the buffers before the first call, between calls, and
 * after the last */

/* The user may do anything with all buffers between calls. This counts as a write to all of them.
 * The user is ordered after the main lane alone. */
static ceclResult_t users_turn(struct verifier *v, int rank)
{
    struct verify_rank *me = &v->ranks[rank];
    const int actor = verify_actor(v, rank, CECL_LANE_MAIN);
    new_event(v, actor, UINT32_MAX);
    for (int w = 0; w < v->nareas; w++)
        if (cecl_area_is_users((uint32_t)w) && v->area_bytes[w] > 0) {
            const struct cecl_place all = {.area = (uint16_t)w, .rank = (uint16_t)rank};
            CECL_TRY(note(v, &all, 0, v->area_bytes[w], actor, true));
        }
    if (me->call > 0 && verify_output(v, me->call - 1, rank) != ceclSuccess && !v->wrong_data) {
        /* the walk goes on, because a race that shows later may be the cause */
        v->wrong_data = true;
        cecl_keep_message(v->words);
    }
    if (me->call < v->ncalls)
        verify_renew(v, me->call, rank);
    else
        me->done = true;
    me->begun = true;
    for (int lane = 0; lane < v->nlanes; lane++) {
        struct verify_actor *a = &v->actors[verify_actor(v, rank, lane)];
        a->step = 0;
        a->before = a->nevents;
    }
    return ceclSuccess;
}

/* ---- steps */

/* The index of the flag at `holder` of a row that `writer` raises. */
static size_t flag_of(const struct verifier *v, int holder, int writer, uint32_t row)
{
    return ((size_t)holder * (size_t)v->nranks + (size_t)writer) * CECL_ROWS + row;
}

static uint32_t *signal_at(const struct verifier *v, size_t flag, uint64_t value)
{
    return &v->signals[flag * (size_t)(v->most_phases + 1) + (size_t)value];
}

/* Raises the flag of `row` at step->peer in a new event. */
static ceclResult_t do_signal(struct verifier *v, int rank, const struct cecl_step *step,
                              uint32_t at, uint32_t row)
{
    const int actor = verify_actor(v, rank, step->lane);
    const uint64_t value = verify_base(v, v->ranks[rank].call, (int)row) + step->phase;
    const size_t flag = flag_of(v, step->peer, rank, row);
    if (value <= v->highest[flag])
        return VERIFY_FAULT("call %d, rank %d, step %" PRIu32
                            ": the flag at rank %u does not grow: phase %" PRIu32 " again",
                            v->ranks[rank].call, rank, at, step->peer, step->phase);
    v->highest[flag] = value;
    new_event(v, actor, at);
    *signal_at(v, flag, value) = v->actors[actor].nevents;
    return ceclSuccess;
}

/* The event that ends the wait, or 0 if that event has not happened yet. */
static uint32_t awaited(const struct verifier *v, int rank, const struct cecl_step *step)
{
    const uint64_t value = verify_base(v, v->ranks[rank].call, (int)step->first) + step->phase;
    const size_t flag = flag_of(v, rank, step->peer, step->first);
    for (uint64_t x = value; x <= v->highest[flag]; x++)
        if (*signal_at(v, flag, x))
            return *signal_at(v, flag, x);
    return 0;
}

/* Finds the last event of the other lane among its steps before step `at`, or the lane's last event
 * before the call if there are none. Returns false if the other lane has not reached that event
 * yet. */
static bool other_lane(const struct verifier *v, int rank, const struct cecl_plan *plan,
                       uint32_t at, uint32_t *event)
{
    const struct verify_actor *other =
        &v->actors[verify_actor(v, rank, (int)plan->steps[at].first)];
    *event = other->before;
    for (uint32_t s = 0; s < at; s++)
        if (plan->steps[s].lane == plan->steps[at].first) {
            if (s >= other->step)
                return false;
            ++*event; /* each step is an event */
        }
    return true;
}

static ceclResult_t do_row(struct verifier *v, int actor, const struct cecl_copy *copy,
                           uint64_t row)
{
    const uint64_t to = copy->dst.offset + row * copy->dst_pitch,
                   from = copy->src.offset + row * copy->src_pitch;
    CECL_TRY(note(v, &copy->src, from, copy->bytes, actor, false));
    CECL_TRY(note(v, &copy->dst, to, copy->bytes, actor, true));
    memmove(verify_tags(v, copy->dst.area, copy->dst.rank) + to,
            verify_tags(v, copy->src.area, copy->src.rank) + from,
            (size_t)copy->bytes * sizeof(uint32_t));
    uint32_t *writes = verify_writes(v, copy->dst.area, copy->dst.rank) + to;
    for (uint64_t b = 0; b < copy->bytes; b++)
        writes[b]++;
    return ceclSuccess;
}

static ceclResult_t do_copies(struct verifier *v, int actor, const struct cecl_plan *plan,
                              const struct cecl_step *step)
{
    for (uint32_t i = 0; i < step->count; i++)
        for (uint64_t row = 0; row < plan->copies[step->first + i].rows; row++)
            CECL_TRY(do_row(v, actor, &plan->copies[step->first + i], row));
    return ceclSuccess;
}

/* The data and its flag arrive together: a rank that has seen the flag has the data. */
static ceclResult_t do_post(struct verifier *v, int rank, const struct cecl_plan *plan, uint32_t at)
{
    const struct cecl_step *step = &plan->steps[at];
    CECL_TRY(do_signal(v, rank, step, at, CECL_ROW_SLOTS));
    return do_row(v, verify_actor(v, rank, step->lane), &plan->copies[step->first], 0);
}

static bool is_same(const struct cecl_place *a, const struct cecl_place *b)
{
    return a->area == b->area && a->rank == b->rank && a->offset == b->offset;
}

static ceclResult_t do_reduction(struct verifier *v, int actor, const struct cecl_plan *plan,
                                 const struct cecl_reduce *reduce)
{
    const struct cecl_place *dst = &reduce->dst;
    struct cecl_place src[CECL_MAX_RANKS];
    uint32_t *result = verify_tags(v, dst->area, dst->rank) + dst->offset;
    uint32_t *writes = verify_writes(v, dst->area, dst->rank) + dst->offset;
    for (uint32_t s = 0; s < reduce->nsrc; s++)
        src[s] = verify_source(v, plan, &plan->sources[reduce->first + s]);
    for (uint32_t s = 0; s < reduce->nsrc; s++)
        /* a source that is dst itself is no access of its own: each element is read before it is
         * written */
        if (!is_same(&src[s], dst))
            CECL_TRY(note(v, &src[s], src[s].offset, reduce->bytes, actor, false));
    CECL_TRY(note(v, dst, dst->offset, reduce->bytes, actor, true));
    for (uint64_t b = 0; b < reduce->bytes; b++) {
        uint32_t tag = verify_tags(v, src[0].area, src[0].rank)[src[0].offset + b];
        for (uint32_t s = 1; s < reduce->nsrc; s++)
            tag = verify_combine(tag, verify_tags(v, src[s].area, src[s].rank)[src[s].offset + b]);
        result[b] = tag;
        writes[b]++;
    }
    return ceclSuccess;
}

/* The actor that raises the flags of a row: the row's lane, and the main lane for flags in
 * slots. */
static int row_actor(const struct verifier *v, int rank, uint32_t row)
{
    return verify_actor(v, rank, row == CECL_ROW_SLOTS ? CECL_LANE_MAIN : (int)row);
}

/* Does one step of a rank. *stuck: the step has to wait. */
static ceclResult_t do_step(struct verifier *v, int rank, const struct cecl_plan *plan, uint32_t at,
                            bool *stuck)
{
    const struct cecl_step *step = &plan->steps[at];
    const int actor = verify_actor(v, rank, step->lane);
    uint32_t event;
    *stuck = false;
    switch ((enum cecl_step_kind)step->kind) {
    case CECL_STEP_SIGNAL: return do_signal(v, rank, step, at, step->lane);
    case CECL_STEP_POST: return do_post(v, rank, plan, at);
    case CECL_STEP_WAIT:
        event = awaited(v, rank, step);
        *stuck = event == 0;
        if (!*stuck)
            join(v, new_event(v, actor, at), row_actor(v, step->peer, step->first), event);
        return ceclSuccess;
    case CECL_STEP_AFTER:
        *stuck = !other_lane(v, rank, plan, at, &event);
        if (!*stuck)
            join(v, new_event(v, actor, at), verify_actor(v, rank, (int)step->first), event);
        return ceclSuccess;
    case CECL_STEP_COPY: new_event(v, actor, at); return do_copies(v, actor, plan, step);
    case CECL_STEP_REDUCE:
        new_event(v, actor, at);
        for (uint32_t i = 0; i < step->count; i++)
            CECL_TRY(do_reduction(v, actor, plan, &plan->reductions[step->first + i]));
        return ceclSuccess;
    }
    return ceclSuccess; /* verify_form refuses all other kinds */
}

/* Walks a lane of a rank as far as it can go in this call. */
static ceclResult_t advance_lane(struct verifier *v, int rank, int lane, bool *moved)
{
    struct verify_actor *me = &v->actors[verify_actor(v, rank, lane)];
    const struct cecl_plan *plan = verify_plan(v, v->ranks[rank].call, rank);
    bool stuck = false;
    while (me->step < plan->nsteps) {
        if (plan->steps[me->step].lane == lane) {
            CECL_TRY(do_step(v, rank, plan, me->step, &stuck));
            if (stuck)
                return ceclSuccess;
        }
        me->step++;
        *moved = true;
    }
    return ceclSuccess;
}

/* Walks `rank` as far as it can go. */
static ceclResult_t advance(struct verifier *v, int rank, bool *moved)
{
    struct verify_rank *me = &v->ranks[rank];
    while (!me->done) {
        bool over = true;
        if (!me->begun) {
            CECL_TRY(users_turn(v, rank));
            *moved = true;
            continue;
        }
        for (int lane = 0; lane < v->nlanes; lane++) {
            CECL_TRY(advance_lane(v, rank, lane, moved));
            over = over && v->actors[verify_actor(v, rank, lane)].step ==
                               verify_plan(v, me->call, rank)->nsteps;
        }
        if (!over)
            return ceclSuccess;
        me->call++;
        me->begun = false;
    }
    return ceclSuccess;
}

/* Reports what a rank that did not reach its end is waiting for. */
static ceclResult_t report_deadlock(const struct verifier *v, int rank)
{
    const struct cecl_plan *plan = verify_plan(v, v->ranks[rank].call, rank);
    uint32_t at = plan->nsteps;
    for (int lane = 0; lane < v->nlanes; lane++) {
        const uint32_t step = v->actors[verify_actor(v, rank, lane)].step;
        if (step < plan->nsteps && (at == plan->nsteps || plan->steps[at].kind == CECL_STEP_AFTER))
            at = step;
    }
    return VERIFY_FAULT("deadlock: call %d, rank %d, step %" PRIu32
                        " waits for rank %u to come to phase %" PRIu32,
                        v->ranks[rank].call, rank, at, plan->steps[at].peer, plan->steps[at].phase);
}

ceclResult_t verify_run(struct verifier *v)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < v->nranks; r++)
            CECL_TRY(advance(v, r, &moved));
    }
    for (int r = 0; r < v->nranks; r++)
        if (!v->ranks[r].done)
            return report_deadlock(v, r);
    return ceclSuccess;
}
