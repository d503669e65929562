/* Calls that cecl serves in NCCL's place, on the host device: results; calls that are passed instead; communicators
 * that cannot be created, that are split or aborted, or that lose a rank. CECL_NCCL_PATH names the stand-in. */
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "../with_cmocka.h"

#include "processes.h"
#include "served.h"

#define RANKS 4
#define COUNT 500 /* elements of a block */
#define UNKNOWN_TYPE 77

/* ---- A call of each kind. (tests/fuzz makes random calls, also in place, and compares every byte.) */

enum op {
    ALL_GATHER,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    BCAST,
    GATHER,
    SCATTER,
    OPS
};
#define ROOT 1

/* Element i of the block that a rank sends to another one, or to all (`to` is 0). */
static uint32_t element(enum op op, int rank, int to, size_t i)
{
    return (uint32_t)op * 7919 + (uint32_t)rank * 104729 + (uint32_t)to * 1299709 +
           (uint32_t)i * 31;
}

static bool sends_blocks(enum op op)
{
    return op == ALL_TO_ALL || op == REDUCE_SCATTER || op == SCATTER;
}

static bool gets_blocks(enum op op)
{
    return op == ALL_GATHER || op == ALL_TO_ALL || op == GATHER;
}

/* Element i of block `block` of a rank's output. */
static uint32_t expected(enum op op, const struct rank *r, int block, size_t i)
{
    const int to = sends_blocks(op) ? r->rank : 0;
    uint32_t sum = 0;
    if (gets_blocks(op))
        return element(op, block, to, i);
    if (op != REDUCE_SCATTER && op != ALL_REDUCE && op != REDUCE)
        return element(op, ROOT, to, i);
    for (int rank = 0; rank < r->nranks; rank++)
        sum += element(op, rank, to, i);
    return sum;
}

static ncclResult_t make_call(enum op op, ncclComm_t comm, uint32_t *in, uint32_t *out)
{
    const ncclDataType_t type = ncclUint32;
    switch (op) {
    case ALL_GATHER: return ncclAllGather(in, out, COUNT, type, comm, NULL);
    case ALL_TO_ALL: return ncclAlltoAll(in, out, COUNT, type, comm, NULL);
    case REDUCE_SCATTER: return ncclReduceScatter(in, out, COUNT, type, ncclSum, comm, NULL);
    case ALL_REDUCE: return ncclAllReduce(in, out, COUNT, type, ncclSum, comm, NULL);
    case REDUCE: return ncclReduce(in, out, COUNT, type, ncclSum, ROOT, comm, NULL);
    case BROADCAST: return ncclBroadcast(in, out, COUNT, type, ROOT, comm, NULL);
    case BCAST:
        return ncclBcast(memcpy(out, in, COUNT * sizeof(*in)), COUNT, type, ROOT, comm, NULL);
    case GATHER: return ncclGather(in, out, COUNT, type, ROOT, comm, NULL);
    default: return ncclScatter(in, out, COUNT, type, ROOT, comm, NULL);
    }
}

/* Makes the call. Returns whether its output is right. */
static bool is_right(enum op op, const struct rank *r)
{
    static _Thread_local uint32_t in[RANKS * COUNT], out[RANKS * COUNT];
    const bool receives = (op != REDUCE && op != GATHER) || r->rank == ROOT;
    for (int to = 0; to < (sends_blocks(op) ? r->nranks : 1); to++)
        for (size_t i = 0; i < COUNT; i++)
            in[(size_t)to * COUNT + i] = element(op, r->rank, to, i);
    memset(out, 0xee, sizeof(out));
    bool is = make_call(op, r->comm, in, out) == 0;
    for (int block = 0; block < (gets_blocks(op) ? r->nranks : 1) && receives; block++)
        for (size_t i = 0; i < COUNT; i++)
            is = is && out[(size_t)block * COUNT + i] == expected(op, r, block, i);
    return is;
}

/* ---- processes as ranks. They come first: children must not inherit a library in use, so the parent calls NCCL later. */

static bool make_each_op(struct rank *r, bool served)
{
    bool is = true;
    for (enum op op = ALL_GATHER; op < OPS; op++) {
        mark(r);
        is = is_right(op, r) && is_served() == served && is;
    }
    return is;
}

static bool serve_each_op(struct rank *r)
{
    return make_each_op(r, true);
}

static bool pass_each_op(struct rank *r)
{
    return make_each_op(r, false);
}

TEST_UNDER("all", each_op_of_processes_is_served)
{
    assert_true(run_processes(serve_each_op, 3, NULL, NULL));
}

TEST_UNDER("all", all_calls_are_passed_soon_where_one_rank_cannot_make_a_communicator)
{
    static const char *const pools[] = {"64M", "1", "64M"};
    static const char *const devices[] = {"host", "cuda", "host"};
    const time_t start = time(NULL);
    assert_true(run_processes(pass_each_op, 3, "CECL_POOL_BYTES", pools));
    assert_true(run_processes(pass_each_op, 3, "CECL_DEVICE", devices));
    assert_true(time(NULL) - start < PROMPT);
}

/* Waits for the asynchronous error that another rank is lost, with these words. Then aborts the communicator. */
static bool hears_of_a_loss(const struct rank *r, const char *words)
{
    ncclResult_t error = 0;
    bool is = true, said = false;
    for (int i = 0; i < 100 * PROMPT && !said; i++) {
        is = is && ncclCommGetAsyncError(r->comm, &error) == 0;
        said = error != 0 && strstr(ncclGetLastError(r->comm), words);
        usleep(10000);
    }
    return is && said && error == ceclRemoteError && ncclCommAbort(r->comm) == 0;
}

static bool lose_rank_1(struct rank *r)
{
    if (r->rank == 1)
        raise(SIGKILL);
    const bool is = hears_of_a_loss(r, "rank 1 ended unexpectedly");
    r->comm = NULL;
    return is;
}

TEST_UNDER("all", the_death_of_a_rank_is_an_asynchronous_error)
{
    assert_true(run_processes(lose_rank_1, 3, NULL, NULL));
}

/* If one of the processes has few hardware queues, all processes pass the calls that few queues make slow. */
#define ELEMENTS (2 << 20)
static ncclResult_t reduce_large(const struct rank *r)
{
    static uint16_t zeros[ELEMENTS], out[ELEMENTS];
    mark(r);
    return ncclAllReduce(zeros, out, ELEMENTS, ncclBfloat16, ncclSum, r->comm, NULL);
}

static bool serves_a_reduction(struct rank *r)
{
    return reduce_large(r) == 0 && is_served();
}

static bool passes_a_reduction(struct rank *r)
{
    return reduce_large(r) != 0 && !is_served(); /* the stand-in refuses the type */
}

TEST_UNDER("auto", processes_agree_on_what_few_queues_slow)
{
    static const char name[] = "CUDA_DEVICE_MAX_CONNECTIONS";
    static const char *const both[] = {"8", "32"}, *const first[] = {"1", "8"},
                             *const second[] = {"32", "4"};
    assert_true(run_processes(serves_a_reduction, 2, name, both));
    assert_true(run_processes(passes_a_reduction, 2, name, first));
    assert_true(run_processes(passes_a_reduction, 2, name, second));
}

/* ---- tests with threads as ranks */

static bool run_soon(int nranks, bool (*run)(struct rank *))
{
    const time_t start = time(NULL);
    return run_ranks(nranks, run) && time(NULL) - start < PROMPT;
}

TEST_UNDER("off", nccl_receives_each_call_once)
{
    static const char *const names[] = {"ncclAllGather", "ncclAlltoAll", "ncclReduceScatter",
                                        "ncclAllReduce", "ncclReduce",   "ncclBcast",
                                        "ncclGather",    "ncclScatter"};
    size_t before[sizeof(names) / sizeof(names[0])];
    const size_t broadcasts = calls_of("ncclBroadcast");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        before[i] = calls_of(names[i]);
    assert_true(run_ranks(RANKS, pass_each_op));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(calls_of(names[i]), before[i] + RANKS);
    /* Each ncclBcast calls ncclBroadcast once. */
    assert_int_equal(calls_of("ncclBroadcast"), broadcasts + 2 * RANKS);
}

/* The parent has called NCCL, so its children inherit a library that is in use. */
TEST_UNDER("off", children_of_a_fork_pass_their_calls)
{
    assert_true(run_processes(pass_each_op, RANKS, NULL, NULL));
}

TEST_UNDER("all strict", each_op_is_served_and_gives_what_plain_loops_give)
{
    assert_true(run_ranks(RANKS, serve_each_op));
    assert_true(run_ranks(2, serve_each_op));
}

/* More messages than cecl takes in one group, all from and to the same memory, as in benchmarks. */
TEST_OF_RANKS_UNDER("all strict", a_group_may_repeat_a_message_many_times, 2, RANKS)
{
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    uint32_t in[5], out[5] = {0};
    bool is = ncclGroupStart() == 0;
    for (uint32_t i = 0; i < 5; i++)
        in[i] = (uint32_t)r->rank * 10 + i;
    for (int i = 0; i < 700; i++)
        is = ncclSend(in, 5, ncclUint32, next, r->comm, NULL) == 0 &&
             ncclRecv(out, 5, ncclUint32, before, r->comm, NULL) == 0 && is;
    is = ncclGroupEnd() == 0 && is;
    for (uint32_t i = 0; i < 5; i++)
        is = is && out[i] == (uint32_t)before * 10 + i;
    return is;
}

TEST_OF_RANKS_UNDER("all", calls_that_cecl_lacks_are_passed, RANKS)
{
    float in = 1, out = 0;
    int ints[2] = {3, 5};
    mark(r);
    const bool is_empty_passed =
        ncclAllGather(&in, &out, 0, ncclFloat32, r->comm, NULL) == 0 && !is_served();
    mark(r);
    const bool is_average_passed =
        ncclAllReduce(&ints[0], &ints[1], 1, ncclInt32, ncclAvg, r->comm, NULL) == 0 &&
        !is_served();
    mark(r); /* the stand-in refuses user-defined reductions */
    const bool is_user_op_passed =
        ncclAllReduce(&in, &out, 1, ncclFloat32, ncclAvg + 1, r->comm, NULL) == 4 && !is_served();
    return is_empty_passed && is_average_passed && is_user_op_passed;
}

/* Halves of 2 ranks each; every second rank destroys the parent first. */
static bool split_and_destroy(struct rank *r)
{
    struct rank half = {.nranks = RANKS / 2, .rank = r->rank / 2};
    bool is = ncclCommSplit(r->comm, r->rank % 2, r->rank, &half.comm, NULL) == 0 &&
              gathers(&half, true) && gathers(r, true);
    if (r->rank % 2) {
        is = ncclCommDestroy(r->comm) == 0 && is;
        r->comm = NULL;
    }
    is = is && gathers(&half, true);
    return ncclCommDestroy(half.comm) == 0 && is;
}

#define ON_A_HOST 2

static ncclUniqueId all_id;

static bool gather_served(struct rank *r)
{
    return gathers(r, true);
}

static bool split_by_host(struct rank *r)
{
    struct rank host = {.nranks = ON_A_HOST, .rank = r->rank % ON_A_HOST}, all = *r;
    bool is = gathers(r, false) &&
              ncclCommSplit(r->comm, r->rank / ON_A_HOST, r->rank, &host.comm, NULL) == 0 &&
              gathers(&host, true) && gathers(r, false);
    is = is && ncclCommSplit(r->comm, 0, r->rank, &all.comm, NULL) == 0 && gathers(&all, false);
    return is && gathers(&host, true) && ncclCommDestroy(all.comm) == 0 &&
           ncclCommDestroy(host.comm) == 0;
}

/* NCCL makes both communicators in the background. */
static bool split_in_background(struct rank *r)
{
    struct config config;
    struct rank all = *r, host = {.nranks = ON_A_HOST, .rank = r->rank % ON_A_HOST};
    bool is =
        ncclCommInitRankConfig(&all.comm, r->nranks, all_id, r->rank, non_blocking(&config)) ==
            IN_PROGRESS &&
        await_comm(all.comm) == 0 && gathers(&all, false) &&
        ncclCommSplit(all.comm, r->rank / ON_A_HOST, r->rank, &host.comm, NULL) == IN_PROGRESS &&
        await_comm(all.comm) == 0 && await_comm(host.comm) == 0;
    return is && gathers(&host, true) && gathers(&all, false) && ncclCommDestroy(host.comm) == 0 &&
           ncclCommDestroy(all.comm) == 0;
}

TEST_UNDER("all", communicators_over_hosts_are_passed_and_their_children_of_one_host_served)
{
    setenv("CECL_NODE_SIZE", "2", 1);
    assert_true(run_ranks(RANKS, split_by_host));
    assert_int_equal(ncclGetUniqueId(&all_id), 0);
    assert_true(run_ranks(RANKS, split_in_background));
    assert_true(run_ranks(ON_A_HOST, gather_served));
    unsetenv("CECL_NODE_SIZE");
}

/* ---- the program's threads keep their names, by which debuggers and schedulers identify them */

#define NAME_BYTES 16 /* with the terminating 0 */

static bool is_named(const char *name)
{
    char found[NAME_BYTES];
    return pthread_getname_np(pthread_self(), found, sizeof(found)) == 0 &&
           strcmp(found, name) == 0;
}

static void *make_and_end_under_a_name(void *argument)
{
    struct rank *r = argument;
    r->is_right = pthread_setname_np(pthread_self(), "the-program") == 0 &&
                  ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 &&
                  is_named("the-program") && split_and_destroy(r) &&
                  ncclCommDestroy(r->comm) == 0 && is_named("the-program");
    return NULL;
}

TEST_UNDER("all", a_split_is_served_and_outlives_its_parent_and_threads_keep_their_names)
{
    assert_true(run_lives(RANKS, make_and_end_under_a_name, NULL));
}

/* Waits until all ranks have come. A call ends earlier on one rank than on another: if the first rank revoked the
 * communicator at once, the call would fail on the other one. */
static void wait_for_all(_Atomic int *come, int nranks)
{
    atomic_fetch_add(come, 1);
    while (atomic_load(come) < nranks)
        usleep(100);
}

static ncclResult_t (*end)(ncclComm_t); /* by which the ranks end their communicators */
static _Atomic int ready;

static void *serve_and_end(void *argument)
{
    struct rank *r = argument;
    r->is_right = ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 && gathers(r, true);
    wait_for_all(&ready, r->nranks);
    r->is_right = end(r->comm) == 0 && r->is_right;
    return NULL;
}

static void leaves_nothing_behind(ncclResult_t (*by)(ncclComm_t))
{
    int descriptors = 0, threads = 0;
    end = by;
    for (int i = 0; i < 4; i++) {
        atomic_store(&ready, 0);
        assert_true(run_lives(2, serve_and_end, NULL));
        if (i > 0)
            continue;
        usleep(100000); /* one-time setup is complete */
        descriptors = open_descriptors();
        threads = threads_alive();
    }
    assert_true(comes_back_to(descriptors, threads));
}

TEST_UNDER("all", a_destroyed_communicator_leaves_no_descriptor_and_no_thread)
{
    leaves_nothing_behind(ncclCommDestroy);
}

TEST_UNDER("all", an_aborted_communicator_leaves_no_descriptor_and_no_thread)
{
    leaves_nothing_behind(ncclCommAbort);
}

/* After the revocation NCCL's communicator still exists, but cecl's has ended its threads. */
TEST_OF_RANKS_UNDER("all", a_revoked_communicator_gives_up_what_serves_it, 2)
{
    static _Atomic int come, gone, counted;
    static int before;
    bool is = gathers(r, true);
    if (r->rank == 0)
        before = threads_alive();
    wait_for_all(&come, 2);
    is = ncclCommRevoke(r->comm, 2 * r->rank) == 0 && is; /* rank 1 with a flag */
    wait_for_all(&gone, 2);
    is = (r->rank > 0 || comes_back_to(open_descriptors(), before - 6)) && is;
    wait_for_all(&counted, 2);
    return is;
}

/* Revokes the communicator, then continues with all ranks but rank 1. */
TEST_OF_RANKS_UNDER("all", what_a_shrink_leaves_is_served, RANKS)
{
    struct rank fewer = {.nranks = RANKS - 1, .rank = r->rank > 1 ? r->rank - 1 : r->rank};
    int excluded[] = {1};
    static _Atomic int come;
    bool is = gathers(r, true);
    wait_for_all(&come, RANKS);
    is = ncclCommRevoke(r->comm, 0) == 0 && is;
    if (r->rank != 1) {
        is = is && ncclCommShrink(r->comm, excluded, 1, &fewer.comm, NULL, 0) == 0;
        is = is && gathers(&fewer, true) && ncclCommDestroy(fewer.comm) == 0;
    }
    return is;
}

/* NCCL refuses the flags, so the communicator stays usable. */
TEST_OF_RANKS_UNDER("all", what_nccl_does_not_revoke_is_served, RANKS)
{
    static _Atomic int come;
    const bool is = ncclCommRevoke(r->comm, 1) == ceclInvalidArgument;
    wait_for_all(&come, RANKS);
    return is && gathers(r, true);
}

struct waiting {
    struct rank rank;
    _Atomic int tid;
};

/* Makes a call that waits for rank 1 until the shrink ends it. */
static void *gather_in_vain(void *argument)
{
    struct waiting *me = argument;
    int in = 1, out[RANKS];
    atomic_store(&me->tid, (int)syscall(SYS_gettid));
    me->rank.is_right =
        ncclAllGather(&in, out, 1, ncclInt32, me->rank.comm, NULL) == ceclRemoteError;
    return NULL;
}

/* Rank 1 neither makes the call nor leaves. */
TEST_RUN_BY(run_soon, "all", a_shrink_that_aborts_ends_the_parents_calls, RANKS)
{
    static _Atomic int inside, done;
    struct rank fewer = {.nranks = RANKS - 1, .rank = r->rank > 1 ? r->rank - 1 : r->rank};
    struct waiting waits = {.rank = *r};
    int excluded[] = {1};
    bool is = true;
    pthread_t thread;
    if (r->rank != 1) {
        pthread_create(&thread, NULL, gather_in_vain, &waits);
        is = thread_falls_asleep(&waits.tid); /* inside the call */
        wait_for_all(&inside, RANKS - 1);     /* the first shrink ends the calls of all ranks */
        is = ncclCommShrink(r->comm, excluded, 1, &fewer.comm, NULL, CECL_NCCL_SHRINK_ABORT) == 0 &&
             is;
        pthread_join(thread, NULL);
        is = is && waits.rank.is_right && gathers(&fewer, true) && ncclCommDestroy(fewer.comm) == 0;
        atomic_fetch_add(&done, 1);
    }
    for (int i = 0; i < 1000 * PROMPT && atomic_load(&done) < RANKS - 1; i++)
        usleep(1000);
    return is;
}

/* The rank that joins: a thread that rank 0 starts. */
static void *join_grown(void *argument)
{
    struct rank *r = argument;
    r->is_right = ncclCommGrow(NULL, r->nranks, &r->id, r->rank, &r->comm, NULL) == 0 &&
                  gathers(r, true) && ncclCommDestroy(r->comm) == 0;
    return NULL;
}

TEST_OF_RANKS_UNDER("all", a_communicator_that_has_grown_is_served, 2)
{
    struct rank more = {.nranks = r->nranks + 1, .rank = r->rank}, joins = {.is_right = true};
    pthread_t thread;
    bool is = true;
    if (r->rank == 0) {
        joins = (struct rank){.nranks = r->nranks + 1, .rank = r->nranks};
        is = ncclCommGetUniqueId(r->comm, &joins.id) == 0;
        pthread_create(&thread, NULL, join_grown, &joins);
    }
    is = is && ncclCommGrow(r->comm, more.nranks, NULL, -1, &more.comm, NULL) == 0 &&
         gathers(&more, true) && ncclCommDestroy(more.comm) == 0;
    if (r->rank == 0)
        pthread_join(thread, NULL);
    return is && joins.is_right;
}

/* Ends a communicator once other threads are inside calls. */
struct ender {
    ncclResult_t (*end)(ncclComm_t comm);
    ncclComm_t comm;
    const _Atomic int *inside[2];
    ncclResult_t result;
    _Atomic int tid;
};

static void *end_soon(void *argument)
{
    struct ender *ender = argument;
    bool is = true;
    for (int i = 0; i < 2 && ender->inside[i]; i++)
        is = thread_falls_asleep(ender->inside[i]) && is;
    atomic_store(&ender->tid, (int)syscall(SYS_gettid));
    const ncclResult_t result = ender->end(ender->comm);
    ender->result = is ? result : -1;
    return NULL;
}

/* Rank 0 waits for the others, which make no call. while_destroying: meanwhile, a third thread waits in ncclCommDestroy
 * for the end of the call. */
static bool while_destroying;

static bool abort_from_another_thread(struct rank *r)
{
    int in = 1, out[RANKS];
    bool is;
    if (r->rank == 0) {
        const _Atomic int tid = (int)syscall(SYS_gettid);
        struct ender destroyer = {ncclCommDestroy, r->comm, {&tid}, -1, 0},
                     aborter = {ncclCommAbort,
                                r->comm,
                                {&tid, while_destroying ? &destroyer.tid : NULL},
                                -1,
                                0};
        pthread_t aborts, destroys;
        pthread_create(&aborts, NULL, end_soon, &aborter);
        if (while_destroying)
            pthread_create(&destroys, NULL, end_soon, &destroyer);
        is = ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == ceclRemoteError;
        pthread_join(aborts, NULL);
        if (while_destroying)
            pthread_join(destroys, NULL);
        is = is && aborter.result == 0 && (!while_destroying || destroyer.result == 0);
    } else {
        is = hears_of_a_loss(r, "in NCCL's place: by ncclCommAbort");
    }
    r->comm = NULL;
    return is;
}

static _Atomic int cancelled_tid;
static _Atomic bool is_cancelled;

static void *gather_and_end(void *argument)
{
    struct rank *r = argument;
    int in = 1, out[RANKS];
    atomic_store(&cancelled_tid, (int)syscall(SYS_gettid));
    (void)!ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL);
    pthread_testcancel();
    return NULL;
}

/* The program cancels rank 0's thread, which waits in a call for the others. Then the others make the call. */
static bool cancel_in_a_call(struct rank *r)
{
    int in = 1, out[RANKS];
    if (r->rank > 0) {
        while (!atomic_load(&is_cancelled))
            usleep(1000);
        return ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0;
    }
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, gather_and_end, r);
    const bool is = thread_falls_asleep(&cancelled_tid) && pthread_cancel(thread) == 0;
    usleep(10000);
    atomic_store(&is_cancelled, true);
    pthread_join(thread, &result);
    return is && result == PTHREAD_CANCELED;
}

/* The end of the communicator waits until no thread is in a call. */
TEST_UNDER("all", a_thread_that_is_cancelled_is_in_no_call)
{
#ifdef __SANITIZE_ADDRESS__
    skip_because("the sanitizer takes the end of a cancelled thread for an error");
#endif
    assert_true(run_soon(RANKS, cancel_in_a_call));
}

TEST_UNDER("all", an_abort_from_another_thread_ends_a_call)
{
    for (int also = 0; also < 2; also++) {
        while_destroying = also;
        assert_true(run_soon(RANKS, abort_from_another_thread));
    }
}

/* Two threads destroy the communicator while a third one is inside a call. */
static bool destroy_twice_at_once(struct rank *r)
{
    static struct ender first, second;
    int in = 1, out[2];
    bool is;
    if (r->rank == 0) {
        const _Atomic int tid = (int)syscall(SYS_gettid);
        first.end = second.end = ncclCommDestroy;
        first.comm = second.comm = r->comm;
        first.inside[0] = second.inside[0] = &tid;
        pthread_t threads[2];
        pthread_create(&threads[0], NULL, end_soon, &first);
        pthread_create(&threads[1], NULL, end_soon, &second);
        is =
            ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 && out[0] == 1 && out[1] == 1;
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        is = is && first.result == 0 && second.result == 0;
    } else {
        is = thread_falls_asleep(&first.tid) && thread_falls_asleep(&second.tid);
        is = ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 &&
             ncclCommDestroy(r->comm) == 0 && is;
    }
    r->comm = NULL;
    return is;
}

static bool destroy_once(struct rank *r)
{
    const bool is = ncclCommDestroy(r->comm) == 0;
    r->comm = NULL;
    return is;
}

/* How often NCCL's ncclCommDestroy is called while `body` runs. run_ranks adds one call for each rank, with NULL. */
static size_t destroys_in(bool (*body)(struct rank *r))
{
    const size_t before = calls_of("ncclCommDestroy");
    assert_true(run_ranks(2, body));
    return calls_of("ncclCommDestroy") - before;
}

TEST_UNDER("all", nccls_communicator_is_destroyed_once)
{
    assert_int_equal(destroys_in(destroy_twice_at_once), destroys_in(destroy_once));
}

/* One thread creates all ranks; then each rank has a thread of its own. */
static struct rank many[RANKS];

static void *serve_one_of_many(void *argument)
{
    struct rank *r = argument;
    r->is_right = serve_each_op(r) && ncclCommDestroy(r->comm) == 0;
    return NULL;
}

static void serve_many(void)
{
    pthread_t threads[RANKS];
    for (int i = 0; i < RANKS; i++)
        pthread_create(&threads[i], NULL, serve_one_of_many, &many[i]);
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < RANKS; i++)
        assert_true(many[i].is_right);
}

TEST_UNDER("all", ranks_that_one_thread_makes_in_a_group_are_served)
{
    ncclUniqueId id;
    assert_int_equal(ncclGetUniqueId(&id), 0);
    assert_int_equal(ncclGroupStart(), 0);
    assert_int_equal(ncclGroupStart(), 0);
    for (int i = 0; i < RANKS; i++) {
        ncclComm_t comm; /* NCCL has written it when the call returns */
        assert_int_equal(ncclCommInitRank(&comm, RANKS, id, i), 0);
        many[i] = (struct rank){.rank = i, .nranks = RANKS, .comm = comm};
    }
    assert_int_equal(ncclGroupEnd(), 0);
    assert_int_equal(ncclGroupEnd(), 0);
    serve_many();
}

#define MANY_CALLS 300 /* in a group, more than cecl takes at once */

TEST_OF_RANKS_UNDER("all", a_group_may_have_many_calls, RANKS)
{
    int *memory = calloc((1 + RANKS) * MANY_CALLS, sizeof(*memory)), *out = memory + MANY_CALLS;
    bool is = memory && ncclGroupStart() == 0;
    for (int i = 0; is && i < MANY_CALLS; i++) {
        memory[i] = 1000 * r->rank + i;
        is = (i % 3 ? ncclAllGather(&memory[i], &out[i * RANKS], 1, ncclInt32, r->comm, NULL)
                    : ncclAllReduce(&memory[i], &out[i * RANKS], 1, ncclInt32, ncclMax, r->comm,
                                    NULL)) == 0;
    }
    is = ncclGroupEnd() == 0 && is;
    for (int i = 0; is && i < MANY_CALLS; i++)
        is = out[i * RANKS] == (i % 3 ? i : 1000 * (RANKS - 1) + i);
    free(memory);
    return is;
}

/* NCCL lets sender and receiver group their messages in different ways. */
#define MANY_MESSAGES 300 /* between two ranks, more than cecl takes at once */

static int at_once[2]; /* how many messages each of the two ranks puts into a group */

/* Message i has (i * 37) % 50 elements. */
static bool exchange_with(const struct rank *r, int peer, int in_group)
{
    enum { MOST = 50 };
    static _Thread_local int in[MANY_MESSAGES][MOST], out[MANY_MESSAGES][MOST];
    bool is = true;
    for (int i = 0; is && i < MANY_MESSAGES; i++) {
        const size_t count = (size_t)(i * 37 % MOST);
        for (int k = 0; k < MOST; k++)
            in[i][k] = (1000 * r->rank + i) * MOST + k;
        is = i % in_group > 0 || ncclGroupStart() == 0;
        is = is && ncclSend(in[i], count, ncclInt32, peer, r->comm, NULL) == 0 &&
             ncclRecv(out[i], count, ncclInt32, peer, r->comm, NULL) == 0;
        if (i % in_group == in_group - 1 || i == MANY_MESSAGES - 1)
            is = ncclGroupEnd() == 0 && is;
    }
    for (int i = 0; i < MANY_MESSAGES; i++)
        for (int k = 0; k < i * 37 % MOST; k++)
            is = is && out[i][k] == (1000 * peer + i) * MOST + k;
    return is;
}

/* The other ranks send to themselves. They make the communicator larger, so cecl takes fewer messages at once. */
static bool exchange_in_groups(struct rank *r)
{
    const bool alone = r->rank > 1;
    return exchange_with(r, alone ? r->rank : 1 - r->rank, at_once[alone ? 0 : r->rank]);
}

TEST_UNDER("all", messages_may_be_in_groups_of_any_shapes)
{
    static const int shapes[][2] = {{300, 100}, {100, 300}, {300, 300}, {300, 7}, {1, 300}};
    const size_t passed = calls_of("ncclSend") + calls_of("ncclRecv");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int nranks = 2; nranks <= MAX_RANKS; nranks += MAX_RANKS - 2) {
            at_once[0] = shapes[i][0];
            at_once[1] = shapes[i][1];
            assert_true(run_ranks(nranks, exchange_in_groups));
        }
    assert_int_equal(calls_of("ncclSend") + calls_of("ncclRecv"), passed); /* not even empty ones */
}

/* Benchmarks repeat one call in a group. */
TEST_OF_RANKS_UNDER("all", calls_of_a_group_may_have_one_recvbuff, RANKS)
{
    int in = r->rank, all[RANKS] = {0}, sum = 0, most = 0, other = 0;
    bool is = ncclGroupStart() == 0;
    for (int i = 0; i < 3; i++) {
        is = is && ncclAllGather(&in, all, 1, ncclInt32, r->comm, NULL) == 0;
        is = is && ncclAllReduce(&in, &sum, 1, ncclInt32, ncclSum, r->comm, NULL) == 0;
    }
    /* Ranks other than root may pass any recvbuff. */
    is = is && ncclReduce(&in, &most, 1, ncclInt32, ncclMax, 1, r->comm, NULL) == 0;
    is = is && ncclReduce(&in, r->rank == 1 ? &other : &most, 1, ncclInt32, ncclMin, 1, r->comm,
                          NULL) == 0;
    is = ncclGroupEnd() == 0 && is;
    return is && all[3] == 3 && sum == 6 && (r->rank != 1 || (most == 3 && other == 0));
}

static bool simulate(struct rank *r)
{
    int in = r->rank, out[RANKS] = {-1, -1, -1, -1};
    bool is = ncclGroupStart() == 0 && ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 &&
              ncclGroupSimulateEnd(NULL) == 0 && out[0] == -1;
    is = is && ncclGroupStart() == 0 && ncclGroupEnd() == 0 && out[0] == -1;
    return is && ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 && out[3] == 3;
}

/* The simulation asks NCCL about served calls, too. */
TEST_UNDER("all", a_group_that_is_only_simulated_carries_nothing_out)
{
    const size_t before = calls_of("ncclAllGather");
    assert_true(run_ranks(RANKS, simulate));
    assert_int_equal(calls_of("ncclAllGather") - before, RANKS);
}

TEST_OF_RANKS_UNDER("all", a_simulated_group_within_another_is_carried_out_with_it, RANKS)
{
    int in = r->rank, out[RANKS] = {-1, -1, -1, -1};
    const bool is = ncclGroupStart() == 0 && ncclGroupStart() == 0 &&
                    ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 &&
                    ncclGroupSimulateEnd(NULL) == 0;
    return ncclGroupEnd() == 0 && is && out[3] == 3;
}

static bool gather_in_a_group(const struct rank *r)
{
    int in = r->rank, out[RANKS] = {-1, -1};
    const bool is =
        ncclGroupStart() == 0 && ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0;
    return ncclGroupEnd() == 0 && is && out[0] == 0 && out[1] == 1;
}

/* A call that names a rank which the communicator does not have. */
static ncclResult_t call_nobody(int which, const struct rank *r, int *memory)
{
    const int wrong = which % 2 ? -1 : 2;
    switch (which / 2) {
    case 0: return ncclSend(memory, 1, ncclInt32, wrong, r->comm, NULL);
    case 1: return ncclRecv(memory, 1, ncclInt32, wrong, r->comm, NULL);
    case 2: return ncclBroadcast(memory, memory + 1, 1, ncclInt32, wrong, r->comm, NULL);
    default: return ncclReduce(memory, memory + 1, 1, ncclInt32, ncclSum, wrong, r->comm, NULL);
    }
}

/* NCCL refuses a call with such a rank at once, and carries out no other call of its group. */
TEST_OF_RANKS_UNDER("all strict auto", a_rank_that_is_not_there_is_refused_at_once, 2)
{
    bool is = true;
    for (int which = 0; which < 8 && is; which++) {
        int in = r->rank, out[RANKS] = {-1, -1}, memory[2] = {0};
        is = call_nobody(which, r, memory) == ceclInvalidArgument && ncclGroupStart() == 0 &&
             ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 &&
             call_nobody(which, r, memory) == ceclInvalidArgument;
        is = ncclGroupEnd() == ceclInvalidArgument && is && out[0] == -1 && gather_in_a_group(r);
    }
    return is;
}

/* strict refuses one call of a group: the group's other call is not carried out, and the next group works. A
 * group also works after a call that strict refuses outside of a group. */
TEST_OF_RANKS_UNDER("strict", a_group_with_a_call_that_strict_refuses_carries_nothing_out, 2)
{
    int in = r->rank, out[RANKS] = {-1, -1};
    char bytes[RANKS] = {0};
    bool is =
        ncclGroupStart() == 0 && ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 &&
        ncclAllGather(bytes + r->rank, bytes, 1, UNKNOWN_TYPE, r->comm, NULL) == ceclInvalidUsage;
    is = ncclGroupEnd() == ceclInvalidUsage && is && out[0] == -1 &&
         strstr(ncclGetLastError(r->comm), "cecl: CECL_NCCL=strict: ncclAllGather is refused");
    is = is && gather_in_a_group(r) &&
         ncclAllGather(bytes + r->rank, bytes, 1, UNKNOWN_TYPE, r->comm, NULL) == ceclInvalidUsage;
    return is && gather_in_a_group(r);
}

/* Until the thread's next call, ncclGetLastError returns the text of cecl's error, followed by NCCL's own last error. */
TEST_OF_RANKS_UNDER("all", the_last_error_is_in_the_words_of_who_failed, 2)
{
    static const char nccls[] = "the stand-in's last error";
    int in = 0, out[2];
    bool is = strcmp(ncclGetLastError(r->comm), nccls) == 0 &&
              ncclAllGather(&in, NULL, 1, ncclInt32, r->comm, NULL) == ceclInvalidArgument;
    const char *words = ncclGetLastError(r->comm);
    is =
        is && strncmp(words, "cecl: ", 6) == 0 && strstr(words, "recvbuff") && strstr(words, nccls);
    return is && ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 &&
           strcmp(ncclGetLastError(r->comm), nccls) == 0;
}

#define THREADS 100
#define FEW_BYTES 100000 /* a leak in each of the threads would be far more */

/* The thread ends while its open group has a call and a communicator. */
static void *end_in_a_group(void *argument)
{
    struct rank *r = argument;
    int in = 0, out[2];
    ncclComm_t comm = NULL;
    r->is_right = ncclGroupStart() == 0 &&
                  ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 &&
                  ncclCommInitAll(&comm, 1, NULL) == 0 && ncclCommDestroy(comm) == 0;
    return NULL;
}

static bool leave_groups_open(struct rank *r)
{
    bool is = true;
    for (int i = 0; i < THREADS; i++) {
        struct rank ends = *r;
        pthread_t thread;
        pthread_create(&thread, NULL, end_in_a_group, &ends);
        pthread_join(thread, NULL);
        is = is && ends.is_right;
    }
    return is;
}

TEST_UNDER("all", a_thread_that_ends_in_a_group_leaves_no_memory)
{
    assert_true(run_ranks(2, leave_groups_open)); /* completes one-time setup */
    const size_t before = mallinfo2().uordblks;
    assert_true(run_ranks(2, leave_groups_open));
    assert_true(mallinfo2().uordblks < before + FEW_BYTES);
}

/* ---- CECL_NCCL=auto: the table of gains.c, whose sizes test_nccl_gains tests */

enum { LARGE = 256 << 10 }; /* elements of bfloat16: a size that is served between two ranks */

/* The stand-in does not reduce this type, so it would refuse a passed call. */
static bool passes_reductions(struct rank *r)
{
    static uint16_t zeros[2 * LARGE], out[2][LARGE];
    return ncclAllReduce(zeros, out[r->rank], LARGE, ncclBfloat16, ncclSum, r->comm, NULL) != 0 &&
           ncclReduceScatter(zeros, out[r->rank], LARGE, ncclBfloat16, ncclSum, r->comm, NULL) != 0;
}

TEST_UNDER("auto", auto_passes_reductions_where_flags_are_on_the_host)
{
    static const char *const settings[][2] = {
        {"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"CECL_FLAGS", "host"}, {"CECL_URGENT", "1"}};
    assert_false(run_ranks(2, passes_reductions));
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        setenv(settings[i][0], settings[i][1], 1);
        assert_true(run_ranks(2, passes_reductions));
        unsetenv(settings[i][0]);
    }
}

TEST_OF_RANKS_UNDER("auto", auto_passes_what_nccl_does_faster_on_its_windows, 2)
{
    static uint16_t zeros[LARGE], outs[2][2 * LARGE];
    uint16_t *out = outs[r->rank];
    ncclWindow_t window;
    bool served[3];
    for (int i = 0; i < 3; i++) {
        if (i > 0 && ncclCommWindowRegister(r->comm, out, sizeof(outs[0]), &window,
                                            i == 2 ? CECL_NCCL_WIN_COLL_SYMMETRIC : 0) != 0)
            return false;
        mark(r);
        if (ncclAllGather(zeros, out, LARGE, ncclBfloat16, r->comm, NULL) != 0)
            return false;
        served[i] = is_served();
    }
    /* A reduction is served; the stand-in would refuse its type. */
    return served[0] && served[1] && !served[2] &&
           ncclAllReduce(zeros, out, LARGE, ncclBfloat16, ncclSum, r->comm, NULL) == 0;
}

static bool gather_block(const struct rank *r, bool served)
{
    static uint16_t zeros[LARGE], out[2][2 * LARGE];
    mark(r);
    return ncclAllGather(zeros, out[r->rank], LARGE, ncclBfloat16, r->comm, NULL) == 0 &&
           is_served() == served;
}

/* In a group, one rank registers before the gather, the other one after it. */
static bool register_in_a_group(struct rank *r)
{
    static uint16_t memory[2][64];
    ncclWindow_t window;
    bool is = ncclGroupStart() == 0;
    if (r->rank == 0)
        is = is && ncclCommWindowRegister(r->comm, memory[0], 128, &window,
                                          CECL_NCCL_WIN_COLL_SYMMETRIC) == 0;
    is = is && gather_block(r, true);
    if (r->rank == 1)
        is = is && ncclCommWindowRegister(r->comm, memory[1], 128, &window,
                                          CECL_NCCL_WIN_COLL_SYMMETRIC) == 0;
    is = ncclGroupEnd() == 0 && is;
    return is && gather_block(r, false);
}

static void *end_while_registering(void *context)
{
    static uint16_t memory[64];
    const struct rank *r = context;
    ncclWindow_t window;
    const bool is =
        ncclGroupStart() == 0 && ncclCommWindowRegister(r->comm, memory, sizeof memory, &window,
                                                        CECL_NCCL_WIN_COLL_SYMMETRIC) == 0;
    return is ? context : NULL;
}

/* Only rank 0 has a thread that ends with an open group. */
static bool register_after_a_lost_group(struct rank *r)
{
    pthread_t thread;
    void *is = r;
    if (r->rank == 0 && (pthread_create(&thread, NULL, end_while_registering, r) != 0 ||
                         pthread_join(thread, &is) != 0))
        return false;
    return is && gather_block(r, true) && register_in_a_group(r);
}

TEST_UNDER("auto", a_window_counts_from_the_end_of_its_group_on)
{
    assert_true(run_ranks(2, register_in_a_group));
    assert_true(run_ranks(2, register_after_a_lost_group));
}

/* A child has no windows; nor has a communicator that reuses the entry of one with windows. */
static bool split_after_a_window(struct rank *r)
{
    static uint16_t memory[2][64];
    struct rank child = *r;
    ncclWindow_t window;
    bool is = gather_block(r, true);
    is = is && ncclCommWindowRegister(r->comm, memory[r->rank], 128, &window,
                                      CECL_NCCL_WIN_COLL_SYMMETRIC) == 0;
    is = is && ncclCommSplit(r->comm, 0, r->rank, &child.comm, NULL) == 0;
    is = is && gather_block(&child, true) && gather_block(r, false);
    return ncclCommDestroy(child.comm) == 0 && is;
}

TEST_UNDER("auto", windows_belong_to_their_communicator)
{
    for (int times = 0; times < 40; times++) /* the stand-in reuses addresses */
        assert_true(run_ranks(2, split_after_a_window));
}

enum { BLOCK = LARGE, MESSAGE = 65536 /* more than fits in the stand-in's ring */ };

/* A served gather, a passed message and a passed reduction. In every second group the message comes first. NCCL carries
 * out all messages of a group after its collectives. */
struct mixed {
    uint16_t in[BLOCK], all[2 * BLOCK], message[MESSAGE];
    int one, sum;
};

static bool gather_mixed(const struct rank *r, struct mixed *m)
{
    mark(r);
    return ncclAllGather(m->in, m->all, BLOCK, ncclBfloat16, r->comm, NULL) == 0 && is_served();
}

static bool group_mixed(const struct rank *r, struct mixed *m, int round)
{
    bool is = ncclGroupStart() == 0;
    if (round % 2)
        is = is && ncclSend(m->message, MESSAGE, ncclBfloat16, 1, r->comm, NULL) == 0;
    is = is && gather_mixed(r, m) &&
         ncclAllReduce(&m->one, &m->sum, 1, ncclInt32, ncclSum, r->comm, NULL) == 0;
    if (round % 2 == 0)
        is = is && ncclSend(m->message, MESSAGE, ncclBfloat16, 1, r->comm, NULL) == 0;
    return outcome_of(r->comm, ncclGroupEnd()) == 0 && is;
}

/* The peer's group has the collectives only; it receives the message later. */
static bool group_and_receive(const struct rank *r, struct mixed *m)
{
    bool is = ncclGroupStart() == 0 && gather_mixed(r, m) &&
              ncclAllReduce(&m->one, &m->sum, 1, ncclInt32, ncclSum, r->comm, NULL) == 0;
    is = outcome_of(r->comm, ncclGroupEnd()) == 0 && is && m->all[BLOCK] == m->in[0];
    const ncclResult_t result = ncclRecv(m->message, MESSAGE, ncclBfloat16, 0, r->comm, NULL);
    return outcome_of(r->comm, result) == 0 && is;
}

static bool mix_in_groups(struct rank *r)
{
    bool is = true;
    struct mixed *m = calloc(1, sizeof(*m));
    for (int round = 0; round < 6 && is; round++) {
        m->one = round + r->rank;
        m->in[0] = (uint16_t)(100 * round + r->rank + 1);
        m->message[MESSAGE - 1] = (uint16_t)(r->rank == 0 ? 7 + round : 0);
        is = r->rank == 0 ? group_mixed(r, m, round) : group_and_receive(r, m);
        is = is && m->sum == 2 * round + 1 && m->all[0] == 100 * round + 1 &&
             m->all[BLOCK] == 100 * round + 2 && m->message[MESSAGE - 1] == 7 + round;
    }
    free(m);
    return is;
}

static bool mix_on_a_non_blocking_child(struct rank *r)
{
    struct rank child = *r;
    struct config config;
    const ncclResult_t made =
        ncclCommSplit(r->comm, 0, r->rank, &child.comm, non_blocking(&config));
    const bool is = outcome_of(child.comm, made) == 0 && mix_in_groups(&child);
    return ncclCommDestroy(child.comm) == 0 && is;
}

TEST_UNDER("auto", auto_has_served_collectives_before_passed_messages)
{
    assert_true(run_ranks(2, mix_in_groups));
    assert_true(run_ranks(2, mix_on_a_non_blocking_child));
}

/* The passed sum waits for the streams of the served gather, so cecl passes it in a second group, after the program's. */
static bool gather_and_sum(struct rank *r)
{
    static struct mixed both[2];
    struct mixed *m = &both[r->rank];
    m->one = 1 + r->rank;
    const bool is = ncclGroupStart() == 0 &&
                    ncclAllReduce(&m->one, &m->sum, 1, ncclInt32, ncclSum, r->comm, NULL) == 0 &&
                    gather_mixed(r, m);
    return outcome_of(r->comm, ncclGroupEnd()) == 0 && is && m->sum == 3;
}

TEST_UNDER("auto", auto_passes_a_collective_after_the_served_ones_of_its_group)
{
    const size_t before = calls_of("ncclGroupStart");
    assert_true(run_ranks(2, gather_and_sum));
    assert_int_equal(calls_of("ncclGroupStart") - before, 4);
}

/* cecl passes a group that has only messages within the program's own group of NCCL, and begins no other group. */
static bool exchange_in_a_group(struct rank *r)
{
    int out = 5 + r->rank, in = -1;
    bool is = ncclGroupStart() == 0 &&
              ncclSend(&out, 1, ncclInt32, 1 - r->rank, r->comm, NULL) == 0 &&
              ncclRecv(&in, 1, ncclInt32, 1 - r->rank, r->comm, NULL) == 0;
    is = ncclGroupEnd() == 0 && is && strcmp(STANDIN(standin_last)().name, "ncclGroupEnd") == 0;
    return is && in == 6 - r->rank;
}

TEST_UNDER("auto", auto_passes_a_group_of_messages_and_adds_none)
{
    const size_t before = calls_of("ncclGroupStart"), sent = calls_of("ncclSend");
    assert_true(run_ranks(2, exchange_in_a_group));
    assert_int_equal(calls_of("ncclGroupStart") - before, 2);
    assert_int_equal(calls_of("ncclSend") - sent, 2);
}

int main(void)
{
    mallopt(M_ARENA_MAX, 1); /* mallinfo2 counts only the first arena */
    return tests_run(NULL, NULL);
}
