/* Groups of messages on a small simulated machine: hosts and streams of all ranks go on in any order,
 * and every program that could run with each message by itself ends, with every byte at its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "ce/pairs.h"

#define RANKS 4
#define MESSAGES 24
#define WORDS 3 /* bytes of a message at most */

struct message {
    int from, to;
    uint32_t bytes;
    uint64_t number; /* among those of its two ranks, in this direction */
    int first;       /* the rank that came first, or -1 */
    uint64_t group;  /* that rank's number of its group */
    unsigned char sent[WORDS], received[WORDS];
    int copies;
    bool sending, receiving;     /* the group of that rank has begun, and has not ended */
    bool was_sent, was_received; /* it has ended */
};

/* A group that a rank's host has posted. */
struct group {
    int which[MESSAGES]; /* indices of messages */
    struct cecl_message messages[MESSAGES];
    uint32_t count;
    struct cecl_pair_plan plan;
    uint32_t at[MESSAGES + 1]; /* how far each lane is, the caller's stream first */
    bool begun;
};

struct rank {
    int own[MESSAGES]; /* indices of its messages, in order */
    int nown, posted;
    struct group groups[MESSAGES];
    int ngroups, running;
};

static struct message messages[MESSAGES];
static struct rank ranks[RANKS];
/* [writer][holder][signal][role of the holder] */
static uint64_t words[RANKS][RANKS][CECL_PAIR_SIGNALS][CECL_ROLES];
static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 11) % below);
}

/* ---- programs */

static void make_program(uint64_t number)
{
    uint64_t counts[RANKS][RANKS] = {{0}};
    memset(messages, 0, sizeof(messages));
    memset(ranks, 0, sizeof(ranks));
    memset(words, 0, sizeof(words));
    seed = number * 0x9e3779b97f4a7c15u + 1;
    const uint32_t nranks = 2 + draw(RANKS - 1);
    for (int i = 0; i < MESSAGES; i++) {
        struct message *m = &messages[i];
        m->from = (int)draw(nranks);
        m->to = (m->from + 1 + (int)draw(nranks - 1)) % (int)nranks;
        m->bytes = draw(WORDS + 1);
        m->number = ++counts[m->from][m->to];
        m->first = -1;
        for (uint32_t b = 0; b < WORDS; b++)
            m->sent[b] = (unsigned char)(1 + draw(255));
        ranks[m->from].own[ranks[m->from].nown++] = i;
        ranks[m->to].own[ranks[m->to].nown++] = i;
    }
}

/* ---- hosts */

static void post(struct rank *rank, int me, int index, struct group *group)
{
    struct message *m = &messages[index];
    const bool sends = m->from == me;
    struct cecl_message *mine = &group->messages[group->count];
    *mine = (struct cecl_message){.peer = sends ? m->to : m->from,
                                  .role = sends ? CECL_SENDER : CECL_RECEIVER,
                                  .second = m->first >= 0,
                                  .bytes = m->bytes,
                                  .number = m->number,
                                  .group = m->group};
    group->which[group->count++] = index;
    if (m->first < 0) {
        m->first = me;
        m->group = (uint64_t)rank->ngroups;
    }
}

/* The host puts its next messages into a group. */
static void make_group(int me)
{
    struct rank *rank = &ranks[me];
    struct group *group = &rank->groups[rank->ngroups];
    uint32_t count = 1 + draw(5);
    for (; count > 0 && rank->posted < rank->nown; count--)
        post(rank, me, rank->own[rank->posted++], group);
    assert_int_equal(cecl_pair_plan_reserve(&group->plan, group->count), ceclSuccess);
    cecl_lower_pairs(group->messages, group->count, &group->plan);
    rank->ngroups++;
}

/* ---- streams */

static void begin(int me, struct group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        struct message *m = &messages[group->which[i]];
        *(m->from == me ? &m->sending : &m->receiving) = true;
    }
    group->begun = true;
}

static void end(int me, struct rank *rank, struct group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        struct message *m = &messages[group->which[i]];
        if (m->to == me) { /* its memory is the program's again */
            assert_int_equal(m->copies, 1);
            assert_memory_equal(m->received, m->sent, m->bytes);
            m->receiving = false;
            m->was_received = true;
        } else {
            assert_int_equal(m->copies, 1);
            m->sending = false;
            m->was_sent = true;
        }
    }
    cecl_pair_plan_free(&group->plan);
    rank->running++;
}

static void copy(struct group *group, const struct cecl_pair_step *step)
{
    for (uint32_t i = step->first; i < step->first + step->count; i++) {
        struct message *m = &messages[group->which[group->plan.order[i]]];
        assert_true(m->sending); /* no early read */
        assert_true(m->receiving);
        memcpy(m->received, m->sent, m->bytes);
        m->copies++;
    }
}

static int role_there(const struct cecl_pair_step *step)
{
    return step->role == CECL_SENDER ? CECL_RECEIVER : CECL_SENDER;
}

/* Carries out a step, if it can go on. */
static bool perform(int me, struct group *group, uint32_t index)
{
    const struct cecl_pair_step *step = &group->plan.steps[index];
    switch ((enum cecl_pair_step_kind)step->kind) {
    case CECL_PAIR_STEP_SIGNAL: {
        uint64_t *word = &words[me][step->peer][step->signal][role_there(step)];
        assert_true(*word < step->number); /* words only grow */
        *word = step->number;
        return true;
    }
    case CECL_PAIR_STEP_WAIT:
        return words[step->peer][me][step->signal][step->role] >= step->number;
    case CECL_PAIR_STEP_COPIES: copy(group, step); return true;
    /* the other lane has done all that stands before this step */
    case CECL_PAIR_STEP_FORK: return group->at[0] >= index;
    case CECL_PAIR_STEP_JOIN: return group->at[step->lane + 1] >= index;
    }
    return false;
}

static int lane_of(const struct cecl_pair_step *step)
{
    return step->kind == CECL_PAIR_STEP_JOIN ? CECL_PAIR_MAIN : step->lane;
}

/* Moves a lane on to the next step of its own. */
static void pass_others(struct group *group, int lane)
{
    uint32_t *at = &group->at[lane + 1];
    while (*at < group->plan.nsteps && lane_of(&group->plan.steps[*at]) != lane)
        (*at)++;
}

/* One step of a lane of the group that runs on a rank. Returns whether anything went on. */
static bool step(int me, uint32_t which)
{
    struct rank *rank = &ranks[me];
    if (rank->running == rank->ngroups)
        return false;
    struct group *group = &rank->groups[rank->running];
    if (!group->begun) {
        begin(me, group);
        return true;
    }
    bool all = true;
    for (int lane = CECL_PAIR_MAIN; lane < group->plan.nlanes; lane++) {
        pass_others(group, lane);
        all = all && group->at[lane + 1] == group->plan.nsteps;
    }
    if (all) {
        end(me, rank, group);
        return true;
    }
    const int lane = (int)(which % (uint32_t)(group->plan.nlanes + 1)) - 1;
    const uint32_t index = group->at[lane + 1];
    if (index == group->plan.nsteps || !perform(me, group, index))
        return false;
    group->at[lane + 1]++;
    return true;
}

/* ---- running */

static bool is_done(void)
{
    for (int r = 0; r < RANKS; r++)
        if (ranks[r].posted < ranks[r].nown || ranks[r].running < ranks[r].ngroups)
            return false;
    return true;
}

/* Tries everything once. */
static bool any_goes_on(void)
{
    for (int r = 0; r < RANKS; r++) {
        if (ranks[r].posted < ranks[r].nown) {
            make_group(r);
            return true;
        }
        for (uint32_t lane = 0; lane <= MESSAGES; lane++)
            if (step(r, lane))
                return true;
    }
    return false;
}

/* `eager`: how many steps of streams come to a step of a host, about. */
static void run(uint64_t number, uint32_t eager)
{
    make_program(number);
    for (int idle = 0; !is_done();) {
        const int r = (int)draw(RANKS);
        bool moved = false;
        if (ranks[r].posted < ranks[r].nown && draw(1 + eager) == 0) {
            make_group(r);
            moved = true;
        } else {
            moved = step(r, draw(MESSAGES));
        }
        idle = moved ? 0 : idle + 1;
        if (idle > 1000 && !any_goes_on())
            fail_msg("program %llu: deadlock", (unsigned long long)number);
    }
    for (int i = 0; i < MESSAGES; i++)
        assert_true(messages[i].was_sent && messages[i].was_received);
}

static void every_random_program_ends_with_every_byte_in_place(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= 4000; number++)
        run(number, (uint32_t)(number % 4) * 20);
}

static struct cecl_message with(int peer, enum cecl_role role, bool second, uint64_t group)
{
    return (struct cecl_message){.peer = peer,
                                 .role = (uint8_t)role,
                                 .second = second,
                                 .bytes = 8,
                                 .number = 1,
                                 .group = group};
}

static void messages_with_one_group_of_a_peer_are_one_batch_in_the_callers_stream(void **state)
{
    (void)state;
    const struct cecl_message group[] = {with(1, CECL_SENDER, true, 5),
                                         with(1, CECL_RECEIVER, true, 5)};
    struct cecl_pair_plan plan = {0};
    assert_int_equal(cecl_pair_plan_reserve(&plan, 2), ceclSuccess);
    cecl_lower_pairs(group, 2, &plan);
    assert_int_equal(plan.nlanes, 0);
    assert_int_equal(plan.nsteps, 5);
    assert_int_equal(plan.steps[2].kind, CECL_PAIR_STEP_COPIES);
    assert_int_equal(plan.steps[2].count, 2);
    cecl_pair_plan_free(&plan);
}

static void messages_with_two_peers_have_a_lane_each(void **state)
{
    (void)state;
    const struct cecl_message group[] = {
        with(2, CECL_SENDER, true, 1), with(1, CECL_SENDER, true, 7),
        with(2, CECL_RECEIVER, true, 0), with(3, CECL_SENDER, false, 0)};
    struct cecl_pair_plan plan = {0};
    assert_int_equal(cecl_pair_plan_reserve(&plan, 4), ceclSuccess);
    cecl_lower_pairs(group, 4, &plan);
    assert_int_equal(plan.nlanes, 2);
    assert_int_equal(plan.order[0], 1);
    assert_int_equal(plan.order[1], 2); /* the peer's earlier group comes first */
    assert_int_equal(plan.order[2], 0);
    assert_int_equal(plan.steps[0].kind, CECL_PAIR_STEP_SIGNAL);
    assert_int_equal(plan.steps[0].peer, 3);
    cecl_pair_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_random_program_ends_with_every_byte_in_place),
        cmocka_unit_test(messages_with_one_group_of_a_peer_are_one_batch_in_the_callers_stream),
        cmocka_unit_test(messages_with_two_peers_have_a_lane_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
