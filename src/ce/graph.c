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
    CECL_TRY(cecl_bound_issue(engine, bound, stream, true));
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
