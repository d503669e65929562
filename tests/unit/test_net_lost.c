/* When NCCL between nodes reports that a remote process ended, the error names the rank that ended or left, also if
 * this becomes known after NCCL's error. Three ranks, each a node and a process of its own, with a fake NCCL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../prompt.h"
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_nccl.h"
#include "net/pipes.h"
#include "util/clock.h"

#define RANKS 3
#define PROCESS_EXITED 6 /* ncclRemoteError */
#define IN_PROGRESS 7
#define OUT_OF_SYSTEM 2 /* ncclSystemError */

static struct meeting {
    ceclUniqueId id;
    _Atomic int has_id, goes, is_over;
    _Atomic int gathered, gone; /* how many ranks */
    _Atomic int splitting;      /* how many ranks have begun to split NCCL's communicator */
    pid_t victim;
    char heard[1024], refused[RANKS][1024];
} * meeting;
static struct fake_nccl *fake;
/* what happens to rank 2 before rank 0 hears NCCL's error; NULL: there is none, and rank 2 leaves */
static void (*before_error)(void);
static bool one_has_left; /* whether rank 1 leaves before, in order */
/* what rank 2 does instead of splitting NCCL's communicator, which then ends for nobody; NULL: it splits it */
static int (*instead_of_split)(void);

static void await(const _Atomic int *count, int wanted)
{
    for (int ms = 0; *count < wanted && ms < PROMPT * 1000; ms++)
        usleep(1000);
}

/* ---- the ranks. They end with status 0, unless a call fails that must not fail. */

static int split(void *context, void *config, void **comm)
{
    const int rank = *(const int *)context;
    (void)config;
    *comm = fake;
    if (!instead_of_split)
        return 0;
    fake->state = IN_PROGRESS;
    meeting->splitting++;
    await(&meeting->splitting, RANKS);
    return rank == 2 ? instead_of_split() : IN_PROGRESS;
}

static ceclResult_t try_to_join(int rank, ceclComm_t *comm)
{
    const ceclNcclNet_t net = {
        .library = dlopen(FAKE_NCCL, RTLD_NOW), .split = split, .context = &rank};
    fake = net.library ? dlsym(net.library, "fake_nccl") : NULL;
    if (!fake)
        _exit(2);
    fake->version = 22803;
    fake->on_error = rank == 0 ? before_error : NULL;
    if (rank == 0 && ceclGetUniqueId(&meeting->id) == ceclSuccess)
        meeting->has_id = 1;
    await(&meeting->has_id, 1);
    cecl_net_lend(&(struct cecl_net_lender){.nccl = &net});
    const ceclResult_t result = ceclCommInitRank(comm, RANKS, meeting->id, rank);
    cecl_net_lend(NULL);
    return result;
}

static ceclComm_t join(int rank)
{
    ceclComm_t comm = NULL;
    if (try_to_join(rank, &comm) != ceclSuccess) {
        fprintf(stderr, "rank %d: %s\n", rank, ceclGetLastError(NULL));
        _exit(3);
    }
    return comm;
}

static void gather(ceclComm_t comm, int rank)
{
    char *memory = NULL;
    if (ceclMemAlloc(comm, (void **)&memory, RANKS * 1000) != ceclSuccess ||
        ceclAllGather(memory + 1000 * rank, memory, 1000, ceclInt8, comm, 0) != ceclSuccess ||
        ceclStreamSynchronize(comm, 0) != ceclSuccess)
        _exit(4);
    meeting->gathered++;
}

static void leave(ceclComm_t comm)
{
    if (ceclCommDestroy(comm) != ceclSuccess)
        _exit(5);
    meeting->gone++;
    _exit(0);
}

static void live_as_bystander(void)
{
    const ceclComm_t comm = join(1);
    gather(comm, 1);
    await(&meeting->gathered, RANKS);
    if (one_has_left)
        leave(comm);
    await(&meeting->is_over, 1);
    (void)!ceclCommAbort(comm);
    _exit(0);
}

static void live_as_victim(void)
{
    const ceclComm_t comm = join(2);
    gather(comm, 2);
    await(&meeting->goes, 1);
    leave(comm);
}

/* NCCL reports no error, but its exchange does not end. */
static void let_a_barrier_wait(ceclComm_t comm)
{
    fake->polls = -1;
    if (ceclBarrier(comm, 0) != ceclSuccess)
        _exit(8);
    meeting->goes = 1;
}

static void live_as_witness(void)
{
    ceclResult_t async = ceclSuccess;
    const ceclComm_t comm = join(0);
    gather(comm, 0);
    await(&meeting->gathered, RANKS);
    await(&meeting->gone, one_has_left);
    if (before_error)
        fake->state = PROCESS_EXITED;
    else
        let_a_barrier_wait(comm);
    for (int ms = 0; async == ceclSuccess && ms < PROMPT * 1000; ms++) {
        usleep(1000);
        if (ceclCommGetAsyncError(comm, &async) != ceclSuccess)
            _exit(6);
    }
    snprintf(meeting->heard, sizeof(meeting->heard), "%s", ceclGetLastError(comm));
    meeting->goes = 1;
    meeting->is_over = 1;
    (void)!ceclCommAbort(comm);
    _exit(async == ceclRemoteError ? 0 : 7);
}

/* ---- */

static pid_t start(void (*live)(void))
{
    const pid_t process = fork();
    if (process == 0)
        live();
    return process;
}

/* Returns the witness's error, after all ranks have ended. */
static const char *heard_after(void (*what)(void), bool leaver)
{
    int status = 0;
    memset(meeting, 0, sizeof(*meeting));
    before_error = what;
    one_has_left = leaver;
    meeting->victim = start(live_as_victim);
    const pid_t bystander = start(live_as_bystander), witness = start(live_as_witness);
    assert_int_equal(waitpid(witness, &status, 0), witness);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(meeting->victim, &status, 0), meeting->victim);
    assert_int_equal(waitpid(bystander, &status, 0), bystander);
    return meeting->heard;
}

static void expect(const char *words, const char *wanted)
{
    if (!strstr(words, wanted))
        fail_msg("'%s' expected in '%s'", wanted, words);
}

/* Returns once the rank has ended. The witness is not its parent. */
static void kill_it(void)
{
    const int process = (int)syscall(SYS_pidfd_open, meeting->victim, 0);
    struct pollfd ended = {.fd = process, .events = POLLIN};
    kill(meeting->victim, SIGKILL);
    if (process < 0 || poll(&ended, 1, PROMPT * 1000) != 1)
        _exit(9);
    close(process);
}

static void let_it_leave(void)
{
    meeting->goes = 1;
    await(&meeting->gone, 1);
}

static void do_nothing(void)
{
}

static void a_rank_that_dies_is_named(void **state)
{
    expect(heard_after(kill_it, false), "rank 2 ended unexpectedly");
}

static void a_rank_that_dies_is_named_and_not_one_that_has_left(void **state)
{
    expect(heard_after(kill_it, true), "rank 2 ended unexpectedly");
}

static void a_rank_that_has_left_is_named_beside_nccls_words(void **state)
{
    const char *heard = heard_after(let_it_leave, false);
    expect(heard, "an exchange failed: remote process exited");
    expect(heard, "; rank 2 has left");
}

/* It has made one call, and its peers wait in the second. */
static void a_rank_that_leaves_instead_of_a_call_is_named(void **state)
{
    expect(heard_after(NULL, false), "rank 2 has left, and a call waits for it");
}

static void without_news_nccls_words_are_passed_on(void **state)
{
    expect(heard_after(do_nothing, false), "an exchange failed: remote process exited");
}

/* ---- while NCCL's communicator is made */

static int fail_to_split(void)
{
    return OUT_OF_SYSTEM;
}

static int die(void)
{
    raise(SIGKILL);
    return 0;
}

/* All ranks join in vain. Returns the ms that this took. */
static int64_t join_in_vain(int (*what)(void))
{
    const int64_t began = cecl_now_ms();
    pid_t processes[RANKS];
    int status;
    memset(meeting, 0, sizeof(*meeting));
    instead_of_split = what;
    for (int r = 0; r < RANKS; r++) {
        ceclComm_t comm;
        processes[r] = fork();
        if (processes[r] != 0)
            continue;
        const ceclResult_t result = try_to_join(r, &comm);
        snprintf(meeting->refused[r], sizeof(meeting->refused[r]), "%s", ceclGetLastError(NULL));
        _exit(result == ceclSuccess ? 1 : 0);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(waitpid(processes[r], &status, 0), processes[r]);
        assert_int_equal(status, r == 2 && what == die ? SIGKILL : 0);
    }
    instead_of_split = NULL;
    return cecl_now_ms() - began;
}

static void a_rank_that_dies_while_ranks_join_ends_the_wait_for_nccl(void **state)
{
    assert_in_range(join_in_vain(die), 0, PROMPT * 1000);
    for (int r = 0; r < 2; r++)
        expect(meeting->refused[r], "rank 2 ended");
}

static void a_rank_that_nccl_refuses_ends_the_other_ranks_wait_for_nccl(void **state)
{
    assert_in_range(join_in_vain(fail_to_split), 0, PROMPT * 1000);
    for (int r = 0; r < RANKS; r++)
        expect(meeting->refused[r],
               r == 2
                   ? "the program's NCCL 2.28.3: ncclCommSplit failed: an error"
                   : "rank 2 gave up: the program's NCCL 2.28.3: ncclCommSplit failed: an error");
}

static int go_on_for_ever(void)
{
    return IN_PROGRESS;
}

/* All ranks reach the time limit at about the same time, and all say what did not end. */
static void an_nccl_that_is_never_made_is_named(void **state)
{
    setenv("CECL_INIT_TIMEOUT_MS", "15000", 1);
    (void)join_in_vain(go_on_for_ever);
    unsetenv("CECL_INIT_TIMEOUT_MS");
    for (int r = 0; r < RANKS; r++)
        expect(meeting->refused[r], "ncclCommSplit did not end in time");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(a_rank_that_dies_is_named_and_not_one_that_has_left),
        cmocka_unit_test(a_rank_that_has_left_is_named_beside_nccls_words),
        cmocka_unit_test(a_rank_that_leaves_instead_of_a_call_is_named),
        cmocka_unit_test(without_news_nccls_words_are_passed_on),
        cmocka_unit_test(a_rank_that_dies_while_ranks_join_ends_the_wait_for_nccl),
        cmocka_unit_test(a_rank_that_nccl_refuses_ends_the_other_ranks_wait_for_nccl),
        cmocka_unit_test(an_nccl_that_is_never_made_is_named),
    };
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_NODE_SIZE", "1", 1);
    setenv("CECL_DEBUG", "none", 1);
    meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return meeting == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
