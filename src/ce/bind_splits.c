/* Binds the kernels of a call by splits on the device. */
#include "ce/bound.h"
#include "flags/flags.h"
#include "plan/splits.h"

/* The offset of an address in this rank's slice of the pool; 0 for NULL. */
static uint64_t offset_of(const struct cecl_engine *engine, const void *at)
{
    const char *slice = cecl_pool_at(engine->pool, engine->rank, 0);
    return at ? (uint64_t)((const char *)at - slice) : 0;
}

ceclResult_t cecl_bind_splits(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, struct cecl_bound *bound)
{
    const struct cecl_call *call = &bound->calls[0];
    const struct cecl_part *part = &plan->part;
    const struct cecl_splits_form form = cecl_call_splits(call);
    struct cecl_splits *splits = &bound->splits[bound->nsplits];
    *splits = (struct cecl_splits){
        .step = step->first,
        .rank = (uint32_t)call->rank,
        .form = form,
        .shape = cecl_calls_signature(call, 1),
        .number = cecl_pads_splits(&engine->flags),
        .rows = cecl_buffer_address(call->send),
        .scales = cecl_call_address(call, CECL_LAYOUT_SEND_SCALES),
        .offsets = cecl_call_offsets(call),
        .splits = cecl_call_address(call, CECL_LAYOUT_SPLITS),
        .out = cecl_call_address(call, CECL_LAYOUT_SPLITS_OUT),
        .slices = cecl_pool_at(engine->pool, 0, 0),
        .slice = engine->pool->slice,
        .table_offset = engine->staging_offset + part->means.table_offset,
        .recv_offset = call->recv.offset,
        .scales_offset = offset_of(engine, cecl_call_address(call, CECL_LAYOUT_RECV_SCALES)),
        .end = cecl_pads_ended(&engine->flags),
        .trouble = engine->flags.trouble,
        .max_sms = part->way.splits_sms,
    };
    cecl_bound_command(bound, CECL_COMMAND_SPLITS, step->lane, bound->nsplits++);
    return ceclSuccess;
}
