/* Seeded programs without a period. Their classes of calls are tried: which arms are kept, and
 * that all ranks agree. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../share.h"

#include "learn/classes.h"
#include "world.h"

enum {
    MOST_CLASSES = 64,
    CALLS = 40000,
    MOST_CALLS = 100000,
    OTHER_ARM = 2,
    ARMS = 1 | 1 << OTHER_ARM
};

/* Calls of `nclasses` classes, drawn by weight, in an order without a period. */
struct server {
    uint64_t seed;
    int nranks, nclasses;
    /* gain: relative gain of the other arm */
    double weight[MOST_CLASSES], gain[MOST_CLASSES], noise, drift;
    double lost;    /* fraction of times that are lost */
    double hiccups; /* fraction of calls that take ten times as long */
    uint32_t ahead; /* most calls by which one host is ahead of another */
    bool is_apart;  /* the first host is ahead by `ahead` whenever possible */
    uint32_t lag;   /* most boundaries by which a rank's GPU is behind its host */
    uint32_t calls;
};

struct timed {
    uint32_t number, due;
    int slot;
    double ns; /* 0: lost */
};

struct host {
    struct cecl_classes classes;
    struct cecl_trial trial;
    struct timed pending[MOST_PENDING];
    uint32_t npending, call;
    bool is_busy; /* the process tries another communicator */
    double last;  /* end of the last boundary's call */
};

static struct {
    struct server server;
    struct host hosts[MOST_RANKS];
    unsigned char its[MOST_CALLS]; /* class of each call */
    bool may_bound[MOST_CALLS];    /* false for later calls of a group */
    double ns[MOST_CALLS];         /* time of a call with arm 0 */
    signed char arms[MOST_CALLS];  /* arm on the first rank that made the call; -1: none yet */
    bool came[MOST_CALLS];
    int disagree;
    int running,
        other; /* on the first host: calls of a class while it is tried; by turns of the other arm */
} world;

static bool reserve(void *context, uint64_t id)
{
    (void)id;
    return !((struct host *)context)->is_busy;
}
static void release(void *context, uint64_t id)
{
    (void)context;
    (void)id;
}
static int recall(void *context, uint64_t subject)
{
    (void)context;
    (void)subject;
    return -1;
}

/* Approximately standard normal. */
static double normal(uint64_t *seed)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform(seed, 0, 1);
    return sum;
}

static int draw_class(struct server *server)
{
    double sum = 0;
    for (int c = 0; c < server->nclasses; c++)
        sum += server->weight[c];
    double at = uniform(&server->seed, 0, sum);
    int c = 0;
    while (c < server->nclasses - 1 && at >= server->weight[c])
        at -= server->weight[c++];
    return c;
}

static void publish_due(struct host *host)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < host->npending; i++) {
        const struct timed pending = host->pending[i];
        if (pending.due > host->classes.calls / CECL_CLASS_EVERY)
            host->pending[left++] = pending;
        else
            cecl_trial_publish(&host->trial, pending.number, pending.slot, (uint64_t)pending.ns);
    }
    host->npending = left;
}

/* The waiting time of the rank whose turn it is to be early. One rank has come last. */
static double time_of(struct host *host, uint32_t call, int arm)
{
    struct server *server = &world.server;
    const int last = (int)(call % (uint32_t)server->nranks);
    const double ns = world.ns[call] * (arm > 0 ? 1 - server->gain[world.its[call]] : 1);
    const bool is_lost = uniform(&server->seed, 0, 1) < server->lost;
    const double waited = host == &world.hosts[last] ? 0 : ns * uniform(&server->seed, 0, 2);
    return is_lost ? 0 : ns + waited;
}

/* The same steps as src/nccl/learn.c makes at each call. */
static void make_call(struct host *host)
{
    struct server *server = &world.server;
    const uint32_t call = host->call++, number = host->trial.trials;
    publish_due(host);
    const struct cecl_class_step step = cecl_classes_next(
        &host->classes, &host->trial, 1u + world.its[call], ARMS, world.may_bound[call]);
    uint32_t arm;
    bool is_turn;
    const bool has = cecl_class_has_arm(&host->classes, &host->trial, step.its, &arm, &is_turn);
    if (host == &world.hosts[0] && host->trial.state == CECL_TRIAL_RUNNING) {
        world.running += step.its == host->classes.current;
        world.other += is_turn && arm > 0;
    }
    if (step.mark.slot >= 0 && host->npending < MOST_PENDING)
        host->pending[host->npending++] =
            (struct timed){number,
                           host->classes.calls / CECL_CLASS_EVERY +
                               (uint32_t)below(&server->seed, server->lag + 1),
                           step.mark.slot, host->last};
    if (step.mark.is_mark)
        host->last = time_of(host, call, has ? (int)arm : 0);
    const signed char now = has ? (signed char)arm : -1;
    world.disagree += world.came[call] && world.arms[call] != now;
    world.came[call] = true;
    world.arms[call] = now;
}

/* A random rank that may continue. */
static struct host *next_host(void)
{
    struct server *server = &world.server;
    uint32_t last = UINT32_MAX;
    for (int r = 0; r < server->nranks; r++)
        last = world.hosts[r].call < last ? world.hosts[r].call : last;
    struct host *host = &world.hosts[0];
    if (server->is_apart && host->call < last + server->ahead && host->call < server->calls)
        return host;
    do
        host = &world.hosts[below(&server->seed, (uint64_t)server->nranks)];
    while (host->call > last + server->ahead || host->call >= server->calls);
    return host;
}

static void begin(const struct server *server)
{
    memset(&world, 0, sizeof(world));
    world.server = *server;
    for (uint32_t i = 0; i < server->calls; i++) {
        world.its[i] = (unsigned char)draw_class(&world.server);
        world.may_bound[i] = below(&world.server.seed, 10) > 0;
        const double drifted = 1 + server->drift * i / server->calls,
                     noisy = 1 + server->noise * normal(&world.server.seed);
        world.ns[i] = 1e4 * (1 + world.its[i]) * drifted * (noisy > 0.2 ? noisy : 0.2);
        if (uniform(&world.server.seed, 0, 1) < server->hiccups)
            world.ns[i] *= 10;
    }
}

static void run(const struct server *server)
{
    begin(server);
    void *shared = calloc(1, cecl_trial_bytes(server->nranks));
    assert_non_null(shared);
    const uint64_t drawn = draw(&world.server.seed);
    for (int r = 0; r < server->nranks; r++) {
        const struct cecl_trial_host host = {&world.hosts[r], reserve, release, recall, false};
        cecl_trial_open(&world.hosts[r].trial, shared, r, server->nranks, drawn, &host);
    }
    for (uint64_t i = (uint64_t)server->nranks * server->calls; i > 0; i--)
        make_call(next_host());
    free(shared);
}

static const struct cecl_class *class_of(int c)
{
    return cecl_classes_find(&world.hosts[0].classes, 1u + (uint32_t)c);
}

static struct server any_server(uint64_t seed)
{
    struct server server = {.seed = seed, .calls = CALLS};
    server.nranks = 2 + (int)below(&server.seed, 3);
    server.nclasses = 2 + (int)below(&server.seed, 4);
    server.noise = uniform(&server.seed, 0.002, 0.05);
    server.drift = uniform(&server.seed, -0.1, 0.1);
    server.lost = below(&server.seed, 2) ? 0.02 : 0;
    server.ahead = (uint32_t)below(&server.seed, 100);
    server.lag = (uint32_t)below(&server.seed, 4);
    if (below(&server.seed, 2)) { /* the capacity of a GPU's queue of launches */
        server.ahead = (uint32_t)below(&server.seed, 1024);
        server.lag = (uint32_t)below(&server.seed, 1024) / CECL_CLASS_EVERY;
        server.is_apart = true;
        server.calls = MOST_CALLS; /* offers are valid for longer, and verdicts are delayed */
    }
    for (int c = 0; c < server.nclasses; c++) {
        server.weight[c] = uniform(&server.seed, 0.2, 1);
        server.gain[c] = uniform(&server.seed, 0.02, 0.2) * (below(&server.seed, 2) ? 1 : -1);
    }
    return server;
}

static uint64_t number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    const uint64_t number = text ? strtoull(text, NULL, 0) : otherwise;
    print_message("%s=%llu\n", variable, (unsigned long long)number);
    return number;
}

/* The same goals as for periods: a slower arm is kept once in 1,000; a gain of more than four
 * standard errors is kept 99 times in 100; ranks never differ. An arm has at most 20 times. */
static void arms_that_gain_are_kept_and_slower_ones_are_not(void **state)
{
    const uint64_t seed = number("CECL_TEST_SEED", 1);
    const uint64_t programs = number("CECL_TEST_PROGRAMS", (uint64_t)test_share(1000));
    int slower = 0, missed = 0, gaining = 0, none = 0, all = 0, disagree = 0;
    for (uint64_t i = 0; i < programs; i++) {
        const struct server server = any_server(seed * 100003 + i);
        run(&server);
        disagree += world.disagree;
        for (int c = 0; c < server.nclasses; c++) {
            const struct cecl_class *its = class_of(c);
            const bool gains = server.gain[c] > 4 * server.noise * sqrt(2.0 / 18);
            all++;
            if (!its || !its->has_verdict) {
                none++;
                continue;
            }
            slower += its->arm != 0 && server.gain[c] < -0.01;
            gaining += gains;
            missed += gains && its->arm == 0;
        }
    }
    print_message("%d classes: %d slower kept, %d of %d gains missed, %d without a verdict\n", all,
                  slower, missed, gaining, none);
    assert_int_equal(disagree, 0);
    assert_true(slower * 1000 <= all);
    assert_true(gaining > all / 4);
    assert_true(missed * 100 <= gaining);
    assert_true(none * 20 <= all); /* some classes are too rare in this many calls */
}

static struct server two_classes(uint64_t seed)
{
    return (struct server){.seed = seed,
                           .nranks = 2,
                           .nclasses = 2,
                           .weight = {1, 1},
                           .gain = {0.1, -0.1},
                           .noise = 0.01,
                           .lag = 1,
                           .ahead = 10,
                           .calls = 8000};
}

static void each_class_gets_its_verdict(void **state)
{
    const struct server server = two_classes(1);
    run(&server);
    assert_true(class_of(0)->has_verdict && class_of(1)->has_verdict);
    assert_int_equal(class_of(0)->arm, OTHER_ARM);
    assert_int_equal(class_of(1)->arm, 0);
    assert_int_equal(world.hosts[0].trial.trials, 2);
}

static void a_slow_arm_has_an_eighth_of_the_calls_at_most(void **state)
{
    struct server server = two_classes(9);
    server.nclasses = 1;
    server.gain[0] = -0.2;
    run(&server);
    assert_int_equal(world.hosts[0].trial.trials, 1);
    assert_in_range(world.running, 900, 1300);
    assert_in_range(world.other, 100, world.running / 8);
    server.gain[0] = -1; /* it is dropped after one turn, which has calls of groups, too */
    server.lag = 0;
    run(&server);
    assert_int_equal(world.hosts[0].trial.trials, 1);
    assert_in_range(world.other, 3 * CECL_CLASS_NEAR, 4 * CECL_CLASS_NEAR);
}

/* The ranks' times differ by their waiting, which exceeds the gain of the arm. */
static void the_wait_of_early_ranks_does_not_count(void **state)
{
    struct server server = two_classes(2);
    server.nranks = 4;
    server.gain[0] = 0.03;
    server.noise = 0.002;
    run(&server);
    assert_int_equal(class_of(0)->arm, OTHER_ARM);
}

/* One slow call is no reason to drop an arm. */
static void calls_that_take_long_now_and_then_decide_nothing(void **state)
{
    int kept = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct server server = two_classes(seed);
        server.hiccups = 0.05;
        run(&server);
        kept += class_of(0)->arm == OTHER_ARM;
        assert_int_equal(class_of(1)->arm, 0);
    }
    print_message("%d of 100 kept\n", kept);
    assert_true(kept >= 97);
}

/* Nothing is tried in the first calls, and nothing while all calls are in a period. */
static void it_begins_after_512_calls_without_a_period(void **state)
{
    struct server server = two_classes(3);
    server.calls = CECL_CLASS_QUIET;
    run(&server);
    assert_int_equal(world.hosts[0].classes.used, 0);
    server.calls = CECL_CLASS_QUIET + 80;
    run(&server);
    assert_int_equal(world.hosts[0].classes.used, 2);
    assert_non_null(world.hosts[0].classes.current);
    cecl_classes_leave(&world.hosts[0].classes);
    assert_null(world.hosts[0].classes.current);
    assert_int_equal(world.hosts[0].classes.quiet, 0);
}

/* One call in 200: 16 calls of this class are 3,200 calls. */
static void a_rare_class_gives_way(void **state)
{
    struct server server = two_classes(4);
    server.nclasses = 2;
    server.weight[1] = 0.005;
    server.calls = CALLS;
    run(&server);
    assert_true(class_of(0)->has_verdict);
    assert_false(class_of(1)->has_verdict);
    assert_int_equal(world.hosts[0].trial.trials, 1);
}

static void only_so_many_classes_have_a_place(void **state)
{
    struct server server = two_classes(5);
    server.nclasses = 60;
    for (int c = 0; c < server.nclasses; c++)
        server.weight[c] = 1;
    run(&server);
    assert_int_equal(world.hosts[0].classes.used, CECL_CLASS_MOST);
    int found = 0;
    for (int c = 0; c < server.nclasses; c++)
        found += class_of(c) != NULL;
    assert_int_equal(found, CECL_CLASS_MOST);
    assert_int_equal(world.disagree, 0);
}

/* A rank tries another communicator all the time. */
static void a_busy_rank_leaves_its_classes_without_a_verdict(void **state)
{
    struct server server = two_classes(6);
    begin(&server);
    void *shared = calloc(1, cecl_trial_bytes(2));
    assert_non_null(shared);
    for (int r = 0; r < 2; r++) {
        world.hosts[r].is_busy = r == 1;
        const struct cecl_trial_host host = {&world.hosts[r], reserve, release, recall, false};
        cecl_trial_open(&world.hosts[r].trial, shared, r, 2, 17, &host);
    }
    for (uint32_t i = 0; i < server.calls; i++)
        for (int r = 0; r < 2; r++)
            make_call(&world.hosts[r]);
    free(shared);
    assert_int_equal(world.hosts[0].trial.trials, 0);
    assert_false(class_of(0)->has_verdict);
    assert_int_equal(world.disagree, 0);
}

/* After 160,000 calls of the class. */
static void a_verdict_wears_out(void **state)
{
    struct server server = two_classes(7);
    run(&server);
    for (int r = 0; r < 2; r++) {
        struct cecl_classes *classes = &world.hosts[r].classes;
        cecl_classes_find(classes, 1)->wait = 1;
        cecl_classes_next(classes, &world.hosts[r].trial, 1, ARMS, true);
        assert_ptr_equal(classes->current, cecl_classes_find(classes, 1));
        assert_true(classes->current->has_verdict); /* until the next one */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arms_that_gain_are_kept_and_slower_ones_are_not),
        cmocka_unit_test(each_class_gets_its_verdict),
        cmocka_unit_test(a_slow_arm_has_an_eighth_of_the_calls_at_most),
        cmocka_unit_test(the_wait_of_early_ranks_does_not_count),
        cmocka_unit_test(calls_that_take_long_now_and_then_decide_nothing),
        cmocka_unit_test(it_begins_after_512_calls_without_a_period),
        cmocka_unit_test(a_rare_class_gives_way),
        cmocka_unit_test(only_so_many_classes_have_a_place),
        cmocka_unit_test(a_busy_rank_leaves_its_classes_without_a_verdict),
        cmocka_unit_test(a_verdict_wears_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
