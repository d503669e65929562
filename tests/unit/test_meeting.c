/* The parts that members bring to a meeting, in plain memory. Ranks are threads. No process ends, so only
 * the meeting itself shows which ranks have moved on. */
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <pthread.h>

#include "boot/meeting_internal.h"
#include "boot/mesh_internal.h"
#include "util/clock.h"

#define RANKS 4
#define EXCLUDED 1

/* A mesh without connections regards every rank as alive. */
static struct cecl_mesh *mesh_without_news(int rank)
{
    struct cecl_mesh *mesh = calloc(1, sizeof(*mesh) + RANKS * sizeof(mesh->peers[0]));
    assert_non_null(mesh);
    mesh->nranks = RANKS;
    mesh->rank = rank;
    for (int r = 0; r < RANKS; r++)
        mesh->peers[r] = (struct mesh_peer){.data = -1, .life = -1, .process = -1, .post = -1};
    pthread_mutex_init(&mesh->life_lock, NULL);
    return mesh;
}

static void end_mesh(struct cecl_mesh *mesh)
{
    pthread_mutex_destroy(&mesh->life_lock);
    free(mesh);
}

static struct rank {
    pthread_t thread;
    struct cecl_meeting_plan plan;
    int mine, all[RANKS];
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
} ranks[RANKS];

/* All ranks except EXCLUDED are members. */
static void plan_all(void *memory)
{
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.mine = 10 + r};
        ranks[r].plan = (struct cecl_meeting_plan){.memory = memory,
                                                   .mesh = mesh_without_news(r),
                                                   .rank = r,
                                                   .nranks = RANKS,
                                                   .timeout_ms = 60000,
                                                   .deadline = cecl_deadline(60000),
                                                   .part = &ranks[r].mine,
                                                   .bytes = sizeof(int)};
        for (int m = 0; m < RANKS; m++)
            if (m != EXCLUDED)
                cecl_rank_set_add(&ranks[r].plan.members, m);
    }
}

static void *run(void *argument)
{
    struct rank *me = argument;
    me->result = cecl_meeting_join(&me->plan, me->all);
    cecl_keep_message(me->words);
    return NULL;
}

static void start(struct rank *rank)
{
    assert_int_equal(pthread_create(&rank->thread, NULL, run, rank), 0);
}

static void end_all(void *memory)
{
    for (int r = 0; r < RANKS; r++)
        end_mesh(ranks[r].plan.mesh);
    free(memory);
}

static void members_get_all_parts_in_rank_order(void **state)
{
    void *memory = calloc(1, cecl_meetings_bytes(RANKS));
    plan_all(memory);
    for (int round = 0; round < 20; round++) { /* more rounds than the table keeps */
        for (int r = 0; r < RANKS; r++) {
            ranks[r].mine = 100 * round + r;
            if (r != EXCLUDED)
                start(&ranks[r]);
        }
        for (int r = 0; r < RANKS; r++) {
            if (r == EXCLUDED)
                continue;
            pthread_join(ranks[r].thread, NULL);
            assert_int_equal(ranks[r].result, ceclSuccess);
            for (int m = 0, member = 0; m < RANKS; m++)
                if (m != EXCLUDED)
                    assert_int_equal(ranks[r].all[member++], 100 * round + m);
        }
    }
    end_all(memory);
}

/* Rank 3 completes the meeting and calls again at once with another part, as after a failure to make the
 * communicator. A rank that is too late for the first part must not take the second one. */
static void a_part_of_a_later_call_is_not_taken(void **state)
{
    int late = 0;
    for (int tries = 0; tries < 2000 && late == 0; tries++) {
        void *memory = calloc(1, cecl_meetings_bytes(RANKS));
        plan_all(memory);
        start(&ranks[0]);
        start(&ranks[2]);
        assert_int_equal(cecl_meeting_join(&ranks[3].plan, ranks[3].all), ceclSuccess);
        ranks[3].mine = 99;
        (void)!cecl_meeting_refuse(&ranks[3].plan, cecl_fail(ceclSystemError, "a test"));
        for (int r = 0; r < 3; r += 2) {
            pthread_join(ranks[r].thread, NULL);
            if (ranks[r].result == ceclSuccess) {
                assert_int_equal(ranks[r].all[2], 13);
                continue;
            }
            assert_int_equal(ranks[r].result, ceclRemoteError);
            assert_string_equal(ranks[r].words, "rank 3 gave up the new communicator");
            late++;
        }
        end_all(memory);
    }
    assert_true(late > 0);
}

static void refuse(int rank)
{
    assert_int_equal(cecl_meeting_refuse(&ranks[rank].plan, cecl_fail(ceclInvalidArgument, "no")),
                     ceclInvalidArgument);
}

static void all_succeed(void)
{
    for (int r = 0; r < RANKS; r++)
        if (r != EXCLUDED)
            start(&ranks[r]);
    for (int r = 0; r < RANKS; r++)
        if (r != EXCLUDED) {
            pthread_join(ranks[r].thread, NULL);
            assert_int_equal(ranks[r].result, ceclSuccess);
        }
}

static void fails_by(int rank, const char *words)
{
    start(&ranks[rank]);
    pthread_join(ranks[rank].thread, NULL);
    assert_int_equal(ranks[rank].result, ceclInvalidArgument);
    assert_string_equal(ranks[rank].words, words);
}

static void a_call_that_all_refuse_is_over(void **state)
{
    void *memory = calloc(1, cecl_meetings_bytes(RANKS));
    plan_all(memory);
    for (int round = 0; round < 20; round++) { /* more rounds than the table keeps */
        refuse(0);
        refuse(3);
        refuse(2);
        all_succeed();
    }
    end_all(memory);
}

/* The meeting that a rank came to last. Takes the table's lock, in the name of the rank that makes no calls. */
static uint64_t last_of(struct table *table, int rank)
{
    uint32_t none = 0;
    while (!atomic_compare_exchange_weak(&table->holder, &none, EXCLUDED + 1))
        none = 0;
    const uint64_t last = table->last_of[rank];
    atomic_store(&table->holder, 0);
    return last;
}

/* Starts a rank, and waits until it has come to a meeting. */
static void start_and_await(struct table *table, int rank)
{
    const uint64_t before = last_of(table, rank);
    start(&ranks[rank]);
    while (last_of(table, rank) == before)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Rank 0 makes its next call before the others refuse this one. */
static void a_refusal_ends_no_later_call(void **state)
{
    struct table *table = calloc(1, cecl_meetings_bytes(RANKS));
    plan_all(table);
    for (int round = 0; round < 20; round++) {
        refuse(0);
        start_and_await(table, 0);
        refuse(2);
        refuse(3);
        start(&ranks[2]);
        start(&ranks[3]);
        for (int r = 0; r < RANKS; r++)
            if (r != EXCLUDED) {
                pthread_join(ranks[r].thread, NULL);
                assert_int_equal(ranks[r].result, ceclSuccess);
            }
    }
    end_all(table);
}

/* Rank 0 waits when rank 2 refuses. */
static void a_call_that_some_refuse_while_others_wait_is_over(void **state)
{
    struct table *table = calloc(1, cecl_meetings_bytes(RANKS));
    plan_all(table);
    for (int round = 0; round < 20; round++) {
        start_and_await(table, 0);
        refuse(2);
        refuse(3);
        pthread_join(ranks[0].thread, NULL);
        assert_int_equal(ranks[0].result, ceclInvalidArgument);
        assert_string_equal(ranks[0].words, "rank 2: no");
        all_succeed();
    }
    end_all(table);
}

/* Rank 0 refuses two calls, of which rank 2 refuses the first, before the others come. */
static void each_refused_call_fails_once_on_each_rank(void **state)
{
    void *memory = calloc(1, cecl_meetings_bytes(RANKS));
    plan_all(memory);
    refuse(0);
    refuse(2);
    refuse(0);
    fails_by(3, "rank 0: no"); /* the first call */
    fails_by(3, "rank 0: no"); /* the second call */
    fails_by(2, "rank 0: no");
    all_succeed();
    end_all(memory);
}

#define TURNS_MS 6000 /* longer than a rank may hold the lock */
#define LONG_TURN_MS 4000

/* Other ranks take turns with the lock of the meetings, so that rank 0 never finds it free. */
static void a_lock_that_goes_from_rank_to_rank_is_waited_for(void **state)
{
    struct table *table = calloc(1, cecl_meetings_bytes(RANKS));
    plan_all(table);
    ranks[0].plan.members = (struct cecl_rank_set){{1}}; /* rank 0 alone */
    atomic_store(&table->holder, 2);
    start(&ranks[0]);
    const int64_t first = cecl_now_ms();
    int64_t turn = first, longest = 0;
    for (uint32_t holder = 1; turn - first < TURNS_MS; holder++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        atomic_store(&table->holder, 2 + holder % (RANKS - 1));
        const int64_t now = cecl_now_ms();
        longest = now - turn > longest ? now - turn : longest;
        turn = now;
    }
    atomic_store(&table->holder, 0);
    pthread_join(ranks[0].thread, NULL);
    /* otherwise this machine stood still, and a rank held the lock too long */
    if (longest < LONG_TURN_MS)
        assert_int_equal(ranks[0].result, ceclSuccess);
    end_all(table);
}

/* The meeting that the test below watches. Replaces the system's function (by the linker, see CMakeLists.txt): the
 * meeting is late after some sleeps. */
static struct cecl_meeting_plan *watched;
static int naps;
static long longest_ns;
int __real_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
    if (watched) { /* by a single thread */
        longest_ns = wanted->tv_nsec > longest_ns ? wanted->tv_nsec : longest_ns;
        if (++naps == 30)
            watched->deadline = cecl_now_ms();
    }
    return __real_nanosleep(wanted, left);
}

/* Otherwise looks alone would keep two cores busy. */
static void many_ranks_together_look_seldom(void **state)
{
    enum { MANY = CECL_MEETING_RANKS, LOOKS_A_SECOND = 100000 };
    struct cecl_meeting_plan plan = {.memory = calloc(1, cecl_meetings_bytes(MANY)),
                                     .nranks = MANY,
                                     .deadline = CECL_NO_DEADLINE};
    for (int r = 0; r < MANY; r++)
        cecl_rank_set_add(&plan.members, r);
    watched = &plan;
    longest_ns = 0;
    assert_int_equal(cecl_meeting_join(&plan, NULL), ceclTimeout);
    watched = NULL;
    assert_true(longest_ns >= 1000000000L / LOOKS_A_SECOND * MANY);
    free(plan.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_get_all_parts_in_rank_order),
        cmocka_unit_test(a_part_of_a_later_call_is_not_taken),
        cmocka_unit_test(a_call_that_all_refuse_is_over),
        cmocka_unit_test(a_call_that_some_refuse_while_others_wait_is_over),
        cmocka_unit_test(a_refusal_ends_no_later_call),
        cmocka_unit_test(each_refused_call_fails_once_on_each_rank),
        cmocka_unit_test(a_lock_that_goes_from_rank_to_rank_is_waited_for),
        cmocka_unit_test(many_ranks_together_look_seldom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
