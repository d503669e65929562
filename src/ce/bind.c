/* Binding turns a plan into a program: symbolic steps become commands to the device, with addresses. */
#include "ce/bound.h"

/* The last command, or NULL if there is none yet. */
static struct cecl_command *last_command(const struct cecl_bound *bound)
{
    return bound->ncommands > 0 ? &bound->commands[bound->ncommands - 1] : NULL;
}

static struct cecl_cell *new_cell(struct cecl_bound *bound)
{
    return &bound->cells[bound->ncells++];
}

void cecl_bound_value(const struct cecl_engine *engine, struct cecl_bound *bound, uint32_t counter,
                      uint32_t k, uint32_t *word)
{
    *new_cell(bound) = (struct cecl_cell){.at = word,
                                          .scale = engine->flags.counters[counter].unit,
                                          .k = k,
                                          .is_word = true,
                                          .counter = (uint8_t)counter};
}

/* Adds a memory operation on `lane`. Returns the address of the operation's value, for the caller to fill in. */
static uint32_t *add_op(struct cecl_bound *bound, uint8_t lane, enum cecl_memop_kind kind,
                        uint32_t *word)
{
    struct cecl_command *last = last_command(bound);
    if (!last || last->kind != CECL_COMMAND_MEMOPS || last->lane != lane)
        last = cecl_bound_command(bound, CECL_COMMAND_MEMOPS, lane, bound->nops);
    last->count++;
    struct cecl_memop *op = &bound->ops[bound->nops++];
    *op = (struct cecl_memop){.addr = word, .kind = kind};
    return &op->value;
}

/* Makes a cell of the pointer *at if `place` is in host memory. The pointer changes from call to call, because calls
 * alternate between two halves of that memory. */
static void add_half(const struct cecl_engine *engine, const struct cecl_place *place,
                     struct cecl_bound *bound, void **at)
{
    const struct cecl_hosted *hosted = engine->hosted;
    if (place->area != CECL_AREA_HOST)
        return;
    const char *first = cecl_hosted_part(hosted, place->rank) + place->offset % hosted->half_bytes;
    *new_cell(bound) = (struct cecl_cell){.at = at,
                                          .base = (uintptr_t)first,
                                          .scale = hosted->half_bytes,
                                          .k = 1,
                                          .mask = 1,
                                          .counter = CECL_COUNTER_SLOTS};
}

static void add_copy(struct cecl_bound *bound, struct cecl_command *command, void *dst, void *src,
                     size_t bytes)
{
    command->count++;
    bound->batch.dst[bound->ncopies] = dst;
    bound->batch.src[bound->ncopies] = src;
    bound->batch.bytes[bound->ncopies] = bytes;
    bound->batch.count = ++bound->ncopies;
}

/* How many bytes a copy spans in its source or its destination, where rows begin one `pitch` apart. */
static uint64_t span_of(const struct cecl_copy *copy, uint64_t pitch)
{
    return copy->rows > 1 ? (copy->rows - 1) * pitch + copy->bytes : copy->bytes;
}

static void add_rows(struct cecl_bound *bound, struct cecl_command *command,
                     const struct cecl_copy *copy, void *dst, void *src)
{
    command->count++;
    bound->rows[bound->nrows++] = (struct cecl_row_copy){.dst = dst,
                                                         .src = src,
                                                         .width = (size_t)copy->bytes,
                                                         .rows = (size_t)copy->rows,
                                                         .dst_pitch = (size_t)copy->dst_pitch,
                                                         .src_pitch = (size_t)copy->src_pitch};
}

/* Binds a step's copies of rows (if `rows`), or its contiguous copies. Each kind has an array of its own. */
static ceclResult_t bind_some(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, bool rows, struct cecl_bound *bound)
{
    struct cecl_command *command = NULL;
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        char *dst, *src;
        if ((copy->rows > 1) != rows)
            continue;
        CECL_TRY(
            cecl_bound_address(engine, bound, &copy->dst, span_of(copy, copy->dst_pitch), &dst));
        CECL_TRY(
            cecl_bound_address(engine, bound, &copy->src, span_of(copy, copy->src_pitch), &src));
        if (!command)
            command = cecl_bound_command(bound, rows ? CECL_COMMAND_ROWS : CECL_COMMAND_COPIES,
                                         step->lane, rows ? bound->nrows : bound->ncopies);
        if (rows) {
            add_rows(bound, command, copy, dst, src);
        } else {
            add_half(engine, &copy->dst, bound, &bound->batch.dst[bound->ncopies]);
            add_half(engine, &copy->src, bound, &bound->batch.src[bound->ncopies]);
            add_copy(bound, command, dst, src, (size_t)copy->bytes);
        }
    }
    return ceclSuccess;
}

/* Copied flags of one phase share a batch. Flags never share a batch with data, because a batch has no order. */
static void add_flag_copy(struct cecl_bound *bound, const struct cecl_step *step, uint32_t *values,
                          uint32_t *flag)
{
    struct cecl_command *last = last_command(bound);
    *new_cell(bound) = (struct cecl_cell){.at = &bound->batch.src[bound->ncopies],
                                          .base = (uintptr_t)values,
                                          .scale = sizeof(*values),
                                          .k = step->phase,
                                          .mask = CECL_FLAG_VALUES - 1,
                                          .counter = (uint8_t)step->counter};
    if (!last || last->kind != CECL_COMMAND_FLAGS || last->lane != step->lane ||
        last->counter != step->counter || last->phase != step->phase) {
        last = cecl_bound_command(bound, CECL_COMMAND_FLAGS, step->lane, bound->ncopies);
        last->counter = (uint8_t)step->counter;
        last->phase = step->phase;
    }
    add_copy(bound, last, flag, NULL, sizeof(*flag));
}

/* Makes a cell of the address on which the last operation works. As bound here, that is the word of slot 0; at each
 * issue it becomes the word of the slot that bound->given names. */
static void take_slot(struct cecl_bound *bound, const struct cecl_step *step, uint32_t slot_bytes)
{
    struct cecl_memop *op = &bound->ops[bound->nops - 1];
    *new_cell(bound) = (struct cecl_cell){.at = &op->addr,
                                          .base = (uintptr_t)op->addr,
                                          .scale = slot_bytes,
                                          .k = step->phase - 1,
                                          .counter = CECL_CELL_GIVEN};
}

/* Adds an operation on a word of a slot. At each issue bound->given has the slot and the value. */
static void add_slot_op(struct cecl_bound *bound, const struct cecl_step *step,
                        enum cecl_memop_kind kind, uint32_t *word, uint32_t slot_bytes)
{
    add_op(bound, step->lane, kind, word);
    struct cecl_memop *op = &bound->ops[bound->nops - 1];
    take_slot(bound, step, slot_bytes);
    *new_cell(bound) = (struct cecl_cell){.at = &op->value,
                                          .scale = 1,
                                          .k = step->phase,
                                          .is_word = true,
                                          .counter = CECL_CELL_GIVEN};
}

static void bind_signal(const struct cecl_engine *engine, const struct cecl_step *step,
                        struct cecl_bound *bound)
{
    const struct cecl_flags *flags = &engine->flags;
    uint32_t *word = cecl_flags_word(flags, step->peer, engine->rank, (int)step->counter);
    if (flags->counters[step->counter].slot_bytes)
        add_slot_op(bound, step, CECL_MEMOP_WRITE, word, flags->counters[step->counter].slot_bytes);
    else if (flags->counters[step->counter].values)
        add_flag_copy(bound, step, flags->counters[step->counter].values, word);
    else
        cecl_bound_value(engine, bound, step->counter, step->phase,
                         add_op(bound, step->lane, CECL_MEMOP_WRITE, word));
}

static enum cecl_memop_kind wait_of(const struct cecl_counter *counter)
{
    switch ((enum cecl_replay)counter->replay) {
    case CECL_REPLAY_BITS: return CECL_MEMOP_WAIT_ANY;
    case CECL_REPLAY_RESET:
    case CECL_REPLAY_SAME: return CECL_MEMOP_WAIT_SAME;
    case CECL_REPLAY_NEVER:
    case CECL_REPLAY_KERNEL: break;
    }
    return CECL_MEMOP_WAIT;
}

static void bind_wait(const struct cecl_engine *engine, const struct cecl_step *step,
                      struct cecl_bound *bound)
{
    const struct cecl_counter *counter = &engine->flags.counters[step->counter];
    uint32_t *word = cecl_flags_word(&engine->flags, engine->rank, step->peer, (int)step->counter);
    if (counter->slot_bytes) {
        add_slot_op(bound, step, wait_of(counter), word, counter->slot_bytes);
        return;
    }
    cecl_bound_value(engine, bound, step->counter, step->phase,
                     add_op(bound, step->lane, wait_of(counter), word));
    if (counter->awaited)
        cecl_bound_value(engine, bound, step->counter, step->phase,
                         (uint32_t *)&counter->awaited[step->peer]);
}

static bool is_reset(const struct cecl_engine *engine, const struct cecl_plan *plan, uint32_t at)
{
    const struct cecl_step *step = &plan->steps[at];
    return at < plan->nsteps && step->kind == CECL_STEP_WAIT &&
           engine->flags.counters[step->counter].replay == CECL_REPLAY_RESET;
}

/* If step `at` ends a run of waits whose words are reset, resets the words of the whole run. No word is reset earlier,
 * because until then the words tell the watchdog which peers have come. */
static void bind_resets(const struct cecl_engine *engine, const struct cecl_plan *plan, uint32_t at,
                        struct cecl_bound *bound)
{
    uint32_t first = at;
    if (!is_reset(engine, plan, at) ||
        (is_reset(engine, plan, at + 1) && plan->steps[at + 1].lane == plan->steps[at].lane))
        return;
    while (first > 0 && is_reset(engine, plan, first - 1) &&
           plan->steps[first - 1].lane == plan->steps[at].lane)
        first--;
    for (const struct cecl_step *step = &plan->steps[first]; step <= &plan->steps[at]; step++) {
        add_op(bound, step->lane, CECL_MEMOP_WRITE,
               cecl_flags_word(&engine->flags, engine->rank, step->peer, (int)step->counter));
        if (engine->flags.counters[step->counter].slot_bytes)
            take_slot(bound, step, engine->flags.counters[step->counter].slot_bytes);
    }
}

/* Tells the host, by the word `done`, that the call has reached a phase. */
static void write_done(const struct cecl_engine *engine, uint32_t phase, struct cecl_bound *bound)
{
    cecl_bound_value(engine, bound, CECL_COUNTER_DONE, phase,
                     add_op(bound, CECL_LANE_MAIN, CECL_MEMOP_WRITE, engine->flags.done));
}

/* Whether the side lane already follows the main lane: the last command so far is an urgent one of the main lane, and
 * urgent commands run on the side lane's stream. */
static bool follows_by_itself(const struct cecl_bound *bound, int lane)
{
    const struct cecl_command *last = last_command(bound);
    return lane == CECL_LANE_SIDE && last && last->urgent;
}

static ceclResult_t bind_step(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, struct cecl_bound *bound)
{
    switch ((enum cecl_step_kind)step->kind) {
    case CECL_STEP_SIGNAL: bind_signal(engine, step, bound); break;
    case CECL_STEP_WAIT: bind_wait(engine, step, bound); break;
    case CECL_STEP_COPY:
        CECL_TRY(bind_some(engine, plan, step, false, bound));
        return bind_some(engine, plan, step, true, bound);
    case CECL_STEP_REDUCE: return cecl_bind_reductions(engine, plan, step, bound);
    case CECL_STEP_SPLITS: return cecl_bind_splits(engine, plan, step, bound);
    case CECL_STEP_AFTER:
        if (!follows_by_itself(bound, step->lane))
            cecl_bound_command(bound, CECL_COMMAND_AFTER, step->lane, step->first);
        break;
    case CECL_STEP_POST: /* only small calls have posts, and a small call is bound as one command */
        return cecl_fail(ceclInternalError, "a post outside a small call");
    }
    return ceclSuccess;
}

/* Writes `done` before a phase of the main lane if many phases have passed since `done` was written last. */
static void mark(const struct cecl_engine *engine, const struct cecl_step *step, uint32_t *marked,
                 struct cecl_bound *bound)
{
    if (step->kind != CECL_STEP_SIGNAL || step->counter != CECL_LANE_MAIN ||
        step->phase <= *marked + CECL_PHASES_A_MARK)
        return;
    *marked = step->phase - 1;
    write_done(engine, *marked, bound);
}

/* If the call ends with a kernel that exchanges flags, that kernel writes `done`; otherwise the stream does. */
static void bind_end(const struct cecl_engine *engine, struct cecl_bound *bound)
{
    const uint32_t end = cecl_advance_end(&bound->advance);
    const struct cecl_command *last = last_command(bound);
    const uint32_t at = bound->nreductions - 1;
    if (last && last->kind == CECL_COMMAND_REDUCTIONS && last->lane == CECL_LANE_MAIN &&
        bound->reductions[at].meeting) {
        bound->meetings[at].does |= CECL_MEET_DONE;
        cecl_bound_value(engine, bound, CECL_COUNTER_DONE, end, &bound->meetings[at].done_value);
        return;
    }
    write_done(engine, end, bound);
}

static ceclResult_t bind_steps(const struct cecl_engine *engine, const struct cecl_plan *plan,
                               struct cecl_bound *bound)
{
    const bool fuses = engine->dev->meets && (!cecl_plan_is_captured(plan) || cecl_fuses_all(plan));
    struct cecl_fused fused;
    uint32_t marked = 0;
    for (uint32_t i = 0; i < plan->nsteps;) {
        const struct cecl_step *step = &plan->steps[i];
        mark(engine, step, &marked, bound);
        if (fuses && cecl_fuse(plan, i, &fused)) {
            CECL_TRY(cecl_bind_fused(engine, plan, &fused, step, bound));
            i += fused.count;
        } else {
            CECL_TRY(bind_step(engine, plan, step, bound));
            bind_resets(engine, plan, i, bound);
            i++;
        }
    }
    return ceclSuccess;
}

ceclResult_t cecl_bind_plan(const struct cecl_engine *engine, const struct cecl_plan *plan,
                            struct cecl_bound *bound)
{
    struct cecl_advance *advance = &bound->advance;
    const bool small = cecl_plan_is_small(plan);
    if (cecl_plan_is_captured(plan) &&
        !small) /* no epoch advances, and steps of the plan itself tell the host of the call's end */
        return bind_steps(engine, plan, bound);
    advance->small = small || (!plan->parts && plan->part.way.by_host);
    advance->phases[CECL_LANE_MAIN] = plan->phases[CECL_LANE_MAIN];
    advance->phases[CECL_LANE_SIDE] = plan->phases[CECL_LANE_SIDE];
    advance->unsignalled = plan->phases[CECL_LANE_MAIN] == 0 && plan->nsteps > 0 && !plan->aside;
    if (small) {
        cecl_bound_command(bound, CECL_COMMAND_SMALL, CECL_LANE_MAIN, 0);
        cecl_bind_small(engine, plan, bound);
        return ceclSuccess;
    }
    CECL_TRY(bind_steps(engine, plan, bound));
    if (cecl_advance_end(advance) > 0)
        bind_end(engine, bound);
    return ceclSuccess;
}

/* Makes the side lane's stream when a plan first needs it, for a side lane or for urgent kernels. */
static ceclResult_t make_side(struct cecl_engine *engine, const struct cecl_bound *bound)
{
    bool wanted = false;
    for (uint32_t i = 0; i < bound->ncommands; i++)
        wanted = wanted || bound->commands[i].lane == CECL_LANE_SIDE || bound->commands[i].urgent;
    if (!wanted || engine->side)
        return ceclSuccess;
    return engine->dev->ops->stream_create(engine->dev, true, &engine->side);
}

ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_call *calls,
                              const struct cecl_told *told, const struct cecl_plan *plan,
                              struct cecl_bound **out)
{
    struct cecl_bound *bound = cecl_bound_new(plan);
    if (!bound)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u steps", plan->nsteps);
    bound->calls = calls;
    bound->told = told;
    ceclResult_t result = cecl_bind_plan(engine, plan, bound);
    if (result == ceclSuccess)
        result = make_side(engine, bound);
    if (result != ceclSuccess) {
        cecl_bound_free(bound);
        return result;
    }
    *out = bound;
    return ceclSuccess;
}
