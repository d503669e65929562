/* Captured calls on a stream; see graph.h. */
#include "ce/graph.h"

#include "ce/bound.h"

/* Makes the event `order`, unless it exists. At first the event marks the end of the calls so far, and from
 * then on the end of the latest launch. */
static ceclResult_t make_order(struct cecl_engine *engine)
{
    struct cecl_device *dev = engine->dev;
    const struct cecl_memop wait = cecl_flags_wait_last(&engine->flags);
    struct cecl_event *event = NULL;
    if (engine->order)
        return ceclSuccess;
    if (!engine->before)
        CECL_TRY(dev->ops->stream_create(dev, &engine->before));
    CECL_TRY(dev->captures->event_create(dev, &event));
    ceclResult_t result = dev->ops->memops(dev, engine->before, &wait, 1);
    if (result == ceclSuccess)
        result = dev->captures->event_record(dev, event, engine->before);
    if (result == ceclSuccess)
        engine->order = event;
    else
        dev->captures->event_destroy(dev, event);
    return result;
}

static ceclResult_t add_reductions(const struct cecl_engine *engine, const struct cecl_bound *bound,
                                   const struct cecl_command *command, ceclStream_t stream)
{
    for (uint32_t i = 0; i < command->count; i++)
        CECL_TRY(
            engine->dev->ops->reduce(engine->dev, stream, &bound->reductions[command->first + i]));
    return ceclSuccess;
}

static ceclResult_t add_command(const struct cecl_engine *engine, const struct cecl_bound *bound,
                                const struct cecl_command *command, ceclStream_t stream)
{
    struct cecl_device *dev = engine->dev;
    const struct cecl_batch batch = {bound->batch.dst + command->first,
                                     bound->batch.src + command->first,
                                     bound->batch.bytes + command->first, command->count};
    switch ((enum cecl_command_kind)command->kind) {
    case CECL_COMMAND_MEMOPS:
        return dev->ops->memops(dev, stream, bound->ops + command->first, command->count);
    case CECL_COMMAND_COPIES: return dev->captures->copies(dev, stream, &batch);
    case CECL_COMMAND_ROWS:
        return dev->captures->row_copies(dev, stream, bound->rows + command->first, command->count);
    case CECL_COMMAND_REDUCTIONS: return add_reductions(engine, bound, command, stream);
    case CECL_COMMAND_SMALL: return dev->ops->small(dev, stream, &bound->small);
    case CECL_COMMAND_SPLITS: return dev->ops->splits(dev, stream, &bound->splits[command->first]);
    case CECL_COMMAND_FLAGS:
    case CECL_COMMAND_AFTER: break;
    }
    return cecl_fail(ceclInternalError, "command %u cannot be captured", command->kind);
}

static ceclResult_t add_commands(const struct cecl_engine *engine, const struct cecl_bound *bound,
                                 ceclStream_t stream)
{
    for (uint32_t i = 0; i < bound->ncommands; i++)
        CECL_TRY(add_command(engine, bound, &bound->commands[i], stream));
    return ceclSuccess;
}

ceclResult_t cecl_graph_capture(struct cecl_engine *engine, const struct cecl_bound *bound,
                                ceclStream_t stream, const struct cecl_capture *capture,
                                bool *started)
{
    const struct cecl_capture_ops *captures = engine->dev->captures;
    *started = false;
    if (bound->ncommands == 0)
        return ceclSuccess;
    CECL_TRY(make_order(engine));
    cecl_cells_fill(bound->cells, bound->ncells, engine->flags.epoch, bound->given);
    *started = true;
    CECL_TRY(captures->begin(engine->dev, engine->order, stream, capture));
    CECL_TRY(add_commands(engine, bound, stream));
    return captures->end(engine->dev, engine->order, stream, capture);
}

ceclResult_t cecl_graph_query(const struct cecl_engine *engine)
{
    return engine->order ? engine->dev->captures->event_query(engine->dev, engine->order)
                         : ceclSuccess;
}

void cecl_graph_close(struct cecl_engine *engine)
{
    if (engine->order)
        engine->dev->captures->event_destroy(engine->dev, engine->order);
    if (engine->before)
        engine->dev->ops->stream_destroy(engine->dev, engine->before);
}
