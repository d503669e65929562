/* Issues a bound plan on a stream, or adds it to what the stream captures. This is the hot path, so
 * it allocates nothing, looks up nothing and takes no lock. */
#include "ce/bound.h"

/* Calls of one communicator share flags, so calls must run in the order in which they were made. One stream keeps that
 * order. A call on another stream first waits until the last call is done, by a wait for a word that the last call's
 * stream writes. CUDA does not see this dependency, but the wait cannot deadlock, because the write was enqueued before
 * it. */
static ceclResult_t follow(struct cecl_engine *engine, ceclStream_t work)
{
    if (engine->order.event) /* calls are also ordered with launches of graphs */
        return engine->dev->ops->event_wait(engine->dev, work, engine->order.event);
    const uint64_t id = engine->dev->ops->stream_id(engine->dev, work);
    if (engine->used && (id == 0 || id != engine->last_stream)) { /* 0: unknown */
        const struct cecl_memop wait = cecl_flags_wait_last(&engine->flags);
        CECL_TRY(engine->dev->ops->memops(engine->dev, work, &wait, 1));
    }
    engine->used = true;
    engine->last_stream = id;
    return ceclSuccess;
}

/* On an ordinary stream a reduction's kernel gets SMs only once all thread blocks of earlier kernels have got theirs.
 * On a stream of higher priority it gets SMs before those blocks. So urgent reductions run on the side lane's stream,
 * which has a higher priority. */
static ceclResult_t issue_reductions(const struct cecl_engine *engine,
                                     const struct cecl_command *command,
                                     const struct cecl_bound *bound, ceclStream_t lane)
{
    const struct cecl_device_ops *ops = engine->dev->ops;
    ceclStream_t work = command->urgent ? engine->side : lane;
    if (command->urgent)
        CECL_TRY(ops->stream_after(engine->dev, work, lane));
    for (uint32_t i = 0; i < command->count; i++)
        CECL_TRY(ops->reduce(engine->dev, work, &bound->reductions[command->first + i]));
    return command->urgent ? ops->stream_after(engine->dev, lane, work) : ceclSuccess;
}

static ceclStream_t stream_of(const struct cecl_engine *engine, uint32_t lane, ceclStream_t main)
{
    return lane == CECL_LANE_MAIN   ? main
           : lane == CECL_LANE_SIDE ? engine->side
                                    : engine->lanes[lane - CECL_LANES];
}

ceclResult_t cecl_bound_issue(const struct cecl_engine *engine, const struct cecl_bound *bound,
                              ceclStream_t main, bool is_captured)
{
    const struct cecl_device_ops *ops = engine->dev->ops;
    for (uint32_t i = 0; i < bound->ncommands; i++) {
        const struct cecl_command *command = &bound->commands[i];
        const uint32_t first = command->first, count = command->count;
        const struct cecl_batch batch = {bound->batch.dst + first, bound->batch.src + first,
                                         bound->batch.bytes + first, count, is_captured};
        ceclStream_t work = stream_of(engine, command->lane, main);
        ceclResult_t result = ceclSuccess;
        switch ((enum cecl_command_kind)command->kind) {
        case CECL_COMMAND_MEMOPS:
            result = ops->memops(engine->dev, work, bound->ops + first, count);
            break;
        case CECL_COMMAND_FLAGS:
        case CECL_COMMAND_COPIES: result = ops->copies(engine->dev, work, &batch); break;
        case CECL_COMMAND_ROWS:
            result = ops->row_copies(engine->dev, work, bound->rows + first, count, is_captured);
            break;
        case CECL_COMMAND_REDUCTIONS:
            result = issue_reductions(engine, command, bound, work);
            break;
        case CECL_COMMAND_SPLITS:
            result = ops->splits(engine->dev, work, &bound->splits[first]);
            break;
        case CECL_COMMAND_SMALL: result = ops->small(engine->dev, work, &bound->small); break;
        case CECL_COMMAND_AFTER:
            result = ops->stream_after(engine->dev, work, stream_of(engine, first, main));
            break;
        }
        CECL_TRY(result);
    }
    return ceclSuccess;
}

/* Sets the targets of the counters, and fills in values that are only known now. */
static ceclResult_t begin_call(struct cecl_engine *engine, const struct cecl_bound *bound)
{
    if (!cecl_flags_begin(&engine->flags, &bound->advance))
        return cecl_fail(ceclRemoteError, "the communicator failed while the call was enqueued");
    cecl_cells_fill(bound->cells, bound->ncells, engine->flags.epoch, bound->given);
    return ceclSuccess;
}

/* Makes later calls and later launches of graphs wait for the end of this call. */
static ceclResult_t mark_end(const struct cecl_engine *engine, ceclStream_t work)
{
    return engine->order.event
               ? engine->dev->ops->event_record(engine->dev, engine->order.event, work)
               : ceclSuccess;
}

/* Writes `done` for a call that failed while it was enqueued, because otherwise the call's memory would never be freed.
 * After that write the buffers are the caller's again, so the write must follow all lanes' work. If the main lane can
 * no longer be made to wait for the side lane, the write goes on the side lane, which already follows the main lane. */
static void end_what_began(struct cecl_engine *engine, const struct cecl_bound *bound,
                           ceclStream_t work)
{
    const struct cecl_device_ops *ops = engine->dev->ops;
    const struct cecl_memop end = cecl_flags_mark_end(&engine->flags);
    ceclStream_t last = work;
    for (int lane = CECL_LANES; lane < bound->nlanes; lane++)
        (void)!ops->stream_after(engine->dev, work, engine->lanes[lane - CECL_LANES]);
    if (engine->side && ops->stream_after(engine->dev, work, engine->side) != ceclSuccess)
        last = engine->side;
    (void)!ops->memops(engine->dev, last, &end, 1);
    (void)!mark_end(engine, last);
}

/* Cleans up after the call failed with `result`. `started`: see cecl_engine_run. */
static ceclResult_t give_up(struct cecl_engine *engine, const struct cecl_bound *bound,
                            ceclStream_t stream, ceclStream_t work, bool started,
                            ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    if (started) {
        end_what_began(engine, bound, work);
        cecl_flags_commit(&engine->flags, &bound->advance);
    } else {
        cecl_flags_roll_back(&engine->flags);
    }
    (void)!engine->dev->ops->stream_join(engine->dev, stream, work);
    return cecl_fail_with(result, words);
}

/* Makes the events of `order`, unless they exist. At first `event` marks the end of all calls so far; later each call,
 * and each launch of a graph, records it at its end. */
static ceclResult_t make_order(struct cecl_engine *engine)
{
    struct cecl_device *dev = engine->dev;
    const struct cecl_memop wait = cecl_flags_wait_last(&engine->flags);
    ceclEvent_t event = NULL;
    if (engine->order.event)
        return ceclSuccess;
    if (!engine->before)
        CECL_TRY(dev->ops->stream_create(dev, false, &engine->before));
    if (!engine->order.spare)
        CECL_TRY(dev->ops->event_create(dev, &engine->order.spare));
    CECL_TRY(dev->ops->event_create(dev, &event));
    ceclResult_t result = dev->ops->memops(dev, engine->before, &wait, 1);
    if (result == ceclSuccess)
        result = dev->ops->event_record(dev, event, engine->before);
    if (result == ceclSuccess)
        engine->order.event = event;
    else
        dev->ops->event_destroy(dev, event);
    return result;
}

/* Adds the call to the graph that the stream captures. The first captured call makes the events. */
static ceclResult_t add_to_graph(struct cecl_engine *engine, const struct cecl_bound *bound,
                                 ceclStream_t stream, const struct cecl_capture *capture,
                                 bool *started)
{
    const struct cecl_device_ops *ops = engine->dev->ops;
    if (bound->ncommands == 0)
        return ceclSuccess;
    CECL_TRY(make_order(engine));
    cecl_cells_fill(bound->cells, bound->ncells, engine->flags.epoch, bound->given);
    *started = true;
    CECL_TRY(ops->order_begin(engine->dev, &engine->order, stream, capture));
    CECL_TRY(cecl_bound_issue(engine, bound, stream, true));
    return ops->order_end(engine->dev, &engine->order, stream, capture);
}

ceclResult_t cecl_engine_run(struct cecl_engine *engine, const struct cecl_bound *bound,
                             ceclStream_t stream, const struct cecl_capture *capture, bool *started)
{
    struct cecl_device *dev = engine->dev;
    ceclStream_t work;

    *started = false;
    if (capture->id != 0)
        return add_to_graph(engine, bound, stream, capture, started);
    CECL_TRY(dev->ops->stream_fork(dev, stream, &work));
    ceclResult_t result = begin_call(engine, bound);
    if (result == ceclSuccess && bound->ncommands > 0)
        result = follow(engine, work);
    if (result == ceclSuccess && bound->ncommands > 0) {
        *started = true; /* a driver call that fails may have enqueued a part of its work */
        result = cecl_bound_issue(engine, bound, work, false);
        if (result == ceclSuccess)
            result = mark_end(engine, work);
    }
    if (result != ceclSuccess)
        return give_up(engine, bound, stream, work, *started, result);
    cecl_flags_commit(&engine->flags, &bound->advance);
    return dev->ops->stream_join(dev, stream, work);
}
