/* Turns a call's plan into the plan of a captured call; see capture.h. */
#include "ce/capture.h"

#include <stdlib.h>
#include <string.h>

#include "ce/bound.h"
#include "flags/turns.h"

/* One thing that a captured call does: it signals the next phase, waits for the phase that was signalled last, or
 * carries out a step of the plan. LEFT_OUT: nothing. */
enum item_kind { ITEM_SIGNAL, ITEM_WAIT, ITEM_STEP, ITEM_LEFT_OUT };
struct item {
    enum item_kind kind;
    uint32_t step;
};

struct capture {
    struct item *items;
    uint32_t nitems, nphases;
    uint32_t signal; /* index of the last signal; is_open: no wait has followed it */
    bool is_open;
    /* by lane: how many phases of the original plan are signalled so far, and how many of these the waits so far
     * cover */
    uint32_t signalled[CECL_LANES], covered[CECL_LANES];
};

static void add_item(struct capture *capture, enum item_kind kind, uint32_t step)
{
    capture->items[capture->nitems++] = (struct item){kind, step};
}

static void add_phase(struct capture *capture)
{
    capture->signal = capture->nitems;
    capture->is_open = true;
    capture->nphases++;
    add_item(capture, ITEM_SIGNAL, 0);
}

/* If no wait has followed the previous signal, the new signal replaces it. */
static void add_signal(struct capture *capture, uint32_t lane, uint32_t phase)
{
    if (capture->is_open) {
        capture->items[capture->signal].kind = ITEM_LEFT_OUT;
        capture->nphases--;
    }
    add_phase(capture);
    capture->signalled[lane] = phase;
}

static void add_wait(struct capture *capture)
{
    add_item(capture, ITEM_WAIT, 0);
    capture->is_open = false;
    memcpy(capture->covered, capture->signalled, sizeof(capture->covered));
}

/* In a captured call a wait is always for the phase that this rank has signalled last, and covers all phases before it.
 * So the plan may wait only for phases that the rank itself has signalled. */
static ceclResult_t add_wait_for(struct capture *capture, uint32_t lane, uint32_t phase)
{
    if (capture->signalled[lane] < phase)
        return cecl_fail(ceclInternalError,
                         "a captured call waits for phase %u, which this rank has not signalled",
                         phase);
    add_wait(capture);
    return ceclSuccess;
}

static ceclResult_t list_items(const struct cecl_plan *plan, struct capture *capture)
{
    const uint32_t peers = (uint32_t)plan->part.call.nranks - 1;
    for (uint32_t at = 0; at < plan->nsteps; at++) {
        const struct cecl_step *step = &plan->steps[at];
        if (step->kind == CECL_STEP_COPY || step->kind == CECL_STEP_REDUCE ||
            step->kind == CECL_STEP_SPLITS) {
            add_item(capture, ITEM_STEP, at);
        } else if (step->kind == CECL_STEP_SIGNAL || step->kind == CECL_STEP_WAIT) {
            if (step->counter >= CECL_LANES || !cecl_is_for_all(plan, at))
                return cecl_fail(ceclInternalError,
                                 "step %u of a captured call is not for all ranks", at);
            if (step->kind == CECL_STEP_SIGNAL)
                add_signal(capture, step->counter, step->phase);
            else if (capture->covered[step->counter] < step->phase)
                CECL_TRY(add_wait_for(capture, step->counter, step->phase));
            at += peers - 1;
        } else if (step->kind != CECL_STEP_AFTER) { /* AFTER only orders lanes */
            return cecl_fail(ceclInternalError, "step %u cannot be captured", at);
        }
    }
    return ceclSuccess;
}

/* Adds phases until there are at least three, and the call does not end with a wait. */
static void close_call(struct capture *capture)
{
    if (capture->nphases == 0)
        return;
    if (!capture->is_open)
        add_phase(capture);
    while (capture->nphases < CECL_TURNS_LEAST) {
        add_wait(capture);
        add_phase(capture);
    }
}

static void repeat_step(const struct cecl_plan *plan, uint32_t at, struct cecl_plan *built)
{
    struct cecl_step step = plan->steps[at];
    step.lane = CECL_LANE_MAIN;
    cecl_plan_repeat(built, &step);
}

/* Whether the call begins and ends with a signal. Then the signals alone tell the host that the call is running. */
static bool shows_itself(const struct capture *capture)
{
    uint32_t first = 0, last = capture->nitems;
    while (first < last && capture->items[first].kind == ITEM_LEFT_OUT)
        first++;
    return first < last && capture->items[first].kind == ITEM_SIGNAL &&
           capture->items[last - 1].kind == ITEM_SIGNAL;
}

/* Signals a phase. At phase 1 and at the last phase two words change, and the word for which peers then wait is written
 * last. Phase 1 first clears the previous call's bits in TURN, then writes CALL. The last phase first sets CALL to 0,
 * then writes TURN. */
static void emit_signal(struct cecl_plan *built, uint32_t phase, uint32_t n)
{
    const int rank = built->part.call.rank;
    if (phase == n)
        cecl_plan_raise(built, rank, CECL_COUNTER_CALL, 0);
    cecl_plan_raise(built, rank, CECL_COUNTER_TURN, cecl_turns_word(phase, n, built->number));
    if (phase == 1)
        cecl_plan_raise(built, rank, CECL_COUNTER_CALL, built->number);
}

static void emit_wait(struct cecl_plan *built, uint32_t phase, uint32_t n)
{
    if (phase == 1)
        cecl_plan_wait_all(built, CECL_COUNTER_CALL, built->number);
    else
        cecl_plan_wait_all(built, CECL_COUNTER_TURN, cecl_turns_bit(phase, n));
}

static void emit_items(const struct capture *capture, const struct cecl_plan *plan,
                       struct cecl_plan *built)
{
    const int rank = plan->part.call.rank;
    const uint32_t n = capture->nphases;
    const bool tells = capture->nitems > 0 && !shows_itself(capture);
    uint32_t phase = 0;
    if (tells)
        cecl_plan_raise(built, rank, CECL_COUNTER_REPLAY, CECL_REPLAY_BEGUN);
    if (n > 0)
        emit_wait(built, 0, n);
    for (uint32_t i = 0; i < capture->nitems; i++)
        switch (capture->items[i].kind) {
        case ITEM_SIGNAL: emit_signal(built, ++phase, n); break;
        case ITEM_WAIT: emit_wait(built, phase, n); break;
        case ITEM_STEP: repeat_step(plan, capture->items[i].step, built); break;
        case ITEM_LEFT_OUT: break;
        }
    if (tells)
        cecl_plan_raise(built, rank, CECL_COUNTER_REPLAY, CECL_REPLAY_ENDED);
}

/* Replaces the plan's steps by the steps of the captured call, and keeps the rest of the plan. */
static ceclResult_t rebuild(struct cecl_plan *plan, struct capture *capture)
{
    struct cecl_plan built;
    CECL_TRY(list_items(plan, capture));
    close_call(capture);
    cecl_plan_init(&built, &plan->part);
    built.number = plan->number;
    emit_items(capture, plan, &built);
    CECL_TRY(cecl_plan_finish(&built));
    free(plan->steps);
    plan->steps = built.steps;
    plan->nsteps = built.nsteps;
    plan->steps_capacity = built.steps_capacity;
    return ceclSuccess;
}

ceclResult_t cecl_plan_capture(struct cecl_plan *plan, bool meets, uint32_t number)
{
    plan->number = number;
    if (cecl_plan_is_small(plan) || (meets && cecl_fuses_all(plan)))
        return ceclSuccess;
    const size_t most = (size_t)plan->nsteps + 2 * CECL_TURNS_LEAST;
    struct capture capture = {.items = malloc(most * sizeof(*capture.items))};
    const ceclResult_t result =
        capture.items ? rebuild(plan, &capture)
                      : cecl_fail(ceclOutOfMemory, "no host memory for a captured call of %u steps",
                                  plan->nsteps);
    free(capture.items);
    if (result != ceclSuccess)
        cecl_plan_free(plan);
    return result;
}
