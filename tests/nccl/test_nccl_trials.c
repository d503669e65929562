/* CECL_NCCL=auto with CECL_NCCL_TRIALS=1: after some steps cecl serves a program whose steps it makes shorter, and
 * results are always right. The test sets how long the stand-in for NCCL takes. */

#include "../with_cmocka.h"

#include "served.h"

enum { COUNT = 64, STEPS = 120, LAST = 10 };

/* The least time of a collective of the stand-in, far longer than cecl's. On a machine with much other work, a step
 * served by cecl takes 10 to 100 ms more now and then, and a verdict needs a clear difference. */
#define TAKES_US 30000

/* Calls that went to the stand-in in the last steps of a rank. */
static _Atomic int passed;

/* Runs the program on `nranks` ranks; a collective of the stand-in takes `takes_us`. Returns `passed`. */
static int passed_by(int nranks, bool (*program)(struct rank *), unsigned takes_us)
{
    passed = 0;
    STANDIN(standin_take_us)(takes_us);
    assert_true(run_ranks(nranks, program));
    return passed;
}

/* Defines a test. Each rank runs its body, which returns whether the rank succeeded. expected: what passed_by returns. */
#define TEST_PASSES(expected, name, nranks, takes_us) \
    static bool name##_on(struct rank *r); \
    TEST(name) \
    { \
        assert_int_equal(passed_by(nranks, name##_on, takes_us), expected); \
    } \
    static bool name##_on(struct rank *r)

/* Whether `name` was this thread's last call of the stand-in. Callers first make another call, so no older one counts. */
static bool came(const char *name)
{
    return strcmp(STANDIN(standin_last)().name, name) == 0;
}

static bool gather(struct rank *r, int32_t number, bool *was_passed)
{
    int32_t mine[COUNT], all[COUNT * MAX_RANKS];
    bool is = true;
    int count;
    for (int i = 0; i < COUNT; i++)
        mine[i] = number * 1000 + r->rank * 100 + i;
    memset(all, 0xff, sizeof(all));
    is = ncclCommCount(r->comm, &count) == 0; /* goes to the stand-in */
    is = ncclAllGather(mine, all, COUNT, ncclInt32, r->comm, NULL) == 0 && is;
    *was_passed = came("ncclAllGather");
    for (int i = 0; i < COUNT * r->nranks; i++)
        is = is && all[i] == number * 1000 + i / COUNT * 100 + i % COUNT;
    return is;
}

static bool reduce(struct rank *r, int32_t number, bool *was_passed)
{
    int32_t mine[COUNT], sum[COUNT];
    bool is = true;
    int count;
    for (int i = 0; i < COUNT; i++)
        mine[i] = number + r->rank * i;
    is = ncclCommCount(r->comm, &count) == 0;
    is = ncclAllReduce(mine, sum, COUNT, ncclInt32, ncclSum, r->comm, NULL) == 0 && is;
    *was_passed = came("ncclAllReduce");
    for (int i = 0; i < COUNT; i++)
        is = is && sum[i] == number * r->nranks + r->nranks * (r->nranks - 1) / 2 * i;
    return is;
}

/* NCCL has an old name for a broadcast in place (ncclBcast), which some ranks use here. */
static bool broadcast(struct rank *r, int32_t number)
{
    int32_t words[COUNT];
    bool is = true;
    for (int i = 0; i < COUNT; i++)
        words[i] = r->rank == 1 ? number + i : -1;
    if (r->rank == 0)
        is = ncclBcast(words, COUNT, ncclInt32, 1, r->comm, NULL) == 0;
    else
        is = ncclBroadcast(words, words, COUNT, ncclInt32, 1, r->comm, NULL) == 0;
    for (int i = 0; i < COUNT; i++)
        is = is && words[i] == number + i;
    return is;
}

static bool gather_two(struct rank *r, int32_t number)
{
    int32_t mine[2] = {number + r->rank, number - r->rank}, all[2][MAX_RANKS];
    bool is = ncclGroupStart() == 0;
    for (int i = 0; i < 2; i++)
        is = ncclAllGather(&mine[i], all[i], 1, ncclInt32, r->comm, NULL) == 0 && is;
    is = ncclGroupEnd() == 0 && is;
    for (int i = 0; i < r->nranks; i++)
        is = is && all[0][i] == number + i && all[1][i] == number - i;
    return is;
}

/* A maximum is always passed, because the results of the two libraries differ for NaNs. */
static bool find_largest(struct rank *r, int32_t number)
{
    int32_t mine = number + r->rank, largest = 0;
    int count;
    bool is = ncclCommCount(r->comm, &count) == 0;
    is = ncclAllReduce(&mine, &largest, 1, ncclInt32, ncclMax, r->comm, NULL) == 0 && is;
    return is && came("ncclAllReduce") && largest == number + r->nranks - 1;
}

/* Captures a call. The table has no sums of this type, so only a verdict can serve one. A maximum is always passed. */
static bool captures(const struct rank *r, ncclRedOp_t op, bool is_served)
{
    const cudaStream_t stream = STANDIN(standin_stream)();
    int32_t mine = r->rank, result = -1;
    STANDIN(standin_capture)(stream);
    bool is = ncclAllReduce(&mine, &result, 1, ncclInt32, op, r->comm, stream) == 0;
    struct standin_graph *graph = STANDIN(standin_end_capture)(stream);
    is = (STANDIN(standin_passed)(graph) == 0) == is_served &&
         STANDIN(standin_launch)(graph) == 0 && is;
    STANDIN(standin_graph_free)(graph);
    STANDIN(standin_stream_free)(stream);
    return is && result == (op == ncclSum ? r->nranks * (r->nranks - 1) / 2 : r->nranks - 1);
}

static bool take_step(struct rank *r, int step, bool was_passed[3])
{
    return gather(r, step, &was_passed[0]) && reduce(r, step, &was_passed[1]) &&
           gather(r, step + 7, &was_passed[2]) && gather_two(r, step) && broadcast(r, step) &&
           find_largest(r, step);
}

TEST_PASSES(0, a_program_that_gains_is_served_after_its_trial, 3, TAKES_US)
{
    bool is = captures(r, ncclSum, false), was_passed[3] = {false};
    for (int step = 0; step < STEPS && is; step++) {
        is = take_step(r, step, was_passed);
        for (int i = 0; i < 3 && step >= STEPS - LAST; i++)
            passed += was_passed[i];
    }
    return is && captures(r, ncclMax, false) && captures(r, ncclSum, true);
}

/* The sequence has no period. So the built-in table decides, and passes all its calls. */
TEST_PASSES(0, without_a_period_the_table_decides, 3, 0)
{
    bool is = true, was_passed = false;
    uint64_t word = 1;
    for (int i = 0; i < 400 && is; i++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        is = word >> 63 ? gather(r, i, &was_passed) : reduce(r, i, &was_passed);
        passed += !was_passed;
    }
    return is;
}

/* The least time of a collective of the stand-in, in tests in which a period is one call. */
#ifdef __SANITIZE_THREAD__
#define CALL_TAKES_US 20000
#else
#define CALL_TAKES_US 4000
#endif

/* As in nccl-tests, each size is called again and again: a period of one call. */
TEST_PASSES(0, each_size_of_a_benchmark_is_tried, 2, CALL_TAKES_US)
{
    enum { CALLS = 1100 };
    int32_t mine[COUNT], all[COUNT * MAX_RANKS];
    bool is = true;
    for (int count = COUNT / 4; count <= COUNT; count *= 2)
        for (int i = 0; i < CALLS && is; i++) {
            for (int k = 0; k < count; k++)
                mine[k] = i + k + r->rank * 1000;
            int unused;
            is = ncclCommCount(r->comm, &unused) == 0 &&
                 ncclAllGather(mine, all, (size_t)count, ncclInt32, r->comm, NULL) == 0;
            passed += i >= CALLS - LAST && came("ncclAllGather");
            for (int k = 0; k < count * r->nranks; k++)
                is = is && all[k] == i + k % count + k / count * 1000;
        }
    return is;
}

/* Makes gathers until cecl has its turn, and then reductions, for which three ranks have no row in the table. The first
 * reduction is the call that begins the next period, and is not counted. */
TEST_PASSES(3 * 99, a_turn_ends_with_its_period, 3, CALL_TAKES_US)
{
    enum { MOST_CALLS = 1000, OTHER_CALLS = 100 };
    bool is = true, was_passed = true;
    for (int i = 0; i < MOST_CALLS && was_passed && is; i++)
        is = gather(r, i, &was_passed);
    is = !was_passed && is;
    for (int i = 0; i < OTHER_CALLS && is; i++) {
        is = reduce(r, i, &was_passed);
        passed += was_passed && i > 0;
    }
    return is;
}

/* Half of the communicator's calls come after it was split; the child has a trial of its own. */
static bool train_both(struct rank *r)
{
    struct rank half = *r;
    bool is = ncclCommSplit(r->comm, r->rank % 2, r->rank, &half.comm, NULL) == 0, unused;
    half.rank = r->rank / 2;
    half.nranks = r->nranks / 2;
    for (int step = 0; step < STEPS && is; step++)
        is = gather(r, step, &unused) && gather(&half, step, &unused) && reduce(r, step, &unused) &&
             reduce(&half, step, &unused);
    return ncclCommDestroy(half.comm) == 0 && is;
}

static pthread_barrier_t together;

static bool captures_too; /* see change_steps */

static bool gather_hollow(const struct rank *r, size_t count, bool in_group)
{
    const int32_t mine[COUNT] = {0};
    int32_t all[COUNT * MAX_RANKS];
    bool is = !in_group || ncclGroupStart() == 0;
    is = ncclAllGather(mine, all, count, ncclInt32, r->comm, NULL) == 0 && is;
    return (!in_group || ncclGroupEnd() == 0) && is;
}

static bool capture_hollow(const struct rank *r)
{
    const cudaStream_t stream = STANDIN(standin_stream)();
    int32_t mine = 0, all[MAX_RANKS];
    STANDIN(standin_capture)(stream);
    const bool is = ncclAllGather(&mine, all, 1, ncclInt32, r->comm, stream) == 0;
    STANDIN(standin_graph_free)(STANDIN(standin_end_capture)(stream));
    STANDIN(standin_stream_free)(stream);
    return is;
}

/* The calls of hollow steps return at once, so the verdict is NCCL. Then the steps change. The table has nothing for
 * three ranks, so only another verdict can serve the new steps. captures_too: one rank makes the last hollow calls in
 * groups, and then all ranks capture a call that comes next in the steps. */
static bool change_steps(struct rank *r)
{
    /* FORGOTTEN: just fewer calls than it takes to forget a period. */
    enum { HOLLOW = 30000, GROUPS = 20, FORGOTTEN = 500, TOGETHER = 64, CALLS = 400 };
    bool is = true;
    STANDIN(standin_go_hollow)(true);
    for (int i = 0; i < HOLLOW + FORGOTTEN; i++) {
        if (captures_too && i == HOLLOW)
            is = capture_hollow(r) && is;
        const bool in_group = captures_too && r->rank == 1 && i >= HOLLOW - GROUPS && i < HOLLOW;
        is = gather_hollow(r, i < HOLLOW ? 1 : COUNT, in_group) && is;
        if (i % TOGETHER == 0)
            pthread_barrier_wait(&together);
    }
    is = is && came("ncclAllGather");
    STANDIN(standin_go_hollow)(false);
    for (int i = 0; i < CALLS && is; i++) {
        bool was_passed;
        is = gather(r, i, &was_passed);
        passed += i >= CALLS - LAST && was_passed;
    }
    return is;
}

TEST(steps_that_change_after_a_verdict_for_nccl_are_tried)
{
    pthread_barrier_init(&together, NULL, 3);
    assert_int_equal(passed_by(3, change_steps, CALL_TAKES_US), 0);
}

static bool estimate(struct rank *r)
{
    const int32_t mine[COUNT] = {0};
    int32_t all[COUNT * MAX_RANKS];
    return ncclGroupStart() == 0 &&
           ncclAllGather(mine, all, COUNT, ncclInt32, r->comm, NULL) == 0 &&
           ncclGroupSimulateEnd(NULL) == 0;
}

/* A group that is refused, because a communicator in it is not ready: its other rank never comes. */
static bool be_refused(struct rank *r)
{
    const int32_t mine[COUNT] = {0};
    int32_t all[COUNT * MAX_RANKS];
    struct config config;
    ncclUniqueId id;
    ncclComm_t early = NULL;
    bool is = ncclGetUniqueId(&id) == 0 &&
              ncclCommInitRankConfig(&early, 2, id, 0, non_blocking(&config)) == IN_PROGRESS &&
              ncclGroupStart() == 0 &&
              ncclAllGather(mine, all, COUNT, ncclInt32, r->comm, NULL) == 0 &&
              ncclAllGather(mine, all, COUNT, ncclInt32, early, NULL) != 0;
    is = ncclGroupEnd() != 0 && is;
    return ncclCommAbort(early) == 0 && is;
}

static bool (*only_here)(struct rank *r);

/* In the middle of the trial only one rank does something else. The table has nothing for three ranks. */
static bool differ_on_one_rank(struct rank *r)
{
    enum { BEGIN = 60, END = 70 };
    bool is = true, was_passed[2];
    for (int step = 0; step < STEPS && is; step++) {
        is = gather(r, step, &was_passed[0]) && reduce(r, step, &was_passed[1]);
        if (r->rank == 1 && step >= BEGIN && step < END)
            is = only_here(r) && is;
        passed += step >= STEPS - LAST ? was_passed[0] + was_passed[1] : 0;
    }
    return is;
}

static void expect_that_it_does_not_count(bool (*call)(struct rank *r))
{
    only_here = call;
    assert_int_equal(passed_by(3, differ_on_one_rank, TAKES_US), 0);
}

TEST(a_group_that_one_rank_only_simulates_does_not_count)
{
    expect_that_it_does_not_count(estimate);
}

TEST(a_group_that_is_refused_on_one_rank_does_not_count)
{
    expect_that_it_does_not_count(be_refused);
}

TEST(captured_calls_count_alike_on_ranks_with_and_without_groups)
{
    captures_too = true;
    steps_that_change_after_a_verdict_for_nccl_are_tried(state);
    captures_too = false;
}

TEST(communicators_are_tried_one_after_the_other)
{
    passed_by(4, train_both, 300);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return tests_run(NULL, NULL);
}
