/* Issuing a bound plan on a stream: the hot path. No allocation, no look-up, no lock. */
#include "ce/bound.h"

/* Calls of one communicator share flags, so they must run in the order in which they were made. On
 * one stream they do. A call on another stream first waits until the last call is done. A stream
 * writes the word that this wait reads, and CUDA cannot see that as a dependency. It is safe,
 * because the wait always refers to work that was enqueued before. */
ceclResult_t cecl_engine_follow(struct cecl_engine *engine, ceclStream_t work)
{
    const uint64_t id = engine->dev->ops->stream_id(engine->dev, work);
    if (engine->used && (id == 0 || id != engine->last_stream)) { /* 0: unknown */
        const struct cecl_memop wait = cecl_flags_wait_last(&engine->flags);
        CECL_TRY(engine->dev->ops->memops(engine->dev, work, &wait, 1));
    }
    engine->used = true;
    engine->last_stream = id;
    return ceclSuccess;
}

/* Next to other kernels, a reduction waits for SMs behind all blocks of the kernels that came
 * before. It does not if its stream has priority, as the side lane's stream has. */
static ceclResult_t issue_reductions(struct cecl_engine *engine, const struct cecl_command *command,
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

static ceclResult_t issue_command(struct cecl_engine *engine, const struct cecl_bound *bound,
                                  const struct cecl_command *command, ceclStream_t main)
{
    const struct cecl_device_ops *ops = engine->dev->ops;
    const bool on_main = command->lane == CECL_LANE_MAIN;
    ceclStream_t work = on_main ? main : engine->side;
    struct cecl_batch batch = {bound->batch.dst + command->first, bound->batch.src + command->first,
                               bound->batch.bytes + command->first, command->count};
    switch ((enum cecl_command_kind)command->kind) {
    case CECL_COMMAND_MEMOPS:
        return ops->memops(engine->dev, work, bound->ops + command->first, command->count);
    case CECL_COMMAND_FLAGS:
    case CECL_COMMAND_COPIES: return ops->copies(engine->dev, work, &batch);
    case CECL_COMMAND_ROWS:
        return ops->row_copies(engine->dev, work, bound->rows + command->first, command->count);
    case CECL_COMMAND_REDUCTIONS: return issue_reductions(engine, command, bound, work);
    case CECL_COMMAND_SMALL: return ops->small(engine->dev, work, &bound->small);
    case CECL_COMMAND_AFTER:
        return ops->stream_after(engine->dev, work, on_main ? engine->side : main);
    }
    return ceclSuccess;
}

static ceclResult_t issue_commands(struct cecl_engine *engine, const struct cecl_bound *bound,
                                   ceclStream_t work, bool *started)
{
    if (bound->ncommands == 0)
        return ceclSuccess;
    CECL_TRY(cecl_engine_follow(engine, work));
    *started = true; /* a driver call that fails may have enqueued a part of its work */
    for (uint32_t i = 0; i < bound->ncommands; i++)
        CECL_TRY(issue_command(engine, bound, &bound->commands[i], work));
    return ceclSuccess;
}

/* Marks the end of a call that failed while it was enqueued, because otherwise its memory would
 * never be freed. The mark comes after what the side lane has of the call, because the buffers are
 * the caller's again after the mark. Where the lanes cannot be joined, the mark goes on the side
 * lane, which so far follows the main lane. */
static void end_bound(struct cecl_engine *engine, const void *what, ceclStream_t work)
{
    const struct cecl_memop end = cecl_flags_mark_end(&engine->flags);
    ceclStream_t last = work;
    (void)what;
    if (engine->side &&
        engine->dev->ops->stream_after(engine->dev, work, engine->side) != ceclSuccess)
        last = engine->side;
    (void)!engine->dev->ops->memops(engine->dev, last, &end, 1);
}

static ceclResult_t issue_bound(struct cecl_engine *engine, const void *what, ceclStream_t work,
                                bool *started)
{
    const struct cecl_bound *bound = what;
    cecl_flags_fill(&engine->flags, bound->patches, bound->npatches);
    return issue_commands(engine, bound, work, started);
}

/* Cleans up after the call failed with `result`. `started`: see cecl_engine_run. */
static ceclResult_t give_up(struct cecl_engine *engine, const struct cecl_enqueue *call,
                            ceclStream_t stream, ceclStream_t work, bool started,
                            ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    if (started) {
        call->end(engine, call->what, work);
        cecl_flags_commit(&engine->flags, call->advance);
    } else {
        cecl_flags_roll_back(&engine->flags);
    }
    (void)!engine->dev->ops->stream_join(engine->dev, stream, work);
    return cecl_fail_with(result, words);
}

ceclResult_t cecl_engine_enqueue(struct cecl_engine *engine, const struct cecl_enqueue *call,
                                 ceclStream_t stream, bool *started)
{
    struct cecl_device *dev = engine->dev;
    ceclStream_t work;

    *started = false;
    CECL_TRY(dev->ops->stream_fork(dev, stream, &work));
    const ceclResult_t result =
        cecl_flags_begin(&engine->flags, call->advance)
            ? call->issue(engine, call->what, work, started)
            : cecl_fail(ceclRemoteError, "the communicator failed while the call was enqueued");
    if (result != ceclSuccess)
        return give_up(engine, call, stream, work, *started, result);
    cecl_flags_commit(&engine->flags, call->advance);
    return dev->ops->stream_join(dev, stream, work);
}

ceclResult_t cecl_engine_run(struct cecl_engine *engine, struct cecl_bound *bound,
                             ceclStream_t stream, bool *started)
{
    const struct cecl_enqueue call = {
        .advance = &bound->advance, .what = bound, .issue = issue_bound, .end = end_bound};
    return cecl_engine_enqueue(engine, &call, stream, started);
}
