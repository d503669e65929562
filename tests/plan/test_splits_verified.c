/* Plans of calls by splits on the device: right for all numbers of ranks, for splits of
 * no row, of one row, that just fit and that do not fit, among other calls, and captured. The verifier notices
 * missing steps. */
#include "plans.h"

#include "ce/capture.h"
#include "flags/turns.h"
#include "plan/splits.h"

#define MOST CECL_SPLITS_RANKS_MAX
#define EXPERTS 3
#define CALLS 3
#define TIMES 7
#define STAGING (1u << 14) /* the table is behind it */

/* The splits, the offsets after them, and the layouts of all ranks of a call. */
struct drawn {
    enum cecl_op_index op;
    uint64_t splits[MOST][2 * MOST * EXPERTS], out[MOST][2 * MOST * EXPERTS],
        layouts[MOST][CECL_LAYOUT_SPLITS_WORDS];
};

enum shape { NONE, ONE, FILLED, BEYOND, RANDOM, SHAPES };

/* A recvbuff has as many rows as all ranks' blocks of `rows` each; the shape FILLED just fits. */
static void draw(struct drawn *d, int n, enum shape shape, uint64_t rows, uint64_t *x)
{
    memset(d, 0, sizeof(*d));
    d->op = CECL_OP_ALL_TO_ALLV_DEVICE;
    for (int r = 0; r < n; r++) {
        uint64_t *words = d->layouts[r];
        words[CECL_LAYOUT_SEND_ROWS] = (uint64_t)n * rows;
        words[CECL_LAYOUT_RECV_ROWS] = (uint64_t)n * rows;
        words[CECL_LAYOUT_ROW_BYTES] = 3;
        words[CECL_LAYOUT_EXPERTS] = words[CECL_LAYOUT_ALIGN] = 1;
        words[CECL_LAYOUT_SPLITS] = (uintptr_t)d->splits[r];
        words[CECL_LAYOUT_SPLITS_OUT] = (uintptr_t)d->out[r];
        for (int p = 0; p < n; p++)
            d->splits[r][p] = shape == FILLED   ? rows
                              : shape == ONE    ? r == n - 1 && p == 0
                              : shape == BEYOND ? (p == 0 ? (uint64_t)n * rows : 0)
                              : shape == RANDOM ? next(x) % (rows + 1)
                                                : 0;
    }
}

static struct cecl_plan *plans_of(const struct drawn *drawn, int ncalls, int n)
{
    struct cecl_plan *plans = calloc((size_t)(ncalls * n), sizeof(*plans));
    assert_non_null(plans);
    for (int c = 0; c < ncalls; c++)
        for (int r = 0; r < n; r++) {
            const uint64_t *words = drawn[c].layouts[r];
            struct cecl_part part =
                part_of(drawn[c].op, false, CECL_PUSH,
                        words[CECL_LAYOUT_RECV_ROWS] * words[CECL_LAYOUT_ROW_BYTES]);
            part.call.nranks = n;
            part.call.rank = r;
            part.means.staging_bytes = part.means.table_offset = part.means.table_bytes = STAGING;
            set_layout(&part, words, n);
            if (cecl_lower(&part, &plans[c * n + r]) != ceclSuccess)
                fail_msg("%s", cecl_message());
        }
    return plans;
}

static void verify(const struct drawn *drawn, int ncalls, int n)
{
    struct cecl_plan *plans = plans_of(drawn, ncalls, n);
    if (cecl_verify(plans, ncalls, n) != ceclSuccess)
        fail_msg("%d ranks: %s", n, cecl_message());
    free_plans(plans, ncalls * n);
}

TEST(rows_of_all_shapes_arrive)
{
    static struct drawn d;
    uint64_t x = 3;
    for (int n = 1; n <= MOST; n++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (uint64_t rows = 1; rows <= 4; rows += 3) {
                draw(&d, n, (enum shape)shape, rows, &x);
                verify(&d, 1, n);
            }
}

/* Several blocks for each rank: to experts with gaps, or back from experts. */
static void draw_experts(struct drawn *d, int n, bool back, uint64_t rows, uint64_t *x)
{
    const uint64_t align = 1 + next(x) % 4, blocks = (uint64_t)n * EXPERTS;
    memset(d, 0, sizeof(*d));
    d->op = back ? CECL_OP_COMBINE : CECL_OP_DISPATCH;
    for (int r = 0; r < n; r++) {
        uint64_t *words = d->layouts[r], begin = 0;
        words[CECL_LAYOUT_SEND_ROWS] = blocks * (rows + 2);
        words[CECL_LAYOUT_RECV_ROWS] = blocks * (rows + 2) + EXPERTS * align;
        words[CECL_LAYOUT_ROW_BYTES] = 2;
        words[CECL_LAYOUT_EXPERTS] = EXPERTS;
        words[CECL_LAYOUT_ALIGN] = back ? 1 : align;
        words[CECL_LAYOUT_SCALE_BYTES] = rows; /* the verifier does not read any */
        words[CECL_LAYOUT_SPLITS] = (uintptr_t)d->splits[r];
        words[CECL_LAYOUT_SPLITS_OUT] = (uintptr_t)d->out[r];
        for (uint64_t i = 0; i < blocks; i++) {
            d->splits[r][i] = next(x) % (rows + 1);
            d->splits[r][blocks + i] = begin;
            begin += d->splits[r][i] + next(x) % 3;
        }
    }
}

TEST(rows_of_experts_arrive)
{
    static struct drawn d[CALLS];
    uint64_t x = 4;
    for (int n = 1; n <= 8; n++)
        for (int back = 0; back < 2; back++) {
            for (int c = 0; c < CALLS; c++)
                draw_experts(&d[c], n, (c + back) % 2, 2, &x);
            verify(d, CALLS, n);
        }
}

/* A call does not write its table while a rank still reads the previous call's. */
TEST(calls_follow_each_other)
{
    static struct drawn d[CALLS];
    uint64_t x = 5;
    for (int n = 2; n <= 9; n++) {
        for (int c = 0; c < CALLS; c++)
            draw(&d[c], n, RANDOM, 3, &x);
        verify(d, CALLS, n);
    }
}

/* Other calls come before and after. When `op` has ended on this rank, peers may still read their staging. */
static void verify_beside(enum cecl_op_index op, int n, uint64_t *x)
{
    static struct drawn d;
    struct cecl_part parts[2] = {reduction_of(op, (uint64_t)n, 40, 4),
                                 part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 12)};
    for (int i = 0; i < 2; i++)
        parts[i].means.staging_bytes = STAGING;
    parts[0].way.reduce.chunk = 8;
    parts[1].way.move.no_sm = true;
    struct cecl_plan *others = lower_all(parts, 2, n);
    draw(&d, n, RANDOM, 3, x);
    struct cecl_plan *mine = plans_of(&d, 1, n), *all = calloc(4 * (size_t)n, sizeof(*all));
    assert_non_null(all);
    memcpy(all, others, (size_t)n * sizeof(*all));
    memcpy(all + n, mine, (size_t)n * sizeof(*all));
    memcpy(all + 2 * n, others + n, (size_t)n * sizeof(*all));
    memcpy(all + 3 * n, mine, (size_t)n * sizeof(*all));
    if (cecl_verify(all, 4, n) != ceclSuccess)
        fail_msg("%d ranks: %s", n, cecl_message());
    free(all);
    free_plans(mine, n);
    free_plans(others, 2 * n);
}

TEST(other_calls_stand_beside)
{
    uint64_t x = 6;
    for (int n = 2; n <= 6; n++)
        for (int all = 0; all < 2; all++)
            verify_beside(all ? CECL_OP_ALL_REDUCE : CECL_OP_REDUCE_SCATTER, n, &x);
}

/* Removes `count` steps from step `from` on from all plans, and returns the verifier's message. */
static const char *verdict_of(struct cecl_plan *plans, int n, uint32_t from, uint32_t count)
{
    static char words[CECL_MESSAGE_BYTES];
    for (int r = 0; r < n; r++) {
        memmove(plans[r].steps + from, plans[r].steps + from + count,
                (plans[r].nsteps - from - count) * sizeof(*plans[r].steps));
        plans[r].nsteps -= count;
    }
    assert_int_equal(cecl_verify(plans, 1, n), ceclInternalError);
    snprintf(words, sizeof(words), "%s", cecl_message());
    free_plans(plans, n);
    return words;
}

static const char *verdict_without(uint32_t from, uint32_t count)
{
    static struct drawn d;
    uint64_t x = 8;
    draw(&d, 3, FILLED, 2, &x);
    return verdict_of(plans_of(&d, 1, 3), 3, from, count);
}

/* Steps: tell, 2 signals and 2 waits, move, 2 signals and 2 waits. */
TEST(a_missing_step_or_wait_is_seen)
{
    assert_non_null(strstr(verdict_without(0, 1), "has not told its splits"));
    assert_non_null(
        strstr(verdict_without(3, 2), "rank")); /* rows arrive before the peers are ready */
    assert_non_null(strstr(verdict_without(5, 1), "output"));
    assert_non_null(strstr(verdict_without(8, 2), "rank"));
}

/* Captured calls among other calls, repeated. */
TEST(captured_calls_are_right_in_replays)
{
    static struct drawn d[TIMES];
    uint64_t x = 11;
    for (int round = 0; round < 20; round++) {
        const int n = 1 + (int)(next(&x) % 8);
        struct cecl_verify_launch launches[TIMES];
        for (int c = 0; c < TIMES; c++) {
            draw(&d[c], n, RANDOM, 3, &x);
            launches[c] = (struct cecl_verify_launch){.call = c};
        }
        struct cecl_plan *plans = plans_of(d, TIMES, n);
        struct cecl_verify_program program = {
            .nranks = n, .plans = plans, .ncalls = TIMES, .order = next(&x) | 1};
        for (int i = 0; i < TIMES * n; i++) {
            plans[i].part.call.captured = i / n % 3 != 1;
            if (plans[i].part.call.captured)
                assert_int_equal(cecl_plan_capture(&plans[i], false, 1 + (uint32_t)(i / n)),
                                 ceclSuccess);
        }
        for (int r = 0; r < n; r++) {
            program.launches[r] = launches;
            program.nlaunches[r] = TIMES;
        }
        if (cecl_verify_program(&program) != ceclSuccess)
            fail_msg("%d ranks: %s", n, cecl_message());
        free_plans(plans, TIMES * n);
    }
}
