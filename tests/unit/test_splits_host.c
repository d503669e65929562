/* Calls by splits on the device, carried out on the host (sm/splits.h): random splits among 2 to 8 ranks, with and
 * without experts, give the same result as a plain model, and all ranks name the same rows that do not fit. */
#include "../share.h"
#include "../splits_model.h"

#include <time.h>

#define TIMES 10000

static struct model model;
static struct model_memory *memory;

static int set_up(void **state)
{
    memory = calloc(1, sizeof(*memory));
    return memory ? 0 : -1;
}

static int tear_down(void **state)
{
    free(memory);
    return 0;
}

static void all_do(enum cecl_splits_step step)
{
    for (uint32_t r = 0; r < model.form.nranks; r++) {
        const struct cecl_splits call = model_step(&model, memory, (int)r, step);
        cecl_splits_host(&call);
    }
}

static void no_meeting(void)
{
}

TEST(random_splits_give_what_the_model_gives)
{
    const uint64_t begin = (uint64_t)time(NULL);
    unsigned found[3] = {0};
    print_message("seed %llu\n", (unsigned long long)begin);
    const unsigned times = (unsigned)test_share(TIMES);
    for (uint64_t i = 0; i < times; i++) {
        uint64_t x = begin + i;
        model_draw(&x, 2 + (int)model_below(&x, MODEL_RANKS - 1), 40, &model, memory);
        model_run(&model, memory, cecl_splits_host, no_meeting);
        model_check(&model, memory);
        found[model.trouble.what]++;
    }
    assert_true(found[CECL_SPLITS_FINE] > times / 2);
    assert_true(found[CECL_SPLITS_SEND] > times / 50);
    assert_true(found[CECL_SPLITS_RECV] > times / 50);
}

/* Splits too large for any buffer neither overflow nor cause reads or writes. */
TEST(splits_near_the_largest_number_are_cut_off)
{
    uint64_t x = 1;
    do
        model_draw(&x, 4, 8, &model, memory);
    while (model.has_offsets || model.form.send_rows == 0);
    memory->splits[2][0] = UINT64_MAX;
    memory->splits[2][1] = UINT64_MAX - 1;
    all_do(CECL_SPLITS_TELL);
    all_do(CECL_SPLITS_MOVE);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(memory->trouble[r].what, CECL_SPLITS_SEND);
        assert_int_equal(memory->trouble[r].rank, 2);
        for (size_t i = model.form.recv_rows * model.form.row_bytes + model.recv_at[r];
             i < MODEL_SCALES; i++)
            assert_int_equal(memory->slices[r][i], MODEL_UNTOUCHED);
    }
}

TEST(a_failed_communicators_steps_touch_nothing)
{
    uint64_t x = 7;
    model_draw(&x, 3, 8, &model, memory);
    memory->end = 1;
    all_do(CECL_SPLITS_TELL);
    all_do(CECL_SPLITS_MOVE);
    for (int r = 0; r < 3; r++) {
        for (size_t i = 0; i < MODEL_SLICE; i++)
            assert_int_equal(memory->slices[r][i], MODEL_UNTOUCHED);
        assert_true(memory->out[r][0] == UINT64_MAX);
    }
}

TEST(no_rows_move_by_a_line_that_is_early_torn_or_of_another_call)
{
    model_early_line(&model, memory, cecl_splits_host, no_meeting);
    model_torn_line(&model, memory, cecl_splits_host, no_meeting);
    model_odd_line(&model, memory, cecl_splits_host, no_meeting);
}

/* A peer's words are not trusted: a rank writes no rows outside of the peer's slice. */
TEST(a_place_outside_of_a_slice_is_not_written)
{
    uint64_t x = 9;
    do
        model_draw(&x, 2, 8, &model, memory);
    while (model.trouble.what != CECL_SPLITS_FINE || model.form.send_rows == 0 ||
           model.form.scale_bytes > 0);
    model.recv_at[1] = MODEL_SLICE - model.form.recv_rows * model.form.row_bytes + 1;
    all_do(CECL_SPLITS_TELL);
    all_do(CECL_SPLITS_MOVE);
    for (size_t i = MODEL_TABLE; i < MODEL_SLICE; i++)
        assert_int_equal(memory->slices[1][i], MODEL_UNTOUCHED);
}

TEST(forms_out_of_range_are_refused)
{
    const struct cecl_splits_form fine = {
        .nranks = 4, .experts = 128, .align = 1, .send_rows = 1, .recv_rows = 1, .row_bytes = 1};
    struct cecl_splits_form form = fine;
    assert_int_equal(cecl_splits_check(&form), ceclSuccess);
    form.experts = 129;
    assert_int_equal(cecl_splits_check(&form), ceclInvalidArgument);
    form = fine;
    form.nranks = CECL_SPLITS_RANKS_MAX + 1;
    assert_int_equal(cecl_splits_check(&form), ceclInvalidArgument);
    form = fine;
    form.recv_rows = (uint64_t)CECL_SPLITS_ROWS_MAX + 1;
    assert_int_equal(cecl_splits_check(&form), ceclInvalidArgument);
    form = fine;
    form.align = 0;
    assert_int_equal(cecl_splits_check(&form), ceclInvalidArgument);
}

TESTS_BETWEEN(set_up, tear_down)
