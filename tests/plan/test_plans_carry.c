/* Future kinds of calls need no lowering: this file builds plans by hand, with its own counters, and runs
 * them through the verifier and on the host device. A put, a copy whose size is a cell, and a plan of fixed
 * cells that runs repeatedly, as a captured call does. */
#include "plans.h"

#include "ce/bound.h"
#include "comm/comm.h"

#define RANKS 2
#include "../unit/comms.h"

#define BYTES 8
#define REPLAYS 1000

/* Rows that this file adds to the table: the words of all ranks lie next to each other. */
enum { OPENED = CECL_COUNTERS, PUT, TURN_A, TURN_B, NCOUNTERS = TURN_B - CECL_COUNTERS + 1 };
static uint32_t words[CECL_COUNTERS_MAX][RANKS][RANKS];

static void add_counters(void)
{
    memset(words, 0, sizeof(words));
    for (int r = 0; r < RANKS; r++)
        for (int c = OPENED; c <= TURN_B; c++) {
            comms[r]->engine.flags.epoch[c] = 0;
            comms[r]->engine.flags.counters[c] = (struct cecl_counter){
                .words = (char *)words[c],
                .apart = sizeof(words[c][0]),
                .unit = 1,
                .replay = c >= TURN_A ? CECL_REPLAY_RESET : CECL_REPLAY_NEVER};
        }
}

static struct cecl_plan empty_plan(int rank, int nranks)
{
    const struct cecl_part part = {.call = {.rank = rank, .nranks = nranks}};
    struct cecl_plan plan;
    cecl_plan_init(&plan, &part);
    return plan;
}

static void bind_ends(int rank, const struct cecl_plan *plan, const struct cecl_ends *ends,
                      struct cecl_bound *bound)
{
    *bound = (struct cecl_bound){.ends = ends};
    assert_int_equal(cecl_bound_reserve(bound, plan), ceclSuccess);
    assert_int_equal(cecl_bind_plan(&comms[rank]->engine, plan, bound), ceclSuccess);
}

/* ---- a put: rank 1 opens its memory, rank 0 writes there and signals, and rank 1 waits */

/* `given`: as in struct cecl_copy. */
static void make_put(struct cecl_plan plans[2], uint32_t given)
{
    const struct cecl_copy copy = {.src = {.area = CECL_AREA_SEND},
                                   .dst = {.area = CECL_AREA_RECV, .rank = 1},
                                   .bytes = BYTES,
                                   .rows = 1,
                                   .given = given};
    for (int r = 0; r < 2; r++)
        plans[r] = empty_plan(r, 2);
    cecl_plan_await(&plans[0], 1, OPENED, 1);
    cecl_plan_copy_rows(&plans[0], &copy);
    cecl_plan_raise(&plans[0], 1, PUT, 1);
    cecl_plan_raise(&plans[1], 0, OPENED, 1);
    cecl_plan_await(&plans[1], 0, PUT, 1);
    for (int r = 0; r < 2; r++)
        assert_int_equal(cecl_plan_finish(&plans[r]), ceclSuccess);
}

static ceclResult_t verify_put(const struct cecl_plan plans[2], uint32_t bytes)
{
    const uint32_t first = 0;
    const uint64_t given = bytes;
    const struct cecl_verify_message message = {.to = 1, .bytes = BYTES, .moved = bytes};
    struct cecl_verify_launch launches[2];
    struct cecl_verify_program program = {
        .nranks = 2, .messages = &message, .nmessages = 1, .ncounters = NCOUNTERS};
    for (int r = 0; r < 2; r++) {
        launches[r] = (struct cecl_verify_launch){
            .call = -1, .plan = &plans[r], .messages = &first, .nmessages = 1, .given = &given};
        program.launches[r] = &launches[r];
        program.nlaunches[r] = 1;
    }
    return cecl_verify_program(&program);
}

static void free_put(struct cecl_plan plans[2])
{
    for (int r = 0; r < 2; r++)
        cecl_plan_free(&plans[r]);
}

TEST(a_put_is_right)
{
    struct cecl_plan plans[2];
    make_put(plans, 0);
    if (verify_put(plans, BYTES) != ceclSuccess)
        fail_msg("%s", cecl_message());
    free_put(plans);
}

/* Drops the first step of rank 0's plan, or the last step of a rank's plan. */
static void expect_without(int rank, bool first, const char *words_of_fault)
{
    struct cecl_plan plans[2];
    make_put(plans, 0);
    if (first)
        memmove(plans[rank].steps, plans[rank].steps + 1,
                (plans[rank].nsteps - 1) * sizeof(struct cecl_step));
    plans[rank].nsteps--;
    assert_int_equal(verify_put(plans, BYTES), ceclInternalError);
    if (!strstr(cecl_message(), words_of_fault))
        fail_msg("%s", cecl_message());
    free_put(plans);
}

TEST(a_put_that_lacks_a_step_is_found)
{
    expect_without(0, true, "race");      /* writes before rank 1's memory is open */
    expect_without(0, false, "deadlock"); /* the signal is missing */
    expect_without(1, true, "deadlock");
    expect_without(1, false, "race"); /* reads too early */
}

TEST(each_signal_has_its_one_wait)
{
    static const char *const faults[] = {"no wait for the signal of rank 0 to rank 1",
                                         "a second wait for one signal"};
    for (int i = 0; i < 2; i++) {
        struct cecl_plan plans[2];
        make_put(plans, 0);
        if (i == 0)
            cecl_plan_raise(&plans[0], 1, PUT, 2);
        else
            cecl_plan_await(&plans[1], 0, PUT, 1);
        assert_int_equal(verify_put(plans, BYTES), ceclInternalError);
        assert_non_null(strstr(cecl_message(), faults[i]));
        free_put(plans);
    }
}

/* Binds the plans once. From put to put, counters have other values, and so do the given sizes. sizes NULL:
 * no given sizes. */
static void put_again_and_again(const struct cecl_plan plans[2], const uint64_t *sizes)
{
    char from[BYTES], to[BYTES];
    const struct cecl_ends ends[2] = {{from, to}, {to, from}};
    struct cecl_bound bound[2];
    add_counters();
    for (int r = 0; r < 2; r++)
        bind_ends(r, &plans[r], &ends[r], &bound[r]);
    for (int round = 0; round < 100; round++) {
        const size_t bytes = sizes ? (size_t)sizes[round % BYTES] : BYTES;
        const struct cecl_capture none = {0};
        bool started;
        memset(from, round + 1, sizeof(from));
        memset(to, 0, sizeof(to));
        for (int i = 0; i < 2; i++) {
            const int r = (round + i) % 2; /* alternates which rank comes first */
            bound[r].given = sizes ? &sizes[round % BYTES] : NULL;
            OK(cecl_engine_run(&comms[r]->engine, &bound[r], NULL, &none, &started));
            comms[r]->engine.flags.epoch[OPENED]++;
            comms[r]->engine.flags.epoch[PUT]++;
        }
        for (int r = 0; r < 2; r++)
            OK(ceclStreamSynchronize(comms[r], NULL));
        for (size_t b = 0; b < BYTES; b++)
            assert_int_equal(to[b], b < bytes ? round + 1 : 0);
    }
    for (int r = 0; r < 2; r++)
        free(bound[r].memory);
}

TEST(a_put_arrives_on_the_host_device)
{
    struct cecl_plan plans[2];
    make_put(plans, 0);
    put_again_and_again(plans, NULL);
    free_put(plans);
}

/* ---- a copy whose size is a cell */

TEST(a_size_that_is_given_late_is_right)
{
    struct cecl_plan plans[2];
    make_put(plans, 1);
    for (uint32_t bytes = 1; bytes <= BYTES; bytes++)
        assert_int_equal(verify_put(plans, bytes), ceclSuccess);
    assert_int_equal(verify_put(plans, BYTES + 1), ceclInternalError);
    free_put(plans);
}

TEST(bytes_that_are_given_late_arrive_on_the_host_device)
{
    static const uint64_t sizes[BYTES] = {3, 8, 1, 2, 7, 4, 6, 5};
    struct cecl_plan plans[2];
    make_put(plans, 1);
    put_again_and_again(plans, sizes);
    free_put(plans);
}

/* ---- a plan of fixed cells: an in-place all-gather, whose two barriers alternate between words */

static void add_barrier(struct cecl_plan *plan, uint32_t counter)
{
    const int n = plan->part.call.nranks;
    for (int i = 1; i < n; i++)
        cecl_plan_raise(plan, (plan->part.call.rank + i) % n, counter, 1);
    cecl_plan_wait_all(plan, counter, 1);
}

static struct cecl_plan make_gather(int rank, int nranks, uint32_t first, uint32_t last)
{
    struct cecl_part part = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, BYTES);
    const struct cecl_place own = {
        .area = CECL_AREA_RECV, .rank = (uint16_t)rank, .offset = (uint64_t)rank * BYTES};
    struct cecl_plan plan;
    part.call.rank = rank;
    part.call.nranks = nranks;
    cecl_plan_init(&plan, &part);
    add_barrier(&plan, first);
    for (int i = 1; i < nranks; i++) {
        struct cecl_place there = own;
        there.rank = (uint16_t)((rank + i) % nranks);
        cecl_plan_copy(&plan, there, own, BYTES);
    }
    add_barrier(&plan, last);
    assert_int_equal(cecl_plan_finish(&plan), ceclSuccess);
    return plan;
}

/* Repeats the same plans several times. */
static ceclResult_t verify_replays(int nranks, uint32_t first, uint32_t last)
{
    enum { TIMES = 4 };
    struct cecl_verify_launch launches[TIMES];
    struct cecl_plan *plans = calloc((size_t)(TIMES * nranks), sizeof(*plans));
    struct cecl_verify_program program = {.nranks = nranks,
                                          .plans = plans,
                                          .ncalls = TIMES,
                                          .ncounters = NCOUNTERS,
                                          .resets = 1u << TURN_A | 1u << TURN_B};
    assert_non_null(plans);
    for (int i = 0; i < TIMES; i++)
        launches[i] = (struct cecl_verify_launch){.call = i};
    for (int r = 0; r < nranks; r++) {
        program.launches[r] = launches;
        program.nlaunches[r] = TIMES;
        for (int i = 0; i < TIMES; i++)
            plans[i * nranks + r] = make_gather(r, nranks, first, last);
    }
    const ceclResult_t result = cecl_verify_program(&program);
    free_plans(plans, TIMES * nranks);
    return result;
}

TEST(words_that_take_turns_serve_every_replay)
{
    for (int n = 2; n <= 5; n++)
        if (verify_replays(n, TURN_A, TURN_B) != ceclSuccess)
            fail_msg("%d ranks: %s", n, cecl_message());
}

/* With one word for both barriers, a peer may signal the word again before it is reset. */
TEST(one_word_for_two_phases_is_found)
{
    for (int n = 2; n <= 5; n++) {
        assert_int_equal(verify_replays(n, TURN_A, TURN_A), ceclInternalError);
        if (!strstr(cecl_message(), "reset") && !strstr(cecl_message(), "does not grow"))
            fail_msg("%s", cecl_message());
    }
}

static char buffers[RANKS][RANKS * BYTES], inputs[RANKS][REPLAYS][BYTES],
    outputs[RANKS][REPLAYS][RANKS * BYTES];

/* Enqueues all replays of a rank, each with new input, and keeps a copy of each output. */
static void replay(int r, const struct cecl_bound *bound, ceclStream_t stream)
{
    struct cecl_device *dev = comms[r]->dev;
    for (int i = 0; i < REPLAYS; i++) {
        OK(dev->ops->memcpy_async(dev, buffers[r] + r * BYTES, inputs[r][i], BYTES, stream));
        OK(cecl_bound_issue(&comms[r]->engine, bound, stream, false));
        OK(dev->ops->memcpy_async(dev, outputs[r][i], buffers[r], RANKS * BYTES, stream));
    }
}

TEST(fixed_cells_run_a_thousand_times_on_the_host_device)
{
    struct cecl_plan plans[RANKS];
    struct cecl_bound bound[RANKS];
    ceclStream_t streams[RANKS];
    add_counters();
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < REPLAYS; i++)
            memset(inputs[r][i], i * RANKS + r, BYTES);
    for (int r = 0; r < RANKS; r++) {
        const struct cecl_ends ends = {buffers[r], buffers[1 - r]};
        struct cecl_flags *flags = &comms[r]->engine.flags;
        plans[r] = make_gather(r, RANKS, TURN_A, TURN_B);
        bind_ends(r, &plans[r], &ends, &bound[r]);
        OK(ceclStreamCreate(comms[r], &streams[r]));
        assert_true(cecl_flags_begin(flags, &bound[r].advance));
        cecl_cells_fill(bound[r].cells, bound[r].ncells, flags->epoch, NULL); /* only once */
        replay(r, &bound[r], streams[r]);
        cecl_flags_commit(flags, &bound[r].advance);
    }
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamSynchronize(comms[r], streams[r]));
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < REPLAYS; i++)
            for (int from = 0; from < RANKS; from++)
                assert_memory_equal(outputs[r][i] + from * BYTES, inputs[from][i], BYTES);
        OK(ceclStreamDestroy(comms[r], streams[r]));
        cecl_plan_free(&plans[r]);
        free(bound[r].memory);
    }
}

int main(void)
{
    return tests_run(open_all, close_all);
}
