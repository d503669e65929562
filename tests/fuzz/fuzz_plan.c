/* Checks lowering with the verifier. An input gives a tuning table, and a valid sequence of calls and groups, some of
 * them captured and launched again. The plans of all ranks must be correct, or be refused on all ranks. */
#include "../learn_outside.h"
#include "input.h"

#include "ce/capture.h"
#include "ce/lower.h"
#include "plan/tuning.h"
#include "plan/way.h"
#include "verify/verify.h"

#define FEW_RANKS 7 /* most inputs have at most this many */
#define RANKS_MOST 33
#define PARTS_MOST 6
#define CALLS_MOST 3
#define TIMES_MOST 7 /* launches of an input's calls */
#define SLOT 64
#define SLOTS (2ull * RANKS_MOST * CECL_SLOT_FACTOR * SLOT)
#define HOST 4096        /* bytes of a half of the host memory for urgent calls */
#define TABLE (1u << 15) /* bytes for the tables of splits; more than any call needs */
#define EXPERTS 3
#define SPLITS (2 * CECL_SPLITS_RANKS_MAX * EXPERTS)

struct drawn {
    struct cecl_part part;
    struct cecl_way way; /* small numbers in place of those that cecl_choose chooses */
    /* one layout for all ranks, one for each rank, or none */
    uint64_t layouts[RANKS_MOST * CECL_LAYOUT_WORDS_MAX(RANKS_MOST)];
    bool has_layout;
    uint64_t splits[CECL_SPLITS_RANKS_MAX][SPLITS], splits_out[CECL_SPLITS_RANKS_MAX][SPLITS];
    /* the only rank whose own block stays in place; -1: no rank's; -2: all ranks' or no rank's, as `part` says */
    int in_place_at;
    uint64_t differ; /* bit r: rank r is in place if `part` is not, and vice versa */
};

struct group {
    uint32_t size;
    bool late, captured;
    int turn[RANKS_MOST]; /* how many ranks publish before each rank */
    uint64_t send_at[PARTS_MOST][RANKS_MOST], outside[PARTS_MOST][CECL_MAX_RANKS / 64];
    struct drawn drawn[PARTS_MOST];
};

/* What all calls of an input have in common. */
struct setting {
    enum { ANY_CALLS, QUICK, REDUCTIONS } theme; /* quick: small or urgent */
    int n;
    struct cecl_tuning tuning;
    uint64_t staging;
    bool has_slots, draws_ways;
    uint64_t host_bytes;
};

/* Makes many numbers from a few bytes of the input. */
static struct input take_many(struct input *in)
{
    static uint8_t many[8 * RANKS_MOST * RANKS_MOST];
    uint64_t word = take_word(in);
    for (size_t i = 0; i < sizeof(many); i++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        many[i] = (uint8_t)(word >> 56);
    }
    return (struct input){many, sizeof(many)};
}

static uint64_t *word(struct drawn *d, int n, int rank, int array, int peer)
{
    return &d->layouts[cecl_layout_at(n, rank * CECL_LAYOUT_OWN_ARRAYS + array, peer)];
}

/* Places blocks one after the other. With gaps between them, the first block may be that of any rank. */
static void place_exchange(struct input *in, struct drawn *d, int n, bool has_gaps)
{
    const unsigned gaps = 1 + (has_gaps ? take_below(in, 3) : 0);
    for (int r = 0; r < n; r++) {
        const int first = has_gaps ? (int)take_below(in, (unsigned)n) : 0;
        uint64_t sent = take_below(in, gaps), received = take_below(in, gaps);
        for (int i = 0; i < n; i++) {
            const int p = (first + i) % n;
            *word(d, n, r, CECL_LAYOUT_SENT_AT, p) = sent;
            *word(d, n, r, CECL_LAYOUT_RECEIVED_AT, p) = received;
            *word(d, n, r, CECL_LAYOUT_RECEIVED, p) = *word(d, n, p, CECL_LAYOUT_SENT, r);
            sent += *word(d, n, r, CECL_LAYOUT_SENT, p) + take_below(in, gaps);
            received += *word(d, n, r, CECL_LAYOUT_RECEIVED, p) + take_below(in, gaps);
        }
    }
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++)
            *word(d, n, r, CECL_LAYOUT_TARGET, p) = *word(d, n, p, CECL_LAYOUT_RECEIVED_AT, r);
}

/* Blocks of any sizes; or one rank sends to all or receives from all, and may keep its own block in place. */
static void draw_exchange(struct input *in, struct drawn *d, int n)
{
    const unsigned most = 1 + take_below(in, 30), empty = take_below(in, 3), flags = take_byte(in);
    const int root = flags & 1 ? (int)take_below(in, (unsigned)n) : -1;
    struct input many = take_many(in);
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++) {
            uint64_t *bytes = word(d, n, r, CECL_LAYOUT_SENT, p);
            const bool is_empty =
                root < 0 ? take_below(&many, 3) < empty : (flags & 2 ? r : p) != root;
            *bytes = is_empty ? 0 : root < 0 ? take_below(&many, most) : most;
            d->part.call.bytes = *bytes > d->part.call.bytes ? *bytes : d->part.call.bytes;
        }
    place_exchange(&many, d, n, root < 0);
    d->has_layout = true;
    d->in_place_at = flags & 4 ? root : -1;
}

static void draw_gather(struct input *in, struct drawn *d, int n)
{
    const unsigned most = 1 + take_below(in, 60);
    const int only = take_below(in, 2) ? (int)take_below(in, (unsigned)n) : -1;
    const int first = (int)take_below(in, (unsigned)n);
    struct input many = take_many(in);
    uint64_t at = take_below(in, 3);
    d->part.call.bytes = 0;
    uint64_t *bytes = word(d, n, 0, CECL_LAYOUT_BYTES, 0),
             *offsets = word(d, n, 0, CECL_LAYOUT_AT, 0);
    for (int i = 0; i < n; i++) { /* blocks do not lie in rank order */
        const int r = (first + i * (n % 7 == 0 ? 1 : 7)) % n;
        bytes[r] = only < 0 || only == r ? take_below(&many, most) : 0;
        offsets[r] = at;
        at += bytes[r] + take_below(&many, 3);
        if (bytes[r] > d->part.call.bytes)
            d->part.call.bytes = bytes[r];
    }
    if (d->part.call.bytes == 0) /* a call without effect has no plan */
        bytes[n - 1] = d->part.call.bytes = 1;
    d->has_layout = true;
}

/* Places blocks side by side, or one after the other. */
static void draw_rows(struct input *in, int n, uint64_t width, uint64_t rows, uint64_t *pitch,
                      uint64_t *stride)
{
    const uint64_t gap = take_below(in, 3), end = take_below(in, 3);
    if (take_below(in, 2)) {
        *stride = width + gap;
        *pitch = (uint64_t)(n - 1) * *stride + width + end;
    } else {
        *pitch = width + gap;
        *stride = rows * *pitch + end;
    }
}

static void draw_strided(struct input *in, struct cecl_call *call, int n)
{
    struct cecl_shape *s = &call->view.shape;
    s->width = 1 + take_below(in, 8);
    s->rows = 1 + take_below(in, 5);
    draw_rows(in, n, s->width, s->rows, &s->recv_pitch, &s->recv_stride);
    draw_rows(in, n, s->width, s->rows, &s->send_pitch, &s->send_stride);
    if (call->in_place) {
        s->send_pitch = s->recv_pitch;
        s->send_stride = s->recv_stride;
    }
    if (call->op->to != CECL_TO_EACH)
        s->send_stride = 0;
    call->bytes = s->width * s->rows;
}

/* Draws tiles at any places, which differ between ranks. Their width follows from `call->bytes`, which is then set. */
static void draw_tiles(struct input *in, struct drawn *d, int n)
{
    struct cecl_call *call = &d->part.call;
    const uint64_t count = 1 + take_below(in, 3), rows = 1 + take_below(in, 3),
                   width = 1 + call->bytes / call->element % 6;
    call->op = &cecl_ops[CECL_OP_REDUCE_SCATTER_TILES];
    call->in_place = false;
    d->differ = 0;
    call->view.shape =
        (struct cecl_shape){.width = width * call->element,
                            .rows = rows * count,
                            .send_pitch = (width + take_below(in, 4)) * call->element,
                            .recv_pitch = width * call->element};
    call->bytes = width * rows * count * call->element;
    d->has_layout = true;
    struct input many = take_many(in);
    for (uint64_t i = 0; i < (uint64_t)n * (1 + (uint64_t)n * count); i++)
        d->layouts[i] =
            i % (1 + (uint64_t)n * count) == 0 ? count : take_below(&many, 60) * call->element;
}

/* A dispatch, a combine, or an all-to-all by splits. Rows: as many as just fit, more to rank 0 than fit, or any number. */
static void draw_splits(struct input *in, struct drawn *d, int n)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_TO_ALLV_DEVICE, CECL_OP_DISPATCH,
                                             CECL_OP_COMBINE};
    enum { FILLED, BEYOND, ANY, SHAPES = 6 };
    const unsigned op = take_below(in, 3), rows = take_below(in, 4),
                   shape = op == 0 ? take_below(in, SHAPES) : ANY;
    const uint64_t experts = op == 0 ? 1 : 1 + take_below(in, EXPERTS),
                   align = op == 1 ? 1 + take_below(in, 4) : 1, blocks = (uint64_t)n * experts,
                   spare = op == 0 ? 0 : 2;
    struct input many = take_many(in);
    d->part.call = (struct cecl_call){.op = &cecl_ops[ops[op]], .element = 1};
    d->has_layout = true;
    d->in_place_at = -2;
    for (int r = 0; r < n; r++) {
        uint64_t *words = &d->layouts[r * CECL_LAYOUT_SPLITS_WORDS], begin = 0;
        words[CECL_LAYOUT_SEND_ROWS] = blocks * (rows + 1 + spare);
        words[CECL_LAYOUT_RECV_ROWS] =
            words[CECL_LAYOUT_SEND_ROWS] + (op == 0 ? 0 : experts * align);
        words[CECL_LAYOUT_ROW_BYTES] = 2;
        words[CECL_LAYOUT_EXPERTS] = experts;
        words[CECL_LAYOUT_ALIGN] = align;
        words[CECL_LAYOUT_SCALE_BYTES] = op == 0 ? 0 : rows; /* the verifier reads no scales */
        words[CECL_LAYOUT_SPLITS] = (uintptr_t)d->splits[r];
        words[CECL_LAYOUT_SPLITS_OUT] = (uintptr_t)d->splits_out[r];
        d->part.call.bytes = words[CECL_LAYOUT_RECV_ROWS] * words[CECL_LAYOUT_ROW_BYTES];
        for (uint64_t i = 0; i < blocks; i++) {
            d->splits[r][i] = shape == FILLED   ? rows + 1
                              : shape == BEYOND ? (i == 0 ? blocks * (rows + 1) : 0)
                                                : take_below(&many, rows + 2);
            d->splits[r][blocks + i] = begin;
            begin += d->splits[r][i] + take_below(&many, 1 + (unsigned)spare);
        }
    }
}

static void draw_widening(struct drawn *d, uint64_t blocks)
{
    struct cecl_call *call = &d->part.call;
    call->op = &cecl_ops[CECL_OP_REDUCE_SCATTER_AS];
    call->element = 2;
    call->bytes = blocks * 2;
    call->in_place = false;
    d->differ = 0;
}

/* Draws small numbers, so that a few bytes already need several pieces, rounds and chunks. */
static void draw_way(struct input *in, struct drawn *d)
{
    const struct cecl_op *op = d->part.call.op;
    const uint64_t element = d->part.call.element;
    d->way = (struct cecl_way){.move = {.beside = take_below(in, 2),
                                        .piece_worth = 1 + take_below(in, 9),
                                        .spread = take_below(in, 5)}};
    if (op->family != CECL_FAMILY_REDUCTION)
        return;
    d->way.reduce.chunk = take_below(in, 3) == 0 ? 4096 : (1 + take_below(in, 6)) * element;
    d->way.reduce.halved = take_below(in, 4) * element;
    if (op->has_tiles)
        return;
    d->way.reduce.share = op->to == CECL_TO_EACH ? 0 : take_below(in, 3) * element;
    d->way.reduce.one_shot = take_below(in, 3) == 0 ? 64 : 0;
    d->way.reduce.read_at_peers = !op->rooted && take_below(in, 3) == 0;
    d->way.reduce.sms_end =
        op == &cecl_ops[CECL_OP_ALL_REDUCE] && take_below(in, 2) ? take_below(in, 12) * element : 0;
}

static void draw_call(struct input *in, const struct setting *setting, struct drawn *d)
{
    const int n = setting->n;
    static const unsigned quick[7] = {
        CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,     CECL_OP_BROADCAST, CECL_OP_GATHER,
        CECL_OP_SCATTER,    CECL_OP_REDUCE_SCATTER, CECL_OP_ALL_REDUCE};
    const unsigned any = take_below(in, CECL_OP_BARRIER + 1), flags = take_byte(in),
                   op = setting->theme == REDUCTIONS         ? CECL_OP_REDUCE_SCATTER + any % 3
                        : setting->theme == QUICK && any < 7 ? quick[any]
                                                             : any;
    const uint64_t blocks = 1 + take_below(in, setting->theme == QUICK                        ? 16
                                               : cecl_ops[op].family == CECL_FAMILY_REDUCTION ? 90
                                                                                              : 40);
    struct cecl_call *call = &d->part.call;
    d->part = (struct cecl_part){.call.op = &cecl_ops[op]};
    d->has_layout = false;
    d->in_place_at = -2;
    call->options = (struct cecl_options){.sm_policy = (uint8_t)(flags & 3) % 3,
                                          .direction = (uint8_t)(flags >> 2 & 3) % 3};
    if (setting->theme == QUICK)
        call->options.direction = CECL_DIRECTION_AUTO;
    call->in_place = flags >> 4 & 1;
    call->element =
        (uint8_t)(cecl_ops[op].family == CECL_FAMILY_REDUCTION ? 1u << (flags >> 5 & 3) % 3 : 1);
    call->bytes = blocks * call->element;
    d->differ = flags >> 7 ? call->bytes : 0;
    if (call->op->rooted)
        call->root = (int)take_below(in, (unsigned)n);
    if (call->op->family == CECL_FAMILY_AT_ROOT)
        d->in_place_at = call->in_place ? call->root : -1;
    if (op == CECL_OP_ALL_TO_ALLV || op == CECL_OP_ALL_TO_ALLV_AT)
        draw_exchange(in, d, n);
    else if (op == CECL_OP_ALL_GATHERV)
        draw_gather(in, d, n);
    else if (op == CECL_OP_ALL_GATHER_STRIDED || op == CECL_OP_ALL_TO_ALL_STRIDED)
        draw_strided(in, call, n);
    else if (op == CECL_OP_REDUCE_SCATTER && (flags & 7) == 3)
        draw_tiles(in, d, n);
    else if (op == CECL_OP_REDUCE_SCATTER && (flags & 7) == 7)
        draw_widening(d, blocks);
    else if (op == CECL_OP_BARRIER)
        *call = (struct cecl_call){.op = &cecl_ops[op], .element = 1};
    draw_way(in, d);
}

static void draw_group(struct input *in, const struct setting *setting, struct group *group)
{
    const unsigned flags = take_byte(in);
    memset(group, 0, sizeof(*group));
    group->size = 1 + flags % 3 + (flags >> 5 & 1) * 3;
    group->captured = flags >> 3 & 1 && setting->n > 1;
    group->late = flags >> 4 & 1 && setting->n > 1 && !group->captured;
    for (int r = 0; r < setting->n && group->late; r++) {
        const int other = (int)take_below(in, (unsigned)r + 1);
        group->turn[r] = group->turn[other];
        group->turn[other] = r;
    }
    if (setting->theme == QUICK && flags % 8 != 0) {
        group->size = 1;
        group->captured = group->late = false;
    }
    for (uint32_t i = 0; i < group->size; i++)
        draw_call(in, setting, &group->drawn[i]);
    if (flags >> 6 != 3 || setting->theme == QUICK || setting->n > CECL_SPLITS_RANKS_MAX)
        return;
    group->size = 1;
    group->late = false;
    draw_splits(in, &group->drawn[0], setting->n);
}

/* Draws a table in which some thresholds are a few bytes. */
static void draw_setting(struct input *in, struct setting *setting)
{
    static const uint64_t values[] = {0, 1, 5, 24, 60, 256, 1024, UINT64_MAX};
    const unsigned flags = take_byte(in), more = take_byte(in);
    setting->n = 1 + (int)take_below(in, flags >> 5 == 7   ? RANKS_MOST
                                         : flags >> 5 == 6 ? CECL_SPLITS_RANKS_MAX
                                                           : FEW_RANKS);
    setting->theme = more % 8 < 2 ? QUICK : more % 8 < 4 ? REDUCTIONS : ANY_CALLS;
    setting->has_slots = flags & 1 || setting->theme == QUICK;
    setting->draws_ways = flags >> 1 & 3;
    const uint64_t least = flags >> 3 & 1 ? 4096 : 2 * PARTS_MOST * (uint64_t)setting->n;
    setting->staging = flags >> 3 & 3 ? least + take_below(in, 256) : 2 + take_below(in, 7);
    setting->tuning = cecl_tuning_default(CECL_TUNING_HOST, setting->n);
    setting->host_bytes = more >> 3 & 1 || setting->theme == QUICK ? HOST : 0;
    const unsigned changes = take_below(in, CECL_TUNE_COUNT + 1);
    for (unsigned i = 0; i < changes; i++) {
        const unsigned which = take_below(in, CECL_TUNE_COUNT);
        const struct cecl_threshold_info *info = &cecl_thresholds[which];
        uint64_t value = values[take_below(in, 8)];
        value = value < info->least ? info->least : value > info->most ? info->most : value;
        setting->tuning.value[which] = value;
    }
    if (setting->theme == QUICK)
        setting->tuning.value[CECL_TUNE_URGENT_MAX_BYTES] = HOST;
}

static void be_late(struct cecl_part *part, struct drawn *d, int n, const int *turn,
                    uint64_t *send_at)
{
    const int me = part->call.rank;
    for (int r = 0; r < n; r++)
        if (turn[r] < turn[me])
            part->earlier |= UINT64_C(1) << r;
    if (part->call.op->family != CECL_FAMILY_OWN_LAYOUT)
        return;
    for (int r = 0; r < n; r++)
        send_at[r] = part->earlier >> r & 1 ? *word(d, n, r, CECL_LAYOUT_SENT_AT, me) : UINT64_MAX;
    part->send_at = send_at;
}

/* Replaces values that cecl_choose chose by those drawn values that it could choose with another tuning table. */
static void take_way(struct cecl_part *part, const struct cecl_way *drawn)
{
    struct cecl_way *way = &part->way;
    way->move.beside = drawn->move.beside && !way->move.no_sm && !part->means.late;
    way->move.piece_worth = drawn->move.piece_worth;
    way->move.spread = way->move.direction == CECL_PUSH && cecl_only_contributor(&part->call) >= 0
                           ? drawn->move.spread
                           : 0;
    way->reduce.chunk = drawn->reduce.chunk;
    way->reduce.halved = drawn->reduce.halved;
    way->reduce.share += drawn->reduce.share;
    way->reduce.one_shot = drawn->reduce.one_shot;
    if (part->means.late)
        return;
    way->reduce.read_at_peers = drawn->reduce.read_at_peers;
    way->reduce.sms_end = drawn->reduce.sms_end;
}

static struct cecl_part part_at(struct group *group, uint32_t index, const struct setting *setting,
                                int rank, uint8_t half)
{
    struct drawn *d = &group->drawn[index];
    struct cecl_part part = d->part;
    const int n = setting->n;
    const bool has_slots = setting->has_slots && !group->captured;
    part.call.nranks = n;
    part.call.rank = rank;
    part.call.captured = group->captured;
    if (part.call.op->family == CECL_FAMILY_SPLITS) {
        part.call.layout_words = CECL_LAYOUT_SPLITS_WORDS;
        part.call.view.layout = &d->layouts[rank * CECL_LAYOUT_SPLITS_WORDS];
    } else if (d->has_layout) {
        const uint32_t words = part.call.op->has_tiles ? 1 + (uint32_t)d->layouts[0] * (uint32_t)n
                                                       : cecl_layout_words(part.call.op, n);
        part.call.view.layout = part.call.op->family == CECL_FAMILY_OWN_LAYOUT
                                    ? word(d, n, rank, CECL_LAYOUT_SENT, 0)
                                : part.call.op->has_tiles ? &d->layouts[(uint32_t)rank * words]
                                                          : d->layouts;
        part.call.layout_words = words;
    }
    if (d->in_place_at != -2)
        part.call.in_place = d->in_place_at == rank;
    else if (part.call.op->family == CECL_FAMILY_REDUCTION)
        part.call.in_place ^= d->differ >> rank & 1;
    part.means = (struct cecl_means){.tuning = &setting->tuning,
                                     .staging_bytes = setting->staging,
                                     .slots_offset = setting->staging,
                                     .slot_bytes = has_slots ? SLOT : 0,
                                     .host_bytes = setting->host_bytes,
                                     .half = half,
                                     .table_offset = setting->staging + SLOTS,
                                     .table_bytes = TABLE,
                                     .inputs_readable = true,
                                     .late = group->late};
    if (group->late)
        be_late(&part, d, n, group->turn, group->send_at[index]);
    learn_outside(&part, (d->part.call.in_place ? UINT64_MAX : 0) ^ d->differ,
                  group->outside[index]);
    cecl_choose(&part.call, &part.means, &part.way);
    /* a launch that is late, or has several calls, cannot be small or go through host memory */
    if (group->late || group->size > 1)
        part.way.small = part.way.by_host = false;
    if (setting->draws_ways && !part.way.small && !part.way.by_host &&
        part.call.op->family != CECL_FAMILY_SPLITS)
        take_way(&part, &d->way);
    part.means.tuning = NULL;
    return part;
}

/* Whether the call promises zero SMs, so that no copy may have both ends on one GPU. */
static bool has_no_sm(const struct cecl_part *part, uint32_t size, int n)
{
    return size == 1 && n > 1 && part->way.move.no_sm && !part->way.small && !part->way.by_host &&
           part->call.op->family != CECL_FAMILY_REDUCTION;
}

static ceclResult_t lower_group(struct group *group, const struct setting *setting, uint8_t *half,
                                struct cecl_plan *plans)
{
    ceclResult_t first = ceclSuccess;
    bool alternates = false;
    for (int r = 0; r < setting->n; r++) {
        struct cecl_part parts[PARTS_MOST];
        for (uint32_t i = 0; i < group->size; i++)
            parts[i] = part_at(group, i, setting, r, *half);
        alternates = parts[0].way.small || parts[0].way.by_host;
        const ceclResult_t result = cecl_lower_group(parts, group->size, &plans[r]);
        REQUIRE(result == ceclSuccess || result == ceclInvalidUsage, "result %d: %s", (int)result,
                cecl_message());
        for (uint32_t i = 0; i < plans[r].ncopies && has_no_sm(&parts[0], group->size, setting->n);
             i++)
            REQUIRE(plans[r].copies[i].src.rank != plans[r].copies[i].dst.rank,
                    "rank %d copies within its GPU", r);
        first = r == 0 ? result : first;
        REQUIRE(result == first, "rank %d: result %d, that of rank 0 is %d", r, (int)result,
                (int)first);
        REQUIRE(plans[r].phases[0] == plans[0].phases[0] &&
                    plans[r].phases[1] == plans[0].phases[1],
                "ranks 0 and %d have different numbers of phases", r);
    }
    if (alternates)
        *half ^= 1;
    return first;
}

/* `number`: the captured group's, from 1 on */
static void capture(const struct group *group, int nranks, uint32_t number, struct cecl_plan *plans)
{
    for (int r = 0; r < nranks && group->captured; r++)
        REQUIRE(cecl_plan_capture(&plans[r], false, number) == ceclSuccess, "%s", cecl_message());
}

/* If no call is captured, the sequence is verified as plain calls. */
static ceclResult_t verify(const struct cecl_plan *plans, int made, int nranks, uint64_t order)
{
    struct cecl_verify_launch launches[TIMES_MOST];
    struct cecl_verify_program program = {
        .nranks = nranks, .plans = plans, .ncalls = made, .order = order};
    bool captured = false;
    for (int i = 0; i < made; i++) {
        launches[i] = (struct cecl_verify_launch){.call = i};
        captured = captured || plans[i * nranks].part.call.captured;
    }
    for (int r = 0; r < nranks; r++) {
        program.launches[r] = launches;
        program.nlaunches[r] = made;
    }
    return captured ? cecl_verify_program(&program) : cecl_verify(plans, made, nranks);
}

/* ---- counts of launches by kind: a changed generator must not stop drawing a kind */

enum kind { PIPELINES, BY_HOST, SMALL, MIXED, REPLAYS, SPLIT, SPLIT_WIDE, TILES, WIDENING, KINDS };
static int counts[KINDS]; /* counts[MIXED]: inputs that have both SMALL and BY_HOST launches */

static void count_launch(const struct cecl_plan *plan, bool again)
{
    const struct cecl_part *part = &plan->part;
    const bool wide = part->call.nranks > FEW_RANKS,
               splits = part->call.op->family == CECL_FAMILY_SPLITS;
    counts[PIPELINES] += strstr(plan->reason, "are one pipeline") != NULL;
    counts[BY_HOST] += part->way.by_host;
    counts[SMALL] += part->way.small;
    counts[REPLAYS] += again && part->call.captured;
    counts[SPLIT] += splits;
    counts[SPLIT_WIDE] += splits && wide;
    counts[TILES] += wide && part->call.op->has_tiles;
    counts[WIDENING] += wide && part->call.op->widens;
}

/* `least`: for each kind, about half of the launches that 4000 inputs have. Fewer than 400 inputs prove nothing. */
void fuzz_done(int inputs)
{
    static const int least[KINDS] = {340, 700, 400, 80, 1200, 1400, 150, 20, 13};
    for (int k = 0; k < KINDS && inputs >= 400; k++)
        REQUIRE(counts[k] >= least[k] * inputs / 4000, "only %d launches of kind %d", counts[k], k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct group groups[CALLS_MOST];
    static struct cecl_plan plans[TIMES_MOST * RANKS_MOST];
    struct input in = {data, bytes};
    struct setting setting;
    uint8_t half = 0;
    bool small = false, by_host = false;
    int made = 0;
    draw_setting(&in, &setting);
    const unsigned how = take_byte(&in), more = how / CALLS_MOST % (TIMES_MOST - CALLS_MOST + 1);
    const int ncalls = 1 + (int)(how % CALLS_MOST);
    for (int t = 0; t < ncalls + (int)more; t++) {
        const int c = t < ncalls ? t : (int)take_below(&in, (unsigned)ncalls);
        struct cecl_plan *now = &plans[made * setting.n];
        if (t < ncalls)
            draw_group(&in, &setting, &groups[c]);
        if (lower_group(&groups[c], &setting, &half, now) != ceclSuccess)
            continue;
        capture(&groups[c], setting.n, 1 + (uint32_t)c, now);
        count_launch(now, t >= ncalls);
        small = small || now->part.way.small;
        by_host = by_host || now->part.way.by_host;
        made++;
    }
    counts[MIXED] += small && by_host;
    if (made > 0) { /* made is 0 if lowering has refused every group */
        const ceclResult_t result = verify(plans, made, setting.n, take_byte(&in));
        REQUIRE(result == ceclSuccess, "%d ranks, %d launches: %s", setting.n, made,
                cecl_message());
    }
    for (int i = 0; i < made * setting.n; i++)
        cecl_plan_free(&plans[i]);
    memset(plans, 0, sizeof(plans));
    return 0;
}
