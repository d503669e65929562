/* Binding: turns a plan's symbolic steps into commands for the device. */
#include <stdlib.h>
#include <string.h>

#include "ce/bound.h"

void cecl_bound_free(struct cecl_bound *bound)
{
    if (!bound)
        return;
    for (uint32_t i = 0; bound->layouts && i < bound->ncalls; i++)
        cecl_call_let_go(&bound->calls[i]);
    cecl_imports_drop(&bound->imports);
    free(bound->calls);
    free(bound->layouts);
    free(bound->buffers);
    free(bound->send_at);
    free(bound->outside);
    free(bound->commands);
    free(bound->ops);
    free(bound->batch.dst);
    free(bound->batch.src);
    free(bound->batch.bytes);
    free(bound->rows);
    free(bound->reductions);
    free(bound->sources);
    free(bound->meetings);
    free(bound->also);
    free(bound->halves);
    free(bound->patches);
    free(bound);
}

/* A long call writes `done` every so many phases. This is far less than half a cycle of flags. With
 * more than half a cycle between two writes, nothing could tell whether the call has begun. */
#define PHASES_A_MARK 4096u

static uint32_t count_rows(const struct cecl_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        count += plan->copies[i].rows > 1;
    return count;
}

/* the most patches of a small call, or of a reduction whose kernel exchanges flags */
#define PATCHES_A_KERNEL 3

static bool has_all(const struct cecl_bound *bound)
{
    const void *const arrays[] = {
        bound->calls,       bound->commands, bound->ops,        bound->batch.dst, bound->batch.src,
        bound->batch.bytes, bound->rows,     bound->reductions, bound->sources,   bound->meetings,
        bound->also,        bound->halves,   bound->patches};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        if (!arrays[i])
            return false;
    return true;
}

/* Allocates the most that `plan` can need. A step, or a write of `done`, needs at most an operation
 * or copies, a command, and a patch. A kernel has patches of its own. */
struct cecl_bound *cecl_bound_new(const struct cecl_plan *plan, uint32_t ncalls)
{
    const uint32_t nrows = count_rows(plan);
    const size_t nsteps = (size_t)plan->nsteps + plan->phases[CECL_LANE_MAIN] / PHASES_A_MARK,
                 ncopies = plan->ncopies + nsteps,
                 ncommands = nrows > 0 ? 2 * nsteps : nsteps; /* a batch may become two */
    struct cecl_bound *bound = calloc(1, sizeof(*bound));
    if (!bound)
        return NULL;
    bound->ncalls = ncalls;
    bound->calls = calloc(ncalls, sizeof(*bound->calls));
    bound->commands = calloc(ncommands + 1, sizeof(*bound->commands));
    bound->ops = calloc(nsteps + 1, sizeof(*bound->ops));
    bound->batch.dst = calloc(ncopies + 1, sizeof(*bound->batch.dst));
    bound->batch.src = calloc(ncopies + 1, sizeof(*bound->batch.src));
    bound->batch.bytes = calloc(ncopies + 1, sizeof(*bound->batch.bytes));
    bound->rows = calloc(nrows + 1, sizeof(*bound->rows));
    bound->reductions = calloc(plan->nreductions + 1, sizeof(*bound->reductions));
    bound->sources = calloc(plan->nsources + 1, sizeof(*bound->sources));
    bound->meetings = calloc(plan->nreductions + 1, sizeof(*bound->meetings));
    bound->also = calloc(plan->ncopies + 1, sizeof(*bound->also));
    bound->halves = calloc(plan->ncopies + 1, sizeof(*bound->halves));
    bound->patches = calloc(nsteps + 2 + PATCHES_A_KERNEL * ((size_t)plan->nreductions + 1),
                            sizeof(*bound->patches));
    if (has_all(bound))
        return bound;
    cecl_bound_free(bound);
    return NULL;
}

/* Where the next command of a kind begins in its array. */
static uint32_t next_of(const struct cecl_bound *bound, enum cecl_command_kind kind)
{
    switch (kind) {
    case CECL_COMMAND_MEMOPS: return bound->nops;
    case CECL_COMMAND_ROWS: return bound->nrows;
    case CECL_COMMAND_REDUCTIONS: return bound->nreductions;
    case CECL_COMMAND_COPIES:
    case CECL_COMMAND_FLAGS: return bound->ncopies;
    case CECL_COMMAND_AFTER:
    case CECL_COMMAND_SMALL: break;
    }
    return 0;
}

static struct cecl_command *new_command(struct cecl_bound *bound, enum cecl_command_kind kind,
                                        int lane)
{
    struct cecl_command *command = &bound->commands[bound->ncommands++];
    *command = (struct cecl_command){
        .kind = (uint8_t)kind, .lane = (uint8_t)lane, .first = next_of(bound, kind)};
    return command;
}

/* NULL: there is no command yet. */
static struct cecl_command *last_command(const struct cecl_bound *bound)
{
    return bound->ncommands > 0 ? &bound->commands[bound->ncommands - 1] : NULL;
}

/* Returns the last command if it matches `like`; otherwise a new command. */
static struct cecl_command *command_like(struct cecl_bound *bound, const struct cecl_command *like)
{
    struct cecl_command *last = last_command(bound);
    if (last && last->kind == like->kind && last->lane == like->lane &&
        last->flags == like->flags && last->phase == like->phase)
        return last;
    last = new_command(bound, (enum cecl_command_kind)like->kind, like->lane);
    last->flags = like->flags;
    last->phase = like->phase;
    return last;
}

void cecl_bound_patch(struct cecl_bound *bound, enum cecl_patch_kind kind, int lane, uint32_t phase,
                      uint32_t *word)
{
    bound->patches[bound->npatches++] = (struct cecl_patch){
        .at.word = word, .phase = phase, .kind = (uint8_t)kind, .lane = (uint8_t)lane};
}

/* Adds an operation on `lane`, on a flag of lane `flags`. Returns its value, for a patch. */
static uint32_t *add_op(struct cecl_bound *bound, int lane, int flags, enum cecl_memop_kind kind,
                        uint32_t *addr)
{
    const struct cecl_command like = {
        .kind = CECL_COMMAND_MEMOPS, .lane = (uint8_t)lane, .flags = (uint8_t)flags};
    command_like(bound, &like)->count++;
    struct cecl_memop *op = &bound->ops[bound->nops++];
    *op = (struct cecl_memop){.addr = addr, .kind = kind};
    return &op->value;
}

/* Lists a pointer into host memory, where the half that is used changes from call to call. */
static void add_half(const struct cecl_engine *engine, const struct cecl_place *place,
                     struct cecl_bound *bound, void **at)
{
    const struct cecl_hosted *hosted = engine->hosted;
    if (place->area == CECL_AREA_HOST)
        bound->halves[bound->nhalves++] = (struct cecl_half_place){
            .at = at,
            .first = cecl_hosted_part(hosted, place->rank) + place->offset % hosted->half_bytes,
            .apart = hosted->half_bytes};
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

/* The user's buffer that this rank has as its input (CECL_AREA_SEND) or recvbuff in a call. */
static struct cecl_buffer own_buffer(const struct cecl_call *call, uint32_t kind)
{
    return kind == CECL_AREA_SEND && !cecl_call_is_one_buffer(call) ? call->send : call->recv;
}

/* The same of a peer. */
static struct cecl_peer_buffer peer_buffer(const struct cecl_bound *bound, uint32_t part, int rank,
                                           uint32_t kind)
{
    const struct cecl_call *call = &bound->calls[part];
    if (bound->told.nbuffers == 0)
        return cecl_buffer_told(own_buffer(call, kind));
    const size_t at = (size_t)part * (size_t)call->nranks + (size_t)rank;
    return bound->told.buffers[2 * at + (kind == CECL_AREA_RECV)];
}

/* The address of so many bytes at a place, as this rank reaches them. Memory that is new may have to
 * be imported first. */
static ceclResult_t address_of(const struct cecl_engine *engine, const struct cecl_bound *bound,
                               const struct cecl_place *place, uint64_t bytes, char **address)
{
    const uint32_t kind = place->area % CECL_AREA_COUNT, part = place->area / CECL_AREA_COUNT;
    if (kind == CECL_AREA_HOST) {
        *address = cecl_hosted_part(engine->hosted, place->rank) + place->offset;
        return ceclSuccess;
    }
    if (kind == CECL_AREA_STAGING) {
        *address = cecl_pool_at(engine->pool, place->rank, engine->staging_offset + place->offset);
        return ceclSuccess;
    }
    if (place->rank == engine->rank) {
        const struct cecl_buffer own = own_buffer(&bound->calls[part], kind);
        *address = cecl_buffer_address(cecl_buffer_at(own, place->offset));
        return *address ? ceclSuccess : cecl_fail(ceclInternalError, "the plan's buffer is NULL");
    }
    struct cecl_peer_buffer peer = peer_buffer(bound, part, place->rank, kind);
    void *at = NULL;
    peer.offset += place->offset;
    CECL_TRY(cecl_window_reach(engine->windows, peer, bytes, place->rank, &at));
    *address = at;
    return ceclSuccess;
}

/* Bytes from the first to the last of a copy, at an end of it where rows are so far apart. */
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

/* Binds the copies of a step that are rows, or those that are not: they are separate arrays on the
 * device. */
static ceclResult_t bind_some(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, bool rows, struct cecl_bound *bound)
{
    struct cecl_command *command = NULL;
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        char *dst, *src;
        if ((copy->rows > 1) != rows)
            continue;
        CECL_TRY(address_of(engine, bound, &copy->dst, span_of(copy, copy->dst_pitch), &dst));
        CECL_TRY(address_of(engine, bound, &copy->src, span_of(copy, copy->src_pitch), &src));
        if (!command)
            command =
                new_command(bound, rows ? CECL_COMMAND_ROWS : CECL_COMMAND_COPIES, step->lane);
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

static ceclResult_t bind_copies(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                const struct cecl_step *step, struct cecl_bound *bound)
{
    CECL_TRY(bind_some(engine, plan, step, false, bound));
    return bind_some(engine, plan, step, true, bound);
}

/* What a reduction reads in a peer's buffer is that peer's input. Whether the peer is in place is known
 * from what it told. */
static struct cecl_place source_of(const struct cecl_call *call, const struct cecl_place *place)
{
    struct cecl_place source = *place;
    if (place->rank != call->rank && cecl_area_is_users(place->area))
        source.area = (uint16_t)cecl_area_of(CECL_AREA_SEND, place->area / CECL_AREA_COUNT);
    return source;
}

static ceclResult_t bind_reduction(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                   const struct cecl_reduce *reduce, struct cecl_bound *bound)
{
    const struct cecl_part *part = cecl_plan_part(plan, cecl_reduce_part(plan, reduce));
    const struct cecl_call *call = &part->call;
    struct cecl_reduction *out = &bound->reductions[bound->nreductions++];
    char *address;
    *out = (struct cecl_reduction){
        .src = &bound->sources[reduce->first],
        .nsrc = reduce->nsrc,
        .max_sms = part->way.reduce.max_sms,
        .count = reduce->bytes / call->element,
        .type = (ceclDataType_t)call->type,
        .op = (ceclRedOp_t)call->red_op,
        .divisor = (uint32_t)call->nranks,
        .kernel = reduce->bytes >= part->way.reduce.bulk_min ? CECL_REDUCE_BULK : CECL_REDUCE_WIDE};
    for (uint32_t i = 0; i < reduce->nsrc; i++) {
        const struct cecl_place source = source_of(call, &plan->sources[reduce->first + i]);
        CECL_TRY(address_of(engine, bound, &source, reduce->bytes, &address));
        bound->sources[reduce->first + i] = address;
    }
    CECL_TRY(address_of(engine, bound, &reduce->dst, reduce->bytes, &address));
    out->dst = address;
    return ceclSuccess;
}

static bool is_urgent(const struct cecl_plan *plan, const struct cecl_step *step)
{
    const struct cecl_reduce *reduce = &plan->reductions[step->first];
    return cecl_plan_part(plan, cecl_reduce_part(plan, reduce))->way.reduce.urgent;
}

static ceclResult_t bind_reductions(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                    const struct cecl_step *step, struct cecl_bound *bound)
{
    struct cecl_command *command = new_command(bound, CECL_COMMAND_REDUCTIONS, step->lane);
    command->count = step->count;
    command->urgent = engine->dev->meets && step->lane == CECL_LANE_MAIN && is_urgent(plan, step);
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(bind_reduction(engine, plan, &plan->reductions[step->first + i], bound));
    return ceclSuccess;
}

/* Copied flags of one phase share a batch. They never share it with data, because a batch has no
 * order. */
static void add_flag_copy(struct cecl_bound *bound, const struct cecl_step *step, uint32_t *flag)
{
    const struct cecl_command like = {
        .kind = CECL_COMMAND_FLAGS, .lane = step->lane, .phase = step->phase};
    bound->patches[bound->npatches++] =
        (struct cecl_patch){.at.source = &bound->batch.src[bound->ncopies],
                            .phase = step->phase,
                            .kind = CECL_PATCH_SOURCE,
                            .lane = step->lane};
    add_copy(bound, command_like(bound, &like), flag, NULL, sizeof(*flag));
}

/* Signals a peer. */
static void bind_signal(const struct cecl_engine *engine, const struct cecl_step *step,
                        struct cecl_bound *bound)
{
    uint32_t *flag = cecl_flags_word(&engine->flags, step->peer, engine->rank, step->lane);
    if (engine->flags.way == CECL_FLAGS_COPY)
        add_flag_copy(bound, step, flag);
    else
        cecl_bound_patch(bound, CECL_PATCH_FLAG, step->lane, step->phase,
                         add_op(bound, step->lane, step->lane, CECL_MEMOP_WRITE, flag));
}

/* Waits for a lane of a peer. */
static void bind_wait(const struct cecl_engine *engine, const struct cecl_step *step,
                      struct cecl_bound *bound)
{
    const int lane = (int)step->first;
    uint32_t *flag = cecl_flags_word(&engine->flags, engine->rank, step->peer, lane);
    cecl_bound_patch(bound, CECL_PATCH_FLAG, lane, step->phase,
                     add_op(bound, step->lane, lane, CECL_MEMOP_WAIT, flag));
}

/* Writes for the host that the call is done up to a phase. */
static void write_done(const struct cecl_engine *engine, uint32_t phase, struct cecl_bound *bound)
{
    cecl_bound_patch(
        bound, CECL_PATCH_DONE, CECL_LANE_MAIN, phase,
        add_op(bound, CECL_LANE_MAIN, CECL_LANE_MAIN, CECL_MEMOP_WRITE, engine->flags.done));
}

/* Whether the side lane already follows the main lane: the main lane's last command runs on the
 * side lane's stream. */
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
    case CECL_STEP_COPY: return bind_copies(engine, plan, step, bound);
    case CECL_STEP_REDUCE: return bind_reductions(engine, plan, step, bound);
    case CECL_STEP_AFTER:
        if (!follows_by_itself(bound, step->lane))
            new_command(bound, CECL_COMMAND_AFTER, step->lane);
        break;
    case CECL_STEP_POST: /* a small call is one command */
        return cecl_fail(ceclInternalError, "a post outside a small call");
    }
    return ceclSuccess;
}

/* Binds copies of a result, which the reduction's kernel makes. */
static ceclResult_t bind_also(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, struct cecl_reduction *reduction,
                              struct cecl_bound *bound)
{
    char *address;
    reduction->also = &bound->also[bound->nalso];
    reduction->nalso = step->count;
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        CECL_TRY(address_of(engine, bound, &copy->dst, copy->bytes, &address));
        bound->also[bound->nalso++] = address;
    }
    return ceclSuccess;
}

/* Binds a reduction whose kernel takes over the flags around it. */
static ceclResult_t bind_fused(const struct cecl_engine *engine, const struct cecl_plan *plan,
                               const struct cecl_fused *fused, const struct cecl_step *first,
                               struct cecl_bound *bound)
{
    const struct cecl_step *step = first + fused->at;
    struct cecl_meeting *meeting = &bound->meetings[bound->nreductions];
    *meeting = cecl_flags_meeting(&engine->flags, step->lane);
    meeting->does = fused->does;
    cecl_bound_patch(bound, CECL_PATCH_FLAG, step->lane, fused->first, &meeting->first);
    cecl_bound_patch(bound, CECL_PATCH_FLAG, step->lane, fused->last, &meeting->last);
    struct cecl_reduction *reduction = &bound->reductions[bound->nreductions];
    CECL_TRY(bind_reductions(engine, plan, step, bound));
    reduction->meeting = meeting;
    return fused->sends ? bind_also(engine, plan, step + 1, reduction, bound) : ceclSuccess;
}

/* Writes `done` before a phase of the main lane that is far from the last such write. */
static void mark(const struct cecl_engine *engine, const struct cecl_step *step, uint32_t *marked,
                 struct cecl_bound *bound)
{
    if (step->kind != CECL_STEP_SIGNAL || step->lane != CECL_LANE_MAIN ||
        step->phase <= *marked + PHASES_A_MARK)
        return;
    *marked = step->phase - 1;
    write_done(engine, *marked, bound);
}

/* The call's last kernel marks the end of the call, if it can. Otherwise the stream does. */
static void bind_end(const struct cecl_engine *engine, struct cecl_bound *bound)
{
    const uint32_t end = cecl_advance_end(&bound->advance);
    const struct cecl_command *last = last_command(bound);
    struct cecl_meeting *meeting =
        bound->nreductions > 0 ? &bound->meetings[bound->nreductions - 1] : NULL;
    if (last && last->kind == CECL_COMMAND_REDUCTIONS && last->lane == CECL_LANE_MAIN &&
        meeting->nranks != 0) {
        meeting->does |= CECL_MEET_DONE;
        cecl_bound_patch(bound, CECL_PATCH_DONE, CECL_LANE_MAIN, end, &meeting->done_value);
        return;
    }
    write_done(engine, end, bound);
}

static ceclResult_t bind_steps(const struct cecl_engine *engine, const struct cecl_plan *plan,
                               struct cecl_bound *bound)
{
    struct cecl_fused fused;
    uint32_t marked = 0;
    for (uint32_t i = 0; i < plan->nsteps;) {
        const struct cecl_step *step = &plan->steps[i];
        mark(engine, step, &marked, bound);
        if (engine->dev->meets && cecl_fuse(plan, i, &fused)) {
            CECL_TRY(bind_fused(engine, plan, &fused, step, bound));
            i += fused.count;
        } else {
            CECL_TRY(bind_step(engine, plan, step, bound));
            i++;
        }
    }
    return ceclSuccess;
}

static void explain_small(const struct cecl_plan *plan, ceclExplanation_t *out)
{
    const struct cecl_call *call = &plan->part.call;
    *out = (ceclExplanation_t){.reductions = (int)plan->nreductions,
                               /* the kernel posts, waits, and takes what arrived: there are no
                                * copies */
                               .kernels = 1,
                               .barriers = (int)plan->phases[CECL_LANE_MAIN],
                               .bytesSent = ((uint64_t)call->nranks - 1) * call->bytes};
}

void cecl_plan_explain(const struct cecl_plan *plan, ceclExplanation_t *out)
{
    if (!plan->parts && plan->part.way.small)
        explain_small(plan, out);
    else
        *out = (ceclExplanation_t){.zeroSm = cecl_plan_sm_copies(plan) + plan->nreductions == 0 &&
                                             !cecl_plan_shares_sms(plan),
                                   .copies = (int)plan->ncopies,
                                   .localCopies = (int)cecl_plan_local_copies(plan),
                                   .reductions = (int)plan->nreductions,
                                   .kernels = (int)plan->nreductions,
                                   .barriers = (int)plan->phases[CECL_LANE_MAIN],
                                   .bytesSent = cecl_plan_bytes(plan)};
    memcpy(out->path, plan->path, sizeof(out->path));
    memcpy(out->reason, plan->reason, sizeof(out->reason));
}

const ceclExplanation_t *cecl_bound_explanation(const struct cecl_bound *bound)
{
    return &bound->explanation;
}

ceclResult_t cecl_bind_plan(const struct cecl_engine *engine, const struct cecl_plan *plan,
                            struct cecl_bound *bound)
{
    struct cecl_advance *advance = &bound->advance;
    cecl_plan_explain(plan, &bound->explanation);
    const bool small = !plan->parts && plan->part.way.small;
    advance->small = small || (!plan->parts && plan->part.way.by_host);
    advance->phases[CECL_LANE_MAIN] = plan->phases[CECL_LANE_MAIN];
    advance->phases[CECL_LANE_SIDE] = plan->phases[CECL_LANE_SIDE];
    advance->unsignalled = plan->phases[CECL_LANE_MAIN] == 0 && plan->nsteps > 0;
    if (small) {
        new_command(bound, CECL_COMMAND_SMALL, CECL_LANE_MAIN);
        cecl_bind_small(engine, plan, bound);
        return ceclSuccess;
    }
    CECL_TRY(bind_steps(engine, plan, bound));
    if (bound->nhalves > 0)
        bound->patches[bound->npatches++] = (struct cecl_patch){
            .at.halves = bound->halves, .phase = bound->nhalves, .kind = CECL_PATCH_HALVES};
    if (cecl_advance_end(advance) > 0)
        bind_end(engine, bound);
    return ceclSuccess;
}
