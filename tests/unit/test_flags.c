/* One rank's flags in a pool of three ranks, all in this program's memory: the values that fill the cells of a plan,
 * how calls advance the epochs, and what the watchdog reads and releases. */
#include "host_fixture.h"

#include "ce/bound.h"
#include "comm/progress.h"

#define RANKS 3
#define RANK 1
#define SLICE ((size_t)1 << 20)
#define MAIN CECL_LANE_MAIN
#define SIDE CECL_LANE_SIDE
#define HALF 0x8000u /* half of a flag's cycle, in phases */

static struct cecl_pool pool;
static struct cecl_flags flags;

static void set_epochs(uint32_t main_lane, uint32_t side_lane)
{
    const uint32_t epochs[CECL_LANES] = {main_lane, side_lane};
    for (int lane = 0; lane < CECL_LANES; lane++) {
        flags.epoch[lane] = epochs[lane];
        flags.target[lane] = epochs[lane];
        for (int holder = 0; holder < RANKS; holder++)
            for (int writer = 0; writer < RANKS; writer++)
                *cecl_flags_word(&flags, holder, writer, lane) = cecl_flag_value(epochs[lane]);
    }
    flags.epoch[CECL_COUNTER_DONE] = main_lane;
    *flags.done = main_lane;
}

static int open_flags(void **state)
{
    if (set_up(state) != 0)
        return 1;
    pool = (struct cecl_pool){
        .dev = dev, .rank = RANK, .nranks = RANKS, .base = calloc(RANKS, SLICE), .slice = SLICE};
    flags = (struct cecl_flags){.dev = dev,
                                .pool = &pool,
                                .rank = RANK,
                                .nranks = RANKS,
                                .values_offset = 4096,
                                .pads_offset = SLICE - 65536,
                                .slices_offset = SLICE - 256};
    if (!pool.base || dev->ops->words_alloc(dev, 4 + CECL_LINES, &flags.done) != ceclSuccess)
        return 1;
    flags.late = flags.done + 1;
    flags.replay = flags.done + 2;
    cecl_lines_describe(&flags, flags.done + 4);
    cecl_flags_describe(&flags, pool.base + 256, SLICE);
    for (int lane = 0; lane < CECL_LANES; lane++)
        for (uint32_t i = 0; i < CECL_FLAG_VALUES; i++)
            *(uint32_t *)cecl_flags_source(&flags, lane, i) = cecl_flag_value(i);
    set_epochs(1000, 50);
    return 0;
}

static int close_flags(void **state)
{
    free(pool.base);
    cecl_flags_close(&flags);
    return tear_down(state);
}

/* Returns the value that a cell for `counter`, k steps ahead, gets. */
static uint32_t filled(uint32_t counter, uint32_t k)
{
    uint32_t words[3] = {7, 7, 7};
    const struct cecl_cell cell = {.at = &words[1],
                                   .scale = flags.counters[counter].unit,
                                   .k = k,
                                   .is_word = true,
                                   .counter = (uint8_t)counter};
    cecl_cells_fill(&cell, 1, flags.epoch, NULL);
    assert_int_equal(words[0], 7);
    assert_int_equal(words[2], 7);
    return words[1];
}

/* As `filled`, for a cell that gets the address of the value. */
static const uint32_t *filled_source(int lane, uint32_t phase)
{
    void *source = NULL;
    const struct cecl_cell cell = {.at = &source,
                                   .base = (uintptr_t)cecl_flags_source(&flags, lane, 0),
                                   .scale = sizeof(uint32_t),
                                   .k = phase,
                                   .mask = CECL_FLAG_VALUES - 1,
                                   .counter = (uint8_t)lane};
    cecl_cells_fill(&cell, 1, flags.epoch, NULL);
    return source;
}

static const struct cecl_advance two_phases = {.phases = {2, 1}};

TEST_BETWEEN(a_call_that_is_rolled_back_leaves_no_trace, open_flags, close_flags)
{
    const struct cecl_advance small = {.phases = {1, 0}, .small = true};
    const uint8_t turn = cecl_flags_half(&flags);
    cecl_flags_begin(&flags, &small);
    assert_false(cecl_flags_idle(&flags));
    cecl_flags_roll_back(&flags);
    assert_true(cecl_flags_idle(&flags));
    assert_int_equal(filled(CECL_COUNTER_DONE, 1), 1001);
    assert_int_equal(cecl_flags_half(&flags), turn);
    assert_int_equal(cecl_flags_mark_end(&flags).value, 1000);
}

static const struct cecl_advance without_phases = {.unsignalled = true};

TEST_BETWEEN(a_call_without_phases_moves_done_and_no_flag, open_flags, close_flags)
{
    cecl_flags_begin(&flags, &without_phases);
    assert_int_equal(cecl_advance_end(&without_phases), 1);
    assert_int_equal(filled(CECL_COUNTER_DONE, 1), 1001);
    assert_int_equal(cecl_flags_mark_end(&flags).value, 1001);
    cecl_flags_commit(&flags, &without_phases);
    assert_int_equal(cecl_flags_wait_last(&flags).value, 1001);
    assert_false(cecl_flags_idle(&flags));
    *flags.done = 1001;
    assert_true(cecl_flags_idle(&flags));
    assert_int_equal(filled(MAIN, 1), 1001u << 16); /* as before: peers need not make this call */
    assert_int_equal(filled(SIDE, 1), 51u << 16);
    assert_int_equal(filled(CECL_COUNTER_DONE, 1), 1002);
}

TEST_BETWEEN(flags_are_idle_when_done_has_come_to_the_last_call, open_flags, close_flags)
{
    set_epochs(UINT32_MAX, 0); /* the counters wrap around within the calls */
    assert_true(cecl_flags_idle(&flags));
    for (int i = 0; i < 2; i++) {
        cecl_flags_begin(&flags, &two_phases);
        cecl_flags_commit(&flags, &two_phases);
    }
    for (uint32_t done = UINT32_MAX; done != 3; done++) {
        *flags.done = done;
        assert_false(cecl_flags_idle(&flags));
    }
    *flags.done = 3;
    assert_true(cecl_flags_idle(&flags));
}

/* Simulates that this rank has signalled a phase of the call: the watchdog reads this rank's flag at rank 0. */
static void come_to(int lane, uint32_t phase)
{
    *cecl_flags_word(&flags, 0, RANK, lane) = cecl_flag_value(flags.epoch[lane] + phase);
}

static void hear_from(int peer, int lane, uint32_t phase)
{
    *cecl_flags_word(&flags, RANK, peer, lane) = cecl_flag_value(flags.epoch[lane] + phase);
}

static struct cecl_progress progress_now(void)
{
    struct cecl_progress progress;
    assert_int_equal(cecl_flags_progress(&flags, &progress), ceclSuccess);
    return progress;
}

/* rank -1: nobody is late */
static void only_this_is_late(int rank)
{
    const struct cecl_progress progress = progress_now();
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(cecl_rank_set_has(&progress.late, r), r == rank);
}

TEST_BETWEEN(a_call_that_told_nothing_waits_for_nobody, open_flags, close_flags)
{
    cecl_flags_begin(&flags, &two_phases);
    assert_false(progress_now().started);
    only_this_is_late(-1);
}

TEST_BETWEEN(peers_that_have_not_come_are_named, open_flags, close_flags)
{
    set_epochs(UINT32_MAX, 50); /* flags wrap around within the call */
    cecl_flags_begin(&flags, &two_phases);
    come_to(MAIN, 2);
    hear_from(0, MAIN, 2);
    hear_from(2, MAIN, 1);
    assert_true(progress_now().started);
    only_this_is_late(2);
}

TEST_BETWEEN(of_two_late_peers_the_one_further_behind_is_named, open_flags, close_flags)
{
    set_epochs(UINT32_MAX, 50);
    cecl_flags_begin(&flags, &two_phases);
    come_to(MAIN, 2);
    hear_from(0, MAIN, 1); /* rank 0 may itself be waiting for rank 2, so it is not late */
    hear_from(2, MAIN, 0);
    only_this_is_late(2);
}

TEST_BETWEEN(a_peer_whose_side_lane_stays_behind_is_late, open_flags, close_flags)
{
    cecl_flags_begin(&flags, &two_phases);
    come_to(MAIN, 1);
    come_to(SIDE, 1);
    for (int late = 0; late < RANKS; late += 2) {
        hear_from(late, MAIN, 1);
        hear_from(2 - late, MAIN, 1);
        hear_from(late, SIDE, 0);
        hear_from(2 - late, SIDE, 1);
        only_this_is_late(late);
    }
}

/* After 5 calls without phases `done` is ahead of the flags; still, a call with phases counts as in progress. */
TEST_BETWEEN(calls_without_phases_hide_no_late_peer, open_flags, close_flags)
{
    for (int i = 0; i < 5; i++) {
        cecl_flags_begin(&flags, &without_phases);
        cecl_flags_commit(&flags, &without_phases);
    }
    *flags.done = 1005;
    assert_false(progress_now().started);
    cecl_flags_begin(&flags, &two_phases);
    come_to(MAIN, 1);
    hear_from(0, MAIN, 1);
    assert_true(progress_now().started);
    only_this_is_late(2);
}

/* Begins the call and silences the flags: then no copy of the call's flags ends a wait. */
static void begin_and_silence(const struct cecl_advance *call)
{
    assert_true(cecl_flags_begin(&flags, call));
    assert_int_equal(cecl_flags_silence(&flags), ceclSuccess);
    for (int lane = 0; lane < CECL_LANES; lane++)
        for (uint32_t phase = 1; phase <= call->phases[lane]; phase++)
            assert_true((int32_t)(*filled_source(lane, phase) - filled((uint32_t)lane, phase)) < 0);
}

TEST_BETWEEN(silenced_copies_satisfy_no_wait_that_may_be_pending, open_flags, close_flags)
{
    begin_and_silence(&(struct cecl_advance){.phases = {300, 300}});
}

/* The table of flag values is a ring, and pending calls may lie on both sides of its end. */
TEST_BETWEEN(pending_calls_around_the_tables_end_are_silenced, open_flags, close_flags)
{
    const struct cecl_advance far = {.phases = {65400, 65300}};
    assert_true(cecl_flags_begin(&flags, &far));
    cecl_flags_commit(&flags, &far);
    *flags.done = flags.epoch[MAIN];
    begin_and_silence(&(struct cecl_advance){.phases = {300, 400}});
}

/* Another thread may try to begin a call after the watchdog has silenced the flags, and before it releases them. */
TEST_BETWEEN(no_call_begins_after_a_silence, open_flags, close_flags)
{
    const uint32_t main = flags.target[MAIN], side = flags.target[SIDE];
    assert_int_equal(cecl_flags_silence(&flags), ceclSuccess);
    assert_false(cecl_flags_begin(&flags, &two_phases));
    assert_int_equal(flags.target[MAIN], main);
    assert_int_equal(flags.target[SIDE], side);
}

/* Each call's own phases say how many of the side lane are pending: the second call here has none on that lane. */
TEST_BETWEEN(all_side_flags_of_pending_calls_are_silenced, open_flags, close_flags)
{
    const struct cecl_advance steep = {.phases = {2, 9}}, flat = {.phases = {5, 0}};
    cecl_flags_begin(&flags, &steep);
    cecl_flags_commit(&flags, &steep);
    cecl_flags_begin(&flags, &flat);
    assert_int_equal(cecl_flags_silence(&flags), ceclSuccess);
    for (uint32_t back = 0; back < 9; back++) {
        const uint32_t epoch = flags.epoch[SIDE] - back;
        assert_true((int32_t)(*(uint32_t *)cecl_flags_source(&flags, SIDE, epoch) -
                              cecl_flag_value(epoch)) < 0);
    }
}

/* To overwrite all 131,072 words by one stream memory operation each would take 0.1 s. */
TEST_BETWEEN(silence_leaves_values_that_no_pending_call_copies, open_flags, close_flags)
{
    cecl_flags_begin(&flags, &two_phases);
    assert_int_equal(cecl_flags_silence(&flags), ceclSuccess);
    for (int lane = 0; lane < CECL_LANES; lane++)
        for (uint32_t phase = 2000; phase < 60000; phase++)
            assert_int_equal(*filled_source(lane, phase), filled((uint32_t)lane, phase));
}

TEST_BETWEEN(flags_on_the_host_are_not_silenced, open_flags, close_flags)
{
    flags.on_host = true;
    assert_int_equal(cecl_flags_silence(&flags), ceclSuccess);
    assert_int_equal(*filled_source(MAIN, 1), filled(MAIN, 1));
}

/* A wait blocks while its value is later than the flag. Half of all values always are, so one release is too few. */
TEST_BETWEEN(repeated_releases_let_every_pending_wait_go, open_flags, close_flags)
{
    const struct cecl_advance many = {.phases = {2 * HALF - 1, 0}};
    static bool passed[2 * HALF];
    uint32_t left = 2 * HALF - 1;
    const uint32_t *flag = cecl_flags_word(&flags, RANK, 2, MAIN);
    cecl_flags_begin(&flags, &many);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cecl_flags_release(&flags), ceclSuccess);
        for (uint32_t phase = 1; phase < 2 * HALF; phase++)
            if (!passed[phase] && (int32_t)(*flag - filled(MAIN, phase)) >= 0) {
                passed[phase] = true;
                left--;
            }
        assert_true(i > 0 || left > 0); /* one release is not enough */
    }
    assert_int_equal(left, 0);
}

TEST_BETWEEN(a_release_touches_no_peers_row, open_flags, close_flags)
{
    assert_int_equal(cecl_flags_release(&flags), ceclSuccess);
    for (int writer = 0; writer < RANKS; writer++) {
        assert_int_not_equal(*cecl_flags_word(&flags, RANK, writer, MAIN), 1000u << 16);
        assert_int_equal(*cecl_flags_word(&flags, 0, writer, MAIN), 1000u << 16);
        assert_int_equal(*cecl_flags_word(&flags, 2, writer, SIDE), 50u << 16);
    }
}

TEST_BETWEEN(a_kernel_that_gave_up_tells_on_whom, open_flags, close_flags)
{
    assert_int_equal(cecl_flags_gave_up_on(&flags), -1);
    *flags.late = 3;
    assert_int_equal(cecl_flags_gave_up_on(&flags), 2);
}

TEST_BETWEEN(ending_the_pads_sets_one_word_of_them, open_flags, close_flags)
{
    const uint32_t *ended = cecl_pads_ended(&flags);
    const uint32_t *pads = cecl_pool_at(&pool, RANK, flags.pads_offset);
    memset(cecl_pool_at(&pool, RANK, flags.pads_offset), 0xff, cecl_pads_bytes(RANKS));
    assert_int_equal(cecl_pads_clear(&flags), ceclSuccess);
    assert_int_equal(cecl_pads_end(&flags), ceclSuccess);
    for (size_t i = 0; i < cecl_pads_bytes(RANKS) / sizeof(*pads); i++)
        assert_int_equal(pads[i], &pads[i] == ended);
    assert_ptr_equal(cecl_bound_meeting(&flags, MAIN).ended, ended);
}
