/* Binding: from a plan's symbolic steps to pieces that the device takes, and the cache that keeps
 * them. */
#include <stdlib.h>
#include <string.h>

#include "ce/bound.h"
#include "plan/layout.h"

void cecl_bound_free(struct cecl_bound *bound)
{
    if (!bound)
        return;
    free(bound->requests);
    free(bound->layouts);
    free(bound->pieces);
    free(bound->ops);
    free(bound->batch.dst);
    free(bound->batch.src);
    free(bound->batch.bytes);
    free(bound->rows);
    free(bound->reductions);
    free(bound->sources);
    free(bound->meetings);
    free(bound->also);
    free(bound);
}

/* A long call tells how far it has come every so many phases: far less than half a cycle of flags,
 * beyond which nobody could say whether it has begun. */
#define PHASES_A_MARK 4096u

static uint32_t count_rows(const struct cecl_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        count += plan->copies[i].rows > 1;
    return count;
}

/* Room for the most that `plan` can come to: a step, or a mark, is at most an operation or copies,
 * and a piece. */
static struct cecl_bound *bound_new(const struct cecl_plan *plan, uint32_t nrequests)
{
    const uint32_t nrows = count_rows(plan);
    const size_t nsteps = (size_t)plan->nsteps + plan->phases / PHASES_A_MARK,
                 ncopies = plan->ncopies + nsteps,
                 npieces = nrows > 0 ? 2 * nsteps : nsteps; /* a batch may become two */
    struct cecl_bound *bound = calloc(1, sizeof(*bound));
    if (!bound)
        return NULL;
    bound->nrequests = nrequests;
    bound->requests = calloc(nrequests, sizeof(*bound->requests));
    bound->pieces = calloc(npieces + 1, sizeof(*bound->pieces));
    bound->ops = calloc(nsteps + 1, sizeof(*bound->ops));
    bound->batch.dst = calloc(ncopies + 1, sizeof(*bound->batch.dst));
    bound->batch.src = calloc(ncopies + 1, sizeof(*bound->batch.src));
    bound->batch.bytes = calloc(ncopies + 1, sizeof(*bound->batch.bytes));
    bound->rows = calloc(nrows + 1, sizeof(*bound->rows));
    bound->reductions = calloc(plan->nreductions + 1, sizeof(*bound->reductions));
    bound->sources = calloc(plan->nsources + 1, sizeof(*bound->sources));
    bound->meetings = calloc(plan->nreductions + 1, sizeof(*bound->meetings));
    bound->also = calloc(plan->ncopies + 1, sizeof(*bound->also));
    if (bound->also && bound->meetings && bound->reductions && bound->sources && bound->rows &&
        bound->requests && bound->pieces && bound->ops && bound->batch.dst && bound->batch.src &&
        bound->batch.bytes)
        return bound;
    cecl_bound_free(bound);
    return NULL;
}

/* Where a piece of a kind begins. */
static uint32_t next_of(const struct cecl_bound *bound, enum cecl_piece_kind kind)
{
    switch (kind) {
    case CECL_PIECE_MEMOPS: return bound->nops;
    case CECL_PIECE_ROWS: return bound->nrows;
    case CECL_PIECE_REDUCTIONS: return bound->nreductions;
    case CECL_PIECE_COPIES:
    case CECL_PIECE_FLAGS: return bound->ncopies;
    case CECL_PIECE_AFTER:
    case CECL_PIECE_SMALL: break;
    }
    return 0;
}

static struct cecl_piece *new_piece(struct cecl_bound *bound, enum cecl_piece_kind kind, int lane)
{
    struct cecl_piece *piece = &bound->pieces[bound->npieces++];
    *piece = (struct cecl_piece){
        .kind = (uint8_t)kind, .lane = (uint8_t)lane, .first = next_of(bound, kind)};
    return piece;
}

/* NULL: there is none yet. */
static struct cecl_piece *last_piece(const struct cecl_bound *bound)
{
    return bound->npieces > 0 ? &bound->pieces[bound->npieces - 1] : NULL;
}

/* The last piece, if it is of this kind, and like it; or a new one. */
static struct cecl_piece *piece_like(struct cecl_bound *bound, const struct cecl_piece *like)
{
    struct cecl_piece *last = last_piece(bound);
    if (last && last->kind == like->kind && last->lane == like->lane &&
        last->flags == like->flags && last->phase == like->phase)
        return last;
    last = new_piece(bound, (enum cecl_piece_kind)like->kind, like->lane);
    last->flags = like->flags;
    last->phase = like->phase;
    return last;
}

/* An operation on `lane`, on a flag of lane `flags`. */
static void add_op(struct cecl_bound *bound, int lane, int flags, enum cecl_memop_kind kind,
                   uint32_t *addr, uint32_t phase)
{
    const struct cecl_piece like = {
        .kind = CECL_PIECE_MEMOPS, .lane = (uint8_t)lane, .flags = (uint8_t)flags};
    piece_like(bound, &like)->count++;
    bound->ops[bound->nops++] = (struct cecl_memop){addr, phase, kind};
}

static void add_copy(struct cecl_bound *bound, struct cecl_piece *piece, void *dst, void *src,
                     size_t bytes)
{
    piece->count++;
    bound->batch.dst[bound->ncopies] = dst;
    bound->batch.src[bound->ncopies] = src;
    bound->batch.bytes[bound->ncopies] = bytes;
    bound->batch.count = ++bound->ncopies;
}

/* Where a place is for this request. */
static ceclResult_t address_of(const struct cecl_engine *engine, const struct cecl_bound *bound,
                               const struct cecl_place *place, char **address)
{
    const struct cecl_pool *pool = engine->pool;
    const struct cecl_request *request = &bound->requests[place->window / CECL_WINDOW_COUNT];
    const uint32_t kind = place->window % CECL_WINDOW_COUNT;
    const bool own = place->rank == engine->rank;
    const void *buffer = kind == CECL_WINDOW_SEND ? request->send : request->recv;

    if (kind == CECL_WINDOW_STAGING) {
        *address = (char *)cecl_pool_at(pool, place->rank, engine->staging_offset) + place->offset;
        return ceclSuccess;
    }
    if (!own && !cecl_pool_owns(pool, buffer))
        return cecl_fail(
            ceclInvalidUsage,
            "sendbuff %p: peers read it under CECL_DIRECTION=pull, so it must be memory "
            "of ceclMemAlloc, at the same offset on all ranks",
            buffer);
    if (own)
        *address = (char *)(uintptr_t)buffer + place->offset;
    else
        *address =
            (char *)cecl_pool_at(pool, place->rank,
                                 (uint64_t)((const char *)buffer -
                                            (const char *)cecl_pool_at(pool, engine->rank, 0))) +
            place->offset;
    return ceclSuccess;
}

static void add_rows(struct cecl_bound *bound, struct cecl_piece *piece,
                     const struct cecl_copy *copy, void *dst, void *src)
{
    piece->count++;
    bound->rows[bound->nrows++] = (struct cecl_row_copy){.dst = dst,
                                                         .src = src,
                                                         .width = (size_t)copy->bytes,
                                                         .rows = (size_t)copy->rows,
                                                         .dst_pitch = (size_t)copy->dst_pitch,
                                                         .src_pitch = (size_t)copy->src_pitch};
}

/* The copies of a step that are rows, or those that are not: the device takes them apart. */
static ceclResult_t bind_some(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, bool rows, struct cecl_bound *bound)
{
    struct cecl_piece *piece = NULL;
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        char *dst, *src;
        if ((copy->rows > 1) != rows)
            continue;
        CECL_TRY(address_of(engine, bound, &copy->dst, &dst));
        CECL_TRY(address_of(engine, bound, &copy->src, &src));
        if (!piece)
            piece = new_piece(bound, rows ? CECL_PIECE_ROWS : CECL_PIECE_COPIES, step->lane);
        if (rows)
            add_rows(bound, piece, copy, dst, src);
        else
            add_copy(bound, piece, dst, src, (size_t)copy->bytes);
    }
    return ceclSuccess;
}

static ceclResult_t bind_copies(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                const struct cecl_step *step, struct cecl_bound *bound)
{
    CECL_TRY(bind_some(engine, plan, step, false, bound));
    return bind_some(engine, plan, step, true, bound);
}

static ceclResult_t bind_reduction(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                   const struct cecl_reduce *reduce, struct cecl_bound *bound)
{
    const struct cecl_call *call = cecl_plan_part(plan, cecl_reduce_part(plan, reduce));
    struct cecl_reduction *out = &bound->reductions[bound->nreductions++];
    char *address;
    *out = (struct cecl_reduction){.src = &bound->sources[reduce->first],
                                   .nsrc = reduce->nsrc,
                                   .max_sms = call->max_sms,
                                   .count = reduce->bytes / call->element,
                                   .type = (ceclDataType_t)call->type,
                                   .op = (ceclRedOp_t)call->red_op,
                                   .divisor = (uint32_t)call->nranks,
                                   .kernel = reduce->bytes >= call->bulk_min ? CECL_REDUCE_BULK
                                                                             : CECL_REDUCE_WIDE};
    for (uint32_t i = 0; i < reduce->nsrc; i++) {
        CECL_TRY(address_of(engine, bound, &plan->sources[reduce->first + i], &address));
        bound->sources[reduce->first + i] = address;
    }
    CECL_TRY(address_of(engine, bound, &reduce->dst, &address));
    out->dst = address;
    return ceclSuccess;
}

static bool is_urgent(const struct cecl_plan *plan, const struct cecl_step *step)
{
    const struct cecl_reduce *reduce = &plan->reductions[step->first];
    return cecl_plan_part(plan, cecl_reduce_part(plan, reduce))->urgent;
}

static ceclResult_t bind_reductions(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                    const struct cecl_step *step, struct cecl_bound *bound)
{
    struct cecl_piece *piece = new_piece(bound, CECL_PIECE_REDUCTIONS, step->lane);
    piece->count = step->count;
    piece->flags = step->lane;
    piece->urgent = engine->dev->meets && step->lane == CECL_LANE_MAIN && is_urgent(plan, step);
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(bind_reduction(engine, plan, &plan->reductions[step->first + i], bound));
    return ceclSuccess;
}

/* Tells a peer. Copied flags of one phase share a batch, but never with data: a batch has no order.
 * */
static void bind_signal(const struct cecl_engine *engine, const struct cecl_step *step,
                        struct cecl_bound *bound)
{
    uint32_t *flag = cecl_engine_flag(engine, step->peer, engine->rank, step->lane);
    const struct cecl_piece like = {
        .kind = CECL_PIECE_FLAGS, .lane = step->lane, .flags = step->lane, .phase = step->phase};
    if (engine->flags == CECL_FLAGS_WRITE)
        add_op(bound, step->lane, step->lane, CECL_MEMOP_WRITE, flag, step->phase);
    else
        add_copy(bound, piece_like(bound, &like), flag, NULL, sizeof(*flag));
}

/* Whether the side lane is there already: on its stream runs the main lane's last piece. */
static bool follows_by_itself(const struct cecl_bound *bound, int lane)
{
    const struct cecl_piece *last = last_piece(bound);
    return lane == CECL_LANE_SIDE && last && last->urgent;
}

static ceclResult_t bind_step(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, struct cecl_bound *bound)
{
    switch ((enum cecl_step_kind)step->kind) {
    case CECL_STEP_SIGNAL: bind_signal(engine, step, bound); break;
    case CECL_STEP_WAIT:
        add_op(bound, step->lane, (int)step->first, CECL_MEMOP_WAIT,
               cecl_engine_flag(engine, engine->rank, step->peer, (int)step->first), step->phase);
        break;
    case CECL_STEP_COPY: return bind_copies(engine, plan, step, bound);
    case CECL_STEP_REDUCE: return bind_reductions(engine, plan, step, bound);
    case CECL_STEP_AFTER:
        if (!follows_by_itself(bound, step->lane))
            new_piece(bound, CECL_PIECE_AFTER, step->lane);
        break;
    }
    return ceclSuccess;
}

/* Copies of a result, which its kernel makes. */
static ceclResult_t bind_also(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, struct cecl_reduction *reduction,
                              struct cecl_bound *bound)
{
    char *address;
    reduction->also = &bound->also[bound->nalso];
    reduction->nalso = step->count;
    for (uint32_t i = 0; i < step->count; i++) {
        CECL_TRY(address_of(engine, bound, &plan->copies[step->first + i].dst, &address));
        bound->also[bound->nalso++] = address;
    }
    return ceclSuccess;
}

struct cecl_meeting cecl_bound_meeting(const struct cecl_engine *engine, int lane)
{
    return (struct cecl_meeting){
        .rank = (uint32_t)engine->rank,
        .nranks = (uint32_t)engine->nranks,
        .row = cecl_engine_flag(engine, engine->rank, 0, lane),
        .word = cecl_engine_flag(engine, 0, engine->rank, lane),
        .apart = engine->pool->slice,
        .ended = cecl_pads_ended(engine),
        .leaving = cecl_pads_leaving(engine, lane),
        .done = engine->done,
    };
}

/* A kernel that takes over the flags around its reduction. */
static ceclResult_t bind_fused(const struct cecl_engine *engine, const struct cecl_plan *plan,
                               const struct cecl_fused *fused, const struct cecl_step *first,
                               struct cecl_bound *bound)
{
    const struct cecl_step *step = first + fused->at;
    struct cecl_meeting *meeting = &bound->meetings[bound->nreductions];
    *meeting = cecl_bound_meeting(engine, step->lane);
    meeting->does = fused->does;
    meeting->first = fused->first;
    meeting->last = fused->last;
    struct cecl_reduction *reduction = &bound->reductions[bound->nreductions];
    CECL_TRY(bind_reductions(engine, plan, step, bound));
    reduction->meeting = meeting;
    return fused->sends ? bind_also(engine, plan, step + 1, reduction, bound) : ceclSuccess;
}

/* Before a phase of the main lane that is far from the last mark. */
static void mark(const struct cecl_engine *engine, const struct cecl_step *step, uint32_t *marked,
                 struct cecl_bound *bound)
{
    if (step->kind != CECL_STEP_SIGNAL || step->lane != CECL_LANE_MAIN ||
        step->phase <= *marked + PHASES_A_MARK)
        return;
    *marked = step->phase - 1;
    add_op(bound, CECL_LANE_MAIN, CECL_LANE_MAIN, CECL_MEMOP_WRITE, engine->done, *marked);
}

/* The end of the call is told by its last kernel, if that can, or by the stream. */
static void bind_end(const struct cecl_engine *engine, struct cecl_bound *bound)
{
    const struct cecl_piece *last = last_piece(bound);
    struct cecl_meeting *meeting =
        bound->nreductions > 0 ? &bound->meetings[bound->nreductions - 1] : NULL;
    if (last && last->kind == CECL_PIECE_REDUCTIONS && last->lane == CECL_LANE_MAIN &&
        meeting->nranks != 0) {
        meeting->does |= CECL_MEET_DONE;
        meeting->done_value = bound->advance;
        return;
    }
    add_op(bound, CECL_LANE_MAIN, CECL_LANE_MAIN, CECL_MEMOP_WRITE, engine->done, bound->advance);
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

static ceclResult_t bind_plan(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              struct cecl_bound *bound)
{
    bound->is_small = !plan->parts && plan->call.small;
    /* A call without phases (one rank) still counts, so that its end can be seen. */
    bound->advance = plan->phases > 0 ? plan->phases : plan->nsteps > 0;
    bound->side_advance = plan->side_phases;
    if (bound->is_small && engine->dev->meets) {
        new_piece(bound, CECL_PIECE_SMALL, CECL_LANE_MAIN);
        cecl_bind_small(engine, plan, bound);
        return ceclSuccess;
    }
    CECL_TRY(bind_steps(engine, plan, bound));
    if (bound->advance > 0)
        bind_end(engine, bound);
    return ceclSuccess;
}

static void explain(const struct cecl_plan *plan, ceclExplanation_t *out)
{
    *out = (ceclExplanation_t){.zeroSm = cecl_plan_sm_copies(plan) + plan->nreductions == 0,
                               .copies = (int)plan->ncopies,
                               .localCopies = (int)cecl_plan_local_copies(plan),
                               .reductions = (int)plan->nreductions,
                               .barriers = (int)plan->phases,
                               .bytesSent = cecl_plan_bytes(plan)};
    memcpy(out->path, plan->path, sizeof(out->path));
    memcpy(out->reason, plan->reason, sizeof(out->reason));
}

const ceclExplanation_t *cecl_bound_explanation(const struct cecl_bound *bound)
{
    return &bound->explanation;
}

/* ---- the cache: sets of a few ways, replaced in turn */

/* Words of its layout, or 0. */
static size_t words_of(const struct cecl_request *request, int nranks)
{
    return request->layout ? cecl_layout_words(request->op, nranks) : 0;
}

static size_t set_of(const struct cecl_request *requests, uint32_t count, int nranks)
{
    uint64_t h = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct cecl_request *request = &requests[i];
        h = (h ^ (uint64_t)(uintptr_t)request->recv) * 0x9e3779b97f4a7c15u;
        h ^= (uint64_t)(uintptr_t)request->send + (h >> 31);
        h *= 0xbf58476d1ce4e5b9u;
        h ^= request->bytes * 4 + (uint64_t)request->op + (request->shape.width << 40) +
             ((uint64_t)request->turn << 30) + ((uint64_t)request->choice.sm_policy << 34) +
             ((uint64_t)request->choice.direction << 36);
        h *= 0x94d049bb133111ebu;
        const size_t words = words_of(request, nranks);
        for (size_t w = 0; w < words; w++)
            h = (h ^ request->layout[w]) * 0x94d049bb133111ebu;
    }
    return (size_t)(h >> 40) % CECL_CACHE_SETS;
}

static bool is_for(const struct cecl_bound *bound, const struct cecl_request *requests,
                   uint32_t count, int nranks)
{
    if (bound->nrequests != count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct cecl_request *a = &bound->requests[i], *b = &requests[i];
        if (a->op != b->op || a->send != b->send || a->recv != b->recv || a->bytes != b->bytes ||
            a->choice.sm_policy != b->choice.sm_policy ||
            a->choice.direction != b->choice.direction || a->choice.max_sms != b->choice.max_sms ||
            a->type != b->type || a->turn != b->turn || a->red_op != b->red_op ||
            a->root != b->root || !a->layout != !b->layout || a->shape.width != b->shape.width)
            return false;
        if (a->shape.width && memcmp(&a->shape, &b->shape, sizeof(a->shape)) != 0)
            return false;
        if (a->layout &&
            memcmp(a->layout, b->layout, words_of(a, nranks) * sizeof(*a->layout)) != 0)
            return false;
    }
    return true;
}

struct cecl_bound *cecl_engine_lookup(const struct cecl_engine *engine,
                                      const struct cecl_request *requests, uint32_t count,
                                      bool *stale)
{
    struct cecl_bound *const *set = engine->cache[set_of(requests, count, engine->nranks)];
    for (int w = 0; w < CECL_CACHE_WAYS; w++)
        if (set[w] && is_for(set[w], requests, count, engine->nranks)) {
            *stale = set[w]->generation != engine->pool->generation;
            return set[w];
        }
    return NULL;
}

void cecl_engine_refresh(const struct cecl_engine *engine, struct cecl_bound *bound)
{
    bound->generation = engine->pool->generation;
}

static void keep(struct cecl_engine *engine, struct cecl_bound *bound)
{
    const size_t s = set_of(bound->requests, bound->nrequests, engine->nranks);
    unsigned way = engine->victim[s]++ % CECL_CACHE_WAYS;
    for (unsigned w = 0; w < CECL_CACHE_WAYS; w++)
        if (!engine->cache[s][w])
            way = w;
    cecl_bound_free(engine->cache[s][way]);
    engine->cache[s][way] = bound;
}

/* A plan with a side lane, or with kernels that come first, needs a stream for it; the first one makes
 * it. */
static ceclResult_t make_side(struct cecl_engine *engine, const struct cecl_bound *bound)
{
    bool wanted = false;
    for (uint32_t i = 0; i < bound->npieces; i++)
        wanted = wanted || bound->pieces[i].lane == CECL_LANE_SIDE || bound->pieces[i].urgent;
    if (!wanted || engine->side)
        return ceclSuccess;
    return engine->dev->ops->stream_create_urgent(engine->dev, &engine->side);
}

static ceclResult_t make_scratch(struct cecl_engine *engine, size_t count)
{
    if (count <= engine->scratch_count)
        return ceclSuccess;
    struct cecl_memop *scratch = realloc(engine->scratch, count * sizeof(*scratch));
    if (scratch)
        engine->scratch = scratch;
    void **sources = realloc(engine->sources, count * sizeof(*sources));
    if (sources)
        engine->sources = sources;
    if (!scratch || !sources)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu flags", count);
    engine->scratch_count = count;
    return ceclSuccess;
}

/* The requests outlive their call, and so must what they point to. */
static bool keep_requests(struct cecl_bound *bound, const struct cecl_request *requests,
                          uint32_t count, int nranks)
{
    size_t all = 0;
    memcpy(bound->requests, requests, count * sizeof(*requests));
    for (uint32_t i = 0; i < count; i++)
        all += words_of(&requests[i], nranks);
    if (all == 0)
        return true;
    bound->layouts = malloc(all * sizeof(*bound->layouts));
    uint64_t *next = bound->layouts;
    for (uint32_t i = 0; i < count && next; i++)
        if (requests[i].layout) {
            const size_t words = words_of(&requests[i], nranks);
            bound->requests[i].layout = memcpy(next, requests[i].layout, words * sizeof(*next));
            next += words;
        }
    return bound->layouts != NULL;
}

ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_request *requests,
                              uint32_t count, const struct cecl_plan *plan, struct cecl_bound **out)
{
    struct cecl_bound *bound = bound_new(plan, count);
    if (!bound)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u steps", plan->nsteps);

    if (!keep_requests(bound, requests, count, engine->nranks)) {
        cecl_bound_free(bound);
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u calls", count);
    }
    bound->generation = engine->pool->generation;
    ceclResult_t result = bind_plan(engine, plan, bound);
    if (result == ceclSuccess)
        result = make_side(engine, bound);
    if (result == ceclSuccess)
        result = make_scratch(engine, bound->nops > bound->ncopies ? bound->nops : bound->ncopies);
    if (result != ceclSuccess) {
        cecl_bound_free(bound);
        return result;
    }
    explain(plan, &bound->explanation);
    keep(engine, bound);
    engine->plans_made++;
    *out = bound;
    return ceclSuccess;
}
