/* Compares cecl_call_block, which defines each collective block by block, with the plain loops of world/model.c, for the
 * view of every rank. Those loops also check all random calls. No byte of recvbuff may have two sources. */
#include "plans.h"

#include "../world/model.h"

#define RANKS_MOST 9
#define ROUNDS 60

static const struct {
    enum cecl_op_index op;
    enum kind kind;
} rows[] = {
    {CECL_OP_ALL_GATHER, ALL_GATHER},
    {CECL_OP_ALL_GATHER_STRIDED, ALL_GATHER_STRIDED},
    {CECL_OP_ALL_GATHERV, ALL_GATHERV},
    {CECL_OP_BROADCAST, BROADCAST},
    {CECL_OP_ALL_TO_ALL, ALL_TO_ALL},
    {CECL_OP_ALL_TO_ALL_STRIDED, ALL_TO_ALL_STRIDED},
    {CECL_OP_ALL_TO_ALLV, ALL_TO_ALLV},
    {CECL_OP_ALL_TO_ALLV_AT, ALL_TO_ALLV},
    {CECL_OP_GATHER, GATHER},
    {CECL_OP_SCATTER, SCATTER},
    {CECL_OP_REDUCE_SCATTER, REDUCE_SCATTER},
    {CECL_OP_ALL_REDUCE, ALL_REDUCE},
    {CECL_OP_REDUCE, REDUCE},
    {CECL_OP_REDUCE_SCATTER_TILES,
     REDUCE_SCATTER_TILES}, /* blocks do not say where tiles lie in sendbuff */
    {CECL_OP_REDUCE_SCATTER_AS, REDUCE_SCATTER_AS},
    {CECL_OP_BARRIER, BARRIER},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* Fills a layout as plan/layout.h describes it. */
static void fill_layout(const struct random_call *c, bool own, uint64_t *layout)
{
    const int n = c->nranks, me = c->rank;
    for (int p = 0; p < n && own; p++) {
        layout[cecl_layout_at(n, CECL_LAYOUT_SENT, p)] = c->counts[me][p] * c->size;
        layout[cecl_layout_at(n, CECL_LAYOUT_SENT_AT, p)] = c->sent_at[me][p] * c->size;
        layout[cecl_layout_at(n, CECL_LAYOUT_TARGET, p)] = c->wanted_at[me][p] * c->size;
        layout[cecl_layout_at(n, CECL_LAYOUT_RECEIVED, p)] = c->counts[p][me] * c->size;
        layout[cecl_layout_at(n, CECL_LAYOUT_RECEIVED_AT, p)] = c->wanted_at[p][me] * c->size;
    }
    for (int p = 0; p < n && !own; p++) {
        layout[cecl_layout_at(n, CECL_LAYOUT_BYTES, p)] = c->counts[p][me] * c->size;
        layout[cecl_layout_at(n, CECL_LAYOUT_AT, p)] = c->wanted_at[p][me] * c->size;
    }
}

static struct cecl_call call_of(enum cecl_op_index op, const struct random_call *c,
                                uint64_t *layout)
{
    struct cecl_part part = part_of(op, c->in_place, CECL_PUSH, c->count * c->size);
    const bool several = c->nranks > 1;
    part.call.nranks = c->nranks;
    part.call.rank = c->rank;
    part.call.root = c->root;
    if (c->kind == ALL_GATHER_STRIDED || c->kind == ALL_TO_ALL_STRIDED)
        part.call.view.shape = (struct cecl_shape){
            .width = c->row,
            .rows = c->rows,
            .send_pitch = c->send_pitch * c->size,
            .recv_pitch = c->recv_pitch * c->size,
            .send_stride = several ? (c->sent_at[0][1] - c->sent_at[0][0]) * c->size : 0,
            .recv_stride = several ? (c->wanted_at[1][0] - c->wanted_at[0][0]) * c->size : 0};
    if (c->kind == ALL_GATHERV || c->kind == ALL_TO_ALLV) {
        fill_layout(c, part.call.op->family == CECL_FAMILY_OWN_LAYOUT, layout);
        set_layout(&part, layout, c->nranks);
    }
    return part.call;
}

/* Where a block lies in the model; in place, both offsets count from the start of the only buffer. */
static struct cecl_block modelled(const struct cecl_call *call, const struct random_call views[],
                                  int from, int to)
{
    const struct random_call *c = &views[from];
    const bool one = cecl_call_is_one_buffer(call);
    const size_t in = one ? (size_t)(c->in - c->recv) : 0,
                 out = one ? (size_t)(views[to].out - views[to].recv) : 0;
    if (c->kind == REDUCE && to != c->root)
        return (struct cecl_block){0};
    return (struct cecl_block){c->counts[from][to] * c->size, in + c->sent_at[from][to] * c->size,
                               out + c->wanted_at[from][to] * c->size};
}

/* In calls whose ranks have layouts of their own, only the sender knows where a block comes from. */
static void compare(const struct cecl_call *call, int from, int to,
                    const struct cecl_block *expected)
{
    const struct cecl_block block = cecl_call_block(call, from, to);
    const bool knows_source = call->op->family != CECL_FAMILY_OWN_LAYOUT || call->rank == from;
    if (block.bytes == expected->bytes &&
        (block.bytes == 0 || (block.recv_offset == expected->recv_offset &&
                              (!knows_source || block.send_offset == expected->send_offset))))
        return;
    fail_msg(
        "%s of %d ranks, root %d, in place %d, for rank %d, from %d to %d: %d bytes, %d -> %d, "
        "expected %d, %d -> %d",
        call->op->name, call->nranks, call->root, call->in_place, call->rank, from, to,
        (int)block.bytes, (int)block.send_offset, (int)block.recv_offset, (int)expected->bytes,
        (int)expected->send_offset, (int)expected->recv_offset);
}

static void compare_all(const struct cecl_call *call, const struct random_call *views)
{
    uint64_t exchanged = 0;
    for (int from = 0; from < call->nranks; from++)
        for (int to = 0; to < call->nranks; to++) {
            const bool mine = from == call->rank || to == call->rank,
                       known = call->op->family != CECL_FAMILY_OWN_LAYOUT || mine;
            const struct cecl_block none = {0}, block = modelled(call, views, from, to);
            compare(call, from, to, known ? &block : &none);
            exchanged += mine && from != to ? block.bytes : 0;
        }
    assert_int_equal(cecl_call_half_exchanged(call), exchanged / 2);
}

/* Each received byte must have one source, or in a reduction one block of each rank. In place, the own block stays. */
static void check_apart(const struct cecl_call *call, size_t room)
{
    uint8_t *sources = calloc(room + 1, 1);
    const struct cecl_block own = cecl_call_block(call, call->rank, call->rank);
    assert_non_null(sources);
    for (int from = 0; from < call->nranks; from++) {
        const struct cecl_block block = cecl_call_block(call, from, call->rank);
        const bool reduces = call->op->family == CECL_FAMILY_REDUCTION;
        if (reduces) {
            assert_int_equal(block.bytes, own.bytes);
            assert_int_equal(block.recv_offset, own.recv_offset);
        }
        for (uint64_t i = 0; i < block.bytes && !reduces; i++) {
            const uint64_t at =
                block.recv_offset + cecl_offset_within(call, call->view.shape.recv_pitch, i);
            assert_true(at < room);
            if (sources[at]++ > 0)
                fail_msg("%s of %d ranks: byte %d of rank %d's recvbuff, from rank %d, has another "
                         "source",
                         call->op->name, call->nranks, (int)at, call->rank, from);
        }
    }
    if (cecl_call_is_one_buffer(call) && own.bytes > 0)
        assert_int_equal(own.send_offset, own.recv_offset);
    free(sources);
}

static void check(enum cecl_op_index op, enum kind kind, int n, uint64_t seed)
{
    static struct random_call views[RANKS_MOST];
    static unsigned char buffers[2];
    for (int r = 0; r < n; r++) {
        uint64_t x = seed;
        views[r] =
            (struct random_call){.rank = r, .nranks = n, .send = buffers, .recv = buffers + 1};
        random_draw_of(&views[r], kind, &x);
        views[r].apart = 0; /* tests/fuzz/fuzz_plan.c draws ranks that differ */
        random_set_places(&views[r], 0);
    }
    for (int r = 0; r < n; r++) {
        uint64_t layout[CECL_LAYOUT_WORDS_MAX(RANKS_MOST)];
        const struct cecl_call call = call_of(op, &views[r], layout);
        compare_all(&call, views);
        check_apart(&call, random_received(&views[r]));
    }
}

TEST(blocks_are_those_of_the_model)
{
    uint64_t x = 20261129;
    for (size_t i = 0; i < ROWS; i++)
        for (int n = 1; n <= RANKS_MOST; n++)
            for (int round = 0; round < ROUNDS; round++)
                check(rows[i].op, rows[i].kind, n, random_next(&x));
}

TEST(what_is_carried_stays_on_its_rank)
{
    struct cecl_call call = part_of(CECL_OP_CARRY, false, CECL_PUSH, 7).call;
    call.nranks = 3;
    for (int i = 0; i < 9; i++) {
        const struct cecl_block expected = {.bytes = i / 3 == i % 3 ? 7 : 0};
        compare(&call, i / 3, i % 3, &expected);
    }
}

/* A new collective with blocks needs a row in the table above. */
TEST(every_row_that_has_blocks_is_looked_at)
{
    for (int op = 0; op < CECL_OP_COUNT; op++) {
        bool has_row = op == CECL_OP_CARRY || cecl_ops[op].family == CECL_FAMILY_SPLITS;
        for (size_t i = 0; i < ROWS; i++)
            has_row = has_row || (int)rows[i].op == op;
        if ((cecl_ops[op].block != NULL) != has_row)
            fail_msg("row %d, %s: blocks without a row here, or the other way round", op,
                     cecl_ops[op].name);
    }
}
