/* Which calls are tried as one class, and the name of a class for people. */

#include "../with_cmocka.h"

#include "nccl/call.h"
#include "nccl/learning.h"

enum { FLOAT32 = 7 };

static uint32_t class_of(enum cecl_nccl_op op, size_t count, ncclDataType_t type)
{
    const struct cecl_nccl_call call = {.op = op, .count = count, .datatype = type};
    return cecl_nccl_class_of(&call);
}

static uint32_t class_of_reduction(int redop)
{
    const struct cecl_nccl_call call = {.op = CECL_NCCL_OP_ncclAllReduce,
                                        .reduces = true,
                                        .redop = redop,
                                        .count = 100,
                                        .datatype = FLOAT32};
    return cecl_nccl_class_of(&call);
}

static void sizes_between_two_powers_of_two_are_one_class(void **state)
{
    const enum cecl_nccl_op op = CECL_NCCL_OP_ncclAllGather;
    const uint32_t its = class_of(op, 256, FLOAT32);
    assert_int_not_equal(its, 0);
    assert_int_equal(class_of(op, 511, FLOAT32), its);
    assert_int_equal(class_of(op, 1023, CECL_NCCL_BFLOAT16) >> 8, its >> 8);
    assert_int_not_equal(class_of(op, 512, CECL_NCCL_BFLOAT16), its);
    assert_int_not_equal(class_of(op, 255, FLOAT32), its);
    assert_int_not_equal(class_of(op, 512, FLOAT32), its);
    assert_int_not_equal(class_of(CECL_NCCL_OP_ncclAlltoAll, 256, FLOAT32), its);
}

static void a_broadcast_by_its_old_name_is_in_the_same_class(void **state)
{
    assert_int_equal(class_of(CECL_NCCL_OP_ncclBcast, 100, FLOAT32),
                     class_of(CECL_NCCL_OP_ncclBroadcast, 100, FLOAT32));
}

/* The calls' least time over all ranks is not the call's time, or the results of the two
 * libraries differ. */
static void some_calls_have_no_class(void **state)
{
    assert_int_equal(class_of(CECL_NCCL_OP_ncclGather, 100, FLOAT32), 0);
    assert_int_equal(class_of(CECL_NCCL_OP_ncclScatter, 100, FLOAT32), 0);
    assert_int_equal(class_of(CECL_NCCL_OP_ncclReduce, 100, FLOAT32), 0);
    assert_int_equal(class_of(CECL_NCCL_OP_ncclSend, 100, FLOAT32), 0);
    assert_int_equal(class_of_reduction(ceclMax), 0);
    assert_int_equal(class_of_reduction(ceclMin), 0);
    assert_int_not_equal(class_of_reduction(ceclSum), 0);
    assert_int_equal(class_of_reduction(ceclAvg), class_of_reduction(ceclSum));
}

static void expect_words(uint32_t key, const char *words)
{
    char got[CECL_NCCL_CLASS_BYTES];
    cecl_nccl_class_words(key, got);
    assert_string_equal(got, words);
}

static void words_name_operation_sizes_and_type(void **state)
{
    expect_words(class_of(CECL_NCCL_OP_ncclAllGather, 700000, CECL_NCCL_BFLOAT16),
                 "all-gather of 1 to 2 MiB, bfloat16");
    expect_words(class_of(CECL_NCCL_OP_ncclReduceScatter, 200, FLOAT32),
                 "reduce-scatter of 512 to 1024 bytes, float32");
    expect_words(class_of(CECL_NCCL_OP_ncclAlltoAll, (size_t)1 << 32, CECL_NCCL_INT8),
                 "all-to-all of 4 to 8 GiB, int8");
    expect_words(class_of(CECL_NCCL_OP_ncclBcast, 1, CECL_NCCL_INT8),
                 "broadcast of 1 to 2 bytes, int8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_between_two_powers_of_two_are_one_class),
        cmocka_unit_test(a_broadcast_by_its_old_name_is_in_the_same_class),
        cmocka_unit_test(some_calls_have_no_class),
        cmocka_unit_test(words_name_operation_sizes_and_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
