/* Captured calls on a stream, and their order among the launches of a communicator.
 *
 * Calls that no graph captured, and launches of graphs, run in the order in which the host makes them, on
 * any streams. Once a first call was captured, an event marks the end of the last launch. Each call and
 * each graph waits for the event at its start and records it at its end. So one set of words, one staging
 * and one set of halves serve all graphs. */
#ifndef CECL_CE_GRAPH_H
#define CECL_CE_GRAPH_H

#include "ce/engine.h"

/* Adds the commands of a bound plan of a captured call to what `stream` captures. The communicator stays
 * as it is, except that the first such call makes the event.
 *
 * *started: after a failure, whether a part may have been captured */
ceclResult_t cecl_graph_capture(struct cecl_engine *engine, const struct cecl_bound *bound,
                                ceclStream_t stream, const struct cecl_capture *capture,
                                bool *started);

/* Marks the end of a call that no graph captured. */
static inline ceclResult_t cecl_graph_mark(const struct cecl_engine *engine, ceclStream_t work)
{
    return engine->order ? engine->dev->captures->event_record(engine->dev, engine->order, work)
                         : ceclSuccess;
}

/* Whether the latest launch is done, also if it is a launch of a graph: ceclSuccess or
 * ceclInProgress. */
ceclResult_t cecl_graph_query(const struct cecl_engine *engine);

/* No launch may be pending, and none may come. */
void cecl_graph_close(struct cecl_engine *engine);

#endif
