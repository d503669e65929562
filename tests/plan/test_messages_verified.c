/* Groups of messages, and collectives between them: programs with groups of any shape, in any order in which ranks may
 * post them. If a program ends when each message is launched alone, it must also end in groups, with every byte in its
 * place. The verifier finds planted faults. */
#include "plans.h"

#include "ce/messages.h"

#define RANKS 4
#define MESSAGES 24
#define CALLS 3
#define WORDS 3 /* largest message, in bytes */

/* An entry of a rank's program: a message, or a call that all ranks make. */
struct event {
    int message, call; /* -1: none */
};

struct post {
    int first; /* the rank that posted first; -1: none yet */
    uint64_t number, group;
};

static struct cecl_verify_message messages[MESSAGES];
static struct post posts[MESSAGES];
static struct event events[RANKS][MESSAGES + CALLS];
static int nevents[RANKS], posted[RANKS], groups[RANKS];
static struct cecl_verify_launch launches[RANKS][MESSAGES + CALLS];
static uint32_t parts[RANKS][MESSAGES + CALLS][MESSAGES];
static struct cecl_plan plans[RANKS][MESSAGES + CALLS];
static struct cecl_verify_program program;
static struct cecl_plan *calls;
static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(next(&seed) % below);
}

static void add_event(int rank, int message, int call)
{
    events[rank][nevents[rank]++] = (struct event){message, call};
}

static void add_message(int i, int nranks, uint64_t counts[RANKS][RANKS])
{
    struct cecl_verify_message *m = &messages[i];
    m->from = (int)draw((uint32_t)nranks);
    m->to = (m->from + 1 + (int)draw((uint32_t)nranks - 1)) % nranks;
    m->bytes = draw(WORDS + 1);
    posts[i] = (struct post){.first = -1, .number = ++counts[m->from][m->to]};
    add_event(m->from, i, -1);
    add_event(m->to, i, -1);
}

static void make_program(uint64_t number, int ncalls)
{
    uint64_t counts[RANKS][RANKS] = {{0}};
    struct cecl_part gathers[CALLS];
    memset(nevents, 0, sizeof(nevents));
    memset(posted, 0, sizeof(posted));
    memset(groups, 0, sizeof(groups));
    seed = number * 0x9e3779b97f4a7c15u + 1;
    const int nranks = 2 + (int)draw(RANKS - 1);
    for (int i = 0, call = 0; i < MESSAGES; i++) {
        add_message(i, nranks, counts);
        if (call < ncalls && draw(MESSAGES / CALLS) == 0) {
            for (int r = 0; r < nranks; r++)
                add_event(r, -1, call);
            gathers[call++] = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 2);
            program.ncalls = call;
        } else if (call == 0) {
            program.ncalls = 0;
        }
    }
    calls = program.ncalls > 0 ? lower_all(gathers, program.ncalls, nranks) : NULL;
    program = (struct cecl_verify_program){.nranks = nranks,
                                           .plans = calls,
                                           .ncalls = program.ncalls,
                                           .messages = messages,
                                           .nmessages = MESSAGES};
    for (int r = 0; r < nranks; r++)
        program.launches[r] = launches[r];
}

static void free_program(void)
{
    for (int r = 0; r < program.nranks; r++)
        for (int i = 0; i < program.nlaunches[r]; i++)
            if (launches[r][i].call < 0)
                cecl_plan_free(&plans[r][i]);
    if (calls)
        free_plans(calls, program.ncalls * program.nranks);
}

static struct cecl_message post(int rank, int index)
{
    const struct cecl_verify_message *m = &messages[index];
    struct post *p = &posts[index];
    const bool sends = m->from == rank;
    const struct cecl_message mine = {.peer = sends ? m->to : m->from,
                                      .role = sends ? CECL_SENDER : CECL_RECEIVER,
                                      .second = p->first >= 0,
                                      .bytes = m->bytes,
                                      .number = p->number,
                                      .group = p->group};
    if (p->first < 0) {
        p->first = rank;
        p->group = (uint64_t)groups[rank];
    }
    return mine;
}

static void make_launch(int rank)
{
    struct cecl_message mine[MESSAGES];
    uint32_t order[MESSAGES], count = 0, most = 1 + draw(5);
    const int at = program.nlaunches[rank]++;
    struct event *now = &events[rank][posted[rank]];
    if (now->call >= 0) {
        launches[rank][at] = (struct cecl_verify_launch){.call = now->call};
        posted[rank]++;
        return;
    }
    for (; count < most && posted[rank] < nevents[rank] && now->call < 0; now++, posted[rank]++) {
        parts[rank][at][count] = (uint32_t)now->message;
        mine[count++] = post(rank, now->message);
    }
    const struct cecl_part part = {.call = {.rank = rank, .nranks = program.nranks}};
    cecl_plan_init(&plans[rank][at], &part);
    assert_int_equal(cecl_lower_messages(mine, count, order, &plans[rank][at]), ceclSuccess);
    launches[rank][at] = (struct cecl_verify_launch){
        .call = -1, .plan = &plans[rank][at], .messages = parts[rank][at], .nmessages = count};
    groups[rank]++;
}

/* Posts all messages. Hosts go on in a random order, some far ahead of others. */
static void post_all(void)
{
    for (int left = program.nranks; left > 0;) {
        const int r = (int)draw((uint32_t)program.nranks);
        for (uint32_t some = 1 + draw(6); some > 0 && posted[r] < nevents[r]; some--)
            make_launch(r);
        left = 0;
        for (int i = 0; i < program.nranks; i++)
            left += posted[i] < nevents[i];
    }
}

static void run(uint64_t number, int ncalls)
{
    make_program(number, ncalls);
    post_all();
    program.order = number; /* lanes go on in a random order, too */
    if (cecl_verify_program(&program) != ceclSuccess)
        fail_msg("program %llu: %s", (unsigned long long)number, cecl_message());
    free_program();
}

TEST(every_random_program_ends_with_every_byte_in_place)
{
    for (uint64_t number = 1; number <= 4000; number++)
        if (verifies_this_time())
            run(number, 0);
}

TEST(so_does_every_one_with_collectives_between)
{
    for (uint64_t number = 1; number <= 1000; number++)
        if (verifies_this_time())
            run(number, CALLS);
}

TEST(a_program_ends_in_whatever_order_lanes_go_on)
{
    make_program(7, CALLS);
    post_all();
    for (program.order = 0; program.order < 300; program.order++)
        assert_int_equal(cecl_verify_program(&program), ceclSuccess);
    free_program();
}

/* ONE_LANE: all peers share a lane. ONE_WORD: READY and MOVED share a word. The others lack all steps of a kind. */
enum fault { ONE_LANE, ONE_WORD, NO_READY, NO_MOVED, NO_JOIN, NO_FORK };

static bool lacks(enum fault fault, const struct cecl_step *step)
{
    const bool is_after = step->kind == CECL_STEP_AFTER, is_wait = step->kind == CECL_STEP_WAIT;
    switch (fault) {
    case ONE_LANE: return is_after;
    case NO_READY: return is_wait && step->counter - CECL_COUNTER_READY < 2;
    case NO_MOVED: return is_wait && step->counter - CECL_COUNTER_MOVED < 2;
    case NO_JOIN: return is_after && step->lane == CECL_LANE_MAIN;
    case NO_FORK: return is_after && step->lane != CECL_LANE_MAIN;
    default: return false;
    }
}

static void plant(enum fault fault, struct cecl_plan *plan)
{
    for (uint32_t i = plan->nsteps; i-- > 0;) {
        struct cecl_step *step = &plan->steps[i];
        if (lacks(fault, step))
            drop_step(plan, i);
        else if (fault == ONE_LANE)
            step->lane = CECL_LANE_MAIN;
        else if (fault == ONE_WORD && step->kind <= CECL_STEP_WAIT &&
                 step->counter - CECL_COUNTER_MOVED < 2)
            step->counter -= 2;
    }
}

/* `least`: in how many of 200 programs the fault is found; in some programs it does no harm */
TEST(planted_faults_are_found)
{
    static const struct {
        enum fault fault;
        uint32_t least;
        const char *words; /* in at least one message */
    } rows[] = {{ONE_LANE, 11, "deadlock"}, {NO_READY, 200, "race"}, {NO_MOVED, 200, "race"},
                {NO_JOIN, 101, "race"},     {NO_FORK, 11, "race"},   {ONE_WORD, 21, "grow"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t count = 0;
        bool said = false;
        for (uint64_t number = 1; number <= 200; number++) {
            make_program(number, 0);
            post_all();
            for (int r = 0; r < program.nranks; r++)
                for (int l = 0; l < program.nlaunches[r]; l++)
                    plant(rows[i].fault, &plans[r][l]);
            if (cecl_verify_program(&program) != ceclSuccess) {
                count++;
                said = said || strstr(cecl_message(), rows[i].words);
            }
            free_program();
        }
        assert_true(said);
        assert_in_range(count, rows[i].least, 200);
    }
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

static void lower_group(const struct cecl_message *group, uint32_t count, uint32_t *order,
                        struct cecl_plan *plan)
{
    const struct cecl_part part = {.call.nranks = 4};
    cecl_plan_init(plan, &part);
    assert_int_equal(cecl_lower_messages(group, count, order, plan), ceclSuccess);
}

TEST(messages_with_one_group_of_a_peer_are_one_batch_in_the_callers_stream)
{
    const struct cecl_message group[] = {with(1, CECL_SENDER, true, 5),
                                         with(1, CECL_RECEIVER, true, 5)};
    uint32_t order[2];
    struct cecl_plan plan;
    lower_group(group, 2, order, &plan);
    assert_int_equal(plan.nsteps, 6);
    assert_int_equal(plan.steps[3].kind, CECL_STEP_COPY);
    assert_int_equal(plan.steps[3].count, 2);
    for (uint32_t i = 0; i < plan.nsteps; i++)
        assert_int_equal(plan.steps[i].lane, CECL_LANE_MAIN);
    cecl_plan_free(&plan);
}

TEST(messages_with_two_peers_have_a_lane_each)
{
    static const char expected[] =
        "cecl: rank 0: plan, 4 ranks: messages\n"
        "cecl: rank 0:      0  signal rank 0: messages begin 1\n"
        "cecl: rank 0:      1  signal rank 3: sender is ready, message 1\n"
        "cecl: rank 0:      2  lane 2: wait for lane 0\n"
        "cecl: rank 0:      3  lane 2: wait for rank 1: receiver is ready, message 1\n"
        "cecl: rank 0:      4  lane 2: copy 1 in one batch\n"
        "cecl: rank 0:         send of call 1[0]+0 -> recv of call 1[1]+0  8 bytes\n"
        "cecl: rank 0:      5  lane 2: signal rank 1: sender has moved message 1\n"
        "cecl: rank 0:      6  lane 3: wait for lane 0\n"
        "cecl: rank 0:      7  lane 3: wait for rank 2: sender is ready, message 1\n"
        "cecl: rank 0:      8  lane 3: copy 1 in one batch\n"
        "cecl: rank 0:         send of call 2[2]+0 -> recv of call 2[0]+0  8 bytes\n"
        "cecl: rank 0:      9  lane 3: signal rank 2: receiver has moved message 1\n"
        "cecl: rank 0:     10  lane 3: wait for rank 2: receiver is ready, message 1\n"
        "cecl: rank 0:     11  lane 3: copy 1 in one batch\n"
        "cecl: rank 0:         send[0]+0 -> recv[2]+0  8 bytes\n"
        "cecl: rank 0:     12  lane 3: signal rank 2: sender has moved message 1\n"
        "cecl: rank 0:     13  wait for rank 3: receiver has moved message 1\n"
        "cecl: rank 0:     14  wait for lane 2\n"
        "cecl: rank 0:     15  wait for lane 3\n";
    /* rank 2's earlier group comes first on its lane */
    const struct cecl_message group[] = {
        with(2, CECL_SENDER, true, 1), with(1, CECL_SENDER, true, 7),
        with(2, CECL_RECEIVER, true, 0), with(3, CECL_SENDER, false, 0)};
    uint32_t order[4];
    struct cecl_plan plan;
    lower_group(group, 4, order, &plan);
    expect_print(&plan, expected);
    cecl_plan_free(&plan);
}
