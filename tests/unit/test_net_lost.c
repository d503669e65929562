/* When NCCL between nodes reports that a remote process ended, the error names the rank that ended or left, also if
 * this becomes known after NCCL's error. Two ranks, each a node and a process of its own, with a fake NCCL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../prompt.h"
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_nccl.h"
#include "net/pipes.h"

#define PROCESS_EXITED 6 /* ncclRemoteError */

static struct meeting {
    ceclUniqueId id;
    volatile bool has_id, has_gathered, goes, has_gone;
    pid_t victim;
    char heard[1024];
} * meeting;
static struct fake_nccl *fake;
/* what happens to rank 1 before rank 0 hears NCCL's error; NULL: there is none, and rank 1 leaves */
static void (*before_error)(void);

static void await(const volatile bool *what)
{
    for (int ms = 0; !*what && ms < PROMPT * 1000; ms++)
        usleep(1000);
}

/* ---- the ranks. They end with status 0, unless a call fails that must not fail. */

static int split(void *context, void *config, void **comm)
{
    (void)context;
    (void)config;
    *comm = fake;
    return 0;
}

static ceclComm_t join(int rank)
{
    const ceclNcclNet_t net = {.library = dlopen(FAKE_NCCL, RTLD_NOW), .split = split};
    ceclComm_t comm = NULL;
    fake = net.library ? dlsym(net.library, "fake_nccl") : NULL;
    if (!fake)
        _exit(2);
    fake->version = 22803;
    if (rank == 0 && ceclGetUniqueId(&meeting->id) == ceclSuccess)
        meeting->has_id = true;
    await(&meeting->has_id);
    cecl_net_lend(&(struct cecl_net_lender){.nccl = &net});
    if (ceclCommInitRank(&comm, 2, meeting->id, rank) != ceclSuccess) {
        fprintf(stderr, "rank %d: %s\n", rank, ceclGetLastError(NULL));
        _exit(3);
    }
    cecl_net_lend(NULL);
    return comm;
}

static void gather(ceclComm_t comm, int rank)
{
    char *memory = NULL;
    if (ceclMemAlloc(comm, (void **)&memory, 2000) != ceclSuccess ||
        ceclAllGather(memory + 1000 * rank, memory, 1000, ceclInt8, comm, 0) != ceclSuccess ||
        ceclStreamSynchronize(comm, 0) != ceclSuccess)
        _exit(4);
}

static void live_as_victim(void)
{
    const ceclComm_t comm = join(1);
    gather(comm, 1);
    meeting->has_gathered = true;
    await(&meeting->goes);
    if (ceclCommDestroy(comm) != ceclSuccess)
        _exit(5);
    meeting->has_gone = true;
    _exit(0);
}

/* NCCL reports no error, but its exchange does not end. */
static void let_a_barrier_wait(ceclComm_t comm)
{
    fake->polls = -1;
    if (ceclBarrier(comm, 0) != ceclSuccess)
        _exit(8);
    meeting->goes = true;
}

static void live_as_witness(void)
{
    ceclResult_t async = ceclSuccess;
    const ceclComm_t comm = join(0);
    gather(comm, 0);
    await(&meeting->has_gathered);
    if (before_error) {
        fake->on_error = before_error;
        fake->state = PROCESS_EXITED;
    } else {
        let_a_barrier_wait(comm);
    }
    for (int ms = 0; async == ceclSuccess && ms < PROMPT * 1000; ms++) {
        usleep(1000);
        if (ceclCommGetAsyncError(comm, &async) != ceclSuccess)
            _exit(6);
    }
    snprintf(meeting->heard, sizeof(meeting->heard), "%s", ceclGetLastError(comm));
    meeting->goes = true;
    (void)!ceclCommAbort(comm);
    _exit(async == ceclRemoteError ? 0 : 7);
}

/* ---- */

/* Returns the witness's error, after both ranks have ended. */
static const char *heard_after(void (*what)(void))
{
    int status = 0;
    memset(meeting, 0, sizeof(*meeting));
    before_error = what;
    const pid_t witness = fork();
    if (witness == 0) {
        while (!meeting->victim)
            usleep(1000);
        live_as_witness();
    }
    const pid_t victim = fork();
    if (victim == 0)
        live_as_victim();
    meeting->victim = victim;
    assert_int_equal(waitpid(witness, &status, 0), witness);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(victim, &status, 0), victim);
    return meeting->heard;
}

static void expect(const char *words, const char *wanted)
{
    if (!strstr(words, wanted))
        fail_msg("'%s' expected in '%s'", wanted, words);
}

static void kill_it(void)
{
    kill(meeting->victim, SIGKILL);
}

static void let_it_leave(void)
{
    meeting->goes = true;
    await(&meeting->has_gone);
}

static void do_nothing(void)
{
}

static void a_rank_that_dies_is_named(void **state)
{
    expect(heard_after(kill_it), "rank 1 ended unexpectedly");
}

static void a_rank_that_has_left_is_named(void **state)
{
    expect(heard_after(let_it_leave), "rank 1 has left");
}

/* It has made one call, and its peer waits in the second. */
static void a_rank_that_leaves_instead_of_a_call_is_named(void **state)
{
    expect(heard_after(NULL), "rank 1 has left, and a call waits for it");
}

static void without_news_nccls_words_are_passed_on(void **state)
{
    expect(heard_after(do_nothing), "an exchange failed: remote process exited");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(a_rank_that_has_left_is_named),
        cmocka_unit_test(a_rank_that_leaves_instead_of_a_call_is_named),
        cmocka_unit_test(without_news_nccls_words_are_passed_on),
    };
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_NODE_SIZE", "1", 1);
    setenv("CECL_DEBUG", "none", 1);
    meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return meeting == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
