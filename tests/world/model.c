#include "model.h"

#include <stdlib.h>

#include "../reduce_reference.h"

const size_t random_limits[] = {4 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20};
size_t random_largest = 4 << 10;

uint64_t random_next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

bool random_repeats(const struct random_call *c)
{
    return c->kind == ALL_GATHER || c->kind == ALL_GATHERV || c->kind == BROADCAST ||
           c->kind == ALL_GATHER_STRIDED || c->kind == ALL_REDUCE || c->kind == REDUCE;
}

static bool differ(const struct random_call *c)
{
    return c->kind == ALL_GATHERV || c->kind == ALL_TO_ALLV;
}

bool random_reduces(const struct random_call *c)
{
    return c->kind == ALL_REDUCE || c->kind == REDUCE_SCATTER || c->kind == REDUCE ||
           c->kind == REDUCE_SCATTER_TILES || c->kind == REDUCE_SCATTER_AS;
}

static bool never_in_place(enum kind kind)
{
    return kind == ALL_TO_ALLV || kind == REDUCE_SCATTER_TILES || kind == REDUCE_SCATTER_AS;
}

size_t random_result_size(const struct random_call *c)
{
    return c->kind == REDUCE_SCATTER_AS ? sizeof(float) : c->size;
}

/* Whether a call may be in place on some ranks only. (With GATHER and SCATTER only the root decides.) */
static bool ranks_may_differ(const struct random_call *c)
{
    return random_repeats(c) || random_reduces(c);
}

static bool is_strided(const struct random_call *c)
{
    return c->kind == ALL_GATHER_STRIDED || c->kind == ALL_TO_ALL_STRIDED;
}

static size_t drawn_count(const struct random_call *c, uint64_t *x, int from, int to, size_t most)
{
    if (c->kind == ALL_GATHERV && to > 0)
        return c->counts[from][0];
    if (differ(c))
        return random_next(x) % 3 == 0 ? 0 : random_next(x) % (most + 1);
    const bool none = ((c->kind == BROADCAST || c->kind == SCATTER) && from != c->root) ||
                      (c->kind == GATHER && to != c->root) || c->kind == BARRIER ||
                      (c->kind == MESSAGE && (from != c->root || to != c->peer));
    return none ? 0 : c->count;
}

/* Places blocks one after the other; where counts differ, mostly with gaps, and in an order that begins with any rank.
 * Blocks that are reduced together have the same place in recvbuff. */
static void place_blocks(struct random_call *c, uint64_t *x)
{
    c->dense = differ(c) && random_next(x) % 3 == 0;
    const bool gaps = differ(c) && !c->dense;
    const int first = gaps ? (int)(random_next(x) % (uint64_t)c->nranks) : 0;
    for (int r = 0; r < c->nranks; r++) {
        size_t sent = 0, wanted = 0;
        for (int i = 0; i < c->nranks; i++) {
            const int p = (first + i) % c->nranks;
            const bool as_first = c->kind == ALL_GATHERV && r > 0;
            wanted += gaps && !as_first ? random_next(x) % 3 : 0;
            sent += gaps ? random_next(x) % 3 : 0;
            c->sent_at[r][p] = random_repeats(c) ? 0 : sent;
            c->wanted_at[p][r] = as_first ? c->wanted_at[p][0] : wanted;
            sent += c->counts[r][p];
            wanted += random_reduces(c) ? 0 : c->counts[p][r];
        }
    }
}

/* Places blocks side by side or stacked. Half of the layouts have gaps. */
static void draw_layout(const ceclStrided_t *s, size_t n, uint64_t *x, size_t *pitch,
                        size_t *stride)
{
    const size_t gaps = random_next(x) % 2;
    const size_t gap = gaps * (random_next(x) % 5), end = gaps * (random_next(x) % 5);
    const bool beside = random_next(x) % 2;
    *pitch = s->width + gap;
    *stride = s->rows * *pitch + end;
    if (beside) {
        *stride = s->width + gap;
        *pitch = (n - 1) * *stride + s->width + end;
    }
}

/* If the field equals its default, `otherwise`, half of the time sets it to 0, which calls take as the default. */
static void leave_out(uint64_t *x, size_t *field, size_t otherwise)
{
    if (random_next(x) % 2 && *field == otherwise)
        *field = 0;
}

static void leave_defaults_out(struct random_call *c, uint64_t *x)
{
    const bool gathers = c->kind == ALL_GATHER_STRIDED;
    ceclStrided_t *s = &c->strided;
    const size_t width = s->width, whole = (size_t)c->nranks * width;
    const size_t stacked = s->rows * s->recvPitch;
    leave_out(x, &s->sendPitch, gathers ? width : whole);
    leave_out(x, &s->sendStride, width);
    leave_out(x, &s->recvPitch, gathers ? whole : width);
    leave_out(x, &s->recvStride, gathers ? width : stacked);
}

/* Tiles lie side by side, stacked, or anywhere. In recvbuff all rows follow each other. */
static void draw_tiles(struct random_call *c, uint64_t *x, size_t most)
{
    ceclStrided_t *s = &c->strided;
    c->tiles = 1 + random_next(x) % RANDOM_TILES;
    const size_t all = (size_t)c->nranks * c->tiles;
    s->rows = 1 + random_next(x) % (20 / c->tiles);
    s->width = random_next(x) % (most / s->rows / c->tiles + 5);
    draw_layout(s, all, x, &s->sendPitch, &s->sendStride);
    c->count = s->width * s->rows * c->tiles;
    c->tile_shift = random_next(x) % 2 * (random_next(x) % 4);
    const bool anywhere = random_next(x) % 2;
    for (size_t i = 0; i < all; i++)
        c->tile_begins[i] =
            anywhere ? random_next(x) % ((all - 1) * s->sendStride + 1) : i * s->sendStride;
    c->rows = s->rows * c->tiles;
    c->row = s->width * c->size;
    c->send_pitch = s->sendPitch;
    c->recv_pitch = s->width;
    for (int from = 0; from < c->nranks; from++)
        for (int to = 0; to < c->nranks; to++) {
            c->counts[from][to] = c->count;
            c->sent_at[from][to] = c->wanted_at[from][to] = 0;
        }
}

size_t random_tile_at(const struct random_call *c, int r, size_t i)
{
    return c->tile_begins[i] + (size_t)r * c->tile_shift;
}

/* Draws rows for each pair of ranks. If blocks have gaps in sendbuff, offsets are needed, which only ceclCombine takes. */
static void draw_splits(struct random_call *c, uint64_t *x, size_t most)
{
    const bool gaps = random_next(x) % 3 == 0;
    size_t received[RANKS] = {0};
    c->row_count = 1 + random_next(x) % 40;
    c->send_rows = c->recv_rows = 1;
    for (int from = 0; from < c->nranks; from++) {
        size_t sent = 0;
        for (int to = 0; to < c->nranks; to++) {
            const size_t rows =
                random_next(x) % 3 == 0 ? 0 : random_next(x) % (most / c->row_count + 1);
            sent += gaps ? random_next(x) % 3 : 0;
            c->counts[from][to] = rows * c->row_count;
            c->sent_at[from][to] = sent * c->row_count;
            c->wanted_at[from][to] = received[to] * c->row_count;
            sent += rows;
            received[to] += rows;
        }
        c->send_rows = sent > c->send_rows ? sent : c->send_rows;
    }
    for (int to = 0; to < c->nranks; to++)
        c->recv_rows = received[to] > c->recv_rows ? received[to] : c->recv_rows;
    c->splits_have_gaps = gaps;
    c->recv_rows += random_next(x) % 3;
}

static void draw_strided(struct random_call *c, uint64_t *x, size_t most)
{
    ceclStrided_t *s = &c->strided;
    s->rows = 1 + random_next(x) % 20;
    s->width = random_next(x) % (most / s->rows + 5);
    draw_layout(s, (size_t)c->nranks, x, &s->recvPitch, &s->recvStride);
    draw_layout(s, (size_t)c->nranks, x, &s->sendPitch, &s->sendStride);
    if (c->in_place) {
        s->sendPitch = s->recvPitch;
        s->sendStride = s->recvStride;
    }
    c->count = s->width * s->rows;
    c->rows = s->rows;
    c->row = s->width * c->size;
    c->send_pitch = s->sendPitch;
    c->recv_pitch = s->recvPitch;
    for (int from = 0; from < c->nranks; from++)
        for (int to = 0; to < c->nranks; to++) {
            c->counts[from][to] = c->count;
            c->sent_at[from][to] = random_repeats(c) ? 0 : (size_t)to * s->sendStride;
            c->wanted_at[from][to] = (size_t)from * s->recvStride;
        }
    leave_defaults_out(c, x);
}

/* Draws a count near a limit of small calls; larger limits are drawn less often. 0: none was drawn. */
static size_t drawn_on_a_limit(const struct random_call *c, uint64_t *x)
{
    const bool may_be_small = c->kind == ALL_GATHER || c->kind == ALL_TO_ALL || random_reduces(c);
    const uint64_t which = random_next(x) % 32, beside = random_next(x) % 5;
    const size_t limit = random_limits[which < 3 ? 4 - which : which < 5 ? 1 : 0];
    if (!may_be_small || which >= 11 || limit > random_largest)
        return 0;
    return limit / c->size + beside - 2;
}

/* ceclAvg is not drawn with integers. */
static void draw_type(struct random_call *c, uint64_t *x)
{
    c->type = (ceclDataType_t)(random_next(x) % CECL_NUM_TYPES);
    c->op = (ceclRedOp_t)(random_next(x) % CECL_NUM_RED_OPS);
    if (c->kind == REDUCE_SCATTER_AS) {
        c->type = c->type % 2 ? ceclFloat16 : ceclBfloat16;
        c->op = c->op % 2 ? ceclSum : ceclAvg;
    }
    if (c->op == ceclAvg && formats[c->type].fraction == 0)
        c->op = ceclSum;
}

/* Only a rank's message to itself may be in place. */
static void draw_ends(struct random_call *c, uint64_t *x)
{
    c->peer = (int)(random_next(x) % (uint64_t)c->nranks);
    c->as_bytes = random_next(x) % 2;
    c->in_place = c->in_place && c->root == c->peer;
}

void random_draw_of(struct random_call *c, enum kind kind, uint64_t *x)
{
    const int n = c->nranks;
    c->kind = kind;
    draw_type(c, x);
    c->size = formats[c->type].bytes;
    c->in_place = random_next(x) % 2 && !never_in_place(c->kind);
    c->apart = ranks_may_differ(c) && random_next(x) % 2 ? random_next(x) : 0;
    c->exchange = random_next(x) % 2;
    c->repeats = random_next(x) % 4 == 0;
    c->root = (int)(random_next(x) % (uint64_t)n);
    if (kind == MESSAGE)
        draw_ends(c, x);
    /* mostly small counts */
    const size_t most = (random_next(x) % 4 == 0 ? MAX_BLOCK : 64) / c->size;
    c->count = random_next(x) % (most + 1);
    const size_t on_a_limit = drawn_on_a_limit(c, x);
    if (on_a_limit > 0)
        c->count = on_a_limit;
    c->dense = false;
    c->rows = 1;
    c->row = SIZE_MAX;
    c->send_pitch = c->recv_pitch = 0;
    if (is_strided(c)) {
        draw_strided(c, x, most);
        return;
    }
    if (c->kind == REDUCE_SCATTER_TILES) {
        draw_tiles(c, x, most);
        return;
    }
    if (c->kind == BY_SPLITS) {
        c->type = ceclUint8;
        c->size = 1;
        c->in_place = c->repeats = false;
        c->count = 0;
        draw_splits(c, x, most);
        return;
    }
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            c->counts[from][to] = drawn_count(c, x, from, to, most);
    place_blocks(c, x);
}

/* How many elements a block spans, from its first to its last, with the gaps between its rows. */
static size_t span(const struct random_call *c, size_t count, size_t pitch)
{
    return count == 0 ? 0 : (c->rows - 1) * pitch + count / c->rows;
}

/* Where the words of a call by splits begin in a buffer, behind the rows: [2][nranks], rows and places. */
unsigned char *random_words_at(const struct random_call *c, unsigned char *buffer, size_t rows)
{
    unsigned char *end = buffer + rows * c->row_count;
    return end + (8 - (uintptr_t)end % 8) % 8;
}

size_t random_words_bytes(const struct random_call *c)
{
    return c->kind == BY_SPLITS ? 2 * (size_t)c->nranks * sizeof(uint64_t) : 0;
}

void random_fill_words(const struct random_call *c, bool sent, uint64_t *words)
{
    const int me = c->rank, n = c->nranks;
    for (int p = 0; p < n; p++) {
        words[p] = (sent ? c->counts[me][p] : c->counts[p][me]) / c->row_count;
        words[n + p] = (sent ? c->sent_at[me][p] : c->wanted_at[p][me]) / c->row_count;
    }
}

size_t random_sent(const struct random_call *c, int r)
{
    size_t end = c->kind == BY_SPLITS ? c->send_rows * c->row_count : 0;
    const size_t tiles = c->kind == REDUCE_SCATTER_TILES ? (size_t)c->nranks * c->tiles : 0,
                 extent = (c->strided.rows - 1) * c->send_pitch + c->strided.width;
    for (size_t i = 0; i < tiles && c->count > 0; i++)
        end = random_tile_at(c, r, i) + extent > end ? random_tile_at(c, r, i) + extent : end;
    if (tiles > 0)
        return end * c->size;
    for (int p = 0; p < c->nranks; p++) {
        const size_t count = span(c, c->counts[r][p], c->send_pitch);
        if (c->sent_at[r][p] + count > end)
            end = c->sent_at[r][p] + count;
    }
    return end * c->size;
}

size_t random_received(const struct random_call *c)
{
    size_t end = (size_t)c->nranks * c->count;
    if (c->kind == REDUCE_SCATTER_AS)
        return c->count * random_result_size(c);
    if (c->kind == BY_SPLITS)
        return c->recv_rows * c->row_count + 8 + random_words_bytes(c);
    for (int from = 0; from < c->nranks; from++)
        for (int to = 0; to < c->nranks; to++) {
            const size_t count = span(c, c->counts[from][to], c->recv_pitch);
            if (c->wanted_at[from][to] + count > end)
                end = c->wanted_at[from][to] + count;
        }
    return end * c->size;
}

static bool is_in_place_here(const struct random_call *c)
{
    return c->in_place && (c->apart >> c->rank & 1) == 0;
}

bool random_is_in_place(const struct random_call *c)
{
    return is_in_place_here(c) && ((c->kind != GATHER && c->kind != SCATTER) || c->rank == c->root);
}

void random_set_places(struct random_call *c, size_t shift)
{
    const size_t own = (size_t)c->rank * c->count * c->size;
    const bool on_root = c->rank == c->root;
    c->out = c->recv + shift;
    c->in = c->send + shift;
    if (!is_in_place_here(c))
        return;
    switch (c->kind) {
    case SCATTER: /* recvbuff lies inside the root's input, at the same offset on all ranks */
        c->in = on_root ? c->out : c->in;
        c->out += (size_t)c->root * c->count * c->size;
        break;
    case GATHER: c->in = on_root ? c->out + own : c->in; break;
    case ALL_GATHER:
    case ALL_GATHERV:
    case ALL_GATHER_STRIDED: c->in = c->out + c->wanted_at[c->rank][c->rank] * c->size; break;
    case REDUCE_SCATTER:
        c->in = c->out;
        c->out += own;
        break;
    default: c->in = c->out;
    }
}

/* The offset in bytes of byte i of a block that begins at element `at`. */
static size_t place(const struct random_call *c, size_t at, size_t pitch, size_t i)
{
    return (at + i / c->row * pitch) * c->size + i % c->row;
}

static void expect_block(const struct random_call *c, int from, unsigned char *out)
{
    const int me = c->rank;
    for (size_t i = 0; i < c->counts[from][me] * c->size; i++)
        out[place(c, c->wanted_at[from][me], c->recv_pitch, i)] =
            model_byte(c->seed, from, place(c, c->sent_at[from][me], c->send_pitch, i));
}

/* The offset in bytes of byte i of a block in its sender's buffer. */
static size_t sent_place(const struct random_call *c, int from, int to, size_t i)
{
    if (c->kind != REDUCE_SCATTER_TILES)
        return place(c, c->sent_at[from][to], c->send_pitch, i);
    const size_t tile = c->strided.rows * c->row, nth = (size_t)to * c->tiles + i / tile;
    return place(c, random_tile_at(c, from, nth), c->send_pitch, i % tile);
}

/* Fills `inputs` with each rank's contribution to this rank's part of a reduction. */
static void fill_inputs(const struct random_call *c, unsigned char *inputs, const void **src)
{
    const size_t bytes = c->count * c->size;
    for (int from = 0; from < c->nranks; from++) {
        unsigned char *input = inputs + (size_t)from * bytes;
        src[from] = input;
        for (size_t i = 0; i < bytes; i++)
            input[i] = model_byte(c->seed, from, sent_place(c, from, c->rank, i));
    }
}

static void expect_reduced(const struct random_call *c, unsigned char *out)
{
    static bool started;
    const void *src[RANKS];
    const struct cecl_reduction reduction = {.src = src,
                                             .nsrc = (uint32_t)c->nranks,
                                             .type = c->type,
                                             .op = c->op,
                                             .widens = c->kind == REDUCE_SCATTER_AS,
                                             .divisor = (uint32_t)c->nranks};
    const unsigned size = (unsigned)c->size;
    const size_t result = random_result_size(c);
    if (c->count == 0 || (c->kind == REDUCE && c->root != c->rank))
        return;
    if (!started)
        reference_start();
    started = true;
    unsigned char *inputs = malloc((size_t)c->nranks * c->count * c->size);
    if (!inputs)
        abort();
    fill_inputs(c, inputs, src);
    for (size_t i = 0; i < c->count; i++) {
        /* An in-place call on a single rank has no effect. Other calls may change the bits of a NaN. */
        const uint64_t element = c->nranks == 1 && is_in_place_here(c)
                                     ? read_element(inputs + i * c->size, size)
                                     : expected_element(&reduction, i);
        memcpy(out + i * result, &element, result);
    }
    free(inputs);
}

void random_result(const struct random_call *c, unsigned char *out)
{
    if (random_reduces(c)) {
        expect_reduced(c, out);
        return;
    }
    for (int from = 0; from < c->nranks; from++)
        expect_block(c, from, out);
    if (c->kind == BY_SPLITS) {
        uint64_t words[2 * RANDOM_SPLITS_RANKS];
        random_fill_words(c, false, words);
        memcpy(out + (random_words_at(c, c->out, c->recv_rows) - c->out), words,
               random_words_bytes(c));
    }
}
