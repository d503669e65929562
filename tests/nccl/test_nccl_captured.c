/* test_nccl_captured [ROUNDS]: captured calls in NCCL's place, on the host device: which are served and which are
 * passed; the results of replays; graphs that not all ranks capture, or that outlive their communicator. CECL_NCCL_PATH
 * names the stand-in. */
#include <time.h>

#include "../with_cmocka.h"

#include "ranks.h"

#define COUNT 300u /* elements of a block */
#define RANKS 3
#define SOME 20 /* replays of most tests */

#ifdef __SANITIZE_THREAD__
static uint32_t rounds = 1000;
#else
static uint32_t rounds = 11500; /* 20,000 replays, and eager calls */
#endif

/* ---- one rank's buffers, and their expected contents */

struct data {
    uint32_t gather_in[COUNT], gather_out[RANKS * COUNT];
    uint32_t scatter_in[RANKS * COUNT], scatter_out[COUNT];
    uint32_t sum[COUNT];
};

static uint32_t element(uint32_t round, int rank, uint32_t i)
{
    return (round * 31u + (uint32_t)rank) * 2654435761u + i;
}

static void fill(struct data *d, const struct rank *r, uint32_t round)
{
    for (uint32_t i = 0; i < COUNT; i++)
        d->gather_in[i] = d->sum[i] = element(round, r->rank, i);
    for (uint32_t i = 0; i < (uint32_t)r->nranks * COUNT; i++)
        d->scatter_in[i] = element(round + 7, r->rank, i);
    memset(d->gather_out, 0xee, sizeof(d->gather_out));
    memset(d->scatter_out, 0xee, sizeof(d->scatter_out));
}

static bool has_gathered(const struct data *d, const struct rank *r, uint32_t round)
{
    bool is = true;
    for (uint32_t i = 0; i < (uint32_t)r->nranks * COUNT; i++)
        is = is && d->gather_out[i] == element(round, (int)(i / COUNT), i % COUNT);
    return is;
}

static bool has_reduced(const struct data *d, const struct rank *r, uint32_t round)
{
    bool is = true;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t all = 0, mine = 0;
        for (int rank = 0; rank < r->nranks; rank++) {
            all += element(round, rank, i);
            mine += element(round + 7, rank, (uint32_t)r->rank * COUNT + i);
        }
        is = is && d->sum[i] == all && d->scatter_out[i] == mine;
    }
    return is;
}

static bool gather(const struct rank *r, struct data *d, cudaStream_t on)
{
    return ncclAllGather(d->gather_in, d->gather_out, COUNT, ncclUint32, r->comm, on) == 0;
}

static bool reduce(const struct rank *r, struct data *d, cudaStream_t on)
{
    return ncclReduceScatter(d->scatter_in, d->scatter_out, COUNT, ncclUint32, ncclSum, r->comm,
                             on) == 0 &&
           ncclAllReduce(d->sum, d->sum, COUNT, ncclUint32, ncclSum, r->comm, on) == 0;
}

/* SERVED: cecl serves all calls that `make` captures; PASSED: some go to the stand-in; FAILED: a call is refused. */
enum course { SERVED, PASSED, FAILED };
static enum course capture(const struct rank *r, struct data *d, cudaStream_t on,
                           bool (*make)(const struct rank *, struct data *, cudaStream_t),
                           struct standin_graph **graph)
{
    STANDIN(standin_capture)(on);
    const bool is_made = make(r, d, on);
    *graph = STANDIN(standin_end_capture)(on);
    return !is_made || !*graph ? FAILED : STANDIN(standin_passed)(*graph) == 0 ? SERVED : PASSED;
}

static bool groups(const struct rank *r, struct data *d, cudaStream_t on)
{
    return ncclGroupStart() == 0 && gather(r, d, on) && reduce(r, d, on) && ncclGroupEnd() == 0;
}

static bool makes_all(const struct rank *r, struct data *d, cudaStream_t on)
{
    return gather(r, d, on) && reduce(r, d, on);
}

static bool replays_well(const struct rank *r, struct data *d, struct standin_graph *graph,
                         uint32_t round)
{
    fill(d, r, round);
    return STANDIN(standin_launch)(graph) == 0 && has_gathered(d, r, round) &&
           has_reduced(d, r, round);
}

struct scene {
    struct data d;
    cudaStream_t on;
    struct standin_graph *graph, *other;
};

static bool run_in_a_scene(struct rank *r, bool (*run)(struct rank *r, struct scene *s))
{
    struct scene s = {.on = STANDIN(standin_stream)()};
    const bool is = run(r, &s);
    STANDIN(standin_graph_free)(s.graph);
    STANDIN(standin_graph_free)(s.other);
    STANDIN(standin_stream_free)(s.on);
    return is;
}

#define TEST_OF_CAPTURES(policies, name, ...) \
    static bool name##_in(struct rank *r, struct scene *s); \
    TEST_OF_RANKS_UNDER(policies, name, __VA_ARGS__) \
    { \
        return run_in_a_scene(r, name##_in); \
    } \
    static bool name##_in(struct rank *r, struct scene *s)

static enum course captures(const struct rank *r, struct scene *s,
                            bool (*make)(const struct rank *, struct data *, cudaStream_t))
{
    return capture(r, &s->d, s->on, make, &s->graph);
}

static bool capture_both(struct rank *r, struct scene *s, enum course expected)
{
    bool is = captures(r, s, makes_all) == expected &&
              capture(r, &s->d, s->on, groups, &s->other) == expected;
    for (uint32_t round = 0; round < SOME && is; round++) {
        is = replays_well(r, &s->d, round % 3 == 0 ? s->other : s->graph, round);
        fill(&s->d, r, ~round); /* eager calls between replays */
        is = is && makes_all(r, &s->d, NULL) && has_gathered(&s->d, r, ~round) &&
             has_reduced(&s->d, r, ~round);
    }
    return is;
}

TEST_OF_CAPTURES("all strict", captured_calls_are_served_and_replay_with_eager_calls_between, RANKS)
{
    return capture_both(r, s, SERVED);
}

TEST_OF_CAPTURES("auto off", captured_calls_are_passed_and_replay, RANKS)
{
    return capture_both(r, s, PASSED);
}

TEST_OF_CAPTURES("all", every_byte_is_right_in_many_replays_of_two_graphs, 2)
{
    const cudaStream_t other = STANDIN(standin_stream)();
    bool is =
        captures(r, s, gather) == SERVED && capture(r, &s->d, other, reduce, &s->other) == SERVED;
    for (uint32_t round = 0; round < rounds && is; round++) {
        fill(&s->d, r, round);
        is = round % 8 == 7 ? gather(r, &s->d, NULL) : STANDIN(standin_launch)(s->graph) == 0;
        is = is &&
             (round % 8 == 3 ? reduce(r, &s->d, NULL) : STANDIN(standin_launch)(s->other) == 0) &&
             has_gathered(&s->d, r, round) && has_reduced(&s->d, r, round);
    }
    STANDIN(standin_stream_free)(other);
    return is;
}

/* ---- calls that one rank cannot capture */

/* cecl refuses these overlapping buffers; the stand-in accepts them. */
static bool gather_overlapping(const struct rank *r, struct data *d, cudaStream_t on)
{
    const uint32_t *in = r->rank == 1 ? d->gather_out + 5 : d->gather_in;
    return ncclAllGather(in, d->gather_out, COUNT, ncclUint32, r->comm, on) == 0;
}

static bool gather_overlapping_in_a_group(const struct rank *r, struct data *d, cudaStream_t on)
{
    return ncclGroupStart() == 0 && reduce(r, d, on) && gather_overlapping(r, d, on) &&
           ncclGroupEnd() == 0;
}

static bool is_passed_by_all(struct rank *r, struct scene *s,
                             bool (*make)(const struct rank *, struct data *, cudaStream_t))
{
    struct data *d = &s->d;
    bool is = captures(r, s, make) == PASSED;
    for (uint32_t round = 0; round < SOME && is; round++) {
        fill(d, r, round);
        if (r->rank == 1)
            memcpy(d->gather_out + 5, d->gather_in, sizeof(d->gather_in));
        is = STANDIN(standin_launch)(s->graph) == 0 && has_gathered(d, r, round);
    }
    return is && capture(r, d, s->on, makes_all, &s->other) == SERVED &&
           replays_well(r, d, s->other, 1);
}

TEST_OF_CAPTURES("all", all_ranks_pass_a_call_that_one_cannot_capture, RANKS)
{
    return is_passed_by_all(r, s, gather_overlapping);
}

TEST_OF_CAPTURES("all", all_ranks_pass_a_group_that_one_cannot_capture, RANKS)
{
    return is_passed_by_all(r, s, gather_overlapping_in_a_group);
}

TEST_OF_CAPTURES("strict", strict_refuses_on_all_ranks_what_one_cannot_capture, RANKS)
{
    return captures(r, s, gather_overlapping) == FAILED &&
           strstr(ncclGetLastError(r->comm), "cannot capture the call");
}

static bool pass_over_hosts(struct rank *r, struct scene *s)
{
    bool is = makes_all(r, &s->d, NULL) && captures(r, s, makes_all) == PASSED;
    for (uint32_t round = 0; round < SOME && is; round++)
        is = replays_well(r, &s->d, s->graph, round);
    return is;
}

static bool pass_over_hosts_in_a_scene(struct rank *r)
{
    return run_in_a_scene(r, pass_over_hosts);
}

TEST_UNDER("all", captured_calls_over_hosts_are_passed)
{
    setenv("CECL_NODE_SIZE", "2", 1);
    assert_true(run_ranks(3, pass_over_hosts_in_a_scene));
    unsetenv("CECL_NODE_SIZE");
}

static bool around(const struct rank *r, struct data *d, cudaStream_t on)
{
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    return ncclGroupStart() == 0 &&
           ncclSend(d->gather_in, COUNT, ncclUint32, next, r->comm, on) == 0 &&
           ncclRecv(d->scatter_out, COUNT, ncclUint32, before, r->comm, on) == 0 &&
           ncclGroupEnd() == 0;
}

static bool has_come(const struct data *d, const struct rank *r, uint32_t round)
{
    const int before = (r->rank + r->nranks - 1) % r->nranks;
    bool is = true;
    for (uint32_t i = 0; i < COUNT; i++)
        is = is && d->scatter_out[i] == element(round, before, i);
    return is;
}

static bool around_beside_a_gather(const struct rank *r, struct data *d, cudaStream_t on)
{
    return ncclGroupStart() == 0 && around(r, d, on) && gather(r, d, on) && ncclGroupEnd() == 0;
}

TEST_OF_CAPTURES("all", captured_messages_are_passed_and_replay_beside_served_calls, RANKS)
{
    struct data *d = &s->d;
    bool is = captures(r, s, around) == PASSED &&
              capture(r, d, s->on, around_beside_a_gather, &s->other) == PASSED &&
              STANDIN(standin_passed)(s->other) == 1; /* the messages' group, and not the gather */
    for (uint32_t round = 0; round < SOME && is; round++) {
        fill(d, r, round);
        is = STANDIN(standin_launch)(s->graph) == 0 && has_come(d, r, round);
        fill(d, r, ~round);
        is = is && STANDIN(standin_launch)(s->other) == 0 && has_come(d, r, ~round) &&
             has_gathered(d, r, ~round);
        fill(d, r, round + 1); /* eager messages are served between replays */
        is = is && around(r, d, NULL) && has_come(d, r, round + 1);
    }
    return is;
}

TEST_OF_CAPTURES("strict", strict_refuses_captured_messages, RANKS)
{
    return captures(r, s, around) == FAILED;
}

TEST_UNDER("all", one_thread_captures_the_calls_of_all_ranks_in_groups)
{
    enum { N = 3 };
    struct data d[N];
    struct rank r[N];
    ncclComm_t comms[N];
    const int devices[N] = {0, 1, 2};
    const cudaStream_t on = STANDIN(standin_stream)();
    assert_int_equal(ncclCommInitAll(comms, N, devices), 0);
    for (int i = 0; i < N; i++)
        r[i] = (struct rank){.rank = i, .nranks = N, .comm = comms[i]};
    STANDIN(standin_capture)(on);
    assert_int_equal(ncclGroupStart(), 0);
    for (int i = 0; i < N; i++)
        assert_true(makes_all(&r[i], &d[i], on));
    assert_int_equal(ncclGroupEnd(), 0);
    struct standin_graph *graph = STANDIN(standin_end_capture)(on);
    assert_int_equal(STANDIN(standin_passed)(graph), 0);
    for (uint32_t round = 0; round < SOME; round++) {
        for (int i = 0; i < N; i++)
            fill(&d[i], &r[i], round);
        assert_int_equal(STANDIN(standin_launch)(graph), 0);
        for (int i = 0; i < N; i++)
            assert_true(has_gathered(&d[i], &r[i], round) && has_reduced(&d[i], &r[i], round));
    }
    STANDIN(standin_graph_free)(graph);
    STANDIN(standin_stream_free)(on);
    for (int i = 0; i < N; i++)
        assert_int_equal(ncclCommDestroy(comms[i]), 0);
}

TEST_OF_CAPTURES("all", a_call_that_only_one_rank_captures_fails_on_all_soon, 2)
{
    const time_t begun = time(NULL);
    fill(&s->d, r, 1);
    const bool is_made = r->rank == 0 ? captures(r, s, gather) != FAILED : gather(r, &s->d, NULL);
    return !is_made && time(NULL) - begun < PROMPT &&
           strstr(ncclGetLastError(r->comm), r->rank == 0 ? "rank 1" : "rank 0");
}

TEST_OF_CAPTURES("all", calls_that_one_rank_lets_nccl_estimate_are_none, 2)
{
    bool is = true;
    if (r->rank == 0) {
        is = ncclGroupStart() == 0 && gather(r, &s->d, NULL) && ncclGroupSimulateEnd(NULL) == 0;
        usleep(100000); /* the other rank waits meanwhile, and checks what this one has done */
    }
    return is && captures(r, s, makes_all) == SERVED && replays_well(r, &s->d, s->graph, 2);
}

TEST_OF_CAPTURES("all", a_capture_ends_when_a_rank_aborts_instead_of_coming, 2)
{
    const time_t begun = time(NULL);
    if (r->rank == 0)
        return captures(r, s, gather) == FAILED && time(NULL) - begun < PROMPT;
    usleep(100000);
    const bool is = ncclCommAbort(r->comm) == 0;
    r->comm = NULL;
    return is;
}

TEST_OF_CAPTURES("all", a_graph_may_outlive_its_communicator_and_is_refused_then, 2)
{
    const time_t begun = time(NULL);
    const bool is = captures(r, s, makes_all) == SERVED && replays_well(r, &s->d, s->graph, 3) &&
                    ncclCommDestroy(r->comm) == 0;
    r->comm = NULL;
    return is && STANDIN(standin_launch)(s->graph) != 0 && time(NULL) - begun < PROMPT;
}

static bool broadcast(const struct rank *r, struct data *d, cudaStream_t on)
{
    return ncclBroadcast(d->gather_in, d->gather_in, COUNT, ncclUint32, 0, r->comm, on) == 0;
}

/* Between two ranks, the table serves gathers of this size, but no broadcasts. */
enum { LARGE = (512 << 10) / sizeof(uint32_t) };
static uint32_t large_in[2][LARGE], large_out[2][2 * LARGE];

static bool gather_large(const struct rank *r, struct data *d, cudaStream_t on)
{
    return ncclAllGather(large_in[r->rank], large_out[r->rank], LARGE, ncclUint32, r->comm, on) ==
           0;
}

static bool gather_then_broadcast(const struct rank *r, struct data *d, cudaStream_t on)
{
    return ncclGroupStart() == 0 && gather_large(r, d, on) && broadcast(r, d, on) &&
           ncclGroupEnd() == 0;
}

static bool replay_large(const struct rank *r, struct standin_graph *graph, uint32_t round)
{
    for (uint32_t i = 0; i < LARGE; i++)
        large_in[r->rank][i] = element(round, r->rank, i);
    bool is = STANDIN(standin_launch)(graph) == 0;
    for (uint32_t i = 0; i < 2 * LARGE; i++)
        is = is && large_out[r->rank][i] == element(round, (int)(i / LARGE), i % LARGE);
    return is;
}

TEST_OF_CAPTURES("auto", auto_serves_a_captured_call_as_the_table_says_and_a_group_whole, 2)
{
    bool is = captures(r, s, broadcast) == PASSED;
    STANDIN(standin_graph_free)(s->graph);
    is = captures(r, s, gather_large) == SERVED &&
         capture(r, &s->d, s->on, gather_then_broadcast, &s->other) == PASSED && is;
    for (uint32_t round = 0; round < SOME && is; round++)
        is = replay_large(r, round % 2 ? s->other : s->graph, round);
    return is;
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : rounds;
    return tests_run(NULL, NULL);
}
