/* See settled.h. */
#include "nccl/settled.h"

#include <stdlib.h>

#include "nccl/call.h"
#include "nccl/depth.h"
#include "nccl/learning.h"

static bool is_equal(const struct cecl_nccl_settled_call *expected,
                     const struct cecl_nccl_call *call)
{
    return expected->count == call->count && expected->op == (int)call->op &&
           expected->type == call->datatype && expected->redop == call->redop &&
           expected->root == call->root;
}

static struct cecl_nccl_settled_call noted(const struct cecl_nccl_call *call)
{
    return (struct cecl_nccl_settled_call){.count = call->count,
                                           .op = (int)call->op,
                                           .reduces = call->reduces,
                                           .type = call->datatype,
                                           .redop = call->redop,
                                           .root = call->root};
}

/* ---- a settled period */

bool cecl_nccl_settled_passes(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call)
{
    struct cecl_nccl_settled *settled = &comm->settled;
    if (settled->left == 0 || !is_equal(&settled->calls[settled->next], call) ||
        cecl_nccl_group_depth() > 0 || !cecl_nccl_life_is(&comm->life, CECL_NCCL_SET(READY)))
        return false;
    settled->left--;
    settled->next = settled->next + 1 < settled->length ? settled->next + 1 : 0;
    return true;
}

/* Before the first missed call, learning had heard of the first call of a period. */
static void catch_up_on_periods(struct cecl_nccl_settled *settled, struct cecl_nccl_learn *learn)
{
    const uint64_t missed = settled->most - settled->left;
    cecl_trial_skip(&learn->trial, (uint32_t)(missed / settled->length));
    cecl_period_repeat(&learn->period, missed);
    for (uint64_t i = missed < settled->length ? missed : settled->length; i > 0; i--) {
        const uint64_t at = (missed + 1 - i) % settled->length;
        const bool reduces = settled->calls[at].reduces;
        *(reduces ? &learn->reduced : &learn->moved) = learn->period.calls - i + 1;
    }
    settled->left = settled->most = 0;
    settled->noted = 0;
}

/* Returns false if there is no host memory. */
static bool make_room(struct cecl_nccl_settled *settled, uint32_t length)
{
    if (length <= settled->room)
        return true;
    void *calls = realloc(settled->calls, length * sizeof(*settled->calls));
    if (!calls)
        return false;
    settled->calls = calls;
    settled->room = length;
    return true;
}

/* A whole period was noted, and the next one begins with `call`. */
static void settle(struct cecl_nccl_settled *settled, struct cecl_nccl_learn *learn)
{
    settled->length = learn->period.length;
    settled->most = (uint64_t)cecl_trial_rests(&learn->trial) * settled->length;
    settled->left = settled->most;
    settled->next = 1 % settled->length;
}

void cecl_nccl_settled_note(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                            bool passes)
{
    struct cecl_nccl_settled *settled = &comm->settled;
    struct cecl_nccl_learn *learn = comm->learn;
    const struct cecl_period *period = &learn->period;
    const uint64_t at = period->calls - 1 - period->begun; /* the call's place in its period */
    if (!passes || at >= period->length || !make_room(settled, period->length)) {
        settled->noted = 0;
        return;
    }
    if (at == 0 && settled->noted == period->length && is_equal(&settled->calls[0], call)) {
        settle(settled, learn);
        return;
    }
    settled->noted = at == 0 || at == settled->noted ? (uint32_t)at + 1 : 0;
    settled->calls[at] = noted(call);
}

/* ---- without a period */

static uint32_t place_of(const struct cecl_nccl_call *call)
{
    const uint64_t word =
        call->count + ((uint64_t)call->op << 48) + ((uint64_t)call->datatype << 40);
    return (uint32_t)(word * UINT64_C(0x9e3779b97f4a7c15) >> 32) % CECL_NCCL_SETTLED_PLACES;
}

bool cecl_nccl_settled_knows(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call)
{
    struct cecl_nccl_settled *settled = &comm->settled;
    if (settled->missed == settled->quiet)
        return false;
    const uint32_t place = place_of(call);
    const struct cecl_nccl_settled_known *known = &settled->known[place];
    if (!known->its || !is_equal(&known->call, call) || cecl_nccl_group_depth() > 0 ||
        !cecl_nccl_life_is(&comm->life, CECL_NCCL_SET(READY)))
        return false;
    settled->log[settled->missed++] = (uint8_t)place;
    return true;
}

/* Whether the calls of a class must be heard, because it will soon be tried again. */
static bool is_soon(const struct cecl_class *its)
{
    return its->wait <= CECL_PERIOD_SEARCH;
}

static void catch_up_on_classes(struct cecl_nccl_settled *settled, struct cecl_nccl_learn *learn)
{
    bool ends = false;
    for (uint32_t i = 0; i < settled->missed; i++) {
        const struct cecl_nccl_settled_known *known = &settled->known[settled->log[i]];
        cecl_period_add(&learn->period, known->token);
        *(known->call.reduces ? &learn->reduced : &learn->moved) = learn->period.calls;
        known->its->wait--;
        ends = ends || is_soon(known->its);
    }
    settled->missed = settled->quiet = 0;
    if (ends)
        cecl_nccl_settled_forget_known(settled);
}

static void note_known(struct cecl_nccl_settled *settled, const struct cecl_nccl_call *call,
                       uint64_t token, struct cecl_class *its)
{
    if (!settled->known)
        settled->known = calloc(CECL_NCCL_SETTLED_PLACES, sizeof(*settled->known));
    if (!settled->known)
        return;
    settled->known[place_of(call)] =
        (struct cecl_nccl_settled_known){.call = noted(call), .token = token, .its = its};
    settled->knows = true;
}

void cecl_nccl_settled_note_class(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                                  uint64_t token, struct cecl_class *its, bool passes)
{
    struct cecl_nccl_settled *settled = &comm->settled;
    struct cecl_nccl_learn *learn = comm->learn;
    if (its && is_soon(its)) /* calls that were heard have worn out the class's verdict, too */
        cecl_nccl_settled_forget_known(settled);
    else if (passes)
        note_known(settled, call, token, its);
    if (settled->knows && cecl_classes_rest(&learn->classes))
        settled->quiet = cecl_period_quiet(&learn->period);
}

/* ---- both */

void cecl_nccl_settled_catch_up(struct cecl_nccl_comm *comm)
{
    struct cecl_nccl_settled *settled = &comm->settled;
    if (settled->most > 0)
        catch_up_on_periods(settled, comm->learn);
    catch_up_on_classes(settled, comm->learn);
}
