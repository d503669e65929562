/* One-sided calls in the verifier: random programs of puts and gets, in which ranks agree by signals which rank may
 * access which memory. Every byte arrives, nothing races, and every signal is taken. A missing step is noticed. */
#include "plans.h"

#include "ce/one_sided.h"

#define RANKS_MOST 4
#define TRANSFERS_MOST 12
#define NUMBERS 2 /* signal numbers for each pair of ranks */
#define BYTES 16
#define FIRST CECL_COUNTERS /* the counter of signal 0 */

/* A put or a get: `owner` has the window, `mover` makes the call. Both use the same signal number. */
struct transfer {
    int owner, mover, number;
    bool gets;
    int extra; /* further signals of the mover, which the owner takes in the same wait */
};

static struct transfer transfers[TRANSFERS_MOST];
static struct cecl_verify_message messages[TRANSFERS_MOST];
static struct cecl_plan
    plans[2 * TRANSFERS_MOST]; /* transfer i has two: the owner's and the mover's */
static uint32_t ids[TRANSFERS_MOST];
static struct cecl_verify_launch launches[RANKS_MOST][TRANSFERS_MOST];
static uint32_t sent[RANKS_MOST][RANKS_MOST][NUMBERS], taken[RANKS_MOST][RANKS_MOST][NUMBERS];
static struct cecl_verify_program program;

static struct cecl_counted own(uint32_t counter)
{
    return (struct cecl_counted){counter, 1};
}

static void add(struct cecl_plan *plan, const struct cecl_one_sided *call)
{
    struct cecl_plan one;
    cecl_plan_init(&one, &plan->part);
    assert_int_equal(cecl_lower_one_sided(call, &one), ceclSuccess);
    for (uint32_t i = 0; i < one.nsteps; i++)
        if (one.steps[i].kind == CECL_STEP_COPY)
            cecl_plan_copy_rows(plan, &one.copies[one.steps[i].first]);
        else
            cecl_plan_repeat(plan, &one.steps[i]);
    cecl_plan_free(&one);
}

static struct cecl_one_sided_signal signal_to(int rank, int peer, int number)
{
    return (struct cecl_one_sided_signal){
        .peer = peer, .of = {FIRST + (uint32_t)number, ++sent[rank][peer][number]}};
}

static void add_signal(struct cecl_plan *plan, int peer, int number)
{
    const struct cecl_one_sided_signal signal = signal_to(plan->part.call.rank, peer, number);
    add(plan,
        &(struct cecl_one_sided){.peer = peer, .sent = &signal, .done = own(CECL_COUNTER_LINE)});
}

static void add_wait(struct cecl_plan *plan, int peer, int number, uint32_t count)
{
    const int rank = plan->part.call.rank;
    const struct cecl_one_sided_signal wait = {
        .peer = peer,
        .reached = own(CECL_COUNTER_WAITS),
        .of = {FIRST + (uint32_t)number, taken[peer][rank][number] += count}};
    add(plan,
        &(struct cecl_one_sided){.waits = &wait, .nwaits = 1, .done = own(CECL_COUNTER_LINE)});
}

/* The owner signals that its memory may be accessed, and waits until the access has ended. */
static void lower_owner(const struct transfer *t, struct cecl_plan *plan)
{
    add_signal(plan, t->mover, t->number);
    add_wait(plan, t->mover, t->number, 1 + (uint32_t)t->extra);
}

static void lower_mover(const struct transfer *t, struct cecl_plan *plan)
{
    add_wait(plan, t->owner, t->number, 1);
    for (int i = 0; i < t->extra; i++)
        add_signal(plan, t->owner, t->number);
    struct cecl_one_sided call = {
        .peer = t->owner, .gets = t->gets, .bytes = BYTES, .done = own(CECL_COUNTER_LINE)};
    const struct cecl_one_sided_signal signal = signal_to(t->mover, t->owner, t->number);
    call.sent = t->gets ? NULL : &signal;
    add(plan, &call);
    if (t->gets) /* a get sends no signal, so another call does */
        add(plan, &(struct cecl_one_sided){
                      .peer = t->owner, .sent = &signal, .done = own(CECL_COUNTER_LINE)});
}

static void launch(int rank, struct cecl_plan *plan, const uint32_t *id)
{
    launches[rank][program.nlaunches[rank]++] =
        (struct cecl_verify_launch){.call = -1, .plan = plan, .messages = id, .nmessages = 1};
}

static void make(const struct transfer *t, uint32_t i)
{
    for (int side = 0; side < 2; side++) {
        struct cecl_plan *plan = &plans[2 * i + (uint32_t)side];
        const int rank = side == 0 ? t->owner : t->mover;
        const struct cecl_part part = {.call = {.rank = rank, .nranks = program.nranks}};
        cecl_plan_init(plan, &part);
        if (side == 0)
            lower_owner(t, plan);
        else
            lower_mover(t, plan);
        assert_int_equal(cecl_plan_finish(plan), ceclSuccess);
        launch(rank, plan, &ids[i]);
    }
    messages[i] = (struct cecl_verify_message){
        .from = t->gets ? t->owner : t->mover, .to = t->gets ? t->mover : t->owner, .bytes = BYTES};
}

static void make_program(uint64_t seed)
{
    uint64_t state = seed;
    memset(sent, 0, sizeof(sent));
    memset(taken, 0, sizeof(taken));
    program =
        (struct cecl_verify_program){.nranks = 2 + (int)(next(&state) % (RANKS_MOST - 1)),
                                     .messages = messages,
                                     .nmessages = 1 + (uint32_t)(next(&state) % TRANSFERS_MOST),
                                     .ncounters = NUMBERS,
                                     .counted = UINT64_C(3) << FIRST,
                                     .order = seed};
    for (uint32_t i = 0; i < program.nmessages; i++) {
        const int n = program.nranks, owner = (int)(next(&state) % (uint64_t)n);
        ids[i] = i;
        transfers[i] =
            (struct transfer){.owner = owner,
                              .mover = (owner + 1 + (int)(next(&state) % (uint64_t)(n - 1))) % n,
                              .number = (int)(next(&state) % NUMBERS),
                              .gets = next(&state) % 2,
                              .extra = (int)(next(&state) % 3)};
        make(&transfers[i], i);
    }
    for (int r = 0; r < program.nranks; r++)
        program.launches[r] = launches[r];
}

static void free_program(void)
{
    for (uint32_t i = 0; i < 2 * program.nmessages; i++)
        cecl_plan_free(&plans[i]);
}

TEST(every_random_program_is_right)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        if (!verifies_this_time())
            continue;
        make_program(seed);
        if (cecl_verify_program(&program) != ceclSuccess)
            fail_msg("program %llu: %s", (unsigned long long)seed, cecl_message());
        free_program();
    }
}

static bool is_own_mark(const struct cecl_step *step)
{
    return step->kind <= CECL_STEP_WAIT &&
           (step->counter == CECL_COUNTER_LINE || step->counter == CECL_COUNTER_WAITS);
}

/* Whether a later signal of the plan raises the same counter further: then no peer notices if this signal is missing. */
static bool is_overtaken(const struct cecl_plan *plan, uint32_t at)
{
    const struct cecl_step *step = &plan->steps[at];
    bool overtaken = false;
    for (uint32_t s = at + 1; step->kind == CECL_STEP_SIGNAL && s < plan->nsteps; s++)
        overtaken = overtaken ||
                    (plan->steps[s].kind == CECL_STEP_SIGNAL &&
                     plan->steps[s].counter == step->counter && plan->steps[s].peer == step->peer);
    return overtaken;
}

/* Steps that only inform this rank's host are not tried: peers would not notice that one is missing. */
TEST(every_missing_step_is_found)
{
    uint32_t tried = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        make_program(seed);
        for (uint32_t p = 0; p < 2 * program.nmessages; p++)
            for (uint32_t s = 0; s < plans[p].nsteps; s++) {
                if (is_own_mark(&plans[p].steps[s]) || is_overtaken(&plans[p], s))
                    continue;
                if (!is_missed(&program, &plans[p], s))
                    fail_msg("program %llu, plan %u, step %u: nothing is found",
                             (unsigned long long)seed, p, s);
                tried++;
            }
        free_program();
    }
    assert_true(tried > 1000);
}

TEST(a_signal_before_the_copy_is_found)
{
    make_program(1);
    free_program();
    program.nmessages = 1;
    memset(program.nlaunches, 0, sizeof(program.nlaunches));
    memset(sent, 0, sizeof(sent));
    memset(taken, 0, sizeof(taken));
    transfers[0] = (struct transfer){.owner = 1, .mover = 0};
    make(&transfers[0], 0);
    assert_int_equal(cecl_verify_program(&program), ceclSuccess);
    struct cecl_step *copy =
        &plans[1].steps[find_step(&plans[1], CECL_STEP_COPY, CECL_LANE_MAIN, 0)];
    const struct cecl_step signal = copy[1];
    assert_int_equal(signal.kind, CECL_STEP_SIGNAL);
    copy[1] = copy[0];
    copy[0] = signal;
    assert_int_equal(cecl_verify_program(&program), ceclInternalError);
    assert_non_null(strstr(cecl_message(), "race"));
    free_program();
}

TEST(a_call_has_no_step_that_it_does_not_need)
{
    const struct cecl_part part = {.call = {.rank = 1, .nranks = 3}};
    const struct cecl_one_sided_signal signal = {.peer = 2, .of = {CECL_COUNTER_SIGNAL, 3}},
                                       late = {.peer = 2,
                                               .of = {CECL_COUNTER_SIGNAL, 3},
                                               .after = {CECL_COUNTER_LINE, 5}};
    struct cecl_plan plan;
    cecl_plan_init(&plan, &part);
    assert_int_equal(cecl_lower_one_sided(&(struct cecl_one_sided){.peer = 2,
                                                                   .bytes = 5,
                                                                   .sent = &signal,
                                                                   .done = {CECL_COUNTER_LINE, 1}},
                                          &plan),
                     ceclSuccess);
    assert_int_equal(plan.nsteps, 3); /* copy, signal, done */
    assert_int_equal(plan.copies[0].src.rank, 1);
    assert_int_equal(plan.copies[0].dst.rank, 2);
    assert_int_equal(cecl_lower_one_sided(
                         &(struct cecl_one_sided){
                             .peer = 2, .gets = true, .bytes = 5, .done = {CECL_COUNTER_LINE, 1}},
                         &plan),
                     ceclSuccess);
    assert_int_equal(plan.nsteps, 2);
    assert_int_equal(plan.copies[0].src.rank, 2);
    assert_int_equal(plan.copies[0].dst.rank, 1);
    assert_int_equal(
        cecl_lower_one_sided(
            &(struct cecl_one_sided){.sent = &late, .done = {CECL_COUNTER_LINE, 1}}, &plan),
        ceclSuccess);
    assert_int_equal(plan.nsteps, 3); /* after, signal, done */
    assert_int_equal(plan.steps[0].kind, CECL_STEP_WAIT);
    assert_int_equal(plan.steps[0].peer, 1);
    cecl_plan_free(&plan);
}
