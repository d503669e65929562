/* The definition of each collective, block by block: cecl_call_block is compared, from every rank's view,
 * with loops that follow the text of cecl/cecl.h. No byte of recvbuff has two sources. */
#include "plans.h"

#define RANKS_MAX 9
#define RECV_MAX 4096 /* bytes of the largest recvbuff here */

/* The arguments of a call; each kind of call uses some of them. */
struct asked {
    int nranks, root;
    bool in_place;
    uint64_t bytes; /* of a block, if all blocks are equal */
    struct cecl_shape shape;
    uint64_t counts[RANKS_MAX], displs[RANKS_MAX]; /* for a variable all-gather */
    /* For a variable all-to-all: [rank][peer]. */
    uint64_t sendcounts[RANKS_MAX][RANKS_MAX], sdispls[RANKS_MAX][RANKS_MAX];
    uint64_t recvcounts[RANKS_MAX][RANKS_MAX], rdispls[RANKS_MAX][RANKS_MAX];
};

/* All blocks of a call: [from][to]. In place, `send_offset` is into recvbuff. */
struct blocks {
    struct cecl_block of[RANKS_MAX][RANKS_MAX];
};

/* ---- the header's definitions */

/* "Gathers elements from every rank into recvbuff, in rank order; in place: sendbuff == recvbuff +
 * rank * sendcount." */
static void all_gather(const struct asked *asked, struct blocks *blocks)
{
    uint64_t behind = 0;
    for (int from = 0; from < asked->nranks; from++) {
        for (int to = 0; to < asked->nranks; to++)
            blocks->of[from][to] =
                (struct cecl_block){asked->bytes, asked->in_place ? behind : 0, behind};
        behind += asked->bytes;
    }
}

/* "Blocks recvStride apart. In place: sendbuff is recvbuff + rank * recvStride." */
static void all_gather_strided(const struct asked *asked, struct blocks *blocks)
{
    uint64_t begin = 0;
    for (int from = 0; from < asked->nranks; from++) {
        for (int to = 0; to < asked->nranks; to++)
            blocks->of[from][to] =
                (struct cecl_block){asked->bytes, asked->in_place ? begin : 0, begin};
        begin += asked->shape.recv_stride;
    }
}

/* "displs: where each rank's block begins in recvbuff. In place when sendbuff is recvbuff +
 * displs[rank]." */
static void all_gatherv(const struct asked *asked, struct blocks *blocks)
{
    for (int from = 0; from < asked->nranks; from++)
        for (int to = 0; to < asked->nranks; to++) {
            struct cecl_block *block = &blocks->of[from][to];
            block->bytes = asked->counts[from];
            block->recv_offset = asked->displs[from];
            block->send_offset = asked->in_place ? asked->displs[from] : 0;
        }
}

/* "Copies root's elements to every rank. In place when it is recvbuff." */
static void broadcast(const struct asked *asked, struct blocks *blocks)
{
    for (int to = 0; to < asked->nranks; to++)
        blocks->of[asked->root][to] = (struct cecl_block){asked->bytes, 0, 0};
}

/* "Sends block j of sendbuff to rank j, which receives it as block `rank` of its recvbuff; in place
 * when it is recvbuff." */
static void all_to_all(const struct asked *asked, struct blocks *blocks)
{
    for (int rank = 0; rank < asked->nranks; rank++)
        for (int j = 0; j < asked->nranks; j++)
            for (int b = 0; b < asked->nranks; b++) {
                const uint64_t begin = (uint64_t)b * asked->bytes;
                blocks->of[rank][j].bytes = asked->bytes;
                if (b == j)
                    blocks->of[rank][j].send_offset = begin;
                if (b == rank)
                    blocks->of[rank][j].recv_offset = begin;
            }
}

/* "sendbuff: blocks, sendStride apart; recvbuff: blocks, recvStride apart. In place when it is
 * recvbuff, with equal pitches and strides." */
static void all_to_all_strided(const struct asked *asked, struct blocks *blocks)
{
    uint64_t sent = 0;
    for (int j = 0; j < asked->nranks; j++) {
        uint64_t received = 0;
        for (int rank = 0; rank < asked->nranks; rank++) {
            blocks->of[rank][j] = (struct cecl_block){asked->bytes, sent, received};
            received += asked->shape.recv_stride;
        }
        sent += asked->shape.send_stride;
    }
}

/* "sdispls: where the block for each rank begins in sendbuff; rdispls: where the block from each rank
 * begins in recvbuff." */
static void all_to_allv(const struct asked *asked, struct blocks *blocks)
{
    for (int from = 0; from < asked->nranks; from++)
        for (int to = 0; to < asked->nranks; to++)
            blocks->of[from][to] = (struct cecl_block){
                asked->sendcounts[from][to], asked->sdispls[from][to], asked->rdispls[to][from]};
}

/* "Gathers `count` elements from every rank, in rank order, on root alone." */
/* A plain copy within each rank, from one buffer to the other. */
static void carry(const struct asked *asked, struct blocks *blocks)
{
    for (int rank = 0; rank < asked->nranks; rank++)
        blocks->of[rank][rank] = (struct cecl_block){asked->bytes, 0, 0};
}

static void gather(const struct asked *asked, struct blocks *blocks)
{
    uint64_t behind = 0;
    for (int from = 0; from < asked->nranks; from++) {
        blocks->of[from][asked->root] = (struct cecl_block){asked->bytes, 0, behind};
        behind += asked->bytes;
    }
}

/* "Sends block r of root's sendbuff to rank r." */
static void scatter(const struct asked *asked, struct blocks *blocks)
{
    uint64_t behind = 0;
    for (int to = 0; to < asked->nranks; to++) {
        blocks->of[asked->root][to] = (struct cecl_block){asked->bytes, behind, 0};
        behind += asked->bytes;
    }
}

/* "Rank r receives block r of the result. In place when recvbuff is sendbuff + rank * recvcount": the
 * description then has the sendbuff of all blocks as recvbuff. */
static void reduce_scatter(const struct asked *asked, struct blocks *blocks)
{
    uint64_t behind = 0;
    for (int r = 0; r < asked->nranks; r++) {
        for (int from = 0; from < asked->nranks; from++)
            blocks->of[from][r] =
                (struct cecl_block){asked->bytes, behind, asked->in_place ? behind : 0};
        behind += asked->bytes;
    }
}

/* "Every rank receives the result; in place when it is recvbuff." */
static void all_reduce(const struct asked *asked, struct blocks *blocks)
{
    for (int from = 0; from < asked->nranks; from++)
        for (int to = 0; to < asked->nranks; to++)
            blocks->of[from][to] = (struct cecl_block){asked->bytes, 0, 0};
}

/* "Root receives the result." */
static void reduce(const struct asked *asked, struct blocks *blocks)
{
    for (int from = 0; from < asked->nranks; from++)
        blocks->of[from][asked->root] = (struct cecl_block){asked->bytes, 0, 0};
}

/* Ranks synchronize, and send no data. */
static void barrier(const struct asked *asked, struct blocks *blocks)
{
}

/* "recvbuff: this rank's tiles, one behind the other". Blocks do not describe where tiles lie in sendbuff;
 * tests/fuzz/fuzz_plan.c verifies that. */
static void tiles(const struct asked *asked, struct blocks *blocks)
{
    for (int from = 0; from < asked->nranks; from++)
        for (int to = 0; to < asked->nranks; to++)
            blocks->of[from][to] = (struct cecl_block){asked->bytes, 0, 0};
}

/* Only the device knows the blocks between ranks. */
static void unknown(const struct asked *asked, struct blocks *blocks)
{
}

static void (*const meanings[CECL_OP_COUNT])(const struct asked *, struct blocks *) = {
    [CECL_OP_ALL_GATHER] = all_gather,
    [CECL_OP_ALL_GATHER_STRIDED] = all_gather_strided,
    [CECL_OP_ALL_GATHERV] = all_gatherv,
    [CECL_OP_BROADCAST] = broadcast,
    [CECL_OP_ALL_TO_ALL] = all_to_all,
    [CECL_OP_ALL_TO_ALL_STRIDED] = all_to_all_strided,
    [CECL_OP_ALL_TO_ALLV] = all_to_allv,
    [CECL_OP_ALL_TO_ALLV_AT] = all_to_allv,
    [CECL_OP_GATHER] = gather,
    [CECL_OP_SCATTER] = scatter,
    [CECL_OP_REDUCE_SCATTER] = reduce_scatter,
    [CECL_OP_ALL_REDUCE] = all_reduce,
    [CECL_OP_REDUCE] = reduce,
    [CECL_OP_REDUCE_SCATTER_TILES] = tiles,
    [CECL_OP_REDUCE_SCATTER_AS] = reduce_scatter,
    [CECL_OP_BARRIER] = barrier,
    [CECL_OP_ALL_TO_ALLV_DEVICE] = unknown,
    [CECL_OP_DISPATCH] = unknown,
    [CECL_OP_COMBINE] = unknown,
    [CECL_OP_CARRY] = carry,
};

/* ---- the calls */

/* Describes blocks of rows of 3 bytes, side by side or one after the other, with gaps in both directions. */
static void fill_shape(struct asked *asked, bool beside)
{
    const uint64_t n = (uint64_t)asked->nranks;
    struct cecl_shape *s = &asked->shape;
    *s = (struct cecl_shape){.width = 3, .rows = asked->bytes / 3};
    s->recv_stride = beside ? 4 : s->rows * 5 + 1;
    s->recv_pitch = beside ? n * 4 + 2 : 5;
    s->send_stride = asked->in_place ? s->recv_stride : beside ? s->rows * 7 : 3;
    s->send_pitch = asked->in_place ? s->recv_pitch : beside ? 7 : n * 3 + 1;
}

/* Fills in blocks of 0 to 6 bytes with gaps; the last rank's block comes first. */
static void fill_counts(struct asked *asked)
{
    uint64_t at = 2;
    for (int r = asked->nranks - 1; r >= 0; r--) {
        asked->counts[r] = (uint64_t)(r * 5 + 3) % 7;
        asked->displs[r] = at;
        at += asked->counts[r] + (uint64_t)r % 2;
    }
    for (int rank = 0; rank < asked->nranks; rank++) {
        uint64_t sent = 1, received = 0;
        for (int i = 1; i <= asked->nranks; i++) {
            const int p = (rank + i) % asked->nranks;
            asked->sendcounts[rank][p] = (uint64_t)(rank * 3 + p * 5) % 7;
            asked->recvcounts[rank][p] = (uint64_t)(p * 3 + rank * 5) % 7;
            asked->sdispls[rank][p] = sent;
            asked->rdispls[rank][p] = received;
            sent += asked->sendcounts[rank][p] + 1;
            received += asked->recvcounts[rank][p] + (uint64_t)p % 3;
        }
    }
}

#define LAYOUT_WORDS CECL_LAYOUT_WORDS_MAX(RANKS_MAX)

/* Returns a rank's layout as an array of 64-bit words, in the format of plan/layout.h. */
static const uint64_t *layout_of(const struct asked *asked, bool own, int rank,
                                 uint64_t layout[LAYOUT_WORDS])
{
    const int n = asked->nranks;
    for (int p = 0; p < n && own; p++) {
        layout[cecl_layout_at(n, CECL_LAYOUT_SENT, p)] = asked->sendcounts[rank][p];
        layout[cecl_layout_at(n, CECL_LAYOUT_SENT_AT, p)] = asked->sdispls[rank][p];
        layout[cecl_layout_at(n, CECL_LAYOUT_TARGET, p)] = asked->rdispls[p][rank];
        layout[cecl_layout_at(n, CECL_LAYOUT_RECEIVED, p)] = asked->recvcounts[rank][p];
        layout[cecl_layout_at(n, CECL_LAYOUT_RECEIVED_AT, p)] = asked->rdispls[rank][p];
    }
    for (int p = 0; p < n && !own; p++) {
        layout[cecl_layout_at(n, CECL_LAYOUT_BYTES, p)] = asked->counts[p];
        layout[cecl_layout_at(n, CECL_LAYOUT_AT, p)] = asked->displs[p];
    }
    return layout;
}

static bool is_strided(enum cecl_op_index op)
{
    return op == CECL_OP_ALL_GATHER_STRIDED || op == CECL_OP_ALL_TO_ALL_STRIDED;
}

static bool is_variable(enum cecl_op_index op)
{
    return op == CECL_OP_ALL_GATHERV || op == CECL_OP_ALL_TO_ALLV || op == CECL_OP_ALL_TO_ALLV_AT;
}

/* Describes the call from the view of `rank`. */
static struct cecl_part asked_at(enum cecl_op_index op, const struct asked *asked, int rank,
                                 uint64_t layout[LAYOUT_WORDS])
{
    struct cecl_part part = part_of(op, asked->in_place, CECL_PUSH, asked->bytes);
    part.call.nranks = asked->nranks;
    part.call.rank = rank;
    part.call.root = asked->root;
    if (is_strided(op))
        part.call.view.shape = asked->shape;
    if (is_variable(op))
        set_layout(&part,
                   layout_of(asked, part.call.op->family == CECL_FAMILY_OWN_LAYOUT, rank, layout),
                   asked->nranks);
    return part;
}

/* ---- comparison with the library */

/* Whether a rank knows where a block comes from: its sender does, or all ranks do. */
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

static void compare_all(const struct cecl_call *call, const struct blocks *expected)
{
    for (int from = 0; from < call->nranks; from++)
        for (int to = 0; to < call->nranks; to++) {
            const bool known = call->op->family != CECL_FAMILY_OWN_LAYOUT || from == call->rank ||
                               to == call->rank;
            const struct cecl_block none = {0};
            compare(call, from, to, known ? &expected->of[from][to] : &none);
        }
}

static void compare_exchanged(const struct cecl_call *call, const struct blocks *expected)
{
    uint64_t sent = 0, received = 0;
    for (int peer = 0; peer < call->nranks; peer++) {
        sent += peer == call->rank ? 0 : expected->of[call->rank][peer].bytes;
        received += peer == call->rank ? 0 : expected->of[peer][call->rank].bytes;
    }
    assert_int_equal(cecl_call_half_exchanged(call), (sent + received) / 2);
}

/* Every byte that this rank receives has one source; in a reduction, one block from each rank. */
static void check_apart(const struct cecl_call *call)
{
    uint8_t sources[RECV_MAX] = {0};
    const struct cecl_block own = cecl_call_block(call, call->rank, call->rank);
    for (int from = 0; from < call->nranks; from++) {
        const struct cecl_block block = cecl_call_block(call, from, call->rank);
        if (call->op->family == CECL_FAMILY_REDUCTION) {
            assert_int_equal(block.bytes, own.bytes);
            assert_int_equal(block.recv_offset, own.recv_offset);
            continue;
        }
        for (uint64_t i = 0; i < block.bytes; i++) {
            const uint64_t at =
                block.recv_offset + cecl_offset_within(call, call->view.shape.recv_pitch, i);
            assert_true(at < RECV_MAX);
            if (sources[at]++ > 0)
                fail_msg("%s of %d ranks: byte %d of rank %d's recvbuff, from rank %d, has another "
                         "source",
                         call->op->name, call->nranks, (int)at, call->rank, from);
        }
    }
}

/* The place of each rank's own block in an in-place call. */
static void check_own_stands(const struct cecl_call *call)
{
    const struct cecl_block own = cecl_call_block(call, call->rank, call->rank);
    if (cecl_call_is_one_buffer(call) && own.bytes > 0)
        assert_int_equal(own.send_offset, own.recv_offset);
}

static void check(enum cecl_op_index op, const struct asked *asked)
{
    struct blocks expected = {0};
    meanings[op](asked, &expected);
    for (int rank = 0; rank < asked->nranks; rank++) {
        uint64_t layout[LAYOUT_WORDS];
        const struct cecl_part part = asked_at(op, asked, rank, layout);
        compare_all(&part.call, &expected);
        compare_exchanged(&part.call, &expected);
        check_apart(&part.call);
        check_own_stands(&part.call);
    }
}

static void check_everywhere(enum cecl_op_index op)
{
    for (int n = 1; n <= RANKS_MAX; n++)
        for (int root = 0; root < (cecl_ops[op].rooted ? n : 1); root++)
            for (int way = 0; way < 4; way++) {
                struct asked asked = {
                    .nranks = n, .root = root, .in_place = way % 2, .bytes = way < 2 ? 3 : 12};
                fill_shape(&asked, way / 2);
                fill_counts(&asked);
                check(op, &asked);
            }
}

#define BLOCKS_TEST(name, op)                                                                      \
    TEST(name)                                                                                     \
    {                                                                                              \
        check_everywhere(op);                                                                      \
    }
BLOCKS_TEST(blocks_of_an_all_gather, CECL_OP_ALL_GATHER)
BLOCKS_TEST(blocks_of_a_strided_all_gather, CECL_OP_ALL_GATHER_STRIDED)
BLOCKS_TEST(blocks_of_a_variable_all_gather, CECL_OP_ALL_GATHERV)
BLOCKS_TEST(blocks_of_a_broadcast, CECL_OP_BROADCAST)
BLOCKS_TEST(blocks_of_an_all_to_all, CECL_OP_ALL_TO_ALL)
BLOCKS_TEST(blocks_of_a_strided_all_to_all, CECL_OP_ALL_TO_ALL_STRIDED)
BLOCKS_TEST(blocks_of_a_variable_all_to_all, CECL_OP_ALL_TO_ALLV)
BLOCKS_TEST(blocks_of_a_variable_all_to_all_at_known_places, CECL_OP_ALL_TO_ALLV_AT)
BLOCKS_TEST(blocks_of_a_gather, CECL_OP_GATHER)
BLOCKS_TEST(blocks_of_a_scatter, CECL_OP_SCATTER)
BLOCKS_TEST(blocks_of_a_reduce_scatter, CECL_OP_REDUCE_SCATTER)
BLOCKS_TEST(blocks_of_a_reduce_scatter_of_tiles, CECL_OP_REDUCE_SCATTER_TILES)
BLOCKS_TEST(blocks_of_a_reduce_scatter_to_fp32, CECL_OP_REDUCE_SCATTER_AS)
BLOCKS_TEST(blocks_of_an_all_reduce, CECL_OP_ALL_REDUCE)
BLOCKS_TEST(blocks_of_a_reduce, CECL_OP_REDUCE)
BLOCKS_TEST(blocks_of_a_barrier, CECL_OP_BARRIER)
BLOCKS_TEST(blocks_that_are_carried, CECL_OP_CARRY)

/* A new row of the table needs a definition and a test above. */
TEST(every_row_that_has_blocks_is_looked_at)
{
    for (int op = 0; op < CECL_OP_COUNT; op++)
        if (!cecl_ops[op].block != !meanings[op])
            fail_msg("row %d, %s: blocks without a meaning here, or the other way round", op,
                     cecl_ops[op].name);
}
