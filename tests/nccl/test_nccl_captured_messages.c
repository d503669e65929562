/* Captured sends and receives in NCCL's place, on the host device: which are served and which are passed, the
 * results of replays, and messages that only one of their ranks captures.
 *
 * test_nccl_captured_messages POLICY [SEEDS] POLICY is CECL_NCCL's value, or `never`: all, with a short
 * CECL_TIMEOUT_MS; CECL_NCCL_PATH names the stand-in */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include "ranks.h"

#define RANKS 3
#define REPLAYS 3
#define WORDS 50u /* words of a message */

static struct standin_streams standin;
#ifdef __SANITIZE_THREAD__
static uint32_t seeds = 3;
#else
static uint32_t seeds = 5;
#endif

/* ---- one rank's messages: steps in the order in which the program makes them */

enum what { SEND, RECEIVE, GATHER, OPEN, CLOSE };
struct step {
    enum what what;
    int peer;
    uint32_t message; /* its number in the test; it also chooses the words */
};

#define MOST 96 /* messages or gathers of a test */
struct data {
    uint32_t in[MOST][WORDS], out[MOST][5 * WORDS];
};

static uint32_t word(uint32_t round, uint32_t message, int rank, uint32_t i)
{
    return (round * 97u + message * 31u + (uint32_t)rank) * 2654435761u + i;
}

static void fill(struct data *d, const struct rank *r, uint32_t round)
{
    memset(d->out, 0xee, sizeof(d->out));
    for (uint32_t m = 0; m < MOST; m++)
        for (uint32_t i = 0; i < WORDS; i++)
            d->in[m][i] = word(round, m, r->rank, i);
}

static bool make(const struct rank *r, struct data *d, const struct step *step, cudaStream_t on)
{
    const uint32_t m = step->message;
    switch (step->what) {
    case SEND: return ncclSend(d->in[m], WORDS, ncclUint32, step->peer, r->comm, on) == 0;
    case RECEIVE: return ncclRecv(d->out[m], WORDS, ncclUint32, step->peer, r->comm, on) == 0;
    case GATHER: return ncclAllGather(d->in[m], d->out[m], WORDS, ncclUint32, r->comm, on) == 0;
    case OPEN: return ncclGroupStart() == 0;
    default: return ncclGroupEnd() == 0;
    }
}

static bool make_all(const struct rank *r, struct data *d, const struct step *steps, int count,
                     cudaStream_t on)
{
    for (int i = 0; i < count; i++)
        if (!make(r, d, &steps[i], on))
            return false;
    return true;
}

/* Whether all words of `from` have come. */
static bool has_block(const uint32_t *at, uint32_t round, uint32_t message, int from)
{
    for (uint32_t i = 0; i < WORDS; i++)
        if (at[i] != word(round, message, from, i))
            return false;
    return true;
}

static bool has_all(const struct rank *r, const struct data *d, const struct step *steps, int count,
                    uint32_t round)
{
    bool is = true;
    for (int i = 0; i < count; i++) {
        const uint32_t m = steps[i].message;
        if (steps[i].what == RECEIVE)
            is = is && has_block(d->out[m], round, m, steps[i].peer);
        for (int from = 0; steps[i].what == GATHER && from < r->nranks; from++)
            is = is && has_block(d->out[m] + (uint32_t)from * WORDS, round, m, from);
    }
    return is;
}

/* What a captured program has in its graph: calls of cecl only, of the stand-in only, or of both. */
enum course { SERVED, PASSED, FAILED };

static enum course capture(const struct rank *r, struct data *d, const struct step *steps,
                           int count, cudaStream_t on, struct standin_graph **graph)
{
    standin.capture(on);
    const bool is_made = make_all(r, d, steps, count, on);
    *graph = standin.end_capture(on);
    return !is_made || !*graph ? FAILED : standin.passed(*graph) == 0 ? SERVED : PASSED;
}

/* Captures the steps, and replays them between eager calls of the same steps. */
static bool goes(const struct rank *r, const struct step *steps, int count, enum course expected)
{
    static _Thread_local struct data d;
    struct standin_graph *graph = NULL;
    const cudaStream_t on = standin.stream();
    bool is = capture(r, &d, steps, count, on, &graph) == expected;
    for (uint32_t round = 0; round < 2 * REPLAYS && is; round++) {
        fill(&d, r, round);
        is = round % 2 ? make_all(r, &d, steps, count, NULL) : standin.launch(graph) == 0;
        is = is && has_all(r, &d, steps, count, round);
    }
    standin.graph_free(graph);
    standin.stream_free(on);
    return is;
}

#define GOES(steps, expected) goes(r, steps, (int)(sizeof(steps) / sizeof(steps[0])), expected)

/* The steps of three ranks. */
#define GO_THREE(first, second, third, expected)                                                   \
    (r->rank == 0   ? GOES(first, expected)                                                        \
     : r->rank == 1 ? GOES(second, expected)                                                       \
                    : GOES(third, expected))

/* ---- served and passed */

static bool pass_along(const struct rank *r, enum course expected)
{
    const struct step first[] = {{SEND, 1, 0}}, second[] = {{RECEIVE, 0, 0}, {SEND, 2, 1}},
                      third[] = {{RECEIVE, 1, 1}};
    return GO_THREE(first, second, third, expected);
}

/* Each rank has a message to each rank, also to itself. */
static bool exchange(const struct rank *r, enum course expected)
{
    struct step steps[2 * RANKS + 3] = {{.what = OPEN}};
    int n = 1;
    for (int i = 0; i < RANKS; i++) {
        const int to = (r->rank + i) % RANKS;
        steps[n++] = (struct step){SEND, to, (uint32_t)(r->rank * RANKS + to)};
        steps[n++] = (struct step){RECEIVE, i, (uint32_t)(i * RANKS + r->rank)};
    }
    steps[n++] = (struct step){.what = CLOSE};
    return goes(r, steps, n, expected);
}

static bool serve(struct rank *r)
{
    return pass_along(r, SERVED) && exchange(r, SERVED);
}

static bool pass(struct rank *r)
{
    return pass_along(r, PASSED) && exchange(r, PASSED);
}

static void captured_messages_are_served_and_replay_with_eager_ones_between(void **state)
{
    assert_true(run_ranks(RANKS, serve));
}

static void captured_messages_are_passed_and_replay(void **state)
{
    assert_true(run_ranks(RANKS, pass));
}

/* Rank 1 has the message in a later group than the gather. */
static bool group_with_a_gather(struct rank *r)
{
    const struct step first[] = {{SEND, 1, 0},
                                 {.what = OPEN},
                                 {GATHER, 0, 1},
                                 {SEND, 1, 2},
                                 {.what = CLOSE}},
                      second[] = {{RECEIVE, 0, 0},
                                  {.what = OPEN},
                                  {GATHER, 0, 1},
                                  {.what = CLOSE},
                                  {RECEIVE, 0, 2}},
                      third[] = {{.what = OPEN}, {GATHER, 0, 1}, {.what = CLOSE}};
    return GO_THREE(first, second, third, SERVED);
}

static void messages_are_served_in_a_group_with_a_gather(void **state)
{
    assert_true(run_ranks(RANKS, group_with_a_gather));
}

/* Rank 2 sends to rank 1 only after rank 0 has gone on from its message to rank 1. */
static bool wait_for_one_peer(struct rank *r)
{
    const struct step first[] = {{SEND, 1, 0}, {SEND, 2, 1}},
                      second[] = {{.what = OPEN},
                                  {RECEIVE, 0, 0},
                                  {RECEIVE, 2, 2},
                                  {.what = CLOSE}},
                      third[] = {{RECEIVE, 0, 1}, {SEND, 1, 2}};
    return GO_THREE(first, second, third, SERVED);
}

static void a_rank_waits_for_the_peers_of_its_group_but_not_for_their_peers(void **state)
{
    assert_true(run_ranks(RANKS, wait_for_one_peer));
}

/* More messages than cecl captures in one group, and than a word of the agreement has bits. Rank 1 has them in
 * groups of other lengths. */
static bool group_many(struct rank *r)
{
    struct step steps[MOST * 2];
    int n = 0;
    for (uint32_t m = 0; m < MOST; m++) {
        if (r->rank == 0 ? m == 0 : m % 5 == 0)
            steps[n++] = (struct step){.what = OPEN};
        steps[n++] = (struct step){r->rank == 0 ? SEND : RECEIVE, 1 - r->rank, m};
        if (m == MOST - 1 || (r->rank == 1 && m % 5 == 4))
            steps[n++] = (struct step){.what = CLOSE};
    }
    return goes(r, steps, n, SERVED) && goes(r, steps, n, SERVED);
}

static void a_group_may_have_many_messages_to_one_rank(void **state)
{
    assert_true(run_ranks(2, group_many));
}

/* ---- random programs */

static uint32_t seed;

static uint32_t draw(uint32_t *random, uint32_t below)
{
    *random = *random * 1664525u + 1013904223u;
    return (*random >> 8) % below;
}

/* All ranks draw the same list of messages and gathers. Each makes its own part in this order, in groups that
 * it draws by itself. A gather begins a group, because NCCL makes a group's collectives first. */
static bool make_random(struct rank *r)
{
    struct step steps[3 * MOST];
    const uint32_t nranks = (uint32_t)r->nranks;
    uint32_t common = seed * 7919u, own = seed * 31u + (uint32_t)r->rank;
    int n = 0, is_open = 0;
    for (uint32_t m = 0; m < 24; m++) {
        const bool gathers = draw(&common, 6) == 0;
        const int from = (int)draw(&common, nranks),
                  to = (from + 1 + (int)draw(&common, nranks - 1)) % r->nranks;
        if (!gathers && r->rank != from && r->rank != to)
            continue;
        if (is_open && (gathers || draw(&own, 3) == 0)) {
            steps[n++] = (struct step){.what = CLOSE};
            is_open = 0;
        }
        if (!is_open && draw(&own, 2) == 0) {
            steps[n++] = (struct step){.what = OPEN};
            is_open = 1;
        }
        steps[n++] = gathers           ? (struct step){GATHER, 0, m}
                     : r->rank == from ? (struct step){SEND, to, m}
                                       : (struct step){RECEIVE, from, m};
    }
    if (is_open)
        steps[n++] = (struct step){.what = CLOSE};
    return goes(r, steps, n, SERVED);
}

static void random_groups_of_messages_and_gathers_are_served(void **state)
{
    for (seed = 1; seed <= seeds; seed++)
        if (!run_ranks(2 + (int)(seed % 4), make_random))
            fail_msg("seed %u", seed);
}

/* ---- messages that one rank cannot capture */

/* Rank 1 cannot capture its receives, because the streams of its group differ. The other ranks also have messages
 * with each other in their groups. */
static bool group_three(const struct rank *r, struct data *d, cudaStream_t on, cudaStream_t other)
{
    const int peer = 2 - r->rank;
    bool is = ncclGroupStart() == 0;
    if (r->rank == 1)
        is = is && ncclRecv(d->out[0], WORDS, ncclUint32, 0, r->comm, on) == 0 &&
             ncclRecv(d->out[1], WORDS, ncclUint32, 2, r->comm, other) == 0;
    else
        is = is && ncclSend(d->in[0], WORDS, ncclUint32, 1, r->comm, on) == 0 &&
             ncclSend(d->in[1], WORDS, ncclUint32, peer, r->comm, on) == 0 &&
             ncclRecv(d->out[1], WORDS, ncclUint32, peer, r->comm, on) == 0;
    return ncclGroupEnd() == 0 && is;
}

static bool has_three(const struct rank *r, const struct data *d, uint32_t round)
{
    return r->rank == 1 ? has_block(d->out[0], round, 0, 0) && has_block(d->out[1], round, 0, 2)
                        : has_block(d->out[1], round, 1, 2 - r->rank);
}

/* Captures the groups. Returns the graph only if all calls have succeeded; it then has the passed calls. */
static struct standin_graph *capture_three(const struct rank *r, struct data *d)
{
    const cudaStream_t on = standin.stream(), other = standin.stream();
    standin.capture(on);
    standin.capture(other);
    const bool is = group_three(r, d, on, other);
    struct standin_graph *graph = standin.end_capture(on);
    standin.graph_free(standin.end_capture(other));
    standin.stream_free(other);
    standin.stream_free(on);
    if (is)
        return graph;
    standin.graph_free(graph);
    return NULL;
}

static bool pass_what_rank_1_cannot(struct rank *r)
{
    static _Thread_local struct data d;
    struct standin_graph *graph = capture_three(r, &d);
    bool is = graph && standin.passed(graph) == 1;
    for (uint32_t round = 0; round < REPLAYS && is; round++) {
        fill(&d, r, round);
        is = standin.launch(graph) == 0 && has_three(r, &d, round);
    }
    standin.graph_free(graph);
    return is && pass_along(r, SERVED);
}

static void both_ranks_pass_a_message_that_one_cannot_capture(void **state)
{
    assert_true(run_ranks(RANKS, pass_what_rank_1_cannot));
}

static bool refuse_what_rank_1_cannot(struct rank *r)
{
    static _Thread_local struct data d;
    return !capture_three(r, &d) && strstr(ncclGetLastError(r->comm), "cannot capture the call") &&
           pass_along(r, SERVED);
}

static void strict_refuses_on_both_ranks_a_message_that_one_cannot_capture(void **state)
{
    assert_true(run_ranks(RANKS, refuse_what_rank_1_cannot));
}

/* Rank 0 sends to rank 2, which cannot capture it, and sends more to rank 1 than it captures at a time. */
static bool refuse_one_of_many(struct rank *r)
{
    static _Thread_local struct data d;
    const cudaStream_t on = standin.stream(), other = standin.stream();
    standin.capture(on);
    standin.capture(other);
    bool is = ncclGroupStart() == 0;
    if (r->rank == 0)
        is = is && ncclSend(d.in[0], WORDS, ncclUint32, 2, r->comm, on) == 0;
    if (r->rank == 2)
        is = is && ncclRecv(d.out[0], WORDS, ncclUint32, 0, r->comm, on) == 0 &&
             ncclSend(d.in[1], WORDS, ncclUint32, 2, r->comm, other) == 0 &&
             ncclRecv(d.out[1], WORDS, ncclUint32, 2, r->comm, other) == 0;
    for (uint32_t m = 2; m < 42 && is && r->rank < 2; m++)
        is = r->rank == 0 ? ncclSend(d.in[m], WORDS, ncclUint32, 1, r->comm, on) == 0
                          : ncclRecv(d.out[m], WORDS, ncclUint32, 0, r->comm, on) == 0;
    is = (ncclGroupEnd() == 0) == (r->rank == 1) && is;
    standin.graph_free(standin.end_capture(on));
    standin.graph_free(standin.end_capture(other));
    standin.stream_free(other);
    standin.stream_free(on);
    return is && pass_along(r, SERVED);
}

static void a_refused_message_does_not_keep_other_peers_waiting(void **state)
{
    assert_true(run_ranks(RANKS, refuse_one_of_many));
}

/* A group has a captured and an eager message between the same ranks. */
static bool mix(struct rank *r)
{
    static _Thread_local struct data d;
    const struct step captured = {r->rank == 0 ? SEND : RECEIVE, 1 - r->rank, 0},
                      eager = {captured.what, captured.peer, 1};
    const cudaStream_t on = standin.stream();
    fill(&d, r, 0);
    standin.capture(on);
    bool is = ncclGroupStart() == 0 && make(r, &d, &captured, on) && make(r, &d, &eager, NULL) &&
              ncclGroupEnd() == 0;
    struct standin_graph *graph = standin.end_capture(on);
    is = is && has_all(r, &d, &eager, 1, 0) && (r->rank == 0 || d.out[0][0] == 0xeeeeeeee);
    is = is && standin.launch(graph) == 0 && has_all(r, &d, &captured, 1, 0);
    standin.graph_free(graph);
    standin.stream_free(on);
    return is;
}

static void a_group_captures_only_what_is_on_a_captured_stream(void **state)
{
    assert_true(run_ranks(2, mix));
}

/* ---- one thread that has all ranks */

static bool has_passed_along(const struct data *d, uint32_t round)
{
    return has_block(d[1].out[0], round, 0, 0) && has_block(d[2].out[1], round, 1, 1);
}

/* The thread's ranks make their calls one after the other: all in one group, or each alone. */
static void capture_in_one_thread(bool is_grouped)
{
    static struct data d[RANKS];
    static const struct step steps[RANKS][2] = {
        {{SEND, 1, 0}}, {{RECEIVE, 0, 0}, {SEND, 2, 1}}, {{RECEIVE, 1, 1}}};
    static const int counts[RANKS] = {1, 2, 1}, devices[RANKS] = {0, 1, 2};
    struct rank r[RANKS];
    ncclComm_t comms[RANKS];
    const cudaStream_t on = standin.stream();
    assert_int_equal(ncclCommInitAll(comms, RANKS, devices), 0);
    standin.capture(on);
    assert_true(!is_grouped || ncclGroupStart() == 0);
    for (int i = 0; i < RANKS; i++) {
        r[i] = (struct rank){.rank = i, .nranks = RANKS, .comm = comms[i]};
        assert_true(make_all(&r[i], &d[i], steps[i], counts[i], on));
    }
    assert_true(!is_grouped || ncclGroupEnd() == 0);
    struct standin_graph *graph = standin.end_capture(on);
    assert_int_equal(standin.passed(graph), is_grouped ? 0 : 4);
    for (uint32_t round = 0; round < REPLAYS && is_grouped; round++) {
        for (int i = 0; i < RANKS; i++)
            fill(&d[i], &r[i], round);
        assert_int_equal(standin.launch(graph), 0);
        assert_true(has_passed_along(d, round));
    }
    standin.graph_free(graph);
    standin.stream_free(on);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(ncclCommDestroy(comms[i]), 0);
}

static void one_thread_captures_the_messages_of_all_ranks_in_a_group(void **state)
{
    capture_in_one_thread(true);
}

static void messages_of_a_thread_with_several_ranks_are_passed_outside_of_groups(void **state)
{
    capture_in_one_thread(false);
}

/* The ranks were made in one thread, and then have their own. Rank 1 makes its second message outside of a group, and
 * rank 0 in one: both pass it, and all later ones in this direction. */
static void *make_alone_once(void *argument)
{
    struct rank *r = argument;
    static _Thread_local struct data d;
    struct step steps[3 * 4 + 1];
    int n = 0;
    for (uint32_t m = 0; m < 4; m++) {
        const bool is_alone = r->rank == 1 && m == 1;
        if (!is_alone)
            steps[n++] = (struct step){.what = OPEN};
        const bool sends = r->rank == (m == 3); /* the last one goes in the other direction */
        steps[n++] = (struct step){sends ? SEND : RECEIVE, 1 - r->rank, m};
        if (!is_alone)
            steps[n++] = (struct step){.what = CLOSE};
    }
    struct standin_graph *graph = NULL;
    const cudaStream_t on = standin.stream();
    r->is_right = capture(r, &d, steps, n, on, &graph) == PASSED && standin.passed(graph) == 2;
    for (uint32_t round = 0; round < REPLAYS && r->is_right; round++) {
        fill(&d, r, round);
        r->is_right = standin.launch(graph) == 0 && has_all(r, &d, steps, n, round);
    }
    standin.graph_free(graph);
    standin.stream_free(on);
    return NULL;
}

static void a_message_in_a_group_on_one_rank_only_is_passed_if_the_other_cannot_wait(void **state)
{
    static const int devices[2] = {0, 1};
    struct rank r[2];
    ncclComm_t comms[2];
    pthread_t thread;
    assert_int_equal(ncclCommInitAll(comms, 2, devices), 0);
    for (int i = 0; i < 2; i++)
        r[i] = (struct rank){.rank = i, .nranks = 2, .comm = comms[i]};
    assert_int_equal(pthread_create(&thread, NULL, make_alone_once, &r[1]), 0);
    (void)make_alone_once(&r[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(r[0].is_right && r[1].is_right);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ncclCommDestroy(comms[i]), 0);
}

/* ---- errors */

static _Atomic int finished;

/* Rank 0 captures its end; rank 1 makes its end eagerly, or ends, or does nothing. */
enum instead { EAGERLY, ENDS, NOTHING };
static enum instead instead;

static bool capture_alone(struct rank *r)
{
    static _Thread_local struct data d;
    const struct step mine = {r->rank == 0 ? SEND : RECEIVE, 1 - r->rank, 0};
    const time_t begun = time(NULL);
    const cudaStream_t on = standin.stream();
    struct standin_graph *graph = NULL;
    bool is = true;
    if (r->rank == 0) {
        const char *said = NULL;
        is = capture(r, &d, &mine, 1, on, &graph) == FAILED;
        said = ncclGetLastError(r->comm);
        is = is && strstr(said, "a graph captures a message on rank 0") && strstr(said, "rank 1");
        standin.graph_free(graph);
        finished++;
    } else if (instead == EAGERLY)
        is = !make_all(r, &d, &mine, 1, NULL);
    else if (instead == ENDS) {
        is = ncclCommAbort(r->comm) == 0;
        r->comm = NULL;
    }
    while (instead == NOTHING && finished == 0)
        usleep(1000);
    standin.stream_free(on);
    return is && time(NULL) - begun < PROMPT;
}

static void fails_soon(enum instead how)
{
    finished = 0;
    instead = how;
    assert_true(run_ranks(2, capture_alone));
}

static void a_message_that_only_one_rank_captures_fails_on_both_soon(void **state)
{
    fails_soon(EAGERLY);
}

static void a_captured_message_fails_soon_if_its_peer_ends(void **state)
{
    fails_soon(ENDS);
}

static void a_captured_message_waits_for_its_peer_as_long_as_the_timeout(void **state)
{
    fails_soon(NOTHING);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(captured_messages_are_served_and_replay_with_eager_ones_between),
        cmocka_unit_test(messages_are_served_in_a_group_with_a_gather),
        cmocka_unit_test(a_rank_waits_for_the_peers_of_its_group_but_not_for_their_peers),
        cmocka_unit_test(a_group_may_have_many_messages_to_one_rank),
        cmocka_unit_test(random_groups_of_messages_and_gathers_are_served),
        cmocka_unit_test(both_ranks_pass_a_message_that_one_cannot_capture),
        cmocka_unit_test(a_group_captures_only_what_is_on_a_captured_stream),
        cmocka_unit_test(one_thread_captures_the_messages_of_all_ranks_in_a_group),
        cmocka_unit_test(messages_of_a_thread_with_several_ranks_are_passed_outside_of_groups),
        cmocka_unit_test(a_message_in_a_group_on_one_rank_only_is_passed_if_the_other_cannot_wait),
        cmocka_unit_test(a_message_that_only_one_rank_captures_fails_on_both_soon),
        cmocka_unit_test(a_captured_message_fails_soon_if_its_peer_ends),
    };
    const struct CMUnitTest strict[] = {
        cmocka_unit_test(captured_messages_are_served_and_replay_with_eager_ones_between),
        cmocka_unit_test(strict_refuses_on_both_ranks_a_message_that_one_cannot_capture),
        cmocka_unit_test(a_refused_message_does_not_keep_other_peers_waiting),
    };
    const struct CMUnitTest never[] = {
        cmocka_unit_test(a_captured_message_waits_for_its_peer_as_long_as_the_timeout),
    };
    const struct CMUnitTest others[] = {cmocka_unit_test(captured_messages_are_passed_and_replay)};
    standin = find_streams();
    if (argc < 2 || !standin.stream) {
        print_error("test_nccl_captured_messages POLICY [SEEDS], and CECL_NCCL_PATH\n");
        return 2;
    }
    seeds = argc > 2 ? (uint32_t)atoi(argv[2]) : seeds;
    return strcmp(argv[1], "all") == 0      ? cmocka_run_group_tests(all, NULL, NULL)
           : strcmp(argv[1], "strict") == 0 ? cmocka_run_group_tests(strict, NULL, NULL)
           : strcmp(argv[1], "never") == 0  ? cmocka_run_group_tests(never, NULL, NULL)
                                            : cmocka_run_group_tests(others, NULL, NULL);
}
