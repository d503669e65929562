/* A small call as a device's kernel takes it. */
#include "ce/bound.h"

_Static_assert(CECL_SMALL_RANKS <= CECL_SMALL_RANKS_MAX, "a kernel takes so many slots");
_Static_assert(CECL_SLOT_FACTOR == 2, "as cecl_small_slots_bytes has it");

static enum cecl_small_kind kind_of(ceclOp_t op)
{
    return op == ceclOpAllReduce       ? CECL_SMALL_ALL_REDUCE
           : op == ceclOpReduceScatter ? CECL_SMALL_REDUCE_SCATTER
           : op == ceclOpAllGather     ? CECL_SMALL_ALL_GATHER
                                       : CECL_SMALL_ALL_TO_ALL;
}

void cecl_bind_small(const struct cecl_engine *engine, const struct cecl_plan *plan,
                     struct cecl_bound *bound)
{
    const struct cecl_call *call = &plan->call;
    const struct cecl_request *request = &bound->requests[0];
    const bool gathers = call->op == ceclOpAllGather, scatters = call->op == ceclOpReduceScatter;
    const uint64_t own = call->in_place ? (uint64_t)call->rank * call->bytes : 0;
    struct cecl_small *small = &bound->small;

    bound->small_meeting = cecl_bound_meeting(engine, CECL_LANE_MAIN);
    bound->small_meeting.does = CECL_MEET_SIGNAL_FIRST | CECL_MEET_DONE;
    bound->small_meeting.first = 1;
    bound->small_meeting.done_value = 1;
    *small = (struct cecl_small){
        .kind = kind_of(call->op),
        .rank = call->rank,
        .nranks = call->nranks,
        .send = call->in_place ? (const char *)request->recv + (gathers ? own : 0) : request->send,
        .recv = (char *)request->recv + (scatters ? own : 0),
        .bytes = cecl_small_bytes(call),
        .type = (ceclDataType_t)call->type,
        .op = (ceclRedOp_t)call->red_op,
        .slot_bytes = engine->slot_bytes,
        .end = cecl_pads_ended(engine),
        .late = engine->done + 1,
        .timeout_ns = engine->small_timeout_ns,
        .max_sms = call->max_sms,
    };
    for (int r = 0; r < call->nranks; r++)
        small->slots[r] = (unsigned char *)cecl_pool_at(engine->pool, r, engine->staging_offset) +
                          engine->slots_offset;
}
