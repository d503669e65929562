/* Random calls; see random_call.h. */
#include "random_call.h"

#include "../reduce_reference.h"

#define POISON 0x5A

static const size_t limits[] = {4 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20};
size_t random_largest = 4 << 10;

void random_take_limits_of(ceclComm_t comm)
{
    random_largest = limits[!multi_on_gpus(comm) ? 0 : multi_nranks == 2 ? 4 : 2];
}

size_t random_room(void)
{
    const size_t block = random_largest + 64 > MAX_ROOM ? random_largest + 64 : MAX_ROOM;
    return (size_t)(multi_nranks + 1) * block + 2 * RANDOM_GUARD;
}

uint64_t random_next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Whether a rank sends the same block to every rank. */
static bool repeats(const struct random_call *c)
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

/* Whether some ranks may be in place and others out of place. (A root decides this alone
 * anyway.) */
static bool ranks_may_differ(const struct random_call *c)
{
    return repeats(c) || random_reduces(c);
}

static bool is_strided(const struct random_call *c)
{
    return c->kind == ALL_GATHER_STRIDED || c->kind == ALL_TO_ALL_STRIDED;
}

/* ---- drawing */

static size_t drawn_count(const struct random_call *c, uint64_t *x, int from, int to, size_t most)
{
    if (c->kind == ALL_GATHERV && to > 0)
        return c->counts[from][0];
    if (differ(c))
        return random_next(x) % 3 == 0 ? 0 : random_next(x) % (most + 1);
    const bool none = ((c->kind == BROADCAST || c->kind == SCATTER) && from != c->root) ||
                      (c->kind == GATHER && to != c->root);
    return none ? 0 : c->count;
}

/* Places blocks one after the other; where counts differ, mostly with gaps, and not from the first rank on. Blocks that
 * are reduced overlap. */
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
            c->sent_at[r][p] = repeats(c) ? 0 : sent;
            c->wanted_at[p][r] = as_first ? c->wanted_at[p][0] : wanted;
            sent += c->counts[r][p];
            wanted += random_reduces(c) ? 0 : c->counts[p][r];
        }
    }
}

/* Places blocks side by side or stacked; half of the layouts have gaps. */
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

/* Half of the time, writes 0 for a field that has its default value. */
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

/* Tiles lie side by side, stacked, or anywhere. In recvbuff all rows are contiguous. */
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

/* The element at which tile `i` begins in the sendbuff of rank `r`. */
static size_t tile_at(const struct random_call *c, int r, size_t i)
{
    return c->tile_begins[i] + (size_t)r * c->tile_shift;
}

/* Draws rows for each pair of ranks. Gaps between sent blocks need offsets, which only ceclCombine takes. */
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
            c->sent_at[from][to] = repeats(c) ? 0 : (size_t)to * s->sendStride;
            c->wanted_at[from][to] = (size_t)from * s->recvStride;
        }
    leave_defaults_out(c, x);
}

/* Draws a count near a size limit of small calls, larger limits more rarely. 0: draws no limit. */
static size_t drawn_on_a_limit(const struct random_call *c, uint64_t *x)
{
    const bool may_be_small = c->kind == ALL_GATHER || c->kind == ALL_TO_ALL || random_reduces(c);
    const uint64_t which = random_next(x) % 32, beside = random_next(x) % 5;
    const size_t limit = limits[which < 3 ? 4 - which : which < 5 ? 1 : 0];
    if (!may_be_small || which >= 11 || limit > random_largest)
        return 0;
    return limit / c->size + beside - 2;
}

/* Integers have no ceclAvg. */
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

void random_draw_of(struct random_call *c, enum kind kind, uint64_t *x)
{
    const int n = c->nranks;
    c->kind = kind;
    draw_type(c, x);
    c->size = multi_type_bytes(c->type);
    c->in_place = random_next(x) % 2 && !never_in_place(c->kind);
    c->apart = ranks_may_differ(c) && random_next(x) % 2 ? random_next(x) : 0;
    c->exchange = random_next(x) % 2;
    c->repeats = random_next(x) % 4 == 0;
    c->root = (int)(random_next(x) % (uint64_t)n);
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

void random_set(struct random_call *c, enum kind kind, ceclDataType_t type, size_t count)
{
    *c = (struct random_call){.rank = multi_rank,
                              .nranks = multi_nranks,
                              .kind = kind,
                              .type = type,
                              .op = ceclSum,
                              .size = multi_type_bytes(type),
                              .count = count,
                              .rows = 1,
                              .row = SIZE_MAX,
                              .seed = 1024};
    for (int from = 0; from < multi_nranks; from++)
        for (int to = 0; to < multi_nranks; to++) {
            c->counts[from][to] = count;
            c->sent_at[from][to] = repeats(c) ? 0 : (size_t)to * count;
            c->wanted_at[from][to] = random_reduces(c) ? 0 : (size_t)from * count;
        }
}

void random_draw(struct random_call *c, uint64_t *x)
{
    random_draw_of(c, (enum kind)(random_next(x) % KINDS), x);
}

/* ---- places in memory */

/* Elements from the first element of a block to its last. */
static size_t span(const struct random_call *c, size_t count, size_t pitch)
{
    return count == 0 ? 0 : (c->rows - 1) * pitch + count / c->rows;
}

/* Words of a call by splits lie behind its rows: [2][nranks] rows, and places. Where a buffer's words begin. */
static unsigned char *words_at(const struct random_call *c, unsigned char *buffer, size_t rows)
{
    unsigned char *end = buffer + rows * c->row_count;
    return end + (8 - (uintptr_t)end % 8) % 8;
}

static size_t words_bytes(const struct random_call *c)
{
    return c->kind == BY_SPLITS ? 2 * (size_t)c->nranks * sizeof(uint64_t) : 0;
}

size_t random_sent(const struct random_call *c, int r)
{
    size_t end = c->kind == BY_SPLITS ? c->send_rows * c->row_count : 0;
    const size_t tiles = c->kind == REDUCE_SCATTER_TILES ? (size_t)c->nranks * c->tiles : 0,
                 extent = (c->strided.rows - 1) * c->send_pitch + c->strided.width;
    for (size_t i = 0; i < tiles && c->count > 0; i++)
        end = tile_at(c, r, i) + extent > end ? tile_at(c, r, i) + extent : end;
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
        return c->recv_rows * c->row_count + 8 + words_bytes(c);
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

/* ---- making calls */

/* Arguments of the variable collectives, and places of tiles. */
struct sizes {
    size_t sends[RANKS], from[RANKS], receives[RANKS], to[RANKS], at_peers[RANKS];
    size_t tiles[RANKS * RANDOM_TILES];
};

static void set_sizes(const struct random_call *c, struct sizes *s)
{
    const int me = c->rank;
    for (int p = 0; p < c->nranks; p++) {
        s->sends[p] = c->counts[me][p];
        s->from[p] = c->sent_at[me][p];
        s->receives[p] = c->counts[p][me];
        s->to[p] = c->wanted_at[p][me];
        s->at_peers[p] = c->wanted_at[me][p];
    }
}

/* Tiles that are side by side need neither pitch nor places. */
static ceclTiles_t tiles_of(const struct random_call *c, struct sizes *sizes)
{
    const ceclStrided_t *s = &c->strided;
    const size_t all = (size_t)c->nranks * c->tiles;
    bool given = c->seed % 2 || s->sendPitch != all * s->width;
    for (size_t i = 0; i < all; i++) {
        sizes->tiles[i] = tile_at(c, c->rank, i);
        given = given || sizes->tiles[i] != i * s->width;
    }
    return (ceclTiles_t){.count = c->tiles,
                         .width = s->width,
                         .rows = s->rows,
                         .pitch = given ? c->send_pitch : 0,
                         .begins = given ? sizes->tiles : NULL};
}

/* The words that the call is to write to recvsplits, or for ceclCombine the words of sendsplits. */
static void fill_words(const struct random_call *c, bool sent, uint64_t *words)
{
    const int me = c->rank, n = c->nranks;
    for (int p = 0; p < n; p++) {
        words[p] = (sent ? c->counts[me][p] : c->counts[p][me]) / c->row_count;
        words[n + p] = (sent ? c->sent_at[me][p] : c->wanted_at[p][me]) / c->row_count;
    }
}

static ceclResult_t by_splits(ceclComm_t comm, const struct random_call *c)
{
    const ceclExperts_t one = {.experts = 1, .align = 1};
    const uint64_t *splits = (const void *)words_at(c, c->in, c->send_rows);
    uint64_t *told = (void *)words_at(c, c->out, c->recv_rows);
    if (c->splits_have_gaps)
        return ceclCombine(c->in, c->send_rows, splits, c->out, c->recv_rows, told, &one,
                           c->row_count, c->type, comm, c->stream);
    if (c->exchange)
        return ceclDispatch(c->in, c->send_rows, splits, c->out, c->recv_rows, told, &one,
                            c->row_count, c->type, comm, c->stream);
    return ceclAlltoAllvDevice(c->in, c->send_rows, splits, c->out, c->recv_rows, told,
                               c->row_count, c->type, comm, c->stream);
}

/* Makes the call of each kind. */
static ceclResult_t call(ceclComm_t comm, const struct random_call *c, bool grouped)
{
    const ceclDataType_t type = c->type;
    const ceclStream_t stream = c->stream;
    const size_t count = c->count;
    struct sizes s;
    const size_t *const from = c->dense ? NULL : s.from, *const to = c->dense ? NULL : s.to;
    if (c->kind == BY_SPLITS && !grouped)
        return by_splits(comm, c);
    set_sizes(c, &s);
    switch (c->kind) {
    case ALL_GATHER: return ceclAllGather(c->in, c->out, count, type, comm, stream);
    case ALL_TO_ALL: return ceclAlltoAll(c->in, c->out, count, type, comm, stream);
    case BROADCAST: return ceclBroadcast(c->in, c->out, count, type, c->root, comm, stream);
    case GATHER: return ceclGather(c->in, c->out, count, type, c->root, comm, stream);
    case SCATTER: return ceclScatter(c->in, c->out, count, type, c->root, comm, stream);
    case ALL_GATHER_STRIDED:
        return ceclAllGatherStrided(c->in, c->out, &c->strided, type, comm, stream);
    case ALL_TO_ALL_STRIDED:
        return ceclAlltoAllStrided(c->in, c->out, &c->strided, type, comm, stream);
    case ALL_REDUCE: return ceclAllReduce(c->in, c->out, count, type, c->op, comm, stream);
    case REDUCE_SCATTER: return ceclReduceScatter(c->in, c->out, count, type, c->op, comm, stream);
    case REDUCE_SCATTER_TILES: {
        const ceclTiles_t tiles = tiles_of(c, &s);
        return ceclReduceScatterTiles(c->in, c->out, &tiles, type, c->op, comm, stream);
    }
    case REDUCE_SCATTER_AS:
        return ceclReduceScatterAs(c->in, c->out, count, type, ceclFloat32, c->op, comm, stream);
    case REDUCE: return ceclReduce(c->in, c->out, count, type, c->op, c->root, comm, stream);
    case ALL_GATHERV:
        return ceclAllGatherv(c->in, s.receives[c->rank], c->out, s.receives, to, type, comm,
                              stream);
    default:
        return c->exchange && !grouped
                   ? ceclAlltoAllv(c->in, s.sends, from, c->out, s.receives, to, type, comm, stream)
                   : ceclAlltoAllvAt(c->in, s.sends, from, c->out, s.receives, to, s.at_peers, type,
                                     comm, stream);
    }
}

/* Captures the call, and launches the graph once. A default stream cannot capture, so another one does. */
static ceclResult_t make_in_graph(ceclComm_t comm, const struct random_call *c)
{
    struct random_call captured = *c;
    ceclGraph_t graph = NULL;
    ceclResult_t result = ceclStreamCreate(comm, &captured.stream);
    if (result != ceclSuccess)
        return result;
    result = ceclStreamBeginCapture(comm, captured.stream);
    const ceclResult_t made = result != ceclSuccess ? result : call(comm, &captured, false);
    if (result == ceclSuccess)
        result = ceclStreamEndCapture(comm, captured.stream, &graph);
    if (made == ceclSuccess && result == ceclSuccess)
        result = ceclGraphLaunch(graph, c->stream);
    if (graph)
        multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, captured.stream));
    return made != ceclSuccess ? made : result;
}

static bool may_capture(ceclComm_t comm)
{
    return !multi_on_gpus(comm) || getenv("CECL_TEST_CAPTURE");
}

/* Makes the call once, or, out of place, up to 3 times, because the input stays unchanged. */
ceclResult_t random_make(ceclComm_t comm, const struct random_call *c, bool grouped)
{
    const int times = c->repeats && !c->in_place && !grouped ? 1 + (int)(c->seed % 3) : 1;
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < times && result == ceclSuccess; i++)
        /* on GPUs only on demand: a captured call takes milliseconds there */
        result = !grouped && may_capture(comm) && (c->seed / 1024 + (uint64_t)i) % 8 == 0
                     ? make_in_graph(comm, c)
                     : call(comm, c, grouped);
    return result;
}

/* ---- expected results */

/* The byte offset of byte i of a block that begins at element `at`. */
static size_t place(const struct random_call *c, size_t at, size_t pitch, size_t i)
{
    return (at + i / c->row * pitch) * c->size + i % c->row;
}

static void expect_block(const struct random_call *c, int from, unsigned char *out)
{
    const int me = c->rank;
    for (size_t i = 0; i < c->counts[from][me] * c->size; i++)
        out[place(c, c->wanted_at[from][me], c->recv_pitch, i)] =
            multi_byte(c->seed, from, place(c, c->sent_at[from][me], c->send_pitch, i));
}

/* The byte offset of byte i of a block in its sender's buffer. */
static size_t sent_place(const struct random_call *c, int from, int to, size_t i)
{
    if (c->kind != REDUCE_SCATTER_TILES)
        return place(c, c->sent_at[from][to], c->send_pitch, i);
    const size_t tile = c->strided.rows * c->row, nth = (size_t)to * c->tiles + i / tile;
    return place(c, tile_at(c, from, nth), c->send_pitch, i % tile);
}

/* Fills `inputs` with what each rank contributes to this rank's part of a reduction. */
static void fill_inputs(const struct random_call *c, unsigned char *inputs, const void **src)
{
    const size_t bytes = c->count * c->size;
    for (int from = 0; from < c->nranks; from++) {
        unsigned char *input = inputs + (size_t)from * bytes;
        src[from] = input;
        for (size_t i = 0; i < bytes; i++)
            input[i] = multi_byte(c->seed, from, sent_place(c, from, c->rank, i));
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
    assert_non_null(inputs);
    fill_inputs(c, inputs, src);
    for (size_t i = 0; i < c->count; i++) {
        /* In place, a single rank's call has no effect. Any other call may change the bits of a
         * NaN. */
        const uint64_t element = c->nranks == 1 && is_in_place_here(c)
                                     ? read_element(inputs + i * c->size, size)
                                     : expected_element(&reduction, i);
        memcpy(out + i * result, &element, result);
    }
    free(inputs);
}

/* Writes this rank's expected result to `out`, which has the layout of recvbuff. */
static void expect(const struct random_call *c, unsigned char *out)
{
    if (random_reduces(c)) {
        expect_reduced(c, out);
        return;
    }
    for (int from = 0; from < c->nranks; from++)
        expect_block(c, from, out);
    if (c->kind == BY_SPLITS) {
        uint64_t words[2 * RANDOM_SPLITS_RANKS];
        fill_words(c, false, words);
        memcpy(out + (words_at(c, c->out, c->recv_rows) - c->out), words, words_bytes(c));
    }
}

/* ---- buffers */

void random_expect(const struct random_slot *s, unsigned char *want)
{
    const struct random_call *c = &s->call;
    memset(want, POISON, s->bytes);
    if (c->in >= c->recv && c->in < c->recv + s->bytes)
        multi_fill(want + (c->in - c->recv), c->seed, c->rank, random_sent(c, c->rank));
    expect(c, want + (c->out - c->recv));
}

void random_put(ceclComm_t comm, struct random_slot *s, unsigned char *host)
{
    const struct random_call *c = &s->call;
    const size_t mine = random_sent(c, c->rank);
    memset(s->want, POISON, s->bytes);
    multi_put(comm, c->recv, s->want, s->bytes);
    multi_fill(host, c->seed, c->rank, mine);
    multi_put(comm, c->in, host, mine);
    random_expect(s, s->want);
    if (c->kind == BY_SPLITS) {
        uint64_t words[2 * RANDOM_SPLITS_RANKS];
        fill_words(c, true, words);
        multi_put(comm, words_at(c, c->in, c->send_rows), words, words_bytes(c));
    }
}

void random_expect_no_words(struct random_slot *s)
{
    const struct random_call *c = &s->call;
    if (c->kind == BY_SPLITS)
        memset(s->want + (words_at(c, c->out, c->recv_rows) - c->recv), POISON, words_bytes(c));
}

/* Draws a place for `bytes`: half the time at a multiple of 16, otherwise at a multiple of
 * `align`. If the memory has two pieces, the place often lies across both. */
static unsigned char *place_in(const struct memory *m, size_t bytes, size_t align, uint64_t *y)
{
    size_t at = random_next(y) % (m->bytes - bytes + 1);
    if (m->seam > 0 && random_next(y) % 2)
        at = m->seam - random_next(y) % (bytes < m->seam ? bytes : m->seam);
    at = at + bytes > m->bytes ? m->bytes - bytes : at;
    return m->at + at - at % (random_next(y) % 2 ? 16 : align);
}

size_t random_bytes_sent(const struct random_call *c, int r)
{
    return random_sent(c, r) + 8 + words_bytes(c) + RANDOM_GUARD;
}

size_t random_bytes_received(const struct random_call *c)
{
    return random_received(c) + 2 * RANDOM_GUARD;
}

void random_prepare(ceclComm_t comm, struct random_slot *s, const struct memory *send,
                    const struct memory *recv, uint64_t *y, unsigned char *host)
{
    struct random_call *c = &s->call;
    const size_t align = random_reduces(c) ? random_result_size(c) : 1,
                 sent = random_bytes_sent(c, c->rank);
    s->bytes = random_bytes_received(c);
    assert_true(s->bytes <= random_room() && sent <= random_room());
    c->send = place_in(send, sent, align, y);
    c->recv = place_in(recv, s->bytes, align, y);
    s->send_kind = send->kind;
    s->recv_kind = recv->kind;
    random_set_places(c, RANDOM_GUARD);
    random_put(comm, s, host);
}

void random_check(const struct random_slot *s, const unsigned char *host)
{
    const struct random_call *c = &s->call;
    size_t i = 0;
    if (memcmp(host, s->want, s->bytes) == 0)
        return;
    while (host[i] == s->want[i])
        i++;
    fail_msg(
        "rank %d of %d (%d in the world): kind %d type %d op %d count %zu rows %zu root %d in "
        "place %d seed %llu, memory of kinds %d and %d: byte %td from recvbuff on is %02x, not "
        "%02x",
        c->rank, c->nranks, multi_rank, (int)c->kind, (int)c->type, (int)c->op, c->count, c->rows,
        c->root, is_in_place_here(c), (unsigned long long)c->seed, (int)s->send_kind,
        (int)s->recv_kind, c->recv + i - c->out, host[i], s->want[i]);
}

void random_compare(ceclComm_t comm, const struct random_slot *s, unsigned char *host)
{
    multi_get(comm, host, s->call.recv, s->bytes);
    random_check(s, host);
}

static void make_group(ceclComm_t comm, struct random_slot *slots, int size, unsigned char *host)
{
    if (size > 1)
        multi_ok(comm, ceclGroupStart());
    for (int i = 0; i < size; i++)
        multi_ok(comm, random_make(comm, &slots[i].call, size > 1));
    if (size > 1)
        multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    for (int i = 0; i < size; i++)
        random_compare(comm, &slots[i], host);
}

void random_groups(ceclComm_t comm, enum kind first, enum kind last, int size, int rounds,
                   uint64_t seed)
{
    static struct random_slot slots[RANDOM_MOST];
    struct memory send[RANDOM_MOST], recv[RANDOM_MOST];
    unsigned char *host = malloc(random_room());
    assert_non_null(host);
    for (int i = 0; i < size; i++) {
        slots[i].call = (struct random_call){.rank = multi_rank, .nranks = multi_nranks};
        assert_non_null(slots[i].want = malloc(random_room()));
        send[i] = memory_new(comm, MEMORY_POOL, random_room());
        recv[i] = memory_new(comm, MEMORY_POOL, random_room());
    }
    for (uint64_t x = seed; rounds > 0; rounds--) {
        for (int i = 0; i < size; i++) {
            struct random_call *c = &slots[i].call;
            const uint64_t kind = random_next(&x) % (uint64_t)(last - first + 1);
            random_draw_of(c, (enum kind)((uint64_t)first + kind), &x);
            c->seed = random_next(&x);
            uint64_t own = c->seed + (uint64_t)multi_rank;
            random_prepare(comm, &slots[i], &send[i], &recv[i], &own, host);
        }
        make_group(comm, slots, size, host);
        for (int i = 0; i < size && rounds % 2; i++) {
            slots[i].call.seed = random_next(&x);
            random_put(comm, &slots[i], host);
        }
        if (rounds % 2)
            make_group(comm, slots, size, host);
    }
    for (int i = 0; i < size; i++) {
        free(slots[i].want);
        multi_ok(comm, ceclMemFree(comm, send[i].at));
        multi_ok(comm, ceclMemFree(comm, recv[i].at));
    }
    free(host);
}
