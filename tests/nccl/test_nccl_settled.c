/* Calls of which learning does not hear at once leave it in the state in which it would be if it had heard of each of
 * them. Random programs run twice: on a communicator that passes such calls, and on one that passes none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "nccl/call.h"
#include "nccl/depth.h"
#include "nccl/learning.h"

enum { SERVED_KEY = 1 };

/* What the trial knows: NCCL is to make the calls, except those of one class. Nothing is ever tried. */
static bool reserve(void *context, uint64_t id)
{
    (void)context;
    (void)id;
    return true;
}

static void release(void *context, uint64_t id)
{
    (void)context;
    (void)id;
}

static int recall(void *context, uint64_t subject)
{
    (void)context;
    return subject == cecl_class_subject(SERVED_KEY) ? CECL_NCCL_NO_SMS : CECL_NCCL_BY_NCCL;
}

/* A communicator of one rank. */
struct side {
    struct cecl_nccl_comm comm;
    struct cecl_nccl_learn learn;
    bool settles;
    uint64_t passed,
        known; /* calls of which learning did not hear: of a settled period; without a period */
    uint64_t caught_up;
};

static struct side *open_side(bool settles)
{
    static const struct cecl_trial_host host = {
        .reserve = reserve, .release = release, .recall = recall, .only_recalls = true};
    struct side *side = calloc(1, sizeof(*side));
    void *words = calloc(1, cecl_trial_bytes(1));
    assert_true(side && words);
    side->settles = settles;
    side->comm.learn = &side->learn;
    (void)!cecl_nccl_life_go(&side->comm.life, CECL_NCCL_FREE_TO_MAKING);
    (void)!cecl_nccl_life_go(&side->comm.life, CECL_NCCL_MAKING_TO_READY);
    cecl_trial_open(&side->learn.trial, words, 0, 1, 1, &host);
    return side;
}

static void close_side(struct side *side)
{
    free(side->learn.trial.shared);
    free(side->comm.settled.calls);
    free(side->comm.settled.known);
    free(side);
}

/* As learn.c does. Returns the call's class. *passes: its verdict passes the call. */
static struct cecl_class *hear(struct side *side, const struct cecl_nccl_call *call, uint64_t token,
                               bool *passes)
{
    struct cecl_nccl_learn *learn = &side->learn;
    const uint32_t key = (uint32_t)call->count * 8 + (uint32_t)call->op;
    if (cecl_period_next(&learn->period, token))
        cecl_trial_boundary(&learn->trial, learn->period.was_whole, 1000000);
    *(call->reduces ? &learn->reduced : &learn->moved) = learn->period.calls;
    const bool is_found = learn->period.length > 0;
    if (is_found && !learn->is_found) {
        cecl_classes_leave(&learn->classes);
        cecl_trial_want(&learn->trial, learn->period.pattern, 1, CECL_TRIAL_PERIODS);
    } else if (!is_found && learn->is_found) {
        cecl_trial_cancel(&learn->trial);
    }
    learn->is_found = is_found;
    if (is_found)
        return NULL;
    struct cecl_class *its = cecl_classes_next(&learn->classes, &learn->trial,
                                               call->count == 1 ? SERVED_KEY : key, 3, true)
                                 .its;
    uint32_t arm;
    bool is_turn;
    *passes = cecl_class_has_arm(&learn->classes, &learn->trial, its, &arm, &is_turn) && arm == 0;
    return its;
}

static void make(struct side *side, const struct cecl_nccl_call *call)
{
    if (side->settles && cecl_nccl_settled_passes(&side->comm, call)) {
        side->passed++;
        return;
    }
    if (side->settles && cecl_nccl_settled_knows(&side->comm, call)) {
        assert_true(call->count > 1);
        side->known++;
        return;
    }
    const uint64_t token = cecl_period_token(call->count * 8 + (uint64_t)call->op, true);
    side->caught_up += side->comm.settled.most > 0;
    cecl_nccl_settled_catch_up(&side->comm);
    bool passes = false;
    struct cecl_class *its = hear(side, call, token, &passes);
    if (!side->settles)
        return;
    /* calls of 5 elements are not passed whenever the verdict is in force */
    cecl_nccl_settled_note(&side->comm, call,
                           side->learn.is_found && side->learn.trial.has_verdict &&
                               call->count != 5);
    if (!side->learn.is_found)
        cecl_nccl_settled_note_class(&side->comm, call, token, its,
                                     passes && cecl_nccl_group_depth() == 0);
}

static void check_equal(struct side *left, struct side *right)
{
    const struct cecl_nccl_learn *a = &left->learn, *b = &right->learn;
#define SAME(field) assert_true(a->field == b->field)
    SAME(period.calls);
    SAME(period.length);
    SAME(period.pattern);
    SAME(period.begun);
    SAME(period.was_whole);
    SAME(period.candidate);
    SAME(period.run);
    SAME(period.broken);
    SAME(period.broken_at);
    SAME(period.strikes);
    SAME(trial.state);
    SAME(trial.has_verdict);
    SAME(trial.subject);
    SAME(trial.decisions);
    SAME(trial.wait);
    SAME(trial.nlearned);
    for (uint32_t i = 0; i < CECL_TRIAL_LEARNED; i++)
        SAME(trial.learned[i].left);
    SAME(moved);
    SAME(reduced);
    SAME(period.searched);
    SAME(classes.used);
    SAME(classes.quiet);
    SAME(classes.calls);
    SAME(classes.others);
    for (uint32_t i = 0; i < CECL_CLASS_PLACES; i++) {
        SAME(classes.places[i].key);
        SAME(classes.places[i].wait);
        SAME(classes.places[i].arm);
        SAME(classes.places[i].has_verdict);
    }
#undef SAME
}

static uint64_t below(uint64_t *seed, uint64_t bound)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % bound;
}

static struct cecl_nccl_call draw_call(uint64_t *seed)
{
    const bool reduces = below(seed, 3) == 0;
    return (struct cecl_nccl_call){.op = reduces ? CECL_NCCL_OP_ncclAllReduce
                                                 : CECL_NCCL_OP_ncclAllGather,
                                   .reduces = reduces,
                                   .count = 1 + below(seed, 4)};
}

enum { MOST = CECL_PERIOD_MOST };

/* Makes the calls of a step for a while, with odd calls between some steps. */
static void run_part(uint64_t *seed, struct side *plain, struct side *settling)
{
    static const uint32_t lengths[] = {1, 2, 3, 7, 50, 300, 3000, MOST};
    static struct cecl_nccl_call step[MOST];
    const uint32_t length = lengths[below(seed, sizeof(lengths) / sizeof(lengths[0]))];
    const uint64_t steps = 4 + below(seed, (below(seed, 4) == 0 ? 2000000 : 60000) / length);
    for (uint32_t i = 0; i < length; i++)
        step[i] = draw_call(seed);
    if (below(seed, 8) == 0)
        step[below(seed, length)].count = 5;
    for (uint64_t i = 0; i < steps; i++) {
        for (uint32_t k = 0; k < length; k++) {
            make(plain, &step[k]);
            make(settling, &step[k]);
        }
        if (below(seed, 200) == 0)
            for (uint64_t odd = below(seed, 3) == 0 ? below(seed, 600) : 1; odd > 0; odd--) {
                const struct cecl_nccl_call call = draw_call(seed);
                make(plain, &call);
                make(settling, &call);
            }
        if (settling->comm.settled.left == settling->comm.settled.most &&
            settling->comm.settled.missed == 0)
            check_equal(plain, settling);
    }
}

/* Makes calls in an order without a period. Some of them are of one class for so long that its verdict wears out. */
static void run_without_a_period(uint64_t *seed, struct side *plain, struct side *settling)
{
    const bool is_long = below(seed, 3) == 0;
    for (uint64_t i = below(seed, is_long ? 400000 : 20000); i > 0; i--) {
        const struct cecl_nccl_call call = draw_call(seed);
        make(plain, &call);
        make(settling, &call);
        if (i % 1000 == 0) {
            cecl_nccl_settled_catch_up(&settling->comm);
            check_equal(plain, settling);
        }
    }
}

static void learning_catches_up_on_the_calls_that_were_passed(void **state)
{
    uint64_t passed = 0, known = 0, caught_up = 0, calls = 0;
    for (uint64_t number = 1; number <= 12; number++) {
        uint64_t seed = number;
        print_message("seed %d\n", (int)number);
        struct side *plain = open_side(false), *settling = open_side(true);
        for (int part = 0; part < 12; part++)
            (below(&seed, 3) == 0 ? run_without_a_period : run_part)(&seed, plain, settling);
        cecl_nccl_settled_catch_up(&settling->comm);
        check_equal(plain, settling);
        passed += settling->passed;
        known += settling->known;
        caught_up += settling->caught_up;
        calls += plain->learn.period.calls;
        close_side(plain);
        close_side(settling);
    }
    print_message("%d thousand calls: %d of settled periods and %d without a period passed; caught "
                  "up %d times\n",
                  (int)(calls / 1000), (int)(passed / 1000), (int)(known / 1000), (int)caught_up);
    assert_true(passed > calls / 2);
    assert_true(known > calls / 20);
    assert_true(caught_up > 100);
}

static void age(struct side *side, uint32_t wait)
{
    for (uint32_t i = 0; i < CECL_CLASS_PLACES; i++)
        if (side->learn.classes.places[i].has_verdict)
            side->learn.classes.places[i].wait = wait;
}

/* Most calls are of one class. Learning follows those in groups at once, and the others later. */
static void make_one(uint64_t *seed, struct side *plain, struct side *settling, bool in_group)
{
    struct cecl_nccl_call call = {.op = CECL_NCCL_OP_ncclAllGather, .count = 2};
    if (below(seed, 8) == 0)
        call = draw_call(seed);
    if (in_group)
        cecl_nccl_group_opened();
    make(plain, &call);
    make(settling, &call);
    if (in_group)
        cecl_nccl_group_ended();
}

static void a_class_whose_verdict_wears_out_in_groups_is_tried_in_time(void **state)
{
    for (uint32_t grouped = 0; grouped < 60; grouped++) {
        uint64_t seed = 1;
        struct side *plain = open_side(false), *settling = open_side(true);
        for (int i = 0; i < 20000 || !cecl_classes_rest(&settling->learn.classes); i++)
            make_one(&seed, plain, settling, false);
        assert_true(settling->known > 1000);
        cecl_nccl_settled_catch_up(&settling->comm);
        age(plain, 40);
        age(settling, 40);
        for (uint32_t i = 0; i < grouped + 200; i++)
            make_one(&seed, plain, settling, i < grouped);
        cecl_nccl_settled_catch_up(&settling->comm);
        check_equal(plain, settling);
        close_side(plain);
        close_side(settling);
    }
}

/* After a period of one call, which NCCL makes. */
static struct side *settle_one(struct cecl_nccl_call *call)
{
    struct side *side = open_side(true);
    *call = (struct cecl_nccl_call){.op = CECL_NCCL_OP_ncclAllGather, .count = 2};
    for (int i = 0; i < 1000; i++)
        make(side, call);
    assert_true(side->passed > 500);
    return side;
}

/* After calls without a period, the last of which was not passed; `call` is passed without it. */
static struct side *decide_classes(struct cecl_nccl_call *call)
{
    uint64_t seed = 1;
    struct side *side = open_side(true);
    for (int i = 0; i < 20000 || side->comm.settled.quiet < 20 || side->comm.settled.missed > 0;
         i++) {
        *call = draw_call(&seed);
        make(side, call);
    }
    assert_true(side->known > 1000);
    *call = (struct cecl_nccl_call){.op = CECL_NCCL_OP_ncclAllGather, .count = 2};
    return side;
}

typedef bool passing(struct cecl_nccl_comm *, const struct cecl_nccl_call *);

static void expect_difference_to_be_heard(struct side *(*settle)(struct cecl_nccl_call *),
                                          passing *passes)
{
    for (int i = 0; i < 5; i++) {
        struct cecl_nccl_call call;
        struct side *side = settle(&call);
        call.count += i == 0 ? 100 : 0;
        call.op = i == 1 ? CECL_NCCL_OP_ncclAlltoAll : call.op;
        call.datatype += i == 2;
        call.redop += i == 3 ? 256 : 0;
        call.root += i == 4;
        assert_false(passes(&side->comm, &call));
        close_side(side);
    }
}

static void a_call_that_differs_in_one_argument_is_heard(void **state)
{
    expect_difference_to_be_heard(settle_one, cecl_nccl_settled_passes);
    expect_difference_to_be_heard(decide_classes, cecl_nccl_settled_knows);
}

static void expect_groups_and_ends_to_be_heard(struct side *(*settle)(struct cecl_nccl_call *),
                                               passing *passes)
{
    struct cecl_nccl_call call;
    struct side *side = settle(&call);
    assert_true(passes(&side->comm, &call));
    cecl_nccl_group_opened();
    assert_false(passes(&side->comm, &call));
    cecl_nccl_group_ended();
    assert_true(passes(&side->comm, &call));
    assert_true(cecl_nccl_life_go(&side->comm.life, CECL_NCCL_READY_TO_FINALIZING));
    assert_false(passes(&side->comm, &call));
    assert_true(cecl_nccl_life_go(&side->comm.life, CECL_NCCL_FINALIZING_TO_READY));
    assert_true(passes(&side->comm, &call));
    cecl_nccl_settled_forget(&side->comm.settled); /* another communicator */
    assert_false(passes(&side->comm, &call));
    close_side(side);
}

static void calls_in_groups_and_of_ended_communicators_are_heard(void **state)
{
    expect_groups_and_ends_to_be_heard(settle_one, cecl_nccl_settled_passes);
    expect_groups_and_ends_to_be_heard(decide_classes, cecl_nccl_settled_knows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_catches_up_on_the_calls_that_were_passed),
        cmocka_unit_test(a_class_whose_verdict_wears_out_in_groups_is_tried_in_time),
        cmocka_unit_test(a_call_that_differs_in_one_argument_is_heard),
        cmocka_unit_test(calls_in_groups_and_of_ended_communicators_are_heard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
