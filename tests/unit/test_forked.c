/* A forked child holds nothing of its parent's communicators open. So peers of a dead parent notice the death although
 * the child lives, even where they cannot watch the parent's process. */
#include "../forked.h"
#include "../prompt.h"
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define RANKS 3
#define VICTIM 1
#define MOST_FDS 1024
/* Under gcc's thread sanitizer a fork takes long, and the sanitizer ends a forked child that starts threads. */
#ifdef __SANITIZE_THREAD__
#define FORKS 20
#define CHILD_STARTS_THREADS 0
#else
#define FORKS 300
#define CHILD_STARTS_THREADS 1
#endif
#define OK(expr) assert_int_equal((expr), ceclSuccess)

static bool open_before[MOST_FDS];

static void list_descriptors(bool out[MOST_FDS])
{
    for (int fd = 0; fd < MOST_FDS; fd++)
        out[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Whether a descriptor is new. Files of /proc do not count: functions that read them close them. */
static bool is_new(int fd)
{
    char path[32], target[64] = "";
    if (open_before[fd] || fcntl(fd, F_GETFD) < 0)
        return false;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof(target) - 1) < 0 || strncmp(target, "/proc", 5) != 0;
}

/* No asserts: children call this. */
static int count_new_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < MOST_FDS; fd++)
        count += is_new(fd);
    return count;
}

/* Forks a child. Returns how many descriptors the child has that were not open before. */
static int child_finds(void)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0)
        _exit(count_new_descriptors());
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

struct home {
    ceclComm_t comms[2];
    ceclStream_t stream;
    void *memory[2];
};

static void open_home(struct home *home)
{
    OK(ceclCommInitAll(home->comms, 2, NULL));
    OK(ceclGroupStart());
    for (int r = 0; r < 2; r++)
        OK(ceclMemAlloc(home->comms[r], &home->memory[r], 1 << 20));
    OK(ceclGroupEnd());
    OK(ceclStreamCreate(home->comms[0], &home->stream));
}

static void close_home(struct home *home)
{
    OK(ceclStreamDestroy(home->comms[0], home->stream));
    for (int r = 0; r < 2; r++)
        OK(ceclCommDestroy(home->comms[r]));
}

static int before_each(void **state)
{
    list_descriptors(open_before);
    return 0;
}

TEST_BETWEEN(a_child_has_no_descriptor_of_a_communicator, before_each, NULL)
{
    struct home home;
    open_home(&home);
    assert_true(count_new_descriptors() > 10);
    assert_int_equal(child_finds(), 0);
    /* A child that the library does not notice (vfork, posix_spawn) closes them by exec. */
    for (int fd = 0; fd < MOST_FDS; fd++)
        assert_true(!is_new(fd) || fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close_home(&home);
    assert_int_equal(count_new_descriptors(), 0);
}

static _Atomic bool goes_on;

static void *make_communicators(void *argument)
{
    struct home home;
    while (goes_on) {
        open_home(&home);
        close_home(&home);
    }
    return argument;
}

TEST_BETWEEN(a_child_that_is_forked_amid_an_init_has_none_either, before_each, NULL)
{
    pthread_t thread;
    goes_on = true;
    assert_int_equal(pthread_create(&thread, NULL, make_communicators, NULL), 0);
    for (int i = 0; i < FORKS; i++)
        assert_int_equal(child_finds(), 0);
    goes_on = false;
    pthread_join(thread, NULL);
}

TEST_BETWEEN(a_child_keeps_files_under_numbers_that_a_communicator_had, before_each, NULL)
{
    struct home home;
    int files[50];
    open_home(&home);
    close_home(&home);
    for (int i = 0; i < 50; i++)
        assert_true((files[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    assert_int_equal(child_finds(), 50);
    for (int i = 0; i < 50; i++)
        close(files[i]);
}

static int refused(const char *what, ceclResult_t result)
{
    const char *words = ceclGetLastError(NULL);
    if (result == ceclInvalidUsage && strstr(words, "made before this process was forked"))
        return 0;
    fprintf(stderr, "%s: %d: %s\n", what, (int)result, words);
    return 1;
}

static int use(struct home *home)
{
    ceclComm_t comm = home->comms[0], out = NULL;
    ceclResult_t async;
    void *memory = home->memory[0], *more;
    int bad = 0;
#define REFUSED(expr) bad += refused(#expr, expr)
    REFUSED(ceclAllGather(memory, memory, 1, ceclFloat, comm, NULL));
    REFUSED(ceclBarrier(comm, home->stream));
    REFUSED(ceclMemAlloc(comm, &more, 8));
    REFUSED(ceclMemFree(comm, memory));
    REFUSED(ceclStreamSynchronize(comm, home->stream));
    REFUSED(ceclStreamDestroy(comm, home->stream));
    REFUSED(ceclMemcpyAsync(comm, memory, (char *)memory + 8, 8, home->stream));
    REFUSED(ceclCommGetAsyncError(comm, &async));
    REFUSED(ceclCommSplit(comm, 0, 0, &out, NULL));
    REFUSED(ceclCommShrink(comm, NULL, 0, &out, NULL));
    REFUSED(ceclCommRevoke(comm));
    REFUSED(ceclCommFinalize(comm));
    REFUSED(ceclCommAbort(comm));
    REFUSED(ceclCommDestroy(comm));
    return bad;
}

/* The child's own communicators reuse the numbers of its parent's descriptors. */
TEST_BETWEEN(a_child_is_refused_and_makes_communicators_of_its_own, before_each, NULL)
{
    struct home home, own;
    int status = 0;
    open_home(&home);
    const pid_t child = fork();
    if (child == 0) {
        if (CHILD_STARTS_THREADS)
            open_home(&own);
        const int bad = use(&home);
        if (CHILD_STARTS_THREADS)
            close_home(&own);
        _exit(bad);
    }
    assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close_home(&home);
}

/* Returns true once this process can no longer watch other processes. */
static bool refuse_pidfd_open(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
           syscall(SYS_pidfd_open, getpid(), 0) < 0;
}

static bool enter_new_pid_namespace(void)
{
    return unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0;
}

static bool run_in_new_pid_namespace(void)
{
    int status = 1;
    if (!enter_new_pid_namespace())
        return false;
    const pid_t first = fork();
    if (first == 0)
        _exit(0);
    return first > 0 && waitpid(first, &status, 0) == first && status == 0;
}

/* Whether `does` succeeds, in a child of this process. */
static bool may(bool (*does)(void))
{
    int status = 1;
    const pid_t child = fork();
    if (child == 0)
        _exit(!does());
    return waitpid(child, &status, 0) == child && status == 0;
}

typedef void (*end_fn)(void);

static void die(void)
{
    _exit(0);
}

static void restart(void)
{
    execlp("sleep", "sleep", "200", (char *)NULL);
    _exit(9);
}

static ceclComm_t join(struct forked_id *id, int rank)
{
    ceclComm_t comm = NULL;
    if (ceclCommInitRank(&comm, RANKS, forked_meet(id, rank), rank) != ceclSuccess ||
        ceclBarrier(comm, NULL) != ceclSuccess || ceclStreamSynchronize(comm, NULL) != ceclSuccess)
        fprintf(stderr, "rank %d: %s\n", rank, ceclGetLastError(NULL));
    return comm;
}

/* A survivor. Exit code 0: its call soon ended with the error that names rank 1. */
static _Noreturn void survive(struct forked_id *id, int rank)
{
    ceclComm_t comm = join(id, rank);
    const double start = now();
    ceclResult_t result = comm ? ceclSuccess : ceclInternalError;
    while (result == ceclSuccess) {
        result = ceclBarrier(comm, NULL);
        result = result == ceclSuccess ? ceclStreamSynchronize(comm, NULL) : result;
    }
    const char *words = ceclGetLastError(comm);
    const bool good = result == ceclRemoteError && strstr(words, "rank 1 ended unexpectedly");
    if (!good || now() - start > PROMPT)
        fprintf(stderr, "rank %d, after %.1f s: %d: %s\n", rank, now() - start, (int)result, words);
    (void)!ceclCommDestroy(comm);
    _exit(!good || now() - start > PROMPT);
}

static int leash[2]; /* the victim's child waits until no process has the second end open */

static void leave_a_child(void)
{
    char byte;
    if (fork() != 0)
        return;
    close(leash[1]);
    alarm(200); /* more than all time limits of the ranks */
    (void)!read(leash[0], &byte, 1);
    _exit(0);
}

static _Noreturn void be_victim(struct forked_id *id, end_fn end)
{
    if (!join(id, VICTIM))
        _exit(1);
    leave_a_child();
    end();
    _exit(9);
}

/* In a PID namespace of its own a survivor cannot watch the victim's process. */
static _Noreturn void survive_elsewhere(struct forked_id *id, int rank)
{
    int status = 0;
    if (!enter_new_pid_namespace())
        _exit(8);
    const pid_t first = fork();
    if (first == 0)
        survive(id, rank);
    waitpid(first, &status, 0);
    _exit(status != 0);
}

static _Noreturn void survive_without_pidfd_open(struct forked_id *id, int rank)
{
    if (!refuse_pidfd_open())
        _exit(8);
    survive(id, rank);
}

static void survivors_get_the_error(void (*live)(struct forked_id *id, int rank), end_fn end)
{
    struct forked_id *id = shared_memory(sizeof(*id));
    pid_t ranks[RANKS];
    int status = 0;
    assert_int_equal(pipe(leash), 0);
    for (int r = 0; r < RANKS; r++)
        if ((ranks[r] = fork()) == 0) {
            if (r == VICTIM)
                be_victim(id, end);
            live(id, r);
        }
    for (int r = 0; r < RANKS; r++)
        if (r != VICTIM) {
            assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
            assert_int_equal(status, 0);
        }
    kill(ranks[VICTIM], SIGKILL); /* it lives on if it has become another program */
    waitpid(ranks[VICTIM], NULL, 0);
    close(leash[0]);
    close(leash[1]);
    munmap(id, sizeof(*id));
}

TEST_BETWEEN(survivors_notice_that_a_rank_has_become_another_program, before_each, NULL)
{
    survivors_get_the_error(survive, restart);
}

TEST_BETWEEN(survivors_notice_a_death_in_another_pid_namespace, before_each, NULL)
{
    if (!may(run_in_new_pid_namespace))
        skip_because("a new PID namespace is not permitted here");
    survivors_get_the_error(survive_elsewhere, die);
}

TEST_BETWEEN(survivors_notice_a_death_where_pidfd_open_is_refused, before_each, NULL)
{
    if (!may(refuse_pidfd_open))
        skip_because("system calls cannot be filtered here");
    survivors_get_the_error(survive_without_pidfd_open, die);
}

int main(void)
{
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_TIMEOUT_MS", "60000", 1);
    return tests_run(NULL, NULL);
}
