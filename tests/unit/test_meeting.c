/* Meetings: the parts that members bring, refusals, and ranks that stop or end while they change the log. Ranks are
 * threads, except where a test says otherwise. */
#include "../with_cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "boot/meeting.h"
#include "boot/mesh_internal.h"
#include "util/clock.h"
#include "util/fds.h"

#define RANKS 4
#define EXCLUDED 1
#define EVENT_BYTES 1024 /* bytes of a record of the log */
#define EVENT_RANK_AT 12 /* where the rank lies in a record */

/* Makes a mesh without rows, which takes every rank for alive. */
static struct cecl_mesh *mesh_without_news(int rank)
{
    static int unknown[RANKS] = {-1, -1, -1, -1};
    struct cecl_mesh *mesh = calloc(1, sizeof(*mesh) + RANKS * sizeof(mesh->peers[0]));
    assert_non_null(mesh);
    mesh->processes = unknown;
    mesh->nranks = RANKS;
    mesh->rank = rank;
    return mesh;
}

static struct rank {
    pthread_t thread;
    struct cecl_meeting_plan plan;
    struct cecl_meetings meetings;
    int mine, all[RANKS];
    int said; /* how many records it has in the part of the log up to `counted` */
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
} ranks[RANKS];
static off_t counted;
static int log_fd;

#define START CECL_MEMORY_UNIT /* where the log begins in the file */
static int open_log(void)
{
    size_t bytes = START;
    int log;
    assert_int_equal(cecl_memory_make(&bytes, &log), ceclSuccess);
    return log;
}

static int plan_all(void **state)
{
    const int log = log_fd = open_log();
    counted = START;
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.mine = 10 + r};
        assert_int_equal(cecl_meetings_open(&ranks[r].meetings, log, START, r, RANKS), ceclSuccess);
        ranks[r].plan = (struct cecl_meeting_plan){.meetings = &ranks[r].meetings,
                                                   .mesh = mesh_without_news(r),
                                                   .timeout_ms = 60000,
                                                   .deadline = cecl_deadline(60000),
                                                   .part = &ranks[r].mine,
                                                   .bytes = sizeof(int)};
        for (int m = 0; m < RANKS; m++)
            if (m != EXCLUDED)
                cecl_rank_set_add(&ranks[r].plan.members, m);
    }
    return 0;
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

static void ends_as(int rank, ceclResult_t result)
{
    pthread_join(ranks[rank].thread, NULL);
    if (ranks[rank].result != result)
        fail_msg("rank %d: %d: %s", rank, (int)ranks[rank].result, ranks[rank].words);
}

static void start_members(void *(*live)(void *))
{
    for (int r = 0; r < RANKS; r++)
        if (r != EXCLUDED)
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, live, &ranks[r]), 0);
}

/* All members meet. Each gets what every member has brought: `first` plus that member's rank. */
static void members_meet(int first)
{
    for (int r = 0; r < RANKS; r++) {
        if (r == EXCLUDED)
            continue;
        ends_as(r, ceclSuccess);
        for (int m = 0, at = 0; m < RANKS; m++)
            if (m != EXCLUDED)
                assert_int_equal(ranks[r].all[at++], first + m);
    }
}

static int end_all(void **state)
{
    for (int r = 0; r < RANKS; r++) {
        free(ranks[r].plan.mesh);
        cecl_meetings_close(&ranks[r].meetings);
    }
    cecl_fds_close(log_fd);
    return 0;
}

#define TEST_OF_MEMBERS(name) TEST_BETWEEN(name, plan_all, end_all)

TEST_OF_MEMBERS(the_first_calls_need_no_more_memory)
{
    struct stat info;
    assert_int_equal(fstat(log_fd, &info), 0);
    assert_int_equal(info.st_size, START);
    assert_in_range(512 * info.st_blocks, RANKS * 8 * EVENT_BYTES, RANKS * 16 * EVENT_BYTES);
}

static int refusal; /* errno of fallocate, which then fails; 0: fallocate works */
WRAPPED(int, fallocate, (int fd, int mode, off_t from, off_t bytes))
{
    errno = refusal;
    return refusal ? -1 : __real_fallocate(fd, mode, from, bytes);
}

TEST_OF_MEMBERS(a_system_that_allocates_nothing_ahead_is_no_lack_of_memory)
{
    static const int errors[] = {ENOSPC, EOPNOTSUPP, ENOSYS, EPERM};
    struct cecl_meetings meetings;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        refusal = errors[i];
        assert_int_equal(cecl_meetings_open(&meetings, log_fd, START, 0, RANKS),
                         i == 0 ? ceclOutOfMemory : ceclSuccess);
        if (i > 0)
            cecl_meetings_close(&meetings);
    }
    refusal = 0;
}

TEST_OF_MEMBERS(members_get_all_parts_in_rank_order)
{
    for (int round = 0; round < 20; round++) {
        for (int r = 0; r < RANKS; r++)
            ranks[r].mine = 100 * round + r;
        start_members(run);
        members_meet(100 * round);
    }
}

/* Rank 3 completes the meeting, and at once refuses its next call, with another part, as a rank does that could not
 * make its communicator. The others have met, and must not take the new part. */
TEST(a_part_of_a_later_call_is_not_taken)
{
    for (int tries = 0; tries < 200; tries++) {
        (void)plan_all(state);
        start(&ranks[0]);
        start(&ranks[2]);
        assert_int_equal(cecl_meeting_join(&ranks[3].plan, ranks[3].all), ceclSuccess);
        ranks[3].mine = 99;
        (void)!cecl_meeting_refuse(&ranks[3].plan, cecl_fail(ceclSystemError, "a test"));
        for (int r = 0; r < 3; r += 2) {
            ends_as(r, ceclSuccess);
            assert_int_equal(ranks[r].all[2], 13);
        }
        (void)end_all(state);
    }
}

/* A rank begins its next call as soon as the first one returns, maybe before others have seen that all have come. */
static void *run_twice(void *argument)
{
    struct rank *me = argument;
    run(me);
    const ceclResult_t first = me->result;
    for (int r = 0, at = 0; r < RANKS; r++)
        if (r != EXCLUDED && me->all[at++] != 10 + r)
            return NULL; /* `me` took a part of the next call */
    me->mine += 100;
    if (first == ceclSuccess)
        run(me);
    return NULL;
}

TEST(a_member_that_calls_again_at_once_has_met)
{
    for (int tries = 0; tries < 20; tries++) {
        (void)plan_all(state);
        for (int r = 0; r < RANKS; r++) {
            ranks[r].plan.deadline = cecl_deadline(5000);
            if (r != EXCLUDED)
                assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_twice, &ranks[r]), 0);
            usleep(5000 + 37 * (useconds_t)tries); /* until naps have grown to full length */
        }
        members_meet(110);
        (void)end_all(state);
    }
}

static void refuse(int rank)
{
    assert_int_equal(cecl_meeting_refuse(&ranks[rank].plan, cecl_fail(ceclInvalidArgument, "no")),
                     ceclInvalidArgument);
}

static void all_succeed(void)
{
    for (int r = 0; r < RANKS; r++)
        ranks[r].plan.deadline = cecl_deadline(60000);
    start_members(run);
    for (int r = 0; r < RANKS; r++)
        if (r != EXCLUDED)
            ends_as(r, ceclSuccess);
}

static void fails_with(int rank, ceclResult_t result, const char *words)
{
    start(&ranks[rank]);
    ends_as(rank, result);
    assert_string_equal(ranks[rank].words, words);
}

TEST_OF_MEMBERS(a_call_that_all_refuse_is_over)
{
    for (int round = 0; round < 20; round++) {
        refuse(0);
        refuse(3);
        refuse(2);
        all_succeed();
    }
}

/* How many records a rank has written. */
static int last_of(int rank)
{
    static char event[EVENT_BYTES];
    for (; pread(log_fd, event, EVENT_BYTES, counted) == EVENT_BYTES; counted += EVENT_BYTES) {
        int by;
        memcpy(&by, event + EVENT_RANK_AT, sizeof(by));
        ranks[by].said++;
    }
    return ranks[rank].said;
}

static void start_and_await(int rank)
{
    const int before = last_of(rank);
    start(&ranks[rank]);
    while (last_of(rank) == before)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Rank 0 refuses a call, and makes its next one before the others refuse the first. */
TEST_OF_MEMBERS(a_refusal_ends_no_later_call)
{
    for (int round = 0; round < 20; round++) {
        refuse(0);
        start_and_await(0);
        refuse(2);
        refuse(3);
        start(&ranks[2]);
        start(&ranks[3]);
        for (int r = 0; r < RANKS; r++)
            if (r != EXCLUDED)
                ends_as(r, ceclSuccess);
    }
}

/* Rank 0 waits when rank 2 refuses. */
TEST_OF_MEMBERS(a_call_that_some_refuse_while_others_wait_is_over)
{
    for (int round = 0; round < 20; round++) {
        start_and_await(0);
        refuse(2);
        refuse(3);
        ends_as(0, ceclInvalidArgument);
        assert_string_equal(ranks[0].words, "rank 2: no");
        all_succeed();
    }
}

/* Before the others come, rank 0 refuses two calls, and rank 2 refuses the first of them. */
TEST_OF_MEMBERS(each_refused_call_fails_once_on_each_rank)
{
    refuse(0);
    refuse(2);
    refuse(0);
    fails_with(3, ceclInvalidArgument, "rank 0: no");
    fails_with(3, ceclInvalidArgument, "rank 0: no");
    fails_with(2, ceclInvalidArgument, "rank 0: no");
    all_succeed();
}

/* Rank 0 refuses a call with rank 3. Then rank 2 refuses more calls with rank 0 than CECL_MEETING_FAILURES. */
TEST_OF_MEMBERS(many_refused_calls_of_others_are_not_told_instead_of_one)
{
    cecl_rank_set_remove(&ranks[0].plan.members, 2);
    ranks[3].plan.members = ranks[0].plan.members;
    refuse(0);
    cecl_rank_set_remove(&ranks[2].plan.members, 3);
    for (int i = 0; i < 20; i++)
        refuse(2);
    fails_with(3, ceclInvalidArgument, "rank 0: no");
    ranks[0].plan.members = ranks[2].plan.members;
    fails_with(0, ceclInvalidArgument, "rank 2: no");
}

/* Rank 0 refuses seven calls with rank 3, and rank 2 two with rank 0: one more than CECL_MEETING_FAILURES in all. */
TEST_OF_MEMBERS(the_newest_refused_call_is_forgotten_if_the_new_one_covers_it)
{
    cecl_rank_set_remove(&ranks[0].plan.members, 2);
    ranks[3].plan.members = ranks[0].plan.members;
    cecl_rank_set_remove(&ranks[2].plan.members, 3);
    for (int i = 1; i < CECL_MEETING_FAILURES; i++)
        refuse(0);
    refuse(2);
    refuse(2);
    ranks[3].plan.deadline = cecl_deadline(ranks[3].plan.timeout_ms = 2000);
    for (int i = 1; i < CECL_MEETING_FAILURES; i++)
        fails_with(3, ceclInvalidArgument, "rank 0: no");
}

/* Rank 0 gives up a call, to which rank 3 comes later. Rank 2 comes to a call with another list. */
TEST_OF_MEMBERS(a_rank_that_comes_late_with_another_list_hears_both)
{
    static const char late[] = "ranks 2 and 3 did not come within 300 ms (CECL_INIT_TIMEOUT_MS)";
    ranks[0].plan.deadline = cecl_deadline(ranks[0].plan.timeout_ms = 300);
    fails_with(0, ceclTimeout, late);
    fails_with(3, ceclTimeout, late);
    cecl_rank_set_add(&ranks[2].plan.members, EXCLUDED);
    fails_with(2, ceclInvalidUsage,
               "ranks differ in which ranks they exclude: rank 1 on rank 0, no rank on rank 2");
}

/* The rank is alone in its meetings. Ends only if a meeting fails, or with the parent process. */
static _Noreturn void meet_alone(struct cecl_meeting_plan *plan, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    plan->members = (struct cecl_rank_set){{0}};
    cecl_rank_set_add(&plan->members, plan->meetings->rank);
    for (;;)
        if (cecl_meeting_join(plan, NULL) != ceclSuccess)
            _exit(1);
}

/* A process writes the log all the time, as rank EXCLUDED, and is often stopped within a change. When it goes on, it
 * must not spoil what the others have published meanwhile. In the end it is killed within a change. */
TEST_OF_MEMBERS(a_rank_that_is_stopped_amid_a_change_keeps_no_other_from_meeting)
{
    const int kept = ranks[EXCLUDED].meetings.log = dup(log_fd); /* a forked child closes log_fd */
    int status;
    const pid_t parent = getpid(), child = fork();
    if (child == 0)
        meet_alone(&ranks[EXCLUDED].plan, parent);
    while (last_of(EXCLUDED) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    for (int round = 0; round < 100; round++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000 * (round % 20)}, NULL);
        kill(child, SIGSTOP);
        assert_int_equal(waitpid(child, &status, WUNTRACED), child);
        assert_true(WIFSTOPPED(status)); /* a failed meeting would have ended it */
        const int last = last_of(EXCLUDED);
        all_succeed();
        assert_true(last_of(EXCLUDED) == last);
        kill(child, SIGCONT);
        while (last_of(EXCLUDED) == last) {
            all_succeed();
            assert_int_equal(waitpid(child, &status, WNOHANG), 0);
        }
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    all_succeed();
    close(kept);
}

/* ---- ranks call with lists that differ, in any order, and each calls again at once */

enum { ROUNDS = 1000, TRIES_MAX = 6 };

static struct {
    unsigned seed;
    pthread_barrier_t begin, end;
} unequal;

static bool exclude_some(struct rank *me, unsigned *x)
{
    bool excludes = false;
    for (int m = 0; m < RANKS; m++)
        if (m != me->meetings.rank && (*x = *x * 1103515245u + 12345u) >> 16 & 1) {
            me->plan.members.words[m / 64] &= ~(UINT64_C(1) << (m % 64));
            excludes = true;
        }
    return excludes;
}

static void list_all(struct rank *me)
{
    for (int m = 0; m < RANKS; m++)
        cecl_rank_set_add(&me->plan.members, m);
}

/* After a random pause, refuses a call, or calls with a random list; then calls with all ranks until that succeeds. */
static void call_until_all_meet(struct rank *me, unsigned *x)
{
    const struct timespec pause = {.tv_nsec =
                                       (long)((*x = *x * 1103515245u + 12345u) >> 16) % 300000};
    int tries = 0;
    nanosleep(&pause, NULL);
    list_all(me);
    if ((*x >> 20) % 8 == 0)
        (void)!cecl_meeting_refuse(&me->plan, cecl_fail(ceclInvalidArgument, "no"));
    else if (exclude_some(me, x)) {
        me->plan.deadline = cecl_deadline(2); /* `me` may wait for ranks that do not list it */
        (void)!cecl_meeting_join(&me->plan, me->all);
    }
    list_all(me);
    me->plan.deadline = cecl_deadline(60000);
    while (cecl_meeting_join(&me->plan, me->all) != ceclSuccess && tries < TRIES_MAX)
        tries++;
    for (int r = 0; r < RANKS; r++)
        if (tries == TRIES_MAX || me->all[r] != 10 + r) { /* asserts need the test's thread */
            fprintf(stderr, "rank %d, %d tries: %s\n", me->meetings.rank, tries, cecl_message());
            abort();
        }
}

static void *call_in_rounds(void *argument)
{
    struct rank *me = argument;
    unsigned x = unequal.seed + 7919u * (unsigned)me->meetings.rank;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&unequal.begin);
        call_until_all_meet(me, &x);
        pthread_barrier_wait(&unequal.end);
    }
    return NULL;
}

TEST_OF_MEMBERS(whatever_lists_and_refusals_come_all_meet_soon)
{
    const int64_t start = cecl_now_ms();
    unequal.seed = (unsigned)start;
    printf("seed %u\n", unequal.seed);
    pthread_barrier_init(&unequal.begin, NULL, RANKS);
    pthread_barrier_init(&unequal.end, NULL, RANKS);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, call_in_rounds, &ranks[r]), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(ranks[r].thread, NULL);
    assert_true(cecl_now_ms() - start < 50000);
}

/* Counts sleeps, in place of the system's function (by the linker, see CMakeLists.txt). */
static _Atomic int naps;
WRAPPED(int, nanosleep, (const struct timespec *wanted, struct timespec *left))
{
    atomic_fetch_add(&naps, 1);
    return __real_nanosleep(wanted, left);
}

/* If 1,000 ranks looked often, their looks alone would keep two cores busy. */
TEST(many_ranks_together_look_seldom)
{
    enum { MANY = CECL_MEETING_RANKS, LOOKS_A_SECOND = 100000, MS = 1500, FIRST_LOOKS = 12 };
    struct cecl_meetings meetings;
    struct cecl_meeting_plan plan = {
        .meetings = &meetings, .timeout_ms = MS, .deadline = cecl_deadline(MS), .part = ""};
    const int log = open_log();
    assert_int_equal(cecl_meetings_open(&meetings, log, START, 0, MANY), ceclSuccess);
    for (int r = 0; r < MANY; r++)
        cecl_rank_set_add(&plan.members, r);
    const int before = atomic_load(&naps);
    assert_int_equal(cecl_meeting_join(&plan, NULL), ceclTimeout);
    assert_in_range(atomic_load(&naps) - before, 1,
                    FIRST_LOOKS + LOOKS_A_SECOND / MANY * MS / 1000);
    cecl_meetings_close(&meetings);
    cecl_fds_close(log);
}

/* The log ends with a part of a record, as if a write had broken off. */
TEST_OF_MEMBERS(calls_end_where_the_log_cannot_be_read_on)
{
    assert_int_equal(write(log_fd, "debris!", 7), 7);
    for (int r = 0; r < 2; r++) {
        ranks[r].plan.deadline = cecl_deadline(ranks[r].plan.timeout_ms = 300);
        start(&ranks[r]);
    }
    for (int r = 0; r < 2; r++)
        ends_as(r, ceclTimeout);
    assert_in_range(lseek(log_fd, 0, SEEK_END), START, START + 8 * CECL_MEMORY_UNIT);
}

/* Rank 0 could not read how its first call ended. Its second one must not take what peers brought to the first. */
TEST_OF_MEMBERS(a_call_that_failed_unread_is_not_taken_for_the_next)
{
    struct cecl_meetings before = ranks[0].meetings;
    start_members(run);
    members_meet(10);
    ranks[0].meetings.next = before.next; /* as if it had read nothing */
    ranks[0].plan.deadline = cecl_deadline(ranks[0].plan.timeout_ms = 300);
    ranks[0].mine = 77;
    start(&ranks[0]);
    ends_as(0, ceclTimeout);
}
