/* Walks the plans of all ranks in an order that the flags allow. Meanwhile every event gets its vector clock, every
 * access to memory is recorded, and tags, which stand for source bytes, move as the copies would move the bytes.
 *
 * An actor is a lane of a rank. The events of one actor have an order. Between actors, only flags and AFTER create one.
 * In every possible run, a wait ends with the first signal of at least its value: flags only grow, each flag has one
 * writer, and its signals have an order, which is checked. So neither what a wait guarantees nor the clocks depend on
 * the order of the walk. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "verify/internal.h"

ceclResult_t verify_note(struct verifier *v, const struct cecl_place *place, uint64_t low,
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

uint32_t *verify_event(struct verifier *v, int actor, uint32_t step)
{
    struct verify_actor *me = &v->actors[actor];
    uint32_t *clock = verify_clock(v, actor, me->nevents + 1);
    memcpy(clock, verify_clock(v, actor, me->nevents), (size_t)v->nactors * sizeof(*clock));
    clock[actor] = ++me->nevents;
    *verify_origin(v, actor, me->nevents) =
        (struct verify_origin){v->ranks[actor / v->nlanes].launch, step};
    return clock;
}

/* Orders `clock` after an event of another actor, and after all that precedes that event. */
void verify_join(const struct verifier *v, uint32_t *clock, int actor, uint32_t event)
{
    const uint32_t *theirs = verify_clock(v, actor, event);
    for (int a = 0; a < v->nactors; a++)
        if (theirs[a] > clock[a])
            clock[a] = theirs[a];
}

/* ---- the user's turns: before the first call, between calls, and after the last, the user may use the buffers */

static ceclResult_t user_takes(struct verifier *v, int rank, int memory)
{
    const struct cecl_place all = {.area = (uint16_t)memory, .rank = (uint16_t)rank};
    return v->area_bytes[memory] == 0 ? ceclSuccess
                                      : verify_note(v, &all, 0, v->area_bytes[memory],
                                                    verify_actor(v, rank, CECL_LANE_MAIN), true);
}

/* The user owns the memory of a launch's messages before and after the launch. */
static ceclResult_t user_takes_messages(struct verifier *v, int rank, int at)
{
    if (at < 0 || at >= verify_nlaunches(v, rank))
        return ceclSuccess;
    const struct cecl_verify_launch launch = verify_launch(v, rank, at);
    for (uint32_t i = 0; i < launch.nmessages; i++)
        CECL_TRY(user_takes(v, rank, v->nareas + (int)launch.messages[i]));
    return ceclSuccess;
}

/* Checks the output of the previous launch. After a fault the walk goes on, because a race that shows later may have
 * caused it. */
static void check_outcome(struct verifier *v, int rank, int at)
{
    if (at < 0)
        return;
    const struct cecl_verify_launch launch = verify_launch(v, rank, at);
    ceclResult_t result = launch.call >= 0 ? verify_output(v, launch.call, rank)
                                           : verify_messages_output(v, &launch, rank);
    if (result == ceclSuccess && !v->program)
        result = verify_barrier(v, launch.call, rank);
    if (result != ceclSuccess && !v->wrong_data) {
        v->wrong_data = true;
        cecl_keep_message(v->fault);
    }
}

/* Between calls the user may do anything with all buffers, which counts as a write to all of them. The user is ordered
 * after the main lane only. */
static ceclResult_t users_turn(struct verifier *v, int rank)
{
    struct verify_rank *me = &v->ranks[rank];
    const int actor = verify_actor(v, rank, CECL_LANE_MAIN);
    verify_event(v, actor, UINT32_MAX);
    me->turns[me->launch] = v->actors[actor].nevents;
    for (int w = 0; w < v->nareas; w++)
        if (cecl_area_is_users((uint32_t)w))
            CECL_TRY(user_takes(v, rank, w));
    CECL_TRY(user_takes_messages(v, rank, me->launch - 1));
    CECL_TRY(user_takes_messages(v, rank, me->launch));
    check_outcome(v, rank, me->launch - 1);
    me->done = me->launch == verify_nlaunches(v, rank);
    if (!me->done) {
        const struct cecl_verify_launch launch = verify_launch(v, rank, me->launch);
        if (launch.call >= 0)
            verify_renew(v, launch.call, rank);
        verify_messages_renew(v, &launch, rank);
    }
    me->begun = true;
    for (int lane = 0; lane < v->nlanes; lane++) {
        struct verify_actor *a = &v->actors[verify_actor(v, rank, lane)];
        a->step = 0;
        a->before = a->nevents;
    }
    return ceclSuccess;
}

static struct cecl_verify_launch launch_of(const struct verifier *v, int rank)
{
    return verify_launch(v, rank, v->ranks[rank].launch);
}

/* The index of the word in which `writer` writes a counter at `holder`. */
static size_t word_of(const struct verifier *v, int holder, int writer, uint32_t counter)
{
    return ((size_t)holder * (size_t)v->nranks + (size_t)writer) * v->ncounters + counter;
}

static struct verify_signal *signal_at(const struct verifier *v, size_t word, uint64_t value)
{
    return &v->signals[word * (size_t)(v->most_phases + 1) + (size_t)value];
}

/* The value of a counter at phase `k` of the rank's current launch. */
static uint64_t value_of(const struct verifier *v, int rank, uint32_t counter, uint32_t k)
{
    return k + (counter < CECL_PHASED ? verify_base(v, launch_of(v, rank).call, rank)[counter] : 0);
}

static bool is_reset(const struct verifier *v, uint32_t counter)
{
    return v->program && (v->program->resets >> counter & 1) != 0;
}

/* Raises a counter at step->peer, as a new event. */
static ceclResult_t do_signal(struct verifier *v, int rank, const struct cecl_step *step,
                              uint32_t at, uint32_t counter)
{
    if (verify_is_bits(counter))
        return verify_signal_bits(v, rank, step, at);
    const int actor = verify_actor(v, rank, step->lane), launch = v->ranks[rank].launch;
    const uint64_t value = value_of(v, rank, counter, step->phase);
    const size_t index = word_of(v, step->peer, rank, counter);
    struct verify_word *word = &v->words[index];
    verify_event(v, actor, at);
    if (verify_is_own(counter))
        return ceclSuccess; /* informs this rank's own host only */
    if (value <= word->highest)
        return VERIFY_FAULT("call %d, rank %d, step %" PRIu32
                            ": the flag at rank %u does not grow: phase %" PRIu32 " again",
                            launch, rank, at, step->peer, step->phase);
    if (!verify_is_after(v, actor, &word->by) || !verify_is_after(v, actor, &word->reset))
        return VERIFY_FAULT(
            "launch %d, rank %d, step %" PRIu32
            ": the signal to rank %u has no order with the one before, or its reset",
            launch, rank, at, step->peer);
    word->by = (struct verify_mark){(uint32_t)actor, v->actors[actor].nevents};
    word->highest = value;
    *signal_at(v, index, value) = (struct verify_signal){.by = word->by};
    return ceclSuccess;
}

/* The signal that ends the wait, or NULL if it has not come yet. */
static struct verify_signal *awaited(const struct verifier *v, int rank,
                                     const struct cecl_step *step)
{
    const uint64_t value = value_of(v, rank, step->counter, step->phase);
    const size_t word = word_of(v, rank, step->peer, step->counter);
    for (uint64_t x = value; x <= v->words[word].highest; x++)
        if (signal_at(v, word, x)->by.event)
            return signal_at(v, word, x);
    return NULL;
}

/* The wait also counts as the wait for all earlier signals of the counter. */
static void take_earlier(struct verifier *v, int rank, const struct cecl_step *step)
{
    const size_t word = word_of(v, rank, step->peer, step->counter);
    for (uint64_t x = value_of(v, rank, step->counter, step->phase); x > 0; x--)
        signal_at(v, word, x)->awaited = true;
}

/* Waits for a counter, and resets its word if the next run must find it reset. */
static ceclResult_t do_wait(struct verifier *v, int rank, const struct cecl_step *step, uint32_t at,
                            bool *stuck)
{
    const int actor = verify_actor(v, rank, step->lane);
    struct verify_signal *signal = awaited(v, rank, step);
    *stuck = !signal;
    if (*stuck)
        return ceclSuccess;
    verify_join(v, verify_event(v, actor, at), (int)signal->by.actor, signal->by.event);
    if (step->counter >= CECL_PHASED && signal->awaited)
        return VERIFY_FAULT("launch %d, rank %d, step %" PRIu32 ": a second wait for one signal",
                            v->ranks[rank].launch, rank, at);
    signal->awaited = true;
    if (v->program && (v->program->counted >> step->counter & 1) != 0)
        take_earlier(v, rank, step);
    if (is_reset(v, step->counter)) {
        struct verify_word *word = &v->words[word_of(v, rank, step->peer, step->counter)];
        word->reset = (struct verify_mark){(uint32_t)actor, v->actors[actor].nevents};
        word->highest = 0;
        signal->by.event = 0;
    }
    return ceclSuccess;
}

/* Finds the other lane's last event before step `at`; if that lane has no step before `at`, its last event before this
 * launch. False: the other lane has not come so far yet. */
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
            ++*event;
        }
    return true;
}

static ceclResult_t do_row(struct verifier *v, int actor, const struct cecl_copy *copy,
                           uint64_t row)
{
    const uint64_t to = copy->dst.offset + row * copy->dst_pitch,
                   from = copy->src.offset + row * copy->src_pitch;
    CECL_TRY(verify_note(v, &copy->src, from, copy->bytes, actor, false));
    CECL_TRY(verify_note(v, &copy->dst, to, copy->bytes, actor, true));
    memmove(verify_tags(v, copy->dst.area, copy->dst.rank) + to,
            verify_tags(v, copy->src.area, copy->src.rank) + from,
            (size_t)copy->bytes * sizeof(uint32_t));
    uint32_t *writes = verify_writes(v, copy->dst.area, copy->dst.rank) + to;
    for (uint64_t b = 0; b < copy->bytes; b++)
        writes[b]++;
    return ceclSuccess;
}

static ceclResult_t do_copies(struct verifier *v, int actor, int rank, const struct cecl_step *step)
{
    const struct cecl_verify_launch launch = launch_of(v, rank);
    for (uint32_t i = 0; i < step->count; i++) {
        struct cecl_copy copy = launch.plan->copies[step->first + i];
        if (launch.call < 0)
            copy = verify_message_copy(v, &launch, &copy);
        for (uint64_t row = 0; row < copy.rows; row++)
            CECL_TRY(do_row(v, actor, &copy, row));
    }
    return ceclSuccess;
}

/* The data comes with its flag: a rank that has seen the flag has the data. */
static ceclResult_t do_post(struct verifier *v, int rank, const struct cecl_plan *plan, uint32_t at)
{
    const struct cecl_step *step = &plan->steps[at];
    CECL_TRY(do_signal(v, rank, step, at, CECL_COUNTER_SLOTS));
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
        /* a source that is also dst is no extra access: each element is read before it is written */
        if (!is_same(&src[s], dst))
            CECL_TRY(verify_note(v, &src[s], src[s].offset, reduce->bytes, actor, false));
    const uint64_t bytes = verify_result_bytes(plan, reduce), each = bytes / reduce->bytes;
    CECL_TRY(verify_note(v, dst, dst->offset, bytes, actor, true));
    for (uint64_t b = 0; b < bytes; b++) {
        uint32_t tag = verify_tags(v, src[0].area, src[0].rank)[src[0].offset + b / each];
        for (uint32_t s = 1; s < reduce->nsrc; s++)
            tag = verify_combine(
                tag, verify_tags(v, src[s].area, src[s].rank)[src[s].offset + b / each]);
        result[b] = verify_reduced(tag);
        writes[b]++;
    }
    return ceclSuccess;
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
    case CECL_STEP_SIGNAL: return do_signal(v, rank, step, at, step->counter);
    case CECL_STEP_POST: return do_post(v, rank, plan, at);
    case CECL_STEP_WAIT:
        if (verify_is_bits(step->counter))
            return verify_wait_bit(v, rank, step, at, stuck);
        return do_wait(v, rank, step, at, stuck);
    case CECL_STEP_AFTER:
        *stuck = !other_lane(v, rank, plan, at, &event);
        if (!*stuck)
            verify_join(v, verify_event(v, actor, at), verify_actor(v, rank, (int)step->first),
                        event);
        return ceclSuccess;
    case CECL_STEP_COPY: verify_event(v, actor, at); return do_copies(v, actor, rank, step);
    case CECL_STEP_SPLITS:
        verify_event(v, actor, at);
        return verify_splits(v, launch_of(v, rank).call, rank, step);
    case CECL_STEP_REDUCE:
        verify_event(v, actor, at);
        for (uint32_t i = 0; i < step->count; i++)
            CECL_TRY(do_reduction(v, actor, plan, &plan->reductions[step->first + i]));
        return ceclSuccess;
    }
    return ceclSuccess; /* verify_form refuses all other kinds */
}

/* Draws which lane or rank goes on first, or for how many steps: a number below `below`, or `otherwise` if the order is
 * not random. */
static uint32_t draw(struct verifier *v, uint32_t below, uint32_t otherwise)
{
    if (v->draws == 0)
        return otherwise;
    v->draws = v->draws * 6364136223846793005u + 1442695040888963407u;
    v->draws |= v->draws == 0;
    return (uint32_t)(v->draws >> 33) % below;
}

/* Walks a lane of a rank in this launch until it has to wait, or for `most` steps. */
static ceclResult_t advance_lane(struct verifier *v, int rank, int lane, uint32_t most, bool *moved)
{
    struct verify_actor *me = &v->actors[verify_actor(v, rank, lane)];
    const struct cecl_plan *plan = launch_of(v, rank).plan;
    bool stuck = false;
    for (uint32_t i = 0; me->step < plan->nsteps && i < most; me->step++) {
        if (plan->steps[me->step].lane == lane) {
            CECL_TRY(do_step(v, rank, plan, me->step, &stuck));
            if (stuck)
                return ceclSuccess;
            i++;
        }
        *moved = true;
    }
    return ceclSuccess;
}

/* Walks `rank` until it has to wait; if the order is random, for a few steps only. */
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
        const int first = (int)draw(v, (uint32_t)v->nlanes, 0);
        for (int i = 0; i < v->nlanes; i++) {
            const int lane = (first + i) % v->nlanes;
            CECL_TRY(advance_lane(v, rank, lane, draw(v, 3, UINT32_MAX - 1) + 1, moved));
        }
        for (int lane = 0; lane < v->nlanes; lane++)
            over = over &&
                   v->actors[verify_actor(v, rank, lane)].step == launch_of(v, rank).plan->nsteps;
        if (!over)
            return ceclSuccess;
        me->launch++;
        me->begun = false;
    }
    return ceclSuccess;
}

static ceclResult_t report_deadlock(const struct verifier *v, int rank)
{
    const struct cecl_plan *plan = launch_of(v, rank).plan;
    uint32_t at = plan->nsteps;
    for (int lane = 0; lane < v->nlanes; lane++) {
        const uint32_t step = v->actors[verify_actor(v, rank, lane)].step;
        if (step < plan->nsteps && (at == plan->nsteps || plan->steps[at].kind == CECL_STEP_AFTER))
            at = step;
    }
    return VERIFY_FAULT(
        "deadlock: call %d, rank %d, step %" PRIu32 " waits for rank %u to come to phase %" PRIu32,
        v->ranks[rank].launch, rank, at, plan->steps[at].peer, plan->steps[at].phase);
}

ceclResult_t verify_run(struct verifier *v)
{
    for (bool moved = true; moved;) {
        moved = false;
        const int first = (int)draw(v, (uint32_t)v->nranks, 0);
        for (int r = 0; r < v->nranks; r++)
            CECL_TRY(advance(v, (first + r) % v->nranks, &moved));
    }
    for (int r = 0; r < v->nranks; r++)
        if (!v->ranks[r].done)
            return report_deadlock(v, r);
    return ceclSuccess;
}

/* Every signal of a counter without phases must have had a wait. */
ceclResult_t verify_awaited(const struct verifier *v)
{
    const size_t words = (size_t)v->nranks * (size_t)v->nranks * v->ncounters;
    for (size_t word = 0; word < words; word++)
        for (uint64_t x = 0; word % v->ncounters >= CECL_PHASED && x <= v->most_phases; x++)
            if (signal_at(v, word, x)->by.event && !signal_at(v, word, x)->awaited)
                return VERIFY_FAULT("no wait for the signal of rank %zu to rank %zu: counter %zu, "
                                    "number %" PRIu64,
                                    word / v->ncounters % (size_t)v->nranks,
                                    word / v->ncounters / (size_t)v->nranks, word % v->ncounters,
                                    x);
    return ceclSuccess;
}
