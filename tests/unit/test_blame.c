/* Processes split or shrink a parent, in which their ranks differ from those in the child. One dies or revokes the
 * parent, at many of its system calls in turn. Others' errors must name only that rank, numbered as in the parent. */
#include <limits.h>

#include "../forked.h"
#include "../prompt.h"
#include "../with_cmocka.h"
#include "../wrapped_syscall.h"

#include <cecl/cecl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../world/blame.h"

#define RANKS 4
#define EXCLUDED 0

#define PAUSE_MS 20 /* ms; enough for the other ranks to learn of a revocation */

static _Thread_local int calls_left; /* until the fault; 0: no fault */
static void (*commit)(void);

static void count_call(void)
{
    if (calls_left > 0 && --calls_left == 0)
        commit();
}

#define FAULT_AT(result, name, parameters, arguments) \
    WRAPPED(result, name, parameters) \
    { \
        count_call(); \
        return __real_##name arguments; \
    }
FAULT_AT(int, connect, (int fd, const struct sockaddr *to, socklen_t bytes), (fd, to, bytes))
FAULT_AT(ssize_t, send, (int fd, const void *data, size_t bytes, int flags),
         (fd, data, bytes, flags))
FAULT_AT(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
FAULT_AT(ssize_t, recv, (int fd, void *data, size_t bytes, int flags), (fd, data, bytes, flags))
FAULT_AT(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
FAULT_AT(int, socket, (int domain, int type, int protocol), (domain, type, protocol))

/* Counts the library's futex calls: a rank makes them when it comes to an exchange and while it waits in it. */
WRAPPED_SYSCALL((count_call(), false))

struct meeting {
    struct forked_id id;
    _Atomic int joined, over;
    _Atomic bool committed;
};

enum call { SHRINK, SPLIT };

struct trial {
    enum call call;
    void (*commit)(void);
    int faulty, at; /* `faulty` commits the fault at its system call number `at` */
};

enum end { MADE_IT, NAMED_IT, FAILED };

static struct meeting *meeting; /* shared by all processes */
static ceclComm_t comm;         /* the parent communicator */

static void die(void)
{
    meeting->committed = true;
    meeting->over++;
    kill(getpid(), SIGKILL);
    pause();
}

static void revoke_parent(void)
{
    meeting->committed = true;
    (void)!ceclCommRevoke(comm);
    usleep(PAUSE_MS * 1000);
}

static void join(int rank)
{
    if (ceclCommInitRank(&comm, RANKS, forked_meet(&meeting->id, rank), rank) != ceclSuccess)
        _exit(FAILED);
    meeting->joined++;
    while (meeting->joined < RANKS)
        usleep(200);
}

static ceclResult_t make(const struct trial *trial, int rank)
{
    const int excluded = EXCLUDED;
    ceclComm_t child = NULL;
    commit = trial->commit;
    calls_left = rank == trial->faulty ? trial->at : 0;
    const ceclResult_t result = trial->call == SHRINK
                                    ? ceclCommShrink(comm, &excluded, 1, &child, NULL)
                                    : ceclCommSplit(comm, 0, (rank + 1) % RANKS, &child, NULL);
    calls_left = 0;
    return result;
}

static enum end judge(const struct trial *trial, int rank, ceclResult_t result, double took)
{
    const struct blame blame = blame_of(ceclGetLastError(NULL), trial->faulty, false);
    if (result == ceclSuccess || rank == trial->faulty)
        return MADE_IT;
    if (result == ceclRemoteError && blame.names_faulty && blame.wrongly < 0 && took < PROMPT)
        return NAMED_IT;
    fprintf(stderr, "rank %d at call %d; rank %d after %.1f s: %d: %s\n", trial->faulty, trial->at,
            rank, took, (int)result, ceclGetLastError(NULL));
    return FAILED;
}

static _Noreturn void live(const struct trial *trial, int rank)
{
    enum end end = MADE_IT;
    alarm(200);
    join(rank);
    if (trial->call == SPLIT || rank != EXCLUDED) {
        const double start = now();
        const ceclResult_t result = make(trial, rank);
        end = judge(trial, rank, result, now() - start);
    }
    meeting->over++; /* no rank ends before all are done: peers would notice its end */
    while (meeting->over < RANKS)
        usleep(200);
    _exit((int)end);
}

/* Returns whether the faulty rank reached its fault. *named: number of errors that name that rank. */
static bool try(const struct trial *trial, int *named)
{
    pid_t ranks[RANKS];
    meeting = shared_memory(sizeof(*meeting));
    for (int r = 0; r < RANKS; r++)
        if ((ranks[r] = fork()) == 0)
            live(trial, r);
    for (int r = 0; r < RANKS; r++) {
        int status;
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        assert_true(WIFEXITED(status) || r == trial->faulty);
        assert_true(!WIFEXITED(status) || WEXITSTATUS(status) != FAILED);
        *named += WIFEXITED(status) && WEXITSTATUS(status) == NAMED_IT;
    }
    const bool committed = meeting->committed;
    munmap(meeting, sizeof(*meeting));
    return committed;
}

/* A fault is tried at every `step`-th system call up to `last`. Which call is the first differs from rank to rank. */
struct calls {
    int step, last;
};

/* Returns the number of errors that name the faulty rank. *faults: number of committed faults. */
static int try_each(enum call call, void (*commit_it)(void), struct calls calls, int *faults)
{
    int named = 0;
    *faults = 0;
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_DEBUG", "none", 1);
    setenv("CECL_TIMEOUT_MS", "60000", 1);
    for (int r = call == SHRINK ? EXCLUDED + 1 : 0; r < RANKS; r++) {
        struct trial trial = {
            .call = call, .commit = commit_it, .faulty = r, .at = 1 + r % calls.step};
        for (; trial.at <= calls.last && try(&trial, &named); trial.at += calls.step)
            ++*faults;
    }
    return named;
}

/* Every survivor's call fails, unless the faulty rank had already sent its last message when it died. */
static void each_death_is_blamed_on_the_dead(enum call call, int step)
{
    int deaths;
    const int named = try_each(call, die, (struct calls){step, INT_MAX}, &deaths);
    assert_true(deaths > 20 && named > deaths);
}

TEST(a_rank_that_dies_is_named_by_its_number_in_the_parent)
{
    each_death_is_blamed_on_the_dead(SHRINK, 7);
    each_death_is_blamed_on_the_dead(SPLIT, 13);
}

/* A rank that learns of the revocation before it joins the split gives up, and the ranks that wait for it learn of that.
 * A rank that is already joining ignores the revocation. So no revocation is tried at later system calls. */
TEST(a_rank_that_revokes_the_parent_in_a_split_is_named_by_all_who_fail)
{
    int revocations;
    assert_true(try_each(SPLIT, revoke_parent, (struct calls){1, 20}, &revocations) > 10);
    assert_true(revocations > 20);
}
