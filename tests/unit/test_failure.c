/* Ranks that die, leave, never come or give up: the others learn who and why, soon, and can end.
 * Ranks are processes of this test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cecl/cecl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS 3
#define ROUNDS 40
#define VICTIM 1 /* misbehaves in the middle */

enum misdeed { DIES, LEAVES, NEVER_CALLS, ABORTS, DIES_BEFORE_GROWTH };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void misbehave(ceclComm_t comm, enum misdeed misdeed)
{
    switch (misdeed) {
    case DIES:
    case DIES_BEFORE_GROWTH: _exit(0);
    case LEAVES: _exit(ceclCommDestroy(comm) != ceclSuccess);
    case ABORTS: _exit(ceclCommAbort(comm) != ceclSuccess);
    case NEVER_CALLS: sleep(4); _exit(0); /* without a word: its peers have given up by then */
    }
}

/* One rank's life. Exit code 0: the failure came as it should. */
static int live(const ceclUniqueId *id, int rank, enum misdeed misdeed, ceclResult_t expected,
                const char *words)
{
    ceclComm_t comm;
    int *buffer = NULL, code = 10;
    void *more = NULL;
    ceclStream_t stream;
    ceclResult_t result = ceclSuccess, async = ceclSuccess;
    if (ceclCommInitRank(&comm, RANKS, *id, rank) ||
        ceclMemAlloc(comm, (void **)&buffer, RANKS * 4000) || ceclStreamCreate(comm, &stream)) {
        fprintf(stderr, "rank %d: %s\n", rank, ceclGetLastError(NULL));
        return 11;
    }
    for (int i = 0; i < ROUNDS && result == ceclSuccess; i++) {
        if (rank == VICTIM && i == ROUNDS / 2)
            misbehave(comm, misdeed);
        if (misdeed == DIES_BEFORE_GROWTH && i == ROUNDS / 2)
            result = ceclMemAlloc(comm, &more, 64 << 20);
        else
            result = ceclAllGather(buffer + rank * 1000, buffer, 1000, ceclInt, comm, stream);
        result = result == ceclSuccess ? ceclStreamSynchronize(comm, stream) : result;
    }
    const double failed_at = now();
    /* A peer's timeout may come as its word that it gave up. */
    if (result == expected || (expected == ceclTimeout && result == ceclRemoteError))
        code = strstr(ceclGetLastError(comm), words) ? 0 : 12;
    if (code)
        fprintf(stderr, "rank %d: %d: %s\n", rank, (int)result, ceclGetLastError(comm));
    if (ceclCommGetAsyncError(comm, &async) || async == ceclSuccess)
        code = 13;
    if (ceclStreamDestroy(comm, stream) != ceclSuccess)
        code = 14;
    (void)!ceclCommDestroy(comm);
    if (now() - failed_at > 4)
        code = 15;
    return code;
}

/* Rank 0 makes the id, which starts a thread: this process must have none when it forks. */
struct meeting {
    _Atomic int ready;
    ceclUniqueId id;
};

static const ceclUniqueId *meet(struct meeting *meeting, int rank)
{
    if (rank == 0) {
        if (ceclGetUniqueId(&meeting->id) != ceclSuccess)
            _exit(20);
        meeting->ready = 1;
    }
    while (!meeting->ready)
        usleep(1000);
    return &meeting->id;
}

static void run(enum misdeed misdeed, ceclResult_t expected, const char *words, double within)
{
    pid_t children[RANKS];
    struct meeting *meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(meeting, MAP_FAILED);
    const char *device = getenv("CECL_TEST_DEVICE"); /* cuda: the same on GPUs, one a rank */
    setenv("CECL_DEVICE", device ? device : "host", 1);
    setenv("CECL_CUDA_DEVICE", "rank", 1);
    setenv("CECL_TIMEOUT_MS", misdeed == NEVER_CALLS ? "300" : "20000", 1);
    setenv("CECL_DEBUG", "none", 1);
    const double start = now();
    fflush(NULL);
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            alarm(15);
            _exit(live(meet(meeting, r), r, misdeed, expected, words));
        }
    for (int r = 0; r < RANKS; r++) {
        int status = -1;
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
        if (r == 0 && now() - start > within)
            fail_msg("rank 0 needed %.2f s", now() - start);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("rank %d ended with status %#x", r, (unsigned)status);
    }
    munmap(meeting, sizeof(*meeting));
}

static void a_rank_that_dies_is_named_at_once(void **state)
{
    (void)state;
    run(DIES, ceclRemoteError, "rank 1 ended unexpectedly", 5);
}

static void a_rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    run(LEAVES, ceclRemoteError, "rank 1 destroyed its communicator", 5);
}

static void a_rank_that_never_calls_runs_into_the_timeout(void **state)
{
    (void)state;
    run(NEVER_CALLS, ceclTimeout, "waits for rank 1", 5);
}

static void an_abort_reaches_all_peers(void **state)
{
    (void)state;
    run(ABORTS, ceclRemoteError, "rank 1 gave up: ceclCommAbort", 5);
}

static void a_death_ends_a_rendezvous_too(void **state)
{
    (void)state;
    run(DIES_BEFORE_GROWTH, ceclRemoteError, "rank 1", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_is_named_at_once),
        cmocka_unit_test(a_rank_that_leaves_early_is_named),
        cmocka_unit_test(a_rank_that_never_calls_runs_into_the_timeout),
        cmocka_unit_test(an_abort_reaches_all_peers),
        cmocka_unit_test(a_death_ends_a_rendezvous_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
