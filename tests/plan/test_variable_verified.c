/* All-to-alls whose blocks differ, gathers and scatters: every rank has a layout of its own, in which
 * sizes and places are drawn at random. Alone, in sequences, and in groups with all other calls;
 * and broadcasts in pieces. */
#include "plans.h"

#include "plan/layout.h"

#define PARTS_MAX 4
#define CALLS 3

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32};

/* A call and what each rank has of it. */
struct drawn {
    struct cecl_call call;
    uint64_t *layouts; /* [n][5 * n], or [2 * n] alike for all, or NULL */
    int in_place_at;   /* the one rank whose own block stands, or -1; -2: as `call` says */
};

static uint64_t *word(const struct drawn *d, int n, int rank, int kind, int peer)
{
    return &d->layouts[(rank * 5 + kind) * n + peer];
}
enum { SENT, SENT_AT, TARGET, RECEIVED, RECEIVED_AT };

/* Fills in the rest from sizes: blocks one after the other from some rank on, with gaps. Blocks that
 * are sent may lie anywhere. */
static void place(uint64_t *x, const struct drawn *d, int n, bool gaps)
{
    for (int r = 0; r < n; r++) {
        const int first = gaps ? (int)(next(x) % (uint64_t)n) : 0;
        uint64_t sent = gaps ? next(x) % 3 : 0, received = gaps ? next(x) % 3 : 0;
        for (int i = 0; i < n; i++) {
            const int p = (first + i) % n;
            *word(d, n, r, SENT_AT, p) = sent;
            *word(d, n, r, RECEIVED_AT, p) = received;
            *word(d, n, r, RECEIVED, p) = *word(d, n, p, SENT, r);
            sent += *word(d, n, r, SENT, p) + (gaps ? next(x) % 3 : 0);
            received += *word(d, n, r, RECEIVED, p) + (gaps ? next(x) % 3 : 0);
        }
    }
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++)
            *word(d, n, r, TARGET, p) = *word(d, n, p, RECEIVED_AT, r);
}

static struct drawn draw_exchange(uint64_t *x, int n)
{
    struct drawn d = {call_of(ceclOpAlltoAll, false, CECL_PUSH, 1), NULL, -1};
    d.layouts = calloc((size_t)(5 * n * n), sizeof(*d.layouts));
    assert_non_null(d.layouts);
    const uint64_t most = n > 16 ? 5 : 30;
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++)
            *word(&d, n, r, SENT, p) = next(x) % 3 == 0 ? 0 : next(x) % most;
    place(x, &d, n, true);
    return d;
}

static struct drawn draw_rooted(uint64_t *x, int n)
{
    struct drawn d = {call_of(ceclOpAlltoAll, false, CECL_PUSH, 1), NULL, -1};
    const bool gathers = next(x) % 2;
    const int root = (int)(next(x) % (uint64_t)n);
    const uint64_t bytes = 1 + next(x) % 20;
    d.layouts = calloc((size_t)(5 * n * n), sizeof(*d.layouts));
    assert_non_null(d.layouts);
    for (int r = 0; r < n; r++)
        *word(&d, n, gathers ? r : root, SENT, gathers ? root : r) = bytes;
    place(x, &d, n, false);
    d.in_place_at = next(x) % 2 ? root : -1;
    return d;
}

static struct drawn draw_broadcast(uint64_t *x, int n)
{
    struct drawn d = {call_of(ceclOpAllGather, next(x) % 2, CECL_PUSH, 1 + next(x) % 60), NULL, -2};
    const uint64_t root = next(x) % (uint64_t)n;
    d.layouts = calloc((size_t)(2 * n), sizeof(*d.layouts));
    assert_non_null(d.layouts);
    d.layouts[root] = d.call.bytes;
    d.layouts[(uint64_t)n + root] = next(x) % 5;
    d.call.spread = next(x) % 5; /* 0: whole */
    return d;
}

static struct drawn draw_equal(uint64_t *x)
{
    const ceclOp_t op = next(x) % 2 ? ceclOpAllGather : ceclOpAlltoAll;
    return (struct drawn){
        call_of(op, next(x) % 2, next(x) % 2 ? CECL_PUSH : CECL_PULL, 1 + next(x) % 12), NULL, -2};
}

static struct drawn draw(uint64_t *x, int n, uint64_t kind)
{
    struct drawn d = kind == 0   ? draw_exchange(x, n)
                     : kind == 1 ? draw_rooted(x, n)
                     : kind == 2 ? draw_broadcast(x, n)
                                 : draw_equal(x);
    d.call.no_sm = next(x) % 2;
    d.call.piece_worth = 1 + next(x) % 9;
    return d;
}

static void drop(struct drawn *d)
{
    free(d->layouts);
}

static struct cecl_call call_at(const struct drawn *d, int n, int rank)
{
    struct cecl_call call = d->call;
    call.nranks = n;
    call.rank = rank;
    call.layout = d->layouts;
    if (d->layouts && call.op == ceclOpAlltoAll)
        call.layout = word(d, n, rank, SENT, 0);
    if (d->in_place_at != -2)
        call.in_place = d->in_place_at == rank;
    return call;
}

static struct cecl_plan *lower_groups_of(struct drawn groups[][PARTS_MAX], const uint32_t *sizes,
                                         int ncalls, int n)
{
    struct cecl_plan *plans = calloc((size_t)(ncalls * n), sizeof(*plans));
    assert_non_null(plans);
    for (int c = 0; c < ncalls; c++)
        for (int r = 0; r < n; r++) {
            struct cecl_call calls[PARTS_MAX];
            for (uint32_t i = 0; i < sizes[c]; i++)
                calls[i] = call_at(&groups[c][i], n, r);
            struct cecl_plan *plan = &plans[c * n + r];
            assert_int_equal(cecl_lower_group(calls, sizes[c], plan), ceclSuccess);
            for (uint32_t i = 0; n > 1 && i < plan->ncopies && sizes[c] == 1; i++)
                if (calls[0].no_sm && plan->copies[i].src.rank == plan->copies[i].dst.rank)
                    fail_msg("%d ranks, call %d: rank %d copies within its GPU", n, c, r);
        }
    return plans;
}

/* `kind`: of draw, or -1 for all mixed. */
static void verify_random(int n, int rounds, int kind, uint32_t most)
{
    uint64_t x = 20261121 + (uint64_t)n;
    for (int round = 0; round < rounds; round++) {
        struct drawn groups[CALLS][PARTS_MAX];
        uint32_t sizes[CALLS];
        const uint64_t staging = 2 * PARTS_MAX * (uint64_t)n + next(&x) % 60;
        for (int c = 0; c < CALLS; c++) {
            sizes[c] = 1 + (uint32_t)next(&x) % most;
            for (uint32_t i = 0; i < sizes[c]; i++) {
                groups[c][i] = draw(&x, n, kind < 0 ? next(&x) % 4 : (uint64_t)kind);
                groups[c][i].call.staging_bytes = staging;
                if (kind == 0 && next(&x) % 2) /* many rounds of a few bytes */
                    groups[c][i].call.staging_bytes = 2 + next(&x) % 7;
            }
        }
        struct cecl_plan *plans = lower_groups_of(groups, sizes, CALLS, n);
        if (cecl_verify(plans, CALLS, n) != ceclSuccess)
            fail_msg("round %d, %d ranks, kind %d: %s", round, n, kind, cecl_message());
        free_plans(plans, CALLS * n);
        for (int c = 0; c < CALLS; c++)
            for (uint32_t i = 0; i < sizes[c]; i++)
                drop(&groups[c][i]);
    }
}

static void verify_everywhere(int kind, uint32_t most)
{
    for (size_t i = 0; i < sizeof(rank_counts) / sizeof(rank_counts[0]); i++)
        verify_random(rank_counts[i], rank_counts[i] > 16 ? 3 : 25, kind, most);
}

static void blocks_of_any_size_reach_their_places(void **state)
{
    (void)state;
    verify_everywhere(0, 1);
}

static void gathers_and_scatters_are_right(void **state)
{
    (void)state;
    verify_everywhere(1, 1);
}

static void broadcasts_in_pieces_are_right(void **state)
{
    (void)state;
    verify_everywhere(2, 1);
}

static void groups_of_all_calls_are_right(void **state)
{
    (void)state;
    verify_everywhere(-1, PARTS_MAX);
}

/* ---- what plans look like */

/* Two ranks that keep `own` bytes each and swap 4. */
static struct cecl_call swap_call(uint64_t layout[2][10], int rank, uint64_t own, uint64_t staging)
{
    for (int r = 0; r < 2; r++)
        for (int p = 0; p < 2; p++) {
            uint64_t *mine = layout[r];
            mine[0 + p] = mine[6 + p] = p == r ? own : 4;
            mine[2 + p] = mine[8 + p] = p == 0 ? 0 : r == 0 ? own : 4;
            mine[4 + p] = r == 0 ? 0 : p == 0 ? own : 4;
        }
    struct cecl_call call = call_of(ceclOpAlltoAll, false, CECL_PUSH, 1);
    call.nranks = 2;
    call.rank = rank;
    call.layout = layout[rank];
    call.no_sm = true;
    call.staging_bytes = staging;
    return call;
}

static void all_ranks_have_two_barriers_whatever_they_lend(void **state)
{
    (void)state;
    uint64_t layout[2][10];
    static const uint64_t owns[] = {0, 1, 8, 9, 100};
    static const uint32_t copies[] = {1, 3, 3, 7, 51}; /* the block; and of each round two */
    for (size_t i = 0; i < 5; i++) {
        struct cecl_call call = swap_call(layout, 0, owns[i], 8);
        struct cecl_plan plan;
        assert_int_equal(cecl_lower(&call, &plan), ceclSuccess);
        assert_int_equal(plan.phases, 2);
        assert_int_equal(plan.ncopies, copies[i]);
        assert_int_equal(cecl_plan_local_copies(&plan), 0);
        cecl_plan_free(&plan);
    }
}

static void staging_of_one_byte_is_refused_by_all(void **state)
{
    (void)state;
    uint64_t layout[2][10];
    for (uint64_t own = 0; own < 2; own++) {
        struct cecl_call call = swap_call(layout, 0, own, 1);
        struct cecl_plan plan;
        assert_int_equal(cecl_lower(&call, &plan), ceclInvalidUsage);
        assert_non_null(strstr(cecl_message(), "stagingBytes"));
    }
}

static void a_whole_block_or_its_pieces_as_the_table_says(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        int nranks, direction;
        uint64_t rounds;
    } cases[] = {{(1 << 20) - 1, 8, 0, 0}, {1 << 20, 8, 0, 1},  {1 << 20, 3, 0, 1},
                 {1 << 20, 2, 0, 0},       {64 << 20, 4, 0, 5}, {64 << 20, 4, 2, 0},
                 {1u << 31, 4, 0, 8}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t layout[16] = {0};
        struct cecl_call call = {.op = ceclOpAllGather,
                                 .nranks = cases[i].nranks,
                                 .bytes = cases[i].bytes,
                                 .layout = layout,
                                 .in_place = true};
        layout[1] = cases[i].bytes;
        tune(&call, (struct cecl_choice){CECL_SM_NEVER, (uint8_t)cases[i].direction, 0});
        assert_int_equal(call.spread, cases[i].rounds);
        layout[0] = 1; /* two contribute: no broadcast */
        tune(&call, (struct cecl_choice){CECL_SM_NEVER, (uint8_t)cases[i].direction, 0});
        assert_int_equal(call.spread, 0);
    }
}

/* ---- what the verifier finds */

static struct cecl_plan *swap_plans(uint64_t layout[2][10])
{
    struct cecl_plan *plans = calloc(2, sizeof(*plans));
    assert_non_null(plans);
    for (int r = 0; r < 2; r++) {
        struct cecl_call call = swap_call(layout, r, 6, 16);
        assert_int_equal(cecl_lower(&call, &plans[r]), ceclSuccess);
    }
    assert_int_equal(cecl_verify(plans, 1, 2), ceclSuccess);
    return plans;
}

static void found(struct cecl_plan *plans, const char *words)
{
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    if (!strstr(cecl_message(), words))
        fail_msg("not found: %s; said: %s", words, cecl_message());
    free_plans(plans, 2);
}

/* Rank 0's first and second batch as one. */
static void a_fetch_beside_its_lending_is_a_race(void **state)
{
    (void)state;
    uint64_t layout[2][10];
    struct cecl_plan *plans = swap_plans(layout);
    struct cecl_step *steps = plans[0].steps;
    assert_true(steps[2].kind == CECL_STEP_COPY && steps[3].kind == CECL_STEP_COPY);
    steps[2].count += steps[3].count;
    memmove(&steps[3], &steps[4], (plans[0].nsteps - 4) * sizeof(*steps));
    plans[0].nsteps--;
    found(plans, "race: staging");
}

static void wrong_places_are_found(void **state)
{
    (void)state;
    uint64_t layout[2][10];
    struct cecl_plan *plans = swap_plans(layout);
    plans[0].copies[1].src.offset--; /* of another's block */
    found(plans, "is not byte");
    plans = swap_plans(layout);
    plans[0].copies[1].dst.offset++;
    found(plans, "race: recvbuff of rank 1"); /* over a byte of its own */
    plans = swap_plans(layout);
    layout[0][5]++; /* where rank 1 is said to want it */
    found(plans, "the block for rank 1 is not the one that it receives");
    plans = swap_plans(layout);
    layout[1][6]++;
    found(plans, "the block for rank 1 is not the one that it receives");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_any_size_reach_their_places),
        cmocka_unit_test(gathers_and_scatters_are_right),
        cmocka_unit_test(broadcasts_in_pieces_are_right),
        cmocka_unit_test(groups_of_all_calls_are_right),
        cmocka_unit_test(all_ranks_have_two_barriers_whatever_they_lend),
        cmocka_unit_test(staging_of_one_byte_is_refused_by_all),
        cmocka_unit_test(a_whole_block_or_its_pieces_as_the_table_says),
        cmocka_unit_test(a_fetch_beside_its_lending_is_a_race),
        cmocka_unit_test(wrong_places_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
