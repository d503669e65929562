/* Captured groups of messages: random programs with groups of any shape, which meet while they are captured. However
 * often all ranks launch them, every byte arrives, nothing races, and every signal finds its word reset and has one wait.
 * The verifier finds planted faults. */
#include "plans.h"

#include "ce/messages.h"

#define RANKS 4
#define MESSAGES 20
#define TIMES 3
#define WORDS 3             /* pairs of words that the messages between two ranks use in turn */
#define FIRST CECL_COUNTERS /* the counter of the first word */

struct group {
    struct cecl_plan plan;
    uint32_t ids[MESSAGES], count;
};

static struct cecl_verify_message messages[MESSAGES];
static uint64_t numbers[MESSAGES], tickets[MESSAGES][CECL_ROLES]; /* ticket 0: not told yet */
static struct group groups[RANKS][MESSAGES];
static int ngroups[RANKS], nevents[RANKS], at[RANKS];
static uint32_t events[RANKS][MESSAGES]; /* the messages of each rank, in order */
static struct cecl_verify_launch launches[RANKS][TIMES * MESSAGES];
static struct cecl_verify_program program;
static uint64_t seed, clock_now;
static bool ignores_tickets;
static uint32_t words; /* WORDS, or fewer to plant a fault */

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(next(&seed) % below);
}

static enum cecl_role role_in(int rank, uint32_t id)
{
    return messages[id].from == rank ? CECL_SENDER : CECL_RECEIVER;
}

static int peer_in(int rank, uint32_t id)
{
    return messages[id].from == rank ? messages[id].to : messages[id].from;
}

static void draw_messages(int nranks)
{
    uint64_t counts[RANKS][RANKS] = {{0}};
    memset(nevents, 0, sizeof(nevents));
    for (uint32_t i = 0; i < MESSAGES; i++) {
        struct cecl_verify_message *m = &messages[i];
        m->from = (int)draw((uint32_t)nranks);
        m->to = (m->from + 1 + (int)draw((uint32_t)nranks - 1)) % nranks;
        m->bytes = draw(4);
        numbers[i] = ++counts[m->from][m->to];
        events[m->from][nevents[m->from]++] = i;
        events[m->to][nevents[m->to]++] = i;
    }
}

/* Whether the group may have this message, too: messages in one role with one peer must have different words. */
static bool has_words(int rank, const struct group *group, uint32_t id)
{
    uint32_t same = 0;
    for (uint32_t i = 0; i < group->count; i++)
        same += peer_in(rank, group->ids[i]) == peer_in(rank, id) &&
                role_in(rank, group->ids[i]) == role_in(rank, id);
    return same < WORDS;
}

/* The first group has a single message, so each rank has two groups or more: the verifier cannot order what a rank's user
 * does between two launches of the same group. */
static void tell(int rank)
{
    struct group *group = &groups[rank][ngroups[rank]];
    const uint32_t most = ngroups[rank] == 0 ? 1 : 1 + draw(6);
    group->count = 0;
    clock_now++;
    for (int e = at[rank];
         e < nevents[rank] && group->count < most && has_words(rank, group, events[rank][e]); e++) {
        group->ids[group->count++] = events[rank][e];
        tickets[events[rank][e]][role_in(rank, events[rank][e])] = clock_now;
    }
}

static bool has_met(int rank, const struct group *group)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (tickets[group->ids[i]][cecl_role_other(role_in(rank, group->ids[i]))] == 0)
            return false;
    return true;
}

/* Gives each word a counter of its own, because the verifier knows no slots. */
static void name_words(const struct group *group, struct cecl_plan *plan)
{
    for (uint32_t s = 0; s < plan->nsteps; s++) {
        struct cecl_step *step = &plan->steps[s];
        if (step->kind > CECL_STEP_WAIT)
            continue;
        if (step->counter == CECL_COUNTER_HANDED || step->counter == CECL_COUNTER_TAKEN) {
            const uint32_t i = (step->phase - 1) / CECL_MESSAGE_GIVEN,
                           word = (uint32_t)(numbers[group->ids[i]] % words);
            step->counter = FIRST + 2 * word + (step->counter == CECL_COUNTER_TAKEN);
        }
        step->phase = 1;
    }
}

static void lower_group(int rank)
{
    struct group *group = &groups[rank][ngroups[rank]];
    struct cecl_message mine[MESSAGES];
    uint32_t order[MESSAGES];
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t id = group->ids[i];
        const enum cecl_role role = role_in(rank, id);
        mine[i] = (struct cecl_message){
            .peer = peer_in(rank, id),
            .role = (uint8_t)role,
            .second = role == CECL_SENDER,
            .captured = true,
            .first_given = i * CECL_MESSAGE_GIVEN,
            .bytes = messages[id].bytes,
            .number = numbers[id],
            .group = ignores_tickets ? 0 : tickets[id][cecl_role_other(role)]};
    }
    const struct cecl_part part = {.call = {.rank = rank, .nranks = program.nranks}};
    cecl_plan_init(&group->plan, &part);
    assert_int_equal(cecl_lower_messages(mine, group->count, order, &group->plan), ceclSuccess);
    name_words(group, &group->plan);
    at[rank] += (int)group->count;
    ngroups[rank]++;
}

/* Captures all groups. Ranks go on in a random order; each waits until its group has met its peers. */
static void capture_all(void)
{
    bool is_told[RANKS] = {false};
    int left = 1;
    for (int tries = 0; left > 0; tries++) {
        const int r = (int)draw((uint32_t)program.nranks);
        assert_true(tries < 1000000); /* else the captures wait for each other in a circle */
        if (at[r] < nevents[r] && !is_told[r]) {
            tell(r);
            is_told[r] = true;
        } else if (is_told[r] && has_met(r, &groups[r][ngroups[r]])) {
            lower_group(r);
            is_told[r] = false;
        }
        left = 0;
        for (int i = 0; i < program.nranks; i++)
            left += at[i] < nevents[i];
    }
}

static void make_program(uint64_t number)
{
    seed = number * 0x9e3779b97f4a7c15u + 1;
    memset(tickets, 0, sizeof(tickets));
    memset(ngroups, 0, sizeof(ngroups));
    memset(at, 0, sizeof(at));
    program = (struct cecl_verify_program){.nranks = 2 + (int)draw(RANKS - 1),
                                           .messages = messages,
                                           .nmessages = MESSAGES,
                                           .ncounters = 2 * WORDS,
                                           .resets = ((1u << 2 * WORDS) - 1) << FIRST,
                                           .order = number};
    draw_messages(program.nranks);
    capture_all();
    for (int r = 0; r < program.nranks; r++) {
        program.launches[r] = launches[r];
        program.nlaunches[r] = TIMES * ngroups[r];
        for (int i = 0; i < TIMES * ngroups[r]; i++) {
            const struct group *group = &groups[r][i % ngroups[r]];
            launches[r][i] = (struct cecl_verify_launch){.call = -1,
                                                         .plan = &group->plan,
                                                         .messages = group->ids,
                                                         .nmessages = group->count};
        }
    }
}

static void free_program(void)
{
    for (int r = 0; r < program.nranks; r++)
        for (int i = 0; i < ngroups[r]; i++)
            cecl_plan_free(&groups[r][i].plan);
}

TEST(every_launch_of_every_random_program_is_right)
{
    words = WORDS;
    for (uint64_t number = 1; number <= 2500; number++) {
        make_program(number);
        if (cecl_verify_program(&program) != ceclSuccess)
            fail_msg("program %llu: %s", (unsigned long long)number, cecl_message());
        free_program();
    }
}

/* Returns how many of 300 programs the verifier refuses. */
static uint32_t found(const char *what)
{
    uint32_t count = 0;
    bool said = false;
    for (uint64_t number = 1; number <= 300; number++) {
        make_program(number);
        if (cecl_verify_program(&program) != ceclSuccess) {
            count++;
            said = said || strstr(cecl_message(), what);
        }
        free_program();
    }
    assert_true(said);
    return count;
}

/* With one lane for all peers, sends must go in the order in which groups were captured, not in the caller's. */
TEST(sends_in_the_callers_order_deadlock)
{
    words = WORDS;
    ignores_tickets = true;
    assert_true(found("deadlock") > 10);
    ignores_tickets = false;
}

TEST(messages_of_one_group_in_one_word_are_found)
{
    words = 1;
    assert_true(found("reset") > 100);
    words = WORDS;
}

/* Steps that only inform this rank's host are not tried: peers would not notice that one is missing. */
TEST(every_missing_signal_and_wait_is_found)
{
    uint32_t tried = 0;
    words = WORDS;
    for (uint64_t number = 1; number <= 12; number++) {
        make_program(number);
        for (int r = 0; r < program.nranks; r++)
            for (int g = 0; g < ngroups[r]; g++) {
                struct cecl_plan *plan = &groups[r][g].plan;
                for (uint32_t s = 0; s < plan->nsteps; s++) {
                    if (plan->steps[s].kind > CECL_STEP_WAIT || plan->steps[s].counter < FIRST)
                        continue;
                    if (!is_missed(&program, plan, s))
                        fail_msg("program %llu, rank %d, group %d, step %u: nothing is found",
                                 (unsigned long long)number, r, g, s);
                    tried++;
                }
            }
        free_program();
    }
    assert_true(tried > 500);
}
