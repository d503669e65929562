/* Calls of a group may share no byte that one of them writes. A byte table says which random groups must be refused. */
#include "plans.h"

#define RANKS 2
#define CALLS_MAX 5
#define BYTES 96 /* size of each window */

/* The bytes of each window that this rank uses for a call of a group. */
struct used {
    bool reads[CECL_WINDOW_POOL + 1][BYTES], writes[CECL_WINDOW_POOL + 1][BYTES];
};

static const uint32_t numbers[CALLS_MAX] = {1, 2, 3, 4, 5};
static struct cecl_window pool = {.number = CECL_WINDOW_POOL};

static void mark(bool used[][BYTES], const struct cecl_call *call, struct cecl_buffer buffer,
                 uint64_t offset, uint64_t bytes, uint64_t pitch)
{
    for (uint64_t i = 0; i < bytes; i++)
        used[buffer.window->number][buffer.offset + offset + cecl_offset_within(call, pitch, i)] =
            true;
}

/* In place, the only buffer of a call counts as written. */
static struct used used_by(const struct cecl_call *call)
{
    struct used used = {0};
    const bool one = cecl_call_is_one_buffer(call);
    for (int peer = 0; peer < RANKS; peer++) {
        const struct cecl_block sent = cecl_call_block(call, call->rank, peer),
                                got = cecl_call_block(call, peer, call->rank);
        mark(one ? used.writes : used.reads, call, one ? call->recv : call->send, sent.send_offset,
             sent.bytes, one ? call->view.shape.recv_pitch : call->view.shape.send_pitch);
        mark(used.writes, call, call->recv, got.recv_offset, got.bytes,
             call->view.shape.recv_pitch);
    }
    return used;
}

static bool clash(const struct used *a, const struct used *b)
{
    for (int w = 0; w <= CECL_WINDOW_POOL; w++)
        for (int i = 0; i < BYTES; i++)
            if ((a->writes[w][i] && (b->reads[w][i] || b->writes[w][i])) ||
                (a->reads[w][i] && b->writes[w][i]))
                return true;
    return false;
}

static bool any_clash(const struct cecl_call *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++) {
            const struct used a = used_by(&calls[i]), b = used_by(&calls[j]);
            if (clash(&a, &b))
                return true;
        }
    return false;
}

static struct cecl_buffer any_place(uint64_t *x)
{
    return (struct cecl_buffer){next(x) % 4 ? &pool : &cecl_window_private, next(x) % 60};
}

static struct cecl_call any_call(uint64_t *x)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL, CECL_OP_GATHER,
                                             CECL_OP_SCATTER};
    struct cecl_call call = part_of(ops[next(x) % 4], next(x) % 2, CECL_PUSH, 1 + next(x) % 8).call;
    call.nranks = RANKS;
    call.rank = (int32_t)(next(x) % RANKS);
    call.root = (int32_t)(next(x) % RANKS);
    if (call.op->rooted && call.rank != call.root)
        call.in_place = false;
    call.recv = any_place(x);
    const uint64_t own = (uint64_t)call.rank * call.bytes;
    if (call.in_place && call.op == &cecl_ops[CECL_OP_GATHER])
        call.send = cecl_buffer_at(call.recv, own);
    else if (call.in_place && call.op == &cecl_ops[CECL_OP_SCATTER])
        call.send = call.recv, call.recv.offset += own;
    else if (!call.in_place) {
        call.send = any_place(x);
        if (call.send.window == call.recv.window) /* the two buffers side by side */
            call.recv.offset = call.send.offset + cecl_call_input_blocks(&call) * call.bytes;
    }
    return call;
}

/* All calls have the same pitch, so rows of one call may lie between rows of another. */
static struct cecl_call any_rows(uint64_t *x)
{
    struct cecl_call call = part_of(CECL_OP_ALL_GATHER_STRIDED, true, CECL_PUSH, 0).call;
    struct cecl_shape *shape = &call.view.shape;
    call.nranks = RANKS;
    call.rank = (int32_t)(next(x) % RANKS);
    shape->width = 1 + next(x) % 3;
    shape->rows = 2 + next(x) % 3;
    shape->recv_stride = shape->width; /* blocks side by side */
    shape->send_pitch = shape->recv_pitch = 12;
    call.bytes = shape->width * shape->rows;
    call.recv = (struct cecl_buffer){&pool, next(x) % 40};
    return call;
}

/* Draws blocks of two rows, one block after the other. */
static struct cecl_call any_stack(uint64_t *x)
{
    struct cecl_call call = any_rows(x);
    struct cecl_shape *shape = &call.view.shape;
    shape->rows = 2;
    shape->send_pitch = shape->recv_pitch = 6;
    shape->recv_stride = 12;
    call.bytes = shape->width * shape->rows;
    return call;
}

static void compare_with_bytes(struct cecl_call (*any)(uint64_t *x), uint64_t seed)
{
    uint64_t x = seed;
    int refused = 0, one, other; /* calls that a message names: the earlier one first */
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        struct cecl_call calls[CALLS_MAX];
        const uint32_t count = 2 + (uint32_t)(next(&x) % (CALLS_MAX - 1));
        for (uint32_t i = 0; i < count; i++)
            calls[i] = any(&x);
        const ceclResult_t expected = any_clash(calls, count) ? ceclInvalidArgument : ceclSuccess;
        if (cecl_calls_check_apart(calls, numbers, count) != expected)
            fail_msg("round %d, %u calls: result %d expected", round, count, (int)expected);
        if (expected != ceclSuccess && ++refused)
            assert_true(sscanf(cecl_message(), "calls %d (%*[^)]) and %d", &one, &other) == 2 &&
                        one < other);
    }
    assert_in_range(refused, 2000, 18000); /* both answers occur often */
}

TEST(groups_are_refused_where_calls_share_a_byte)
{
    compare_with_bytes(any_call, 20261122);
    compare_with_bytes(any_rows, 20261123);
    compare_with_bytes(any_stack, 20261124);
}

/* The second block's rows lie in other columns than the first's, so columns do not show that calls are apart. */
TEST(rows_in_another_column_than_the_first_blocks_are_found)
{
    uint64_t x = 1;
    struct cecl_call calls[2] = {any_stack(&x), any_stack(&x)};
    for (int i = 0; i < 2; i++) {
        calls[i].view.shape.width = 2;
        calls[i].bytes = 4;
        calls[i].recv = (struct cecl_buffer){&pool, i == 0 ? 0 : 8};
    }
    calls[0].view.shape.recv_stride = 8;
    assert_true(any_clash(calls, 2));
    assert_int_equal(cecl_calls_check_apart(calls, numbers, 2), ceclInvalidArgument);
}
