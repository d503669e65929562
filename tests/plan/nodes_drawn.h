/* Random layouts of ranks over nodes, and random calls over them with the plans of all ranks. */
#ifndef CECL_TEST_NODES_DRAWN_H
#define CECL_TEST_NODES_DRAWN_H

#include "plans.h"

/* A call over nodes, and what each rank knows of it. */
struct nodes_call {
    struct cecl_part part;
    uint64_t *layouts; /* each rank's own, or one for all ranks, or NULL */
    uint64_t *sends;   /* [nranks][nranks] bytes; used if ranks have their own layouts */
    bool tells;        /* ranks of a node know what all of them send */
    uint64_t in_place; /* bit r % 64: rank r is in place, in calls in which ranks may differ */
    int in_place_at;   /* the only rank in place, or -1 for none; -2: as `part` says */
};

/* Draws `count` nodes with up to `most` ranks (`even`: exactly `most`). Ranks are numbered node by node, or
 * `mixed`. */
static inline void draw_nodes(uint64_t *x, struct cecl_nodes *nodes, int count, int most, bool even,
                              bool mixed)
{
    uint16_t node_of[CECL_MAX_RANKS];
    int n = 0;
    for (int node = 0; node < count; node++)
        for (int i = even ? most : 1 + (int)(next(x) % (uint64_t)most); i > 0; i--)
            node_of[n++] = (uint16_t)node;
    for (int i = n - 1; mixed && i > 0; i--) {
        const int other = (int)(next(x) % (uint64_t)(i + 1));
        const uint16_t held = node_of[i];
        node_of[i] = node_of[other];
        node_of[other] = held;
    }
    assert_int_equal(cecl_nodes_make(nodes, node_of, n), ceclSuccess);
}

static inline uint64_t *nodes_word(const struct nodes_call *c, int n, int rank, int array, int peer)
{
    return &c->layouts[cecl_layout_at(n, rank * CECL_LAYOUT_OWN_ARRAYS + array, peer)];
}

static inline void draw_own_layouts(uint64_t *x, struct nodes_call *c, int n, uint64_t most)
{
    c->layouts = calloc((size_t)n * CECL_LAYOUT_WORDS_MAX(n), sizeof(*c->layouts));
    c->sends = calloc((size_t)n * (size_t)n, sizeof(*c->sends));
    assert_non_null(c->layouts);
    assert_non_null(c->sends);
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++) {
            c->sends[r * n + p] = next(x) % 3 == 0 ? 0 : next(x) % most;
            *nodes_word(c, n, r, CECL_LAYOUT_SENT, p) = c->sends[r * n + p];
        }
    for (int r = 0; r < n; r++) {
        uint64_t sent = next(x) % 3, received = next(x) % 3;
        for (int p = 0; p < n; p++) {
            *nodes_word(c, n, r, CECL_LAYOUT_SENT_AT, p) = sent;
            *nodes_word(c, n, r, CECL_LAYOUT_RECEIVED_AT, p) = received;
            *nodes_word(c, n, r, CECL_LAYOUT_RECEIVED, p) = c->sends[p * n + r];
            sent += c->sends[r * n + p] + next(x) % 2;
            received += c->sends[p * n + r] + next(x) % 2;
        }
    }
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++)
            *nodes_word(c, n, r, CECL_LAYOUT_TARGET, p) =
                *nodes_word(c, n, p, CECL_LAYOUT_RECEIVED_AT, r);
}

/* Draws the blocks of a variable all-gather, in rank order with gaps, or with only one non-empty block. */
static inline void draw_gathered(uint64_t *x, struct nodes_call *c, int n, uint64_t most)
{
    const int only = next(x) % 4 == 0 ? (int)(next(x) % (uint64_t)n) : -1;
    uint64_t at = next(x) % 3;
    c->layouts = calloc(CECL_LAYOUT_WORDS_MAX(n), sizeof(*c->layouts));
    assert_non_null(c->layouts);
    c->part.call.bytes = 0;
    for (int r = 0; r < n; r++) {
        const uint64_t bytes =
            only >= 0 ? (uint64_t)(only == r) * (1 + next(x) % most) : (r == 0) + next(x) % most;
        c->layouts[cecl_layout_at(n, CECL_LAYOUT_BYTES, r)] = bytes;
        c->layouts[cecl_layout_at(n, CECL_LAYOUT_AT, r)] = at;
        at += bytes + next(x) % 2;
        if (bytes > c->part.call.bytes)
            c->part.call.bytes = bytes;
    }
}

/* Draws a call of one kind: blocks of up to `most` bytes, with chunks and staging of any size. */
static inline struct nodes_call draw_nodes_call(uint64_t *x, enum cecl_op_index op,
                                                const struct cecl_nodes *nodes, uint64_t most)
{
    const int n = nodes->nranks;
    struct nodes_call c = {.part = part_of(op, next(x) % 2, CECL_PUSH, 1 + next(x) % most),
                           .in_place = next(x) | next(x) << 33,
                           .in_place_at = -2};
    struct cecl_part *part = &c.part;
    const enum cecl_family family = cecl_ops[op].family;
    if (family == CECL_FAMILY_REDUCTION) {
        part->call.element = (uint8_t)(1u << next(x) % 3);
        part->call.bytes *= part->call.element;
        /* the values for one node */
        part->way.reduce.share = cecl_ops[op].to == CECL_TO_EACH
                                     ? part->call.bytes
                                     : (part->call.bytes / part->call.element + (uint64_t)n - 1) /
                                           (uint64_t)n * part->call.element;
        part->way.reduce.chunk = part->way.reduce.share;
    }
    part->way.move.no_sm = next(x) % 4 > 0;
    part->way.move.piece_worth = 1 + next(x) % 9;
    part->way.net.chunk = next(x) % 3 ? (1 + next(x) % 9) * part->call.element : 0;
    part->way.net.wave = 2 + 2 * (uint32_t)(next(x) % 3);
    part->way.net.chain = next(x) % 2;
    part->means.nodes = nodes;
    part->means.staging_bytes = next(x) % 2 ? 8192 : 65536;
    if (cecl_ops[op].rooted || family == CECL_FAMILY_AT_ROOT)
        part->call.root = (int)(next(x) % (uint64_t)n);
    if (family == CECL_FAMILY_AT_ROOT)
        c.in_place_at = next(x) % 2 ? part->call.root : -1;
    if (family == CECL_FAMILY_OWN_LAYOUT) {
        part->call.bytes = 0;
        c.tells = next(x) % 3 > 0;
        c.in_place_at = -1;
        draw_own_layouts(x, &c, n, most);
    }
    if (op == CECL_OP_ALL_GATHER_STRIDED || op == CECL_OP_ALL_TO_ALL_STRIDED) {
        draw_strided(x, n, 1 + next(x) % 5, part);
        part->way.move.direction = part->way.move.no_sm || next(x) % 2 ? CECL_PUSH : CECL_PULL;
    }
    if (op == CECL_OP_ALL_GATHERV)
        draw_gathered(x, &c, n, most);
    if (op == CECL_OP_REDUCE_SCATTER_TILES) {
        c.layouts = calloc((size_t)n * DRAWN_TILE_WORDS(n), sizeof(*c.layouts));
        assert_non_null(c.layouts);
        draw_tiles(x, n, part, c.layouts, DRAWN_TILE_WORDS(n));
        part->way.reduce.share = part->way.reduce.chunk = part->call.bytes;
    }
    if (family == CECL_FAMILY_BARRIER) {
        part->call.bytes = 0;
        part->call.in_place = false;
    }
    return c;
}

static inline void free_nodes_call(struct nodes_call *c)
{
    free(c->layouts);
    free(c->sends);
}

/* Returns rank `r`'s view of a call. `words` holds data to which the part refers; the caller frees *sends. */
static inline struct cecl_part nodes_part(const struct nodes_call *c, int r,
                                          uint64_t words[CECL_MAX_RANKS / 64], uint64_t **sends)
{
    struct cecl_part part = c->part;
    const struct cecl_nodes *nodes = part.means.nodes;
    const int n = nodes->nranks, node = nodes->node[r];
    part.call.nranks = n;
    part.call.rank = r;
    if (c->in_place_at >= -1)
        part.call.in_place = c->in_place_at == r;
    if (part.call.op->has_tiles) {
        part.call.view.layout = c->layouts + (size_t)r * DRAWN_TILE_WORDS(n);
    } else if (c->layouts && c->sends) {
        set_layout(&part, c->layouts + (size_t)r * CECL_LAYOUT_OWN_ARRAYS * (size_t)n, n);
    } else if (c->layouts) {
        set_layout(&part, c->layouts, n);
    }
    *sends = NULL;
    if (c->tells) {
        *sends = calloc((size_t)cecl_node_size(nodes, node) * (size_t)n, sizeof(**sends));
        assert_non_null(*sends);
        for (int l = 0; l < cecl_node_size(nodes, node); l++)
            memcpy(*sends + (size_t)l * (size_t)n,
                   c->sends + (size_t)cecl_node_rank(nodes, node, l) * (size_t)n,
                   (size_t)n * sizeof(**sends));
        part.node_sends = *sends;
    }
    learn_outside(&part, c->in_place, words);
    return part;
}

/* Returns plans[c * nranks + r]; the caller frees them with free_plans. NULL: a call was refused on all
 * ranks. */
static inline struct cecl_plan *lower_over_nodes(const struct nodes_call *calls, int ncalls)
{
    const int n = calls[0].part.means.nodes->nranks;
    struct cecl_plan *plans = calloc((size_t)(ncalls * n), sizeof(*plans));
    int refused = 0;
    assert_non_null(plans);
    for (int c = 0; c < ncalls; c++)
        for (int r = 0; r < n; r++) {
            uint64_t words[CECL_MAX_RANKS / 64], *sends;
            const struct cecl_part part = nodes_part(&calls[c], r, words, &sends);
            refused += cecl_lower(&part, &plans[c * n + r]) != ceclSuccess;
            free(sends);
        }
    if (refused == 0)
        return plans;
    assert_int_equal(refused % n, 0);
    free_plans(plans, ncalls * n);
    return NULL;
}

#endif
