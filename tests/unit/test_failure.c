/* Ranks that end outside of calls: after the last call, in handlers of exits and signals, or while kernels of the program
 * may use their memory. Also, survivors of a failed call shrink and use its buffer again. tests/fault has ends within
 * calls. Ranks are processes. */
#include "../forked.h"
#include "../prompt.h"
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#define RANKS 3
#define VICTIM 1
#define DEADLINE_MS "60000"

enum misdeed {
    LEAVES,
    EXITS, /* ends its process without ending the communicator */
    ABORTS
};

/* The call that ranks make. Sizes are chosen so that the host device and GPUs carry the call out in the same way. */
enum call {
    GATHER,
    SMALL_GATHER, /* under CECL_SM_ALLOW */
    SMALL_REDUCTION,
    READING_SCATTER, /* in this call and the next, SMs read peers' memory */
    READING_REDUCTION,
    STAGED_REDUCTION, /* has several chunks, on two lanes */
    URGENT_GATHER,    /* flags and blocks are in host memory */
    CALLS
};
static const char *const call_names[CALLS] = {"gather",
                                              "small gather",
                                              "small reduction",
                                              "reading reduce-scatter",
                                              "reading reduction",
                                              "staged reduction",
                                              "urgent gather"};
#define READ_FLOATS 100000 /* floats of a block: too large for a small call on any device */
#define STAGED_FLOATS 40000
#define STAGING_BYTES "16384"

/* buffer: two halves of RANKS * READ_FLOATS floats each */
static ceclResult_t make(enum call call, ceclComm_t comm, int rank, float *buffer,
                         ceclStream_t stream)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    float *other = buffer + RANKS * READ_FLOATS;
    options.smPolicy = call == SMALL_GATHER ? CECL_SM_ALLOW : CECL_UNDEF;
    options.direction = call == STAGED_REDUCTION ? CECL_DIRECTION_PUSH : CECL_UNDEF;
    const ceclResult_t set = ceclSetOptions(comm, &options);
    if (set != ceclSuccess)
        return set;
    switch (call) {
    case SMALL_REDUCTION:
        return ceclAllReduce(other, buffer, 1000, ceclFloat, ceclSum, comm, stream);
    case READING_SCATTER:
        return ceclReduceScatter(other, buffer, READ_FLOATS, ceclFloat, ceclSum, comm, stream);
    case READING_REDUCTION:
        return ceclAllReduce(other, buffer, READ_FLOATS, ceclFloat, ceclSum, comm, stream);
    case STAGED_REDUCTION:
        return ceclAllReduce(other, buffer, STAGED_FLOATS, ceclFloat, ceclSum, comm, stream);
    default: return ceclAllGather(buffer + rank * 1000, buffer, 1000, ceclFloat, comm, stream);
    }
}

struct meeting {
    struct forked_id id;
    _Atomic int idle;            /* ranks without pending calls */
    _Atomic int told;            /* ranks that know of the misdeed */
    double misdeed_at, known_at; /* when the victim misbehaved; when rank 0 learned of it */
};

/* If the value never comes, the alarm ends this process. */
static void await(const _Atomic int *word, int wanted)
{
    while (*word < wanted)
        usleep(1000);
}

static _Noreturn void misbehave(struct meeting *meeting, ceclComm_t comm, enum misdeed misdeed)
{
    meeting->misdeed_at = now();
    if (misdeed == EXITS)
        exit(0);
    _exit((misdeed == ABORTS ? ceclCommAbort(comm) : ceclCommDestroy(comm)) != ceclSuccess);
}

static void join(struct meeting *meeting, int rank, ceclComm_t *comm, float **buffer,
                 ceclStream_t *stream)
{
    if (ceclCommInitRank(comm, RANKS, forked_meet(&meeting->id, rank), rank) == ceclSuccess &&
        ceclMemAlloc(*comm, (void **)buffer, 2 * RANKS * READ_FLOATS * sizeof(float)) ==
            ceclSuccess &&
        ceclStreamCreate(*comm, stream) == ceclSuccess)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, ceclGetLastError(NULL));
    _exit(11);
}

struct role {
    int (*live)(struct meeting *meeting, int rank, const struct role *role);
    enum call call;
    enum misdeed misdeed;
    ceclResult_t expected;
    const char *words;
};

/* The victim ends after its last call; its peers need nothing more from it. Exit code 0: no peer ever gets an error. */
static int live_on(struct meeting *meeting, int rank, const struct role *role)
{
    ceclComm_t comm;
    float *buffer = NULL;
    ceclStream_t stream;
    ceclResult_t result = ceclSuccess, async = ceclSuccess;
    join(meeting, rank, &comm, &buffer, &stream);
    for (int i = 0; i < 3 && result == ceclSuccess; i++)
        result = make(role->call, comm, rank, buffer, stream);
    if (rank == 0) /* lets the peers' calls end before rank 0 synchronizes */
        usleep(2000);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(comm, stream);
    if (rank == VICTIM && result == ceclSuccess)
        misbehave(meeting, comm, role->misdeed);
    for (int i = 0; i < 20 && result == ceclSuccess && async == ceclSuccess; i++) {
        usleep(5000);
        result = ceclCommGetAsyncError(comm, &async);
    }
    if (result == ceclSuccess && async == ceclSuccess && ceclCommDestroy(comm) == ceclSuccess)
        return 0;
    fprintf(stderr, "rank %d: %s\n", rank, ceclGetLastError(NULL));
    return 16;
}

/* The peers may have kernels, unknown to the library, that wait for the victim; so they must learn of its end. */
static int live_with_kernels(struct meeting *meeting, int rank, const struct role *role)
{
    ceclComm_t comm;
    float *buffer = NULL;
    ceclStream_t stream;
    ceclDeviceComm_t dc;
    void *at_peer = NULL;
    ceclResult_t async = ceclSuccess;
    join(meeting, rank, &comm, &buffer, &stream);
    const bool by_pointer = role->call == SMALL_GATHER;
    if ((by_pointer ? ceclGetPeerPointer(comm, buffer, 0, &at_peer)
                    : ceclCommGetDeviceComm(comm, &dc)) != ceclSuccess ||
        make(role->call, comm, rank, buffer, stream) != ceclSuccess ||
        ceclStreamSynchronize(comm, stream) != ceclSuccess)
        return 11;
    meeting->idle++;
    if (rank == VICTIM) {
        await(&meeting->idle, RANKS);
        misbehave(meeting, comm, role->misdeed);
    }
    for (int i = 0; i < 45000 && async == ceclSuccess; i++) {
        usleep(1000);
        if (ceclCommGetAsyncError(comm, &async) != ceclSuccess)
            return 11;
    }
    if (rank == 0)
        meeting->known_at = now();
    const bool named = async == role->expected && strstr(ceclGetLastError(comm), role->words);
    if (!named)
        fprintf(stderr, "rank %d: %d, %s\n", rank, (int)async, ceclGetLastError(comm));
    meeting->told++;
    await(&meeting->told, RANKS - 1); /* before that, peers must not hear of this rank's end */
    return named ? 0 : 12;
}

/* What call_at_exit uses. This exit handler is registered before the communicator is made. */
static struct {
    ceclComm_t comm;
    float *buffer;
    ceclStream_t stream;
    int rank;
    enum call call;
} at_exit;

static void call_at_exit(void)
{
    ceclResult_t result =
        make(at_exit.call, at_exit.comm, at_exit.rank, at_exit.buffer, at_exit.stream);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(at_exit.comm, at_exit.stream);
    if (result == ceclSuccess)
        result = ceclCommDestroy(at_exit.comm);
    if (result != ceclSuccess)
        fprintf(stderr, "rank %d, at exit: %s\n", at_exit.rank, ceclGetLastError(NULL));
    _exit(result == ceclSuccess ? 0 : 13);
}

static int live_until_exit(struct meeting *meeting, int rank, const struct role *role)
{
    at_exit.rank = rank;
    at_exit.call = role->call;
    atexit(call_at_exit);
    join(meeting, rank, &at_exit.comm, &at_exit.buffer, &at_exit.stream);
    usleep((useconds_t)rank * 30000);
    exit(14);
}

static void exit_at_once(int number)
{
    exit(0);
}

/* A signal handler ends the victim while it is in calls that take locks. */
static int live_until_a_signal(struct meeting *meeting, int rank, const struct role *role)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 30000}};
    ceclComm_t comm;
    float *buffer = NULL;
    ceclStream_t stream;
    ceclResult_t async = ceclSuccess;
    join(meeting, rank, &comm, &buffer, &stream);
    ceclResult_t result = make(role->call, comm, rank, buffer, stream);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(comm, stream);
    if (rank == VICTIM && result == ceclSuccess) {
        signal(SIGALRM, exit_at_once);
        setitimer(ITIMER_REAL, &soon, NULL);
        while (result == ceclSuccess)
            result = ceclCommGetAsyncError(comm, &async);
    }
    usleep(60000);
    return result == ceclSuccess && ceclCommDestroy(comm) == ceclSuccess ? 0 : 15;
}

#define LARGE ((size_t)16 << 20) /* bytes */
#define COUNT 1000

#define HOLDS(expr) \
    do { \
        if (!(expr)) { \
            fprintf(stderr, "rank %d: not so: %s; %s\n", rank, #expr, ceclGetLastError(NULL)); \
            _exit(17); \
        } \
    } while (0)
#define OK(expr) HOLDS((expr) == ceclSuccess)

/* This process's CPU time in seconds, which other work of the machine changes less than it changes elapsed time. */
static double computed(void)
{
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* Enqueues copies before rank 1's call, so that this call ends long after rank 0's. The copies take longer than a shrink,
 * but far less time than a shrink waits for calls on the parent. */
static void wait_behind_copies(ceclComm_t comm, int rank, char *large, ceclStream_t stream)
{
    double copy_s = 0;
    for (int i = 0; i < 2; i++) { /* the first copy touches new pages */
        copy_s = -computed();
        OK(ceclMemcpyAsync(comm, large, large + LARGE, LARGE, stream));
        OK(ceclStreamSynchronize(comm, stream));
        copy_s += computed();
    }
    for (double queued_s = 0; queued_s < 0.1; queued_s += copy_s)
        OK(ceclMemcpyAsync(comm, large, large + LARGE, LARGE, stream));
}

/* Gathers new values in the same buffer, on the new communicator. */
static void gather_again(ceclComm_t rest, int rank, float *buffer)
{
    float host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(-rank * 10000 - i - 1);
    OK(ceclMemcpyAsync(rest, buffer + rank * COUNT, host, sizeof(host), 0));
    OK(ceclAllGather(buffer + rank * COUNT, buffer, COUNT, ceclFloat, rest, 0));
    OK(ceclStreamSynchronize(rest, 0));
}

static void holds_what_it_gathered(ceclComm_t rest, int rank, const float *buffer)
{
    float host[2 * COUNT];
    OK(ceclMemcpyAsync(rest, host, buffer, sizeof(host), 0));
    OK(ceclStreamSynchronize(rest, 0));
    for (int i = 0; i < 2 * COUNT; i++)
        HOLDS(host[i] == (float)(-(i / COUNT) * 10000 - i % COUNT - 1));
}

/* Rank 1 makes the call last, so it moves both ranks' bytes, once its waits for the dead rank have ended. After the
 * shrink the buffer is used again at once. */
static int live_through_a_shrink(struct meeting *meeting, int rank, const struct role *role)
{
    const int dead = 2;
    ceclComm_t failed, rest = NULL;
    float *buffer = NULL;
    ceclStream_t stream;
    char *large = NULL;
    join(meeting, rank, &failed, &buffer, &stream);
    OK(ceclMemAlloc(failed, (void **)&large, 2 * LARGE));
    for (int turn = 0; turn < dead; turn++) {
        if (rank == 1 && turn == 1)
            wait_behind_copies(failed, rank, large, stream);
        if (rank == turn)
            OK(ceclAllGather(buffer + RANKS * COUNT, buffer, COUNT, ceclFloat, failed, stream));
        meeting->idle++;
        await(&meeting->idle, RANKS * (turn + 1));
    }
    if (rank == dead)
        _exit(0); /* as if killed: its peers get no message */
    HOLDS(rank != 0 || ceclStreamSynchronize(failed, stream) == ceclRemoteError);
    OK(ceclCommShrink(failed, &dead, 1, &rest, NULL));
    gather_again(rest, rank, buffer);
    if (rank == 1)
        HOLDS(ceclStreamSynchronize(failed, stream) == ceclRemoteError);
    meeting->told++;
    await(&meeting->told, 2);
    holds_what_it_gathered(rest, rank, buffer);
    (void)!ceclCommAbort(failed);
    OK(ceclCommDestroy(rest));
    return 0;
}

static void set_environment(const struct role *role)
{
    const char *device = getenv("CECL_TEST_DEVICE"); /* "cuda": on GPUs, one for each rank */
    setenv("CECL_DEVICE", device ? device : "host", 1);
    setenv("CECL_CUDA_DEVICE", "rank", 1);
    setenv("CECL_TIMEOUT_MS", DEADLINE_MS, 1);
    setenv("CECL_DEBUG", "none", 1);
    setenv("CECL_URGENT", role->call == URGENT_GATHER ? "1" : "0", 1);
    if (role->call == STAGED_REDUCTION)
        setenv("CECL_STAGING_BYTES", STAGING_BYTES, 1);
    else
        unsetenv("CECL_STAGING_BYTES");
}

struct running {
    struct role role;
    struct meeting *meeting;
    pid_t children[RANKS];
    bool is_right;
};

static void start(struct running *running)
{
    const struct role *role = &running->role;
    running->meeting = shared_memory(sizeof(*running->meeting));
    set_environment(role);
    for (int r = 0; r < RANKS; r++)
        if ((running->children[r] = fork()) == 0) {
            alarm(200);
            _exit(role->live(running->meeting, r, role));
        }
}

/* Waits for the ranks. The case is right if all exit with code 0 in time. */
static void finish(struct running *running)
{
    const char *call = call_names[running->role.call];
    running->is_right = true;
    for (int r = 0; r < RANKS; r++) {
        int status = -1;
        assert_int_equal(waitpid(running->children[r], &status, 0), running->children[r]);
        if (status != 0)
            print_error("%s: rank %d ended with status %#x\n", call, r, (unsigned)status);
        running->is_right = running->is_right && status == 0;
    }
    /* known_at is 0 if no rank had to learn of the misdeed. */
    const double took = running->meeting->known_at - running->meeting->misdeed_at;
    if (took > PROMPT)
        print_error("%s: rank 0 knew after %.2f s\n", call, took);
    running->is_right = running->is_right && took <= PROMPT;
    munmap(running->meeting, sizeof(*running->meeting));
}

/* Runs `role` with each call in [first, end): on the host device with all of them at once, on GPUs one after the other. */
static void run_in(const struct role *role, int first, int end)
{
    struct running cases[CALLS] = {0};
    const int together = getenv("CECL_TEST_DEVICE") ? 1 : CALLS;
    bool all = true;
    for (int from = first; from < end; from += together) {
        const int to = from + together < end ? from + together : end;
        for (int call = from; call < to; call++) {
            cases[call].role = *role;
            cases[call].role.call = (enum call)call;
            start(&cases[call]);
        }
        for (int call = from; call < to; call++) {
            finish(&cases[call]);
            all = all && cases[call].is_right;
        }
    }
    assert_true(all);
}

static void run_in_all(const struct role *role)
{
    run_in(role, GATHER, CALLS);
}

TEST(who_reaches_memory_of_peers_does_not_leave_in_silence)
{
    const struct role exits = {live_with_kernels, GATHER, EXITS, ceclRemoteError,
                               "rank 1 ended unexpectedly"},
                      aborts = {live_with_kernels, GATHER, ABORTS, ceclRemoteError,
                                "rank 1 gave up: ceclCommAbort"};
    run_in(&exits, GATHER, SMALL_GATHER + 1); /* SMALL_GATHER: by ceclGetPeerPointer */
    run_in(&aborts, GATHER, GATHER + 1);
}

TEST(handlers_that_are_older_than_communicators_make_calls)
{
    if (!getenv("CECL_TEST_DEVICE")) /* on GPUs, CUDA has ended before the exit handler runs */
        run_in_all(&(struct role){live_until_exit, GATHER, EXITS, ceclSuccess, NULL});
}

TEST(a_handler_of_a_signal_may_exit)
{
    for (int times = 0; times < 5; times++)
        run_in(&(struct role){live_until_a_signal, GATHER, EXITS, ceclSuccess, NULL}, GATHER,
               GATHER + 1);
}

TEST(a_rank_that_is_done_may_end_in_any_way)
{
    static const enum misdeed ways[] = {EXITS, ABORTS, LEAVES};
    for (int way = 0; way < 3; way++)
        run_in_all(&(struct role){live_on, GATHER, ways[way], ceclSuccess, NULL});
}

TEST(copies_of_a_failed_call_end_before_the_shrink)
{
    run_in(&(struct role){live_through_a_shrink, GATHER, EXITS, ceclSuccess, NULL}, GATHER,
           GATHER + 1);
}
