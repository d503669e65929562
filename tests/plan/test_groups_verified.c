/* Groups: several calls in one plan, verified over all ranks, and what the plans share. */
#include "plans.h"

#define GROUP_MAX 6

/* plans[c * nranks + r] of `ncalls` groups, each of the calls groups[c][0 .. sizes[c]). */
static struct cecl_plan *lower_groups(struct cecl_part groups[][GROUP_MAX], const uint32_t *sizes,
                                      int ncalls, int nranks)
{
    struct cecl_plan *plans = calloc((size_t)(ncalls * nranks), sizeof(*plans));
    assert_non_null(plans);
    for (int c = 0; c < ncalls; c++)
        for (int r = 0; r < nranks; r++) {
            struct cecl_part parts[GROUP_MAX];
            memcpy(parts, groups[c], sizeof(parts));
            for (uint32_t i = 0; i < sizes[c]; i++) {
                parts[i].call.nranks = nranks;
                parts[i].call.rank = r;
            }
            assert_int_equal(cecl_lower_group(parts, sizes[c], &plans[c * nranks + r]),
                             ceclSuccess);
        }
    return plans;
}

static void random_groups_are_right(void **state)
{
    (void)state;
    uint64_t x = 20261121;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int round = 0; round < 200; round++) {
        const int n = 1 + round % 8;
        struct cecl_part groups[3][GROUP_MAX];
        uint32_t sizes[3];
        for (int c = 0; c < 3; c++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            sizes[c] = 1 + (uint32_t)(x >> 33) % GROUP_MAX;
            for (int i = 0; i < GROUP_MAX; i++) {
                x = x * 6364136223846793005u + 1442695040888963407u;
                groups[c][i] =
                    part_of(x >> 60 & 1 ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL, x >> 61 & 1,
                            x >> 62 & 1 ? CECL_PUSH : CECL_PULL, 1 + (x >> 50) % 12);
                groups[c][i].way.move.no_sm = x >> 59 & 1;
                groups[c][i].way.move.piece_worth = 1 + (x >> 30) % 9;
                groups[c][i].means.staging_bytes = 2 * GROUP_MAX * (uint64_t)n + (x >> 40) % 100;
            }
            for (int i = 1; i < GROUP_MAX; i++) /* one communicator's is one size */
                groups[c][i].means.staging_bytes = groups[c][0].means.staging_bytes;
        }
        struct cecl_plan *plans = lower_groups(groups, sizes, 3, n);
        if (cecl_verify(plans, 3, n) != ceclSuccess)
            fail_msg("round %d, %d ranks: %s", round, n, cecl_message());
        free_plans(plans, 3 * n);
    }
}

/* 64 gathers in one batch between two barriers: what one gather costs in flags. */
static void gathers_share_their_barriers(void **state)
{
    (void)state;
    struct cecl_part parts[64];
    struct cecl_plan plan;
    for (int i = 0; i < 64; i++) {
        parts[i] = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 100);
        parts[i].call.nranks = 4;
        parts[i].call.rank = 1;
    }
    assert_int_equal(cecl_lower_group(parts, 64, &plan), ceclSuccess);
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
    assert_int_equal(plan.nsteps, 2 * 6 + 1);
    assert_int_equal(plan.ncopies, 64 * 3);
    assert_int_equal(cecl_plan_parts(&plan), 64);
    assert_non_null(strstr(plan.path, "group of 64 calls"));
    cecl_plan_free(&plan);
}

/* A copy that goes to another call's buffer is found. */
static void the_verifier_tells_calls_of_a_group_apart(void **state)
{
    (void)state;
    struct cecl_part groups[1][GROUP_MAX];
    const uint32_t sizes[1] = {2};
    for (int i = 0; i < GROUP_MAX; i++)
        groups[0][i] = part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 8);
    struct cecl_plan *plans = lower_groups(groups, sizes, 1, 3);
    assert_int_equal(cecl_verify(plans, 1, 3), ceclSuccess);
    struct cecl_copy *copy = &plans[1].copies[0];
    copy->src.area = cecl_area_of(CECL_AREA_SEND, 1);
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    copy->src.area = cecl_area_of(CECL_AREA_SEND, 2);
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    assert_non_null(strstr(cecl_message(), "there is none"));
    free_plans(plans, 3);
}

static void give_to_second_call(struct cecl_place *place)
{
    if (place->area == CECL_AREA_STAGING)
        place->area = CECL_AREA_COUNT + CECL_AREA_STAGING;
}

/* All calls of a group share one staging: that of its first call. */
static void staging_of_a_later_call_of_a_group_is_refused(void **state)
{
    (void)state;
    struct cecl_part groups[1][GROUP_MAX];
    const uint32_t sizes[1] = {2};
    for (int i = 0; i < GROUP_MAX; i++)
        groups[0][i] = part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 8);
    struct cecl_plan *plans = lower_groups(groups, sizes, 1, 3);
    assert_int_equal(cecl_verify(plans, 1, 3), ceclSuccess);
    for (int r = 0; r < 3; r++) /* alike on all ranks, so that nothing else is wrong */
        for (uint32_t i = 0; i < plans[r].ncopies; i++) {
            give_to_second_call(&plans[r].copies[i].dst);
            give_to_second_call(&plans[r].copies[i].src);
        }
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    assert_non_null(strstr(cecl_message(), "there is none"));
    free_plans(plans, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_groups_are_right),
        cmocka_unit_test(gathers_share_their_barriers),
        cmocka_unit_test(the_verifier_tells_calls_of_a_group_apart),
        cmocka_unit_test(staging_of_a_later_call_of_a_group_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
