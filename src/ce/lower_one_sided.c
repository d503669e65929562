/* Lowers a one-sided call. Only the rank that makes the call has a plan.
 *
 *     ceclPut         | copy to the peer                                           | done
 *     ceclGet         | copy from the peer                                         | done
 *     ceclPutSignal   | copy to the peer | after the signal before | signal        | done
 *     ceclSignal                         | after the signal before | signal        | done
 *     ceclWaitSignal  | after the wait before | tell the host | wait for signal | ...  | done
 *
 * "After the signal before" waits for the end of an earlier call: the one that sent this rank's previous signal with
 * that number to that peer. "After the wait before" waits for the end of the call that waited last for that signal. The
 * plan has such a step only if the two calls are on different streams. A copy waits for no other call, unless its
 * stream shares a line (flags/lines.c). */
#include "ce/one_sided.h"

static void raise_own(struct cecl_plan *plan, struct cecl_counted counted)
{
    if (counted.k)
        cecl_plan_raise(plan, plan->part.call.rank, counted.counter, counted.k);
}

static void await_own(struct cecl_plan *plan, struct cecl_counted counted)
{
    if (counted.k)
        cecl_plan_await(plan, plan->part.call.rank, counted.counter, counted.k);
}

static void add_copy(struct cecl_plan *plan, const struct cecl_one_sided *call)
{
    const uint16_t here = (uint16_t)plan->part.call.rank, there = (uint16_t)call->peer;
    const uint32_t window = here == there; /* the part to which the place in the window belongs */
    const struct cecl_place from = {.area = cecl_area_of(CECL_AREA_SEND, call->gets ? window : 0),
                                    .rank = call->gets ? there : here},
                            to = {.area = cecl_area_of(CECL_AREA_RECV, call->gets ? 0 : window),
                                  .rank = call->gets ? here : there};
    if (call->bytes > 0)
        cecl_plan_copy(plan, to, from, call->bytes);
}

ceclResult_t cecl_lower_one_sided(const struct cecl_one_sided *call, struct cecl_plan *plan)
{
    cecl_plan_reset(plan);
    await_own(plan, call->after);
    add_copy(plan, call);
    if (call->sent) {
        await_own(plan, call->sent->after);
        cecl_plan_raise(plan, call->sent->peer, call->sent->of.counter, call->sent->of.k);
    }
    for (uint32_t i = 0; i < call->nwaits; i++)
        await_own(plan, call->waits[i].after);
    for (uint32_t i = 0; i < call->nwaits; i++)
        raise_own(plan, call->waits[i].reached);
    for (uint32_t i = 0; i < call->nwaits; i++)
        cecl_plan_await(plan, call->waits[i].peer, call->waits[i].of.counter, call->waits[i].of.k);
    raise_own(plan, call->done);
    return cecl_plan_finish(plan);
}
