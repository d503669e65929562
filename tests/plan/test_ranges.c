/* The ranges of a buffer that a call uses are exactly the bytes of its blocks. The ranges of random calls
 * are compared with a table of bytes. */
#include "plans.h"

#define RANKS_MAX 7
#define BYTES 4096

static struct cecl_window pool = {.number = CECL_WINDOW_POOL};

static void mark(bool *used, const struct cecl_call *call, uint64_t offset, uint64_t bytes,
                 uint64_t pitch)
{
    for (uint64_t i = 0; i < bytes; i++) {
        const uint64_t at = offset + cecl_offset_within(call, pitch, i);
        assert_true(at < BYTES);
        used[at] = true;
    }
}

/* In place, the only buffer also holds the input. If only the root receives a result, other ranks pass a
 * recvbuff of the same size. */
static void mark_all(const struct cecl_call *call, bool written, bool *used)
{
    const bool one = cecl_call_is_one_buffer(call);
    const int to = call->op == &cecl_ops[CECL_OP_REDUCE] ? call->root : call->rank;
    for (int peer = 0; peer < call->nranks; peer++) {
        const struct cecl_block sent = cecl_call_block(call, call->rank, peer),
                                got = cecl_call_block(call, peer, to);
        if (written)
            mark(used, call, got.recv_offset, got.bytes, call->view.shape.recv_pitch);
        if (!written || one)
            mark(used, call, sent.send_offset, sent.bytes,
                 one ? call->view.shape.recv_pitch : call->view.shape.send_pitch);
    }
}

/* Ranges are sorted, do not touch, and cover the used bytes. If there were too many, they are merged into
 * one range. */
static void check_part(const struct cecl_call *call, const struct cecl_touched *touched)
{
    bool used[BYTES + 1] = {false};
    struct cecl_range ranges[CECL_RANGES_MAX];
    const uint32_t count = cecl_call_ranges(call, touched, ranges);
    uint32_t expected = 0;
    mark_all(call, touched->written, used);
    for (int i = 0; i < BYTES; i++)
        expected += used[i] && !used[i + 1];
    if (expected > CECL_RANGES_MAX) {
        assert_int_equal(count, 1);
        assert_int_equal(ranges[0].low, touched->low);
        assert_int_equal(ranges[0].high, touched->high);
        return;
    }
    if (count != expected)
        fail_msg("%s of %d ranks, rank %d, in place %d, %s: %u ranges, expected %u", call->op->name,
                 call->nranks, call->rank, call->in_place, touched->written ? "recv" : "send",
                 count, expected);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(ranges[i].low < ranges[i].high && ranges[i].high <= BYTES);
        assert_true(i == 0 || ranges[i - 1].high < ranges[i].low);
        for (uint64_t at = ranges[i].low; at < ranges[i].high; at++)
            assert_true(used[at]);
    }
}

static void check(const struct cecl_call *call)
{
    struct cecl_touched touched[2];
    const int count = cecl_call_touched(call, touched);
    for (int i = 0; i < count; i++)
        check_part(call, &touched[i]);
}

/* Blocks of this rank's layout, one after the other from some rank on, with gaps. */
static void draw_blocks(uint64_t *x, int n, uint64_t *bytes, uint64_t *offsets)
{
    const int first = (int)(next(x) % (uint64_t)n);
    uint64_t at = next(x) % 3;
    for (int i = 0; i < n; i++) {
        const int p = (first + i) % n;
        bytes[p] = next(x) % 3 ? next(x) % 20 : 0;
        offsets[p] = at;
        at += bytes[p] + next(x) % 3;
    }
}

static void draw_layout(uint64_t *x, struct cecl_part *part, uint64_t *layout)
{
    const int n = part->call.nranks;
    set_layout(part, layout, n);
    if (part->call.op->family != CECL_FAMILY_OWN_LAYOUT) {
        draw_blocks(x, n, layout + cecl_layout_at(n, CECL_LAYOUT_BYTES, 0),
                    layout + cecl_layout_at(n, CECL_LAYOUT_AT, 0));
        return;
    }
    draw_blocks(x, n, layout + cecl_layout_at(n, CECL_LAYOUT_SENT, 0),
                layout + cecl_layout_at(n, CECL_LAYOUT_SENT_AT, 0));
    draw_blocks(x, n, layout + cecl_layout_at(n, CECL_LAYOUT_RECEIVED, 0),
                layout + cecl_layout_at(n, CECL_LAYOUT_RECEIVED_AT, 0));
    part->call.in_place = false;
}

TEST(random_calls_use_the_bytes_of_their_blocks)
{
    uint64_t x = 33;
    for (int round = 0; round < 20000; round++) {
        const enum cecl_op_index op = (enum cecl_op_index)(next(&x) % CECL_OP_BARRIER);
        struct cecl_part part = part_of(op, next(&x) % 2, CECL_PUSH, 1 + next(&x) % 40);
        struct cecl_call *call = &part.call;
        uint64_t layout[CECL_LAYOUT_WORDS_MAX(RANKS_MAX)] = {0};
        call->nranks = 1 + (int32_t)(next(&x) % RANKS_MAX);
        call->rank = (int32_t)(next(&x) % (uint64_t)call->nranks);
        call->root = call->op->rooted ? (int32_t)(next(&x) % (uint64_t)call->nranks) : 0;
        if (op == CECL_OP_ALL_GATHER_STRIDED || op == CECL_OP_ALL_TO_ALL_STRIDED)
            draw_strided(&x, call->nranks, 1 + next(&x) % (next(&x) % 8 ? 8 : 30), &part);
        if (op == CECL_OP_ALL_GATHERV || op == CECL_OP_ALL_TO_ALLV || op == CECL_OP_ALL_TO_ALLV_AT)
            draw_layout(&x, &part, layout);
        call->recv = call->send = (struct cecl_buffer){&pool, next(&x) % 40};
        check(call);
    }
}

TEST(a_message_uses_its_bytes)
{
    for (enum cecl_op_index op = CECL_OP_SEND; op <= CECL_OP_RECV; op++) {
        struct cecl_call call = part_of(op, false, CECL_PUSH, 24).call;
        struct cecl_touched touched[2];
        struct cecl_range ranges[CECL_RANGES_MAX];
        call.nranks = 3;
        assert_int_equal(cecl_call_touched(&call, touched), 1);
        assert_int_equal(touched[0].written, op == CECL_OP_RECV);
        assert_int_equal(cecl_call_ranges(&call, &touched[0], ranges), 1);
        assert_int_equal(ranges[0].low, 0);
        assert_int_equal(ranges[0].high, 24);
    }
}

static uint32_t ranges_of_rows(uint64_t width, uint64_t rows, uint64_t pitch)
{
    struct cecl_call call =
        part_of(CECL_OP_ALL_GATHER_STRIDED, false, CECL_PUSH, width * rows).call;
    struct cecl_touched touched[2];
    struct cecl_range ranges[CECL_RANGES_MAX];
    call.nranks = 2;
    call.view.shape = (struct cecl_shape){.width = width,
                                          .rows = rows,
                                          .send_pitch = width,
                                          .recv_pitch = pitch,
                                          .recv_stride = width};
    assert_int_equal(cecl_call_touched(&call, touched), 2);
    return cecl_call_ranges(&call, &touched[0], ranges);
}

/* As many ranges as fit stay separate, one more range merges them. Millions of rows take no time, whether
 * or not they fill their pitch. */
TEST(rows_are_bounded)
{
    assert_int_equal(ranges_of_rows(8, CECL_RANGES_MAX, 17), CECL_RANGES_MAX);
    assert_int_equal(ranges_of_rows(8, CECL_RANGES_MAX + 1, 17), 1);
    assert_int_equal(ranges_of_rows(8, UINT64_C(1) << 40, 16), 1);
    assert_int_equal(ranges_of_rows(8, UINT64_C(1) << 40, 17), 1);
}
