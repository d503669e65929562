/* A rank dies, and survivors make a new communicator and continue: who names a dead rank that was not excluded, and what
 * is left of a failed call. Random deaths: tests/hunt. Ranks are child processes of this test; a dead rank was killed,
 * so it could send no message. */
#include "../forked.h"
#include "../prompt.h"
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../world/works.h"

#define MOST_RANKS 8
#define COUNT 1000

/* Memory shared by the processes. */
struct shared_words {
    struct forked_id id;
    _Atomic int passed; /* how often ranks came to a barrier, all ranks and barriers together */
};

/* A rank's state. `world` lists the surviving ranks, by their numbers in the first communicator. */
struct life {
    int me, n, world[MOST_RANKS];
    struct shared_words *meeting;
    int awaited; /* the value of `passed` that ends the last barrier */
    ceclComm_t comm;
    int *in, *out, *sum;
};

static void die(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

#define STEP(expr, code) \
    do { \
        const ceclResult_t step_ = (expr); \
        if (step_ != ceclSuccess) { \
            fprintf(stderr, "rank %d: %s: %d: %s\n", life->me, #expr, (int)step_, \
                    ceclGetLastError(NULL)); \
            _exit(code); \
        } \
    } while (0)
#define HOLDS(expr, code) \
    do { \
        if (!(expr)) { \
            fprintf(stderr, "rank %d: not so: %s; %s\n", life->me, #expr, ceclGetLastError(NULL)); \
            _exit(code); \
        } \
    } while (0)

/* A barrier of all survivors; a rank may die after it. */
static void barrier(struct life *life)
{
    life->awaited += life->n;
    life->meeting->passed++;
    while (life->meeting->passed < life->awaited)
        usleep(200);
}

/* Collectives among the survivors are right. */
static void works(struct life *life)
{
    char wrong[200];
    STEP(comm_works(life->comm, life->world, life->n, wrong, sizeof(wrong)), 22);
    if (wrong[0])
        fprintf(stderr, "rank %d: %s\n", life->me, wrong);
    HOLDS(!wrong[0], 23);
    barrier(life);
}

/* Continues without the dead rank. */
static void go_on(struct life *life, int dead)
{
    ceclComm_t rest = NULL;
    const double start = now();
    STEP(ceclCommShrink(life->comm, &dead, 1, &rest, NULL), 32);
    HOLDS(now() - start < PROMPT, 33);
    (void)!ceclCommDestroy(life->comm);
    life->comm = rest;
    life->n--;
    for (int i = dead; i < life->n; i++)
        life->world[i]++;
    works(life);
}

/* ---- lives; each ends with exit code 0, or kills itself */

static void a_dead_rank_that_is_not_excluded_is_named(struct life *life)
{
    const int dead = life->n / 2;
    const double start = now();
    ceclComm_t rest = (ceclComm_t)8;
    char words[64];
    if (life->me == dead)
        die();
    snprintf(words, sizeof(words), "rank %d ended unexpectedly; it is not excluded", dead);
    HOLDS(ceclCommShrink(life->comm, NULL, 0, &rest, NULL) == ceclRemoteError, 40);
    HOLDS(strstr(ceclGetLastError(NULL), words), 41);
    HOLDS(rest == (ceclComm_t)8 && now() - start < PROMPT, 42);
    go_on(life, dead);
}

#define LARGE ((size_t)16 << 20) /* bytes */

/* Seconds for which this process has computed: a busy machine changes them less than the clock's. */
static double computed(void)
{
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* A call that waits in its stream behind copies of this rank, so it ends long after rank 0's part. To compute
 * the copies takes longer than a shrink, and far less than a shrink waits for them. */
static ceclStream_t call_behind_copies(struct life *life, char *large)
{
    ceclStream_t stream;
    double copy_s = 0;
    STEP(ceclStreamCreate(life->comm, &stream), 60);
    for (int i = 0; i < 2; i++) { /* the first copy touches new pages */
        copy_s = -computed();
        STEP(ceclMemcpyAsync(life->comm, large, large + LARGE, LARGE, stream), 60);
        STEP(ceclStreamSynchronize(life->comm, stream), 60);
        copy_s += computed();
    }
    for (double queued_s = 0; queued_s < 0.1; queued_s += copy_s)
        STEP(ceclMemcpyAsync(life->comm, large, large + LARGE, LARGE, stream), 60);
    STEP(ceclAllGather(life->sum, life->out, COUNT, ceclInt, life->comm, stream), 60);
    return stream;
}

/* Gathers other values than before, on the new communicator, in the same buffers. */
static void gather_again(struct life *life, ceclComm_t rest)
{
    int host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = -life->me * 10000 - i - 1;
    STEP(ceclMemcpyAsync(rest, life->in, host, sizeof(host), 0), 61);
    STEP(ceclAllGather(life->in, life->out, COUNT, ceclInt, rest, 0), 61);
    STEP(ceclStreamSynchronize(rest, 0), 61);
}

static void holds_what_it_gathered(struct life *life)
{
    int host[COUNT];
    for (int r = 0; r < life->n; r++) {
        STEP(ceclMemcpyAsync(life->comm, host, life->out + (size_t)r * COUNT, sizeof(host), 0), 62);
        STEP(ceclStreamSynchronize(life->comm, 0), 62);
        for (int i = 0; i < COUNT; i++)
            HOLDS(host[i] == -r * 10000 - i - 1, 63);
    }
}

/* Rank 1 comes last to the call, so it moves the bytes of both ranks once its waits for the dead rank have
 * ended. The buffers are used again at once. */
static void nothing_of_a_failed_call_comes_after_the_shrink(struct life *life)
{
    const int dead = 2;
    ceclComm_t failed = life->comm, rest = NULL;
    ceclStream_t stream = 0;
    char *large;
    STEP(ceclMemAlloc(failed, (void **)&large, 2 * LARGE), 64);
    STEP(ceclMemAlloc(failed, (void **)&life->in, COUNT * sizeof(int)), 64);
    STEP(ceclMemAlloc(failed, (void **)&life->out, 3 * COUNT * sizeof(int)), 64);
    STEP(ceclMemAlloc(failed, (void **)&life->sum, COUNT * sizeof(int)), 64);
    if (life->me == 0)
        STEP(ceclAllGather(life->sum, life->out, COUNT, ceclInt, failed, 0), 65);
    barrier(life);
    if (life->me == 1)
        stream = call_behind_copies(life, large);
    barrier(life);
    if (life->me == dead)
        die();
    HOLDS(life->me != 0 || ceclStreamSynchronize(failed, 0) == ceclRemoteError, 66);
    STEP(ceclCommShrink(failed, &dead, 1, &rest, NULL), 67);
    life->comm = rest;
    life->n = 2;
    gather_again(life, rest);
    if (life->me == 1)
        HOLDS(ceclStreamSynchronize(failed, stream) == ceclRemoteError, 68);
    barrier(life);
    holds_what_it_gathered(life);
    barrier(life);
    (void)!ceclCommAbort(failed);
}

/* ---- the test's own process */

static void live(struct shared_words *meeting, int rank, int n, void (*run)(struct life *life))
{
    struct life here = {.me = rank, .n = n, .meeting = meeting}, *life = &here;
    for (int r = 0; r < n; r++)
        life->world[r] = r;
    alarm(200);
    STEP(ceclCommInitRank(&life->comm, n, forked_meet(&meeting->id, rank), rank), 11);
    works(life);
    run(life);
    STEP(ceclCommDestroy(life->comm), 12);
    _exit(0);
}

static void run_with(int n, void (*run)(struct life *life))
{
    pid_t children[MOST_RANKS];
    struct shared_words *meeting = shared_memory(sizeof(*meeting));
    const char *device = getenv("CECL_TEST_DEVICE"); /* cuda: on GPUs, one for each rank */
    int ended = 0, killed = 0;
    setenv("CECL_DEVICE", device ? device : "host", 1);
    setenv("CECL_CUDA_DEVICE", "rank", 1);
    setenv("CECL_DEBUG", "none", 1);
    setenv("CECL_TIMEOUT_MS", "60000", 1);
    for (int r = 0; r < n; r++)
        if ((children[r] = fork()) == 0)
            live(meeting, r, n, run);
    for (int r = 0; r < n; r++) {
        int status = -1;
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
        ended += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    munmap(meeting, sizeof(*meeting));
    assert_int_equal(ended + killed, n);
    assert_in_range(ended, 1, n - 1);
}

/* Numbers of ranks; smaller on GPUs, where each rank needs a GPU. */
static int most(void)
{
    const char *device = getenv("CECL_TEST_DEVICE");
    return device && strcmp(device, "cuda") == 0 ? 4 : MOST_RANKS;
}

TEST(a_list_that_lacks_the_dead_names_it)
{
    for (int n = 2; n <= most(); n++)
        run_with(n, a_dead_rank_that_is_not_excluded_is_named);
}

TEST(copies_of_a_failed_call_end_before_the_shrink)
{
    run_with(3, nothing_of_a_failed_call_comes_after_the_shrink);
}
