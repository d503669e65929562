/* Every lowering, verified over all ranks: each alone four times in a row, and in mixed sequences
 * on the same buffers. */
#include "plans.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 72};
static const uint64_t block_bytes[] = {1, 7, 24};

static void verify_everywhere(ceclOp_t op, bool in_place, enum cecl_direction direction)
{
    for (size_t i = 0; i < sizeof(rank_counts) / sizeof(rank_counts[0]); i++)
        for (size_t b = 0; b < sizeof(block_bytes) / sizeof(block_bytes[0]); b++) {
            struct cecl_call calls[4];
            for (int c = 0; c < 4; c++)
                calls[c] = call_of(op, in_place, direction, block_bytes[b]);
            verify_calls(calls, 4, rank_counts[i]);
        }
}

#define LOWERING_TEST(name, op, in_place, direction)                                               \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        verify_everywhere(op, in_place, direction);                                                \
    }
LOWERING_TEST(all_gather_push_in_place_is_right, ceclOpAllGather, true, CECL_PUSH)
LOWERING_TEST(all_gather_push_out_of_place_is_right, ceclOpAllGather, false, CECL_PUSH)
LOWERING_TEST(all_gather_pull_in_place_is_right, ceclOpAllGather, true, CECL_PULL)
LOWERING_TEST(all_gather_pull_out_of_place_is_right, ceclOpAllGather, false, CECL_PULL)
LOWERING_TEST(all_to_all_push_out_of_place_is_right, ceclOpAlltoAll, false, CECL_PUSH)
LOWERING_TEST(all_to_all_pull_out_of_place_is_right, ceclOpAlltoAll, false, CECL_PULL)
LOWERING_TEST(all_to_all_in_place_is_right, ceclOpAlltoAll, true, CECL_PUSH)

static void all_to_all_in_place_in_chunks_is_right(void **state)
{
    (void)state;
    for (int n = 2; n <= 9; n++)
        for (uint64_t staging = (uint64_t)n - 1; staging < 40; staging += 7) {
            struct cecl_call calls[2];
            for (int c = 0; c < 2; c++) {
                calls[c] = call_of(ceclOpAlltoAll, true, CECL_PUSH, 13);
                calls[c].staging_bytes = staging;
            }
            verify_calls(calls, 2, n);
        }
}

static void all_to_all_in_place_among_many_ranks_in_chunks_is_right(void **state)
{
    (void)state;
    static const int many[] = {16, 32, 72};
    for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
        struct cecl_call calls[2];
        for (int c = 0; c < 2; c++) {
            calls[c] = call_of(ceclOpAlltoAll, true, CECL_PUSH, 24);
            calls[c].staging_bytes = 10u * (unsigned)(many[i] - 1); /* chunks of 10, 10, 4 */
        }
        verify_calls(calls, 2, many[i]);
    }
}

static void mixed_sequences_on_the_same_buffers_are_right(void **state)
{
    (void)state;
    uint64_t x = 20261121;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int round = 0; round < 150; round++) {
        struct cecl_call calls[5];
        const int n = 2 + round % 6;
        for (int c = 0; c < 5; c++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            calls[c] = call_of(x >> 60 & 1 ? ceclOpAllGather : ceclOpAlltoAll, x >> 61 & 1,
                               x >> 62 & 1 ? CECL_PUSH : CECL_PULL, 1 + (x >> 50) % 12);
            calls[c].staging_bytes = (uint64_t)n + (x >> 40) % 30;
        }
        verify_calls(calls, 5, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_gather_push_in_place_is_right),
        cmocka_unit_test(all_gather_push_out_of_place_is_right),
        cmocka_unit_test(all_gather_pull_in_place_is_right),
        cmocka_unit_test(all_gather_pull_out_of_place_is_right),
        cmocka_unit_test(all_to_all_push_out_of_place_is_right),
        cmocka_unit_test(all_to_all_pull_out_of_place_is_right),
        cmocka_unit_test(all_to_all_in_place_is_right),
        cmocka_unit_test(all_to_all_in_place_in_chunks_is_right),
        cmocka_unit_test(all_to_all_in_place_among_many_ranks_in_chunks_is_right),
        cmocka_unit_test(mixed_sequences_on_the_same_buffers_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
