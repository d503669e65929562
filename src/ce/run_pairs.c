/* Issuing the messages of a group. No allocation, no lock. */
#include "ce/pairs.h"

static ceclStream_t stream_of(const struct cecl_pair_work *work, int lane, ceclStream_t main)
{
    return lane == CECL_PAIR_MAIN ? main : work->lanes[lane];
}

static bool is_flag(const struct cecl_pair_step *step)
{
    return step->kind == CECL_PAIR_STEP_SIGNAL || step->kind == CECL_PAIR_STEP_WAIT;
}

static struct cecl_memop memop_of(struct cecl_pair_flags *flags, const struct cecl_pair_step *step)
{
    const enum cecl_pair_signal signal = (enum cecl_pair_signal)step->signal;
    const enum cecl_role role = (enum cecl_role)step->role;
    const uint32_t value = cecl_pair_value(step->number);
    if (step->kind == CECL_PAIR_STEP_SIGNAL)
        return (struct cecl_memop){cecl_pair_word_there(flags, signal, role, step->peer), value,
                                   CECL_MEMOP_WRITE};
    cecl_pair_awaits(flags, signal, role, step->peer, value);
    return (struct cecl_memop){cecl_pair_word_here(flags, signal, role, step->peer), value,
                               CECL_MEMOP_WAIT};
}

/* Issues the flags from step `first` on that stand together on one lane. *next: the step behind. */
static ceclResult_t issue_flags(struct cecl_engine *engine, const struct cecl_pair_work *work,
                                uint32_t first, ceclStream_t main, uint32_t *next)
{
    const struct cecl_pair_step *steps = work->plan->steps;
    const int lane = steps[first].lane;
    uint32_t n = 0;
    while (first + n < work->plan->nsteps && is_flag(&steps[first + n]) &&
           steps[first + n].lane == lane) {
        work->ops[n] = memop_of(work->flags, &steps[first + n]);
        n++;
    }
    *next = first + n;
    return engine->dev->ops->memops(engine->dev, stream_of(work, lane, main), work->ops, n);
}

static ceclResult_t issue_copies(struct cecl_engine *engine, const struct cecl_pair_work *work,
                                 const struct cecl_pair_step *step, ceclStream_t stream)
{
    struct cecl_batch batch = {work->pointers, work->pointers + work->count, work->bytes, 0};
    for (uint32_t i = step->first; i < step->first + step->count; i++) {
        const struct cecl_message *message = &work->messages[work->plan->order[i]];
        const bool pushes = message->role == CECL_SENDER;
        if (message->bytes == 0)
            continue;
        batch.dst[batch.count] = pushes ? message->there : message->here;
        batch.src[batch.count] = pushes ? message->here : message->there;
        batch.bytes[batch.count] = (size_t)message->bytes;
        batch.count++;
    }
    return engine->dev->ops->copies(engine->dev, stream, &batch);
}

static ceclResult_t issue_step(struct cecl_engine *engine, const struct cecl_pair_work *work,
                               uint32_t index, ceclStream_t main, uint32_t *next)
{
    const struct cecl_device_ops *ops = engine->dev->ops;
    const struct cecl_pair_step *step = &work->plan->steps[index];
    ceclStream_t stream = stream_of(work, step->lane, main);
    *next = index + 1;
    switch ((enum cecl_pair_step_kind)step->kind) {
    case CECL_PAIR_STEP_SIGNAL:
    case CECL_PAIR_STEP_WAIT: return issue_flags(engine, work, index, main, next);
    case CECL_PAIR_STEP_COPIES: return issue_copies(engine, work, step, stream);
    case CECL_PAIR_STEP_FORK: return ops->stream_after(engine->dev, stream, main);
    case CECL_PAIR_STEP_JOIN: return ops->stream_after(engine->dev, main, stream);
    }
    return ceclSuccess;
}

static ceclResult_t issue(struct cecl_engine *engine, const void *what, ceclStream_t main,
                          bool *started)
{
    const struct cecl_pair_work *work = what;
    const struct cecl_flags *flags = &engine->flags;
    const uint32_t target = cecl_flags_done_target(flags);
    const struct cecl_memop begin = cecl_pair_begin(work->flags, target),
                            end = cecl_flags_mark_end(flags);
    CECL_TRY(cecl_engine_follow(engine, main));
    if (work->count == 1)
        cecl_pair_note(work->flags, target, (enum cecl_role)work->messages[0].role,
                       work->messages[0].peer);
    *started = true; /* a driver call that fails may have enqueued a part of its work */
    CECL_TRY(engine->dev->ops->memops(engine->dev, main, &begin, 1));
    for (uint32_t i = 0; i < work->plan->nsteps;)
        CECL_TRY(issue_step(engine, work, i, main, &i));
    return engine->dev->ops->memops(engine->dev, main, &end, 1);
}

/* Marks the end of a group that failed while it was enqueued, because otherwise its memory would never
 * be freed. The mark comes behind what the lanes have of the group, as far as they can be joined. */
static void end_what_began(struct cecl_engine *engine, const void *what, ceclStream_t main)
{
    const struct cecl_pair_work *work = what;
    const struct cecl_memop end = cecl_flags_mark_end(&engine->flags);
    for (int lane = 0; lane < work->plan->nlanes; lane++)
        (void)!engine->dev->ops->stream_after(engine->dev, main, work->lanes[lane]);
    (void)!engine->dev->ops->memops(engine->dev, main, &end, 1);
}

ceclResult_t cecl_pairs_run(struct cecl_engine *engine, const struct cecl_pair_work *work,
                            ceclStream_t stream, bool *started)
{
    const struct cecl_advance advance = {.unsignalled = true};
    const struct cecl_enqueue call = {
        .advance = &advance, .what = work, .issue = issue, .end = end_what_began};
    return cecl_engine_enqueue(engine, &call, stream, started);
}
