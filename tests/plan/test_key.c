/* Descriptions as keys: calls that differ in any field get different plans, and ranks notice that their calls differ. */
#include "plans.h"

#define RANKS 3

static uint64_t layout[5 * RANKS];

static struct cecl_call a_call(void)
{
    struct cecl_part part = part_of(CECL_OP_ALL_TO_ALLV, false, CECL_PUSH, 8);
    part.call.nranks = RANKS;
    set_layout(&part, layout, RANKS);
    return part.call;
}

TEST(every_byte_of_a_description_counts)
{
    struct cecl_call call = a_call(), other = call;
    const uint64_t hash = cecl_call_hash(1, &call);
    assert_true(cecl_call_equal(&call, &other));
    for (size_t i = 0; i < CECL_CALL_KEY_BYTES; i++) {
        if (i >= offsetof(struct cecl_call, layout_words) &&
            i < offsetof(struct cecl_call, layout_words) + sizeof(other.layout_words))
            continue; /* a changed count of words would be larger than the layout */
        ((unsigned char *)&other)[i] ^= 1;
        if (cecl_call_equal(&call, &other))
            fail_msg("byte %zu does not count", i);
        assert_true(cecl_call_hash(1, &other) != hash);
        ((unsigned char *)&other)[i] ^= 1;
    }
}

TEST(every_word_of_a_layout_counts)
{
    uint64_t changed[5 * RANKS] = {0};
    struct cecl_call call = a_call(), other = call;
    other.view.layout = changed;
    assert_true(cecl_call_equal(&call, &other));
    for (int w = 0; w < 5 * RANKS; w++) {
        changed[w] = 1;
        assert_false(cecl_call_equal(&call, &other));
        assert_true(cecl_call_hash(1, &call) != cecl_call_hash(1, &other));
        changed[w] = 0;
    }
}

/* Changes one of the fields in which ranks must agree: number `field`. False: there are no more. */
static bool change(struct cecl_call *call, int field)
{
    switch (field) {
    case 0: call->op = &cecl_ops[CECL_OP_ALL_GATHER]; return true;
    case 1: call->type ^= 1; return true;
    case 2: call->count ^= 1; return true;
    case 3: call->red_op ^= 1; return true;
    case 4: call->root ^= 1; return true;
    case 5: call->options.sm_policy ^= 1; return true;
    case 6: call->options.direction ^= 1; return true;
    case 7: call->options.max_sms ^= 1; return true;
    case 8: call->in_place = !call->in_place; return true;
    default: break;
    }
    uint64_t shape[sizeof(call->view.shape) / sizeof(uint64_t)];
    if (field - 9 >= (int)(sizeof(shape) / sizeof(shape[0])))
        return false;
    memcpy(shape, &call->view.shape, sizeof(shape));
    shape[field - 9] ^= 1;
    memcpy(&call->view.shape, shape, sizeof(shape));
    return true;
}

TEST(what_ranks_must_have_equal_is_in_the_signature)
{
    struct cecl_call call = part_of(CECL_OP_ALL_TO_ALL, false, CECL_PUSH, 8).call;
    call.nranks = RANKS;
    call.view.shape.width = 8; /* with a width of 0, the shape's other words would not count */
    for (int field = 0;; field++) {
        struct cecl_call other = call;
        if (!change(&other, field))
            break;
        if (cecl_call_signature(&call) == cecl_call_signature(&other))
            fail_msg("field %d is not in the signature", field);
    }
}

TEST(what_a_rank_has_of_its_own_is_not_in_the_signature)
{
    uint64_t changed[5 * RANKS] = {1, 2, 3};
    struct cecl_call call = a_call(), other = call;
    other.view.layout = changed;
    other.rank = 2;
    other.send.offset = 100;
    other.recv.offset = 200;
    other.in_place = true;
    other.count = 7;
    assert_int_equal(cecl_call_signature(&call), cecl_call_signature(&other));
    call = other = part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 8).call;
    other.in_place = true;
    assert_int_equal(cecl_call_signature(&call), cecl_call_signature(&other));
}

TEST(a_groups_signature_tells_number_and_order_of_calls)
{
    struct cecl_call calls[3] = {part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 8).call,
                                 part_of(CECL_OP_ALL_TO_ALL, false, CECL_PUSH, 8).call,
                                 part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 8).call};
    const uint32_t first = cecl_calls_signature(calls, 2);
    assert_true(first != cecl_calls_signature(calls + 1, 2));
    assert_true(first != cecl_calls_signature(calls, 3));
    assert_true(first != cecl_calls_signature(calls, 1));
    calls[1].in_place = true; /* ranks may differ in this */
    assert_int_equal(first, cecl_calls_signature(calls, 2));
}
