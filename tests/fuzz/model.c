/* Plain models of calls; see model.h. */
#include "model.h"

#include "reduce_reference.h"

#define EXTRA_MOST 16 /* bytes between the places of calls */
#define MORE_MESSAGES 3

static uint8_t inputs[MODEL_RANKS][MODEL_BYTES];

void model_start(void)
{
    reference_start();
}

bool model_reduces(enum model_kind kind)
{
    return kind == MODEL_ALL_REDUCE || kind == MODEL_REDUCE_SCATTER || kind == MODEL_REDUCE;
}

static bool is_strided(enum model_kind kind)
{
    return kind == MODEL_ALL_GATHER_STRIDED || kind == MODEL_ALL_TO_ALL_STRIDED;
}

/* Whether a rank sends the same block to each rank, or has a single block. */
static bool repeats(enum model_kind kind)
{
    return kind == MODEL_ALL_GATHER || kind == MODEL_BROADCAST || kind == MODEL_ALL_REDUCE ||
           kind == MODEL_REDUCE || kind == MODEL_ALL_GATHER_STRIDED || kind == MODEL_ALL_GATHERV;
}

void model_begin(struct model *model, uint64_t seed)
{
    model->seed = seed | 1;
    for (int r = 0; r < model->nranks; r++) {
        model->used[r] = 0;
        for (size_t i = 0; i < MODEL_BYTES; i += sizeof(seed)) {
            const uint64_t bits = random_bits(&model->seed);
            memcpy(model->mirror[r] + i, &bits, sizeof(bits));
        }
        memcpy(model->memory[r], model->mirror[r], MODEL_BYTES);
    }
}

/* ---- drawing a call */

static size_t drawn_count(struct input *in, size_t size)
{
    const unsigned how = take_below(in, 8);
    const size_t count = how < 5   ? take_below(in, 33)
                         : how < 7 ? take_below(in, 300)
                                   : 600 + take_below(in, 300);
    return size > 4 ? count / 2 : count;
}

/* Elements from one rank to another. */
static size_t block_of(struct input *in, const struct model_call *c, int from, int to)
{
    const bool is_none =
        ((c->kind == MODEL_BROADCAST || c->kind == MODEL_SCATTER) && from != c->root) ||
        (c->kind == MODEL_GATHER && to != c->root) || c->kind == MODEL_BARRIER ||
        (c->kind == MODEL_MESSAGE && (from != c->root || to != c->peer));
    if (c->kind == MODEL_ALL_GATHERV && to > 0)
        return c->counts[from][0];
    if (c->kind == MODEL_ALL_GATHERV || c->kind == MODEL_ALL_TO_ALLV)
        return take_below(in, 3) == 0 ? 0 : take_below(in, (unsigned)c->count + 1);
    return is_none ? 0 : c->count;
}

/* Places blocks one after the other, with gaps where the call takes their places. */
static void place_blocks(struct input *in, int n, struct model_call *c)
{
    const bool differ = c->kind == MODEL_ALL_GATHERV || c->kind == MODEL_ALL_TO_ALLV;
    const unsigned gaps = differ ? 1 + take_below(in, 3) : 1;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            c->counts[from][to] = block_of(in, c, from, to);
    for (int r = 0; r < n; r++) {
        size_t sent = 0, wanted = 0;
        for (int p = 0; p < n; p++) {
            const bool as_first = c->kind == MODEL_ALL_GATHERV && r > 0;
            wanted += as_first ? 0 : take_below(in, gaps);
            c->sent_at[r][p] = repeats(c->kind) ? 0 : sent;
            c->wanted_at[p][r] = as_first ? c->wanted_at[p][0] : wanted;
            sent += c->counts[r][p];
            wanted += model_reduces(c->kind) ? 0 : c->counts[p][r];
        }
    }
}

/* Places rows side by side, or one block after the other. */
static void draw_rows(struct input *in, int n, const ceclStrided_t *s, size_t *pitch,
                      size_t *stride)
{
    const size_t gap = take_below(in, 3), end = take_below(in, 3);
    if (take_below(in, 2)) {
        *stride = s->width + gap;
        *pitch = (size_t)(n - 1) * *stride + s->width + end;
    } else {
        *pitch = s->width + gap;
        *stride = s->rows * *pitch + end;
    }
}

static void place_rows(struct input *in, int n, struct model_call *c)
{
    ceclStrided_t *s = &c->strided;
    s->rows = 1 + take_below(in, 8);
    s->width = 1 + take_below(in, 1 + (unsigned)(c->count / s->rows));
    draw_rows(in, n, s, &s->recvPitch, &s->recvStride);
    draw_rows(in, n, s, &s->sendPitch, &s->sendStride);
    if (c->in_place) {
        s->sendPitch = s->recvPitch;
        s->sendStride = s->recvStride;
    }
    c->count = s->width * s->rows;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            c->counts[from][to] = c->count;
            c->sent_at[from][to] = repeats(c->kind) ? 0 : (size_t)to * s->sendStride;
            c->wanted_at[from][to] = (size_t)from * s->recvStride;
        }
}

/* Where element i lies of a block that begins at element `at`. */
static size_t place_of(const struct model_call *c, size_t at, size_t pitch, size_t i)
{
    return c->strided.width ? at + i / c->strided.width * pitch + i % c->strided.width : at + i;
}

static size_t end_of(const struct model_call *c, size_t at, size_t pitch, size_t count)
{
    return count > 0 ? (place_of(c, at, pitch, count - 1) + 1) * c->size : 0;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A message is in place if a rank sends it to itself within one buffer. Where ranks may differ,
 * the bits of the count decide. */
bool model_is_in_place(const struct model_call *c, int rank)
{
    const bool rooted = c->kind == MODEL_GATHER || c->kind == MODEL_SCATTER;
    const bool differ = model_reduces(c->kind) || repeats(c->kind);
    if (c->kind == MODEL_MESSAGE && c->root != c->peer)
        return false;
    if (differ && (c->count >> rank & 1) != 0)
        return false;
    return c->in_place && (!rooted || rank == c->root);
}

/* Allocates `bytes` of a rank's memory, aligned to elements where a reduction needs that. */
static bool take_place(struct input *in, struct model *model, const struct model_call *c, int rank,
                       size_t bytes, size_t *at)
{
    *at = model->used[rank] + 1 + take_below(in, EXTRA_MOST);
    if (model_reduces(c->kind))
        *at += (c->size - *at % c->size) % c->size;
    model->used[rank] = *at + bytes;
    return *at + bytes + EXTRA_MOST < MODEL_BYTES;
}

/* Places the buffers of one rank. In place, one buffer lies within the other. */
static bool place_buffers(struct input *in, struct model *model, struct model_call *c, int rank)
{
    const size_t own = (size_t)rank * c->count * c->size;
    size_t sent = 0, received = c->kind == MODEL_REDUCE ? c->count * c->size : 0;
    for (int p = 0; p < model->nranks; p++) {
        sent =
            larger(sent, end_of(c, c->sent_at[rank][p], c->strided.sendPitch, c->counts[rank][p]));
        received = larger(
            received, end_of(c, c->wanted_at[p][rank], c->strided.recvPitch, c->counts[p][rank]));
    }
    if (!model_is_in_place(c, rank))
        return take_place(in, model, c, rank, sent, &c->send[rank]) &&
               take_place(in, model, c, rank, received, &c->recv[rank]);
    if (!take_place(in, model, c, rank, larger(sent, received), &c->recv[rank]))
        return false;
    c->send[rank] = c->recv[rank];
    if (c->kind == MODEL_REDUCE_SCATTER || c->kind == MODEL_SCATTER)
        c->recv[rank] += own;
    else if (c->kind == MODEL_GATHER || c->kind == MODEL_ALL_GATHER ||
             c->kind == MODEL_ALL_GATHERV || c->kind == MODEL_ALL_GATHER_STRIDED)
        c->send[rank] += c->wanted_at[rank][rank] * c->size;
    return true;
}

/* Draws numbers of the type, instead of random bits. */
static void fill_inputs(struct model *model, const struct model_call *c)
{
    const size_t blocks = c->kind == MODEL_REDUCE_SCATTER ? (size_t)model->nranks : 1;
    for (int r = 0; r < model->nranks; r++) {
        random_fill(model->mirror[r] + c->send[r], c->type, blocks * c->count, &model->seed);
        memcpy(model_send(model, c, r), model->mirror[r] + c->send[r], blocks * c->count * c->size);
    }
}

/* Messages are drawn more often than each collective, because a group needs several of them. */
static enum model_kind draw_kind(struct input *in, enum model_kind kinds)
{
    const unsigned more = kinds == MODEL_KINDS ? MORE_MESSAGES : 0;
    const unsigned kind = take_below(in, kinds + more);
    return kind < kinds ? (enum model_kind)kind : MODEL_MESSAGE;
}

bool model_draw(struct input *in, struct model *model, enum model_kind kinds, struct model_call *c)
{
    bool has_room = true;
    memset(c, 0, sizeof(*c));
    c->kind = draw_kind(in, kinds);
    c->type = (ceclDataType_t)take_below(in, CECL_NUM_TYPES);
    c->size = formats[c->type].bytes;
    c->op = (ceclRedOp_t)take_below(in, formats[c->type].fraction ? CECL_NUM_RED_OPS : 4);
    c->root = (int)take_below(in, (unsigned)model->nranks);
    c->in_place = take_below(in, 2) && c->kind != MODEL_ALL_TO_ALLV &&
                  (c->kind != MODEL_ALL_TO_ALL || kinds > MODEL_NCCL_KINDS); /* NCCL has none */
    c->count = drawn_count(in, c->size);
    if (c->kind == MODEL_MESSAGE) {
        const unsigned ends = take_below(in, 2 * (unsigned)model->nranks);
        c->peer = (int)(ends / 2);
        c->as_bytes = ends % 2;
    }
    if (kinds == MODEL_NCCL_KINDS && c->count == 0) /* NCCL's stand-in lacks most types */
        c->count = !model_reduces(c->kind) ? 0 : 1;
    if (is_strided(c->kind))
        place_rows(in, model->nranks, c);
    else
        place_blocks(in, model->nranks, c);
    for (int r = 0; r < model->nranks; r++)
        has_room = place_buffers(in, model, c, r) && has_room;
    if (has_room && model_reduces(c->kind))
        fill_inputs(model, c);
    return has_room;
}

/* ---- effects of a call */

static void apply_block(struct model *model, const struct model_call *c, int from, int to)
{
    for (size_t i = 0; i < c->counts[from][to]; i++) {
        const size_t source = place_of(c, c->sent_at[from][to], c->strided.sendPitch, i),
                     target = place_of(c, c->wanted_at[from][to], c->strided.recvPitch, i);
        memcpy(model->mirror[to] + c->recv[to] + target * c->size,
               inputs[from] + c->send[from] + source * c->size, c->size);
    }
}

static void apply_reduction(struct model *model, const struct model_call *c, int to)
{
    const void *sources[MODEL_RANKS];
    const struct cecl_reduction reduction = {.src = sources,
                                             .nsrc = (uint32_t)model->nranks,
                                             .count = c->count,
                                             .type = c->type,
                                             .op = c->op,
                                             .divisor = (uint32_t)model->nranks};
    if (c->kind == MODEL_REDUCE && to != c->root)
        return;
    for (int r = 0; r < model->nranks; r++)
        sources[r] = inputs[r] + c->send[r] + c->sent_at[r][to] * c->size;
    for (size_t i = 0; i < c->count; i++) {
        uint64_t element = expected_element(&reduction, i);
        if (model->nranks == 1 &&
            model_is_in_place(c, 0)) /* nothing is written, so a NaN keeps its bits */
            memcpy(&element, (const uint8_t *)sources[0] + i * c->size, c->size);
        memcpy(model->mirror[to] + c->recv[to] + i * c->size, &element, c->size);
    }
}

void model_apply(struct model *model, const struct model_call *c)
{
    for (int r = 0; r < model->nranks; r++)
        memcpy(inputs[r], model->mirror[r], MODEL_BYTES);
    for (int to = 0; to < model->nranks; to++) {
        if (model_reduces(c->kind))
            apply_reduction(model, c, to);
        else
            for (int from = 0; from < model->nranks; from++)
                apply_block(model, c, from, to);
    }
}

void model_compare(const struct model *model, const char *what)
{
    for (int r = 0; r < model->nranks; r++) {
        size_t i = 0;
        if (memcmp(model->memory[r], model->mirror[r], MODEL_BYTES) == 0)
            continue;
        while (model->memory[r][i] == model->mirror[r][i])
            i++;
        REQUIRE(false, "%s: byte %zu of rank %d of %d is %02x, not %02x", what, i, r, model->nranks,
                model->memory[r][i], model->mirror[r][i]);
    }
}
