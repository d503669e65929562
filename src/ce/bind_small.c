/* Binds a small call: one operation of the device carries out the whole plan. */
#include "ce/bound.h"
#include "flags/flags.h"

_Static_assert(CECL_SMALL_RANKS <= CECL_SMALL_RANKS_MAX, "a kernel takes no more slots");
_Static_assert(CECL_SLOT_FACTOR == 2, "cecl_small_slots_bytes relies on it");

/* A call that is not captured gets its number from the communicator's counters, at each issue. */
static void bind_eager(const struct cecl_engine *engine, struct cecl_bound *bound)
{
    bound->small_meeting = cecl_bound_meeting(&engine->flags, CECL_LANE_MAIN);
    bound->small_meeting.does = CECL_MEET_SIGNAL_FIRST | CECL_MEET_DONE;
    cecl_bound_value(engine, bound, CECL_LANE_MAIN, 1, &bound->small_meeting.first);
    cecl_bound_value(engine, bound, CECL_COUNTER_DONE, 1, &bound->small_meeting.done_value);
    cecl_bound_value(engine, bound, CECL_COUNTER_SLOTS, 1, &bound->small.epoch);
}

/* A captured call has no value that changes from launch to launch. Its kernel counts the launches. */
static void bind_captured(const struct cecl_engine *engine, uint32_t number,
                          struct cecl_bound *bound)
{
    bound->small_meeting =
        cecl_bound_captured(&engine->flags, CECL_NUMBERED_SMALL, number, &bound->counting);
    bound->small.counting = &bound->counting;
}

void cecl_bind_small(const struct cecl_engine *engine, const struct cecl_plan *plan,
                     struct cecl_bound *bound)
{
    const struct cecl_call *call = &bound->calls[0];
    const struct cecl_block own = cecl_call_block(call, call->rank, call->rank);
    /* where a rank sends a different block to each rank, the operation needs the address of the
     * first block */
    const bool reduces = call->op->family == CECL_FAMILY_REDUCTION;
    const struct cecl_buffer input =
                                 cecl_buffer_at(call->in_place ? call->recv : call->send,
                                                call->op->to == CECL_TO_EACH ? 0 : own.send_offset),
                             output = cecl_buffer_at(call->recv, reduces ? own.recv_offset : 0);
    struct cecl_small *small = &bound->small;

    *small = (struct cecl_small){
        .kind = call->op->small_kind,
        .rank = call->rank,
        .nranks = call->nranks,
        .send = cecl_buffer_address(input),
        .recv = cecl_buffer_address(output),
        .bytes = call->bytes,
        .type = (ceclDataType_t)call->type,
        .op = (ceclRedOp_t)call->red_op,
        .widens = call->op->widens,
        .slot_bytes = engine->slot_bytes,
        .end = cecl_pads_ended(&engine->flags),
        .late = engine->flags.late,
        .timeout_ns = engine->small_timeout_ns,
        .max_sms = plan->part.way.small_sms,
        .meeting = &bound->small_meeting,
    };
    for (int r = 0; r < call->nranks; r++)
        small->slots[r] = (unsigned char *)cecl_pool_at(engine->pool, r, engine->staging_offset) +
                          plan->part.means.slots_offset;
    if (call->captured)
        bind_captured(engine, plan->number, bound);
    else
        bind_eager(engine, bound);
}
