/* Turns a call's plan into the plan of a captured call; see capture.h. */
#include "ce/capture.h"

#include <stdlib.h>

#include "ce/bound.h"
#include "flags/turns.h"

/* One thing that a captured call does: all signals of a phase, all waits of a phase, or a step. Items are
 * in the order of the call. */
enum item_kind { ITEM_SIGNAL, ITEM_WAIT, ITEM_STEP };
struct item {
    enum item_kind kind;
    uint32_t index; /* of the phase, or of the step */
};

/* A phase. Phases are listed in the order of their signals. */
struct phase {
    /* in the call's own plan; number 0: the phase is not in that plan */
    uint32_t counter, number;
    uint32_t signalled, awaited; /* indices of items, or NOWHERE */
    uint32_t turn;
};
#define NOWHERE UINT32_MAX

struct capture {
    struct item *items;
    struct phase *phases;
    uint32_t nitems, nphases;
};

static void add_item(struct capture *capture, enum item_kind kind, uint32_t index)
{
    capture->items[capture->nitems++] = (struct item){kind, index};
}

static void add_signal(struct capture *capture, uint32_t counter, uint32_t number)
{
    capture->phases[capture->nphases] =
        (struct phase){counter, number, capture->nitems, NOWHERE, NOWHERE};
    add_item(capture, ITEM_SIGNAL, capture->nphases++);
}

/* Adds waits for phases of a counter, up to this phase: for each phase that no lane has waited for yet. */
static void add_waits(struct capture *capture, uint32_t counter, uint32_t number)
{
    for (uint32_t p = 0; p < capture->nphases; p++) {
        struct phase *phase = &capture->phases[p];
        if (phase->counter != counter || phase->number > number || phase->awaited != NOWHERE)
            continue;
        phase->awaited = capture->nitems;
        add_item(capture, ITEM_WAIT, p);
    }
}

/* Whether steps [at, at + peers) are signals to all peers of one phase, or waits for all. */
static bool is_for_all(const struct cecl_plan *plan, uint32_t at)
{
    const int ranks = cecl_part_peers(&plan->part);
    const struct cecl_step *steps = &plan->steps[at];
    if (ranks < 2 || plan->nsteps - at < (uint32_t)ranks - 1 || steps->counter >= CECL_LANES)
        return false;
    for (int i = 0; i < ranks - 1; i++)
        if (steps[i].kind != steps->kind || steps[i].counter != steps->counter ||
            steps[i].phase != steps->phase || steps[i].peer != cecl_part_peer(&plan->part, i + 1))
            return false;
    return true;
}

/* Whether the step stays as it is. A step of an exchange also stays: on one lane the exchange has ended when
 * later steps begin. */
static bool stays(const struct cecl_step *step)
{
    return step->kind == CECL_STEP_COPY || step->kind == CECL_STEP_REDUCE ||
           step->kind == CECL_STEP_SPLITS || step->kind == CECL_STEP_EXCHANGE;
}

/* Whether the step only orders lanes. */
static bool orders_lanes(const struct cecl_step *step)
{
    return step->kind == CECL_STEP_AFTER ||
           (step->kind == CECL_STEP_WAIT && step->counter == CECL_COUNTER_NET);
}

static ceclResult_t list_items(const struct cecl_plan *plan, struct capture *capture)
{
    const uint32_t peers = (uint32_t)cecl_part_peers(&plan->part) - 1;
    for (uint32_t at = 0; at < plan->nsteps; at++) {
        const struct cecl_step *step = &plan->steps[at];
        if (stays(step)) {
            add_item(capture, ITEM_STEP, at);
        } else if (step->kind == CECL_STEP_SIGNAL ||
                   (step->kind == CECL_STEP_WAIT && !orders_lanes(step))) {
            if (!is_for_all(plan, at))
                return cecl_fail(ceclInternalError,
                                 "step %u of a captured call is not for all ranks", at);
            if (step->kind == CECL_STEP_SIGNAL)
                add_signal(capture, step->counter, step->phase);
            else
                add_waits(capture, step->counter, step->phase);
            at += peers - 1;
        } else if (!orders_lanes(step)) {
            return cecl_fail(ceclInternalError, "step %u cannot be captured", at);
        }
    }
    if (capture->nphases == 1)
        add_signal(capture, capture->phases[0].counter, capture->phases[0].number + 1);
    add_waits(capture, CECL_LANE_MAIN, UINT32_MAX);
    add_waits(capture, CECL_LANE_SIDE, UINT32_MAX);
    return ceclSuccess;
}

/* The item after which peers may set the word of a phase again; NOWHERE: only in the next call. */
static uint32_t free_from(const struct capture *capture, const struct phase *phase)
{
    for (uint32_t p = 0; p < capture->nphases; p++)
        if (capture->phases[p].signalled > phase->awaited)
            return capture->phases[p].awaited;
    return NOWHERE;
}

/* Whether phase p may take a word. Words of the previous call's last phases are free once ranks have met in
 * the first phase of this call. */
static bool may_take(const struct capture *capture, uint32_t p, uint32_t turn)
{
    const struct phase *mine = &capture->phases[p];
    uint32_t from = turn == 0 ? 0 : capture->phases[0].awaited + 1;
    if (turn == 0 && free_from(capture, mine) == NOWHERE)
        return false;
    for (uint32_t q = 0; q < p; q++)
        if (capture->phases[q].turn == turn) {
            const uint32_t freed = free_from(capture, &capture->phases[q]);
            from = freed == NOWHERE ? NOWHERE : freed + 1;
        }
    return from <= mine->signalled;
}

static ceclResult_t take_turns(struct capture *capture)
{
    for (uint32_t p = 0; p < capture->nphases; p++) {
        uint32_t turn = 0;
        while (turn < CECL_TURNS && !may_take(capture, p, turn))
            turn++;
        if (turn == CECL_TURNS)
            return cecl_fail(ceclInvalidUsage,
                             "this call cannot be captured: it takes more than %d words for flags",
                             CECL_TURNS);
        capture->phases[p].turn = turn;
    }
    return ceclSuccess;
}

static void emit(const struct capture *capture, const struct cecl_plan *plan,
                 struct cecl_plan *built)
{
    const int rank = plan->part.call.rank;
    if (capture->nitems > 0)
        cecl_plan_raise(built, rank, CECL_COUNTER_REPLAY, CECL_REPLAY_BEGUN);
    for (uint32_t i = 0; i < capture->nitems; i++) {
        const struct item *item = &capture->items[i];
        if (item->kind == ITEM_STEP) {
            struct cecl_step step = plan->steps[item->index];
            step.lane = CECL_LANE_MAIN;
            cecl_plan_repeat(built, &step);
            continue;
        }
        const uint32_t counter = CECL_COUNTER_TURN + capture->phases[item->index].turn;
        for (int p = 1; p < cecl_part_peers(&plan->part) && item->kind == ITEM_SIGNAL; p++)
            cecl_plan_raise(built, cecl_part_peer(&plan->part, p), counter, 1);
        if (item->kind == ITEM_WAIT)
            cecl_plan_wait_all(built, counter, 1);
    }
    if (capture->nitems > 0)
        cecl_plan_raise(built, rank, CECL_COUNTER_REPLAY, CECL_REPLAY_ENDED);
}

/* The captured call's steps replace those of the plan; the rest stays. */
static ceclResult_t rebuild(struct cecl_plan *plan, struct capture *capture)
{
    struct cecl_plan built;
    CECL_TRY(list_items(plan, capture));
    CECL_TRY(take_turns(capture));
    cecl_plan_init(&built, &plan->part);
    emit(capture, plan, &built);
    CECL_TRY(cecl_plan_finish(&built));
    free(plan->steps);
    plan->steps = built.steps;
    plan->nsteps = built.nsteps;
    plan->steps_capacity = built.steps_capacity;
    return ceclSuccess;
}

ceclResult_t cecl_plan_capture(struct cecl_plan *plan, bool meets)
{
    if (cecl_plan_is_small(plan) || (meets && cecl_fuses_all(plan)))
        return ceclSuccess;
    /* each phase has a signal and a wait, and one phase may be added to the plan's phases */
    const size_t most = 2 * ((size_t)plan->nsteps + 1);
    struct capture capture = {.items = malloc(most * sizeof(*capture.items)),
                              .phases = malloc(most * sizeof(*capture.phases))};
    const ceclResult_t result =
        capture.items && capture.phases
            ? rebuild(plan, &capture)
            : cecl_fail(ceclOutOfMemory, "no host memory for a captured call of %u steps",
                        plan->nsteps);
    free(capture.items);
    free(capture.phases);
    if (result != ceclSuccess)
        cecl_plan_free(plan);
    return result;
}
