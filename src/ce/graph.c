/* Captured calls on a stream; see graph.h. */
#include "ce/graph.h"

#include <stdlib.h>

#include "ce/bound.h"
#include "util/grow.h"

/* Makes an event that marks the end of what `ops` wait for: a stream waits, then records it. `stream` is made, unless it
 * exists. */
static ceclResult_t make_event(const struct cecl_engine *engine, ceclStream_t *stream,
                               const struct cecl_memop *ops, size_t count, struct cecl_event **out)
{
    struct cecl_device *dev = engine->dev;
    struct cecl_event *event = NULL;
    ceclResult_t result = ceclSuccess;
    if (!*stream)
        CECL_TRY(dev->ops->stream_create(dev, stream));
    CECL_TRY(dev->captures->event_create(dev, &event));
    if (count > 0)
        result = dev->ops->memops(dev, *stream, ops, count);
    if (result == ceclSuccess)
        result = dev->captures->event_record(dev, event, *stream);
    if (result == ceclSuccess)
        *out = event;
    else
        dev->captures->event_destroy(dev, event);
    return result;
}

/* Makes the event `order`, unless it exists. At first the event marks the end of the calls so far, and from
 * then on the end of the latest launch. */
static ceclResult_t make_order(struct cecl_engine *engine)
{
    const struct cecl_memop wait = cecl_flags_wait_last(&engine->flags);
    return engine->order ? ceclSuccess
                         : make_event(engine, &engine->before, &wait, 1, &engine->order);
}

/* On a stream on which nothing waits, because one-sided calls do not wait for other calls. */
ceclResult_t cecl_graph_make_event(struct cecl_engine *engine, struct cecl_event **event)
{
    if (!CECL_HAS_ROOM(engine->aside, engine->naside, engine->aside_room))
        return cecl_fail(ceclOutOfMemory, "no host memory for %u events", engine->naside + 1);
    CECL_TRY(make_event(engine, &engine->beside, NULL, 0, event));
    engine->aside[engine->naside++] = *event;
    return ceclSuccess;
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
    case CECL_COMMAND_EXCHANGE:
        return engine->net->ops->capture(engine->net, stream, bound->transfers + command->first,
                                         command->count);
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

ceclResult_t cecl_graph_capture_aside(struct cecl_engine *engine, const struct cecl_bound *bound,
                                      ceclStream_t stream, const struct cecl_capture *capture,
                                      struct cecl_event *const *events, uint32_t nevents)
{
    const struct cecl_capture_ops *captures = engine->dev->captures;
    cecl_cells_fill(bound->cells, bound->ncells, engine->flags.epoch, bound->given);
    for (uint32_t i = 0; i < nevents; i++)
        CECL_TRY(captures->begin(engine->dev, events[i], stream, capture));
    CECL_TRY(add_commands(engine, bound, stream));
    for (uint32_t i = 0; i < nevents; i++)
        CECL_TRY(captures->end(engine->dev, events[i], stream, capture));
    return ceclSuccess;
}

ceclResult_t cecl_graph_query(const struct cecl_engine *engine)
{
    return engine->order ? engine->dev->captures->event_query(engine->dev, engine->order)
                         : ceclSuccess;
}

ceclResult_t cecl_graph_query_all(const struct cecl_engine *engine)
{
    CECL_TRY(cecl_graph_query(engine));
    for (uint32_t i = 0; i < engine->naside; i++)
        CECL_TRY(engine->dev->captures->event_query(engine->dev, engine->aside[i]));
    return ceclSuccess;
}

void cecl_graph_close(struct cecl_engine *engine)
{
    if (engine->order)
        engine->dev->captures->event_destroy(engine->dev, engine->order);
    while (engine->naside > 0)
        engine->dev->captures->event_destroy(engine->dev, engine->aside[--engine->naside]);
    free(engine->aside);
    if (engine->before)
        engine->dev->ops->stream_destroy(engine->dev, engine->before);
    if (engine->beside)
        engine->dev->ops->stream_destroy(engine->dev, engine->beside);
}
