/* Non-blocking communicators: NCCL creates them in the background, and so does cecl. Until both are ready, the program
 * gets ncclInProgress. Runs under CECL_NCCL=all; CECL_NCCL_PATH names the stand-in. */
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "../with_cmocka.h"

#include "served.h"

#define RANKS 4
#define REFUSED ((ncclResult_t)ceclInvalidArgument)

static ncclResult_t begin(struct rank *r)
{
    struct config config;
    return ncclCommInitRankConfig(&r->comm, r->nranks, r->id, r->rank, non_blocking(&config));
}

/* ---- ranks as threads, each of which starts to create its communicator */

static void *run_begun(void *argument)
{
    struct rank *r = argument;
    r->is_right = begin(r) == IN_PROGRESS && r->run(r);
    return NULL;
}

/* `run` gets a communicator whose creation has started, and must end it. */
static bool run_beginning(int nranks, bool (*run)(struct rank *))
{
    return run_lives(nranks, run_begun, run);
}

#define TEST_BEGINNING(name, ...) TEST_RUN_BY(run_beginning, "all", name, __VA_ARGS__)

static bool run_each_number_of_ranks(bool (*run)(struct rank *))
{
    bool is = true;
    for (int nranks = 1; nranks <= RANKS; nranks++)
        is = run_beginning(nranks, run) && is;
    return is;
}

static bool await_and_gather(struct rank *r)
{
    const bool is =
        await_comm(r->comm) == 0 && gathers(r, r->nranks > 1) && gathers(r, r->nranks > 1);
    return ncclCommFinalize(r->comm) == IN_PROGRESS && await_comm(r->comm) == 0 &&
           ncclCommDestroy(r->comm) == 0 && is;
}

TEST(a_non_blocking_communicator_is_served_when_it_is_ready)
{
    assert_true(run_each_number_of_ranks(await_and_gather));
}

/* (tests/fuzz has ranks that one thread begins in a group.) */
TEST(making_a_communicator_does_not_wait_for_other_ranks)
{
    struct rank ranks[2] = {{.rank = 0, .nranks = 2}, {.rank = 1, .nranks = 2}};
    ncclResult_t error = 0;
    assert_int_equal(ncclGetUniqueId(&ranks[0].id), 0);
    ranks[1].id = ranks[0].id;
    assert_int_equal(begin(&ranks[0]), IN_PROGRESS);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(ncclCommGetAsyncError(ranks[0].comm, &error), 0);
        assert_int_equal(error, IN_PROGRESS);
        usleep(1000);
    }
    assert_int_equal(begin(&ranks[1]), IN_PROGRESS); /* the same thread, without a group */
    for (int i = 0; i < 2; i++)
        assert_int_equal(await_comm(ranks[i].comm), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ncclCommDestroy(ranks[i].comm), 0);
}

enum way { HALVES, SHRINK, SHRINK_WITH_ABORT, GROW, WAYS };

static ncclResult_t begin_child(enum way way, const struct rank *r, struct rank *child)
{
    const int color = r->rank % 2;
    *child = *r;
    child->comm = NULL;
    if (way == GROW)
        return ncclCommGrow(r->comm, r->nranks, NULL, -1, &child->comm, NULL);
    if (way != HALVES)
        return ncclCommShrink(r->comm, NULL, 0, &child->comm, NULL,
                              way == SHRINK_WITH_ABORT ? CECL_NCCL_SHRINK_ABORT : 0);
    child->rank = r->rank / 2;
    child->nranks = (r->nranks + 1 - color) / 2;
    return ncclCommSplit(r->comm, color, r->rank, &child->comm, NULL);
}

/* The child is ready when the parent is ready again; only growing gives the child's handle at once. A shrink with
 * abort ends the parent in cecl. */
static enum way way;

static bool make_child(struct rank *r)
{
    struct rank child;
    bool is = await_comm(r->comm) == 0 && begin_child(way, r, &child) == IN_PROGRESS &&
              await_comm(way == GROW ? child.comm : r->comm) == 0 && child.comm;
    is = is && gathers(&child, child.nranks > 1) &&
         (way == SHRINK_WITH_ABORT || gathers(r, r->nranks > 1));
    return ncclCommDestroy(r->comm) == 0 && is && gathers(&child, child.nranks > 1) &&
           ncclCommDestroy(child.comm) == 0;
}

TEST(children_of_a_non_blocking_communicator_are_served)
{
    for (way = HALVES; way < WAYS; way++)
        assert_true(run_each_number_of_ranks(make_child));
}

TEST_BEGINNING(a_rank_without_a_color_gets_no_child, 1, 2, 3, RANKS)
{
    struct rank all = *r, none = *r;
    bool is = await_comm(r->comm) == 0 && ncclGroupStart() == 0 &&
              ncclCommSplit(r->comm, 3, r->rank, &all.comm, NULL) == 0 &&
              ncclCommSplit(r->comm, -1, 0, &none.comm, NULL) == 0;
    is = ncclGroupEnd() == IN_PROGRESS && is;
    is = is && await_comm(r->comm) == 0 && all.comm && !none.comm && gathers(&all, r->nranks > 1);
    return is && ncclCommDestroy(all.comm) == 0 && ncclCommDestroy(r->comm) == 0;
}

/* NCCL returns from the split once the non-blocking child is ready, so programs may use the child at once. */
TEST_OF_RANKS(a_non_blocking_child_of_a_blocking_communicator_is_served_at_once, 3)
{
    struct rank child = *r;
    struct config config;
    const ncclResult_t result =
        ncclCommSplit(r->comm, 0, r->rank, &child.comm, non_blocking(&config));
    const bool is = result == 0 && gathers(&child, true);
    return ncclCommDestroy(child.comm) == 0 && is;
}

/* The child is non-blocking, although its parent's split waited for it. */
TEST_OF_RANKS(children_of_a_blocking_communicators_non_blocking_child_are_served, 3)
{
    struct rank child = *r, grandchild = *r;
    struct config config;
    bool is = ncclCommSplit(r->comm, 0, r->rank, &child.comm, non_blocking(&config)) == 0 &&
              ncclCommSplit(child.comm, 0, r->rank, &grandchild.comm, NULL) == IN_PROGRESS &&
              await_comm(child.comm) == 0 && grandchild.comm && gathers(&grandchild, true);
    return ncclCommDestroy(grandchild.comm) == 0 && ncclCommDestroy(child.comm) == 0 && is;
}

/* ---- calls before the communicator is ready */

TEST_BEGINNING(calls_on_a_communicator_that_is_not_ready_are_refused_as_by_nccl, 2, RANKS)
{
    int in = 1, out[RANKS];
    ncclComm_t child = NULL;
    const ncclResult_t gathered = ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL);
    const ncclResult_t split_early = ncclCommSplit(r->comm, 0, 0, &child, NULL);
    const bool is = gathered == REFUSED && split_early == REFUSED &&
                    ncclCommFinalize(r->comm) == REFUSED && ncclCommDestroy(r->comm) == REFUSED;
    return await_comm(r->comm) == 0 && gathers(r, true) && ncclCommDestroy(r->comm) == 0 && is;
}

/* ---- communicators that end during their creation */

TEST(an_abort_while_other_ranks_are_missing_leaves_nothing)
{
    const int descriptors = open_descriptors(), threads = threads_alive();
    const time_t start = time(NULL);
    for (int i = 0; i < 5; i++) {
        struct rank r = {.rank = i % 2, .nranks = 2};
        assert_int_equal(ncclGetUniqueId(&r.id), 0);
        assert_int_equal(begin(&r), IN_PROGRESS);
        usleep(1000 * (unsigned)i);
        assert_int_equal(ncclCommAbort(r.comm), 0);
    }
    assert_true(comes_back_to(descriptors, threads));
    assert_true(time(NULL) - start < PROMPT);
}

/* The last rank aborts after this time. The others learn of that, or finish the creation; then they abort, too. */
static unsigned patience_us;

static bool abort_midway(struct rank *r)
{
    if (r->rank == r->nranks - 1) {
        usleep(patience_us);
        return ncclCommAbort(r->comm) == 0;
    }
    const ncclResult_t error = await_comm(r->comm);
    return error != IN_PROGRESS && error >= 0 && ncclCommAbort(r->comm) == 0;
}

TEST(an_abort_at_any_point_of_the_making_is_heard_and_leaves_nothing)
{
    assert_true(run_beginning(2, await_and_gather)); /* completes one-time setup */
    usleep(100000);
    const int descriptors = open_descriptors(), threads = threads_alive();
    for (int i = 0; i < 30; i++) {
        const time_t start = time(NULL);
        patience_us = (unsigned)i * 500;
        assert_true(run_beginning(2 + i % 3, abort_midway));
        assert_true(time(NULL) - start < PROMPT);
    }
    assert_true(comes_back_to(descriptors, threads));
}

/* All ranks have split before one aborts: a rank that learns of an abort is not ready, and cannot split. */
static pthread_barrier_t all_have;

static bool abort_after_split(struct rank *r)
{
    ncclComm_t child = NULL;
    bool is = await_comm(r->comm) == 0;
    pthread_barrier_wait(&all_have);
    is = ncclCommSplit(r->comm, 0, 0, &child, NULL) == IN_PROGRESS && is;
    pthread_barrier_wait(&all_have);
    return ncclCommAbort(r->comm) == 0 && is;
}

/* The children are not complete, so their state is unknown. */
TEST(a_parent_may_be_aborted_before_its_child_has_come)
{
    pthread_barrier_init(&all_have, NULL, 2);
    assert_true(run_beginning(2, abort_after_split));
    pthread_barrier_destroy(&all_have);
    assert_true(run_beginning(2, await_and_gather));
}

static bool await_and_pass(struct rank *r)
{
    const bool is = await_comm(r->comm) == 0 && gathers(r, false) && gathers(r, false);
    return ncclCommDestroy(r->comm) == 0 && is;
}

/* cecl refuses this value when it creates a communicator. test_nccl_stats.sh checks the table of --stats. */
TEST(where_ours_cannot_be_made_all_calls_are_passed)
{
    setenv("CECL_POOL_BYTES", "1", 1);
    assert_true(run_each_number_of_ranks(await_and_pass));
    unsetenv("CECL_POOL_BYTES");
    assert_true(run_beginning(2, await_and_gather));
}

/* ---- finalizing while a served call is pending. On the host device such a call returns when it is complete, so
 * another thread of rank 0 makes the call. */

static _Atomic bool has_looked; /* rank 1 waits for this before its part of the call */

struct pending {
    const struct rank *rank;
    pthread_t thread;
    _Atomic int tid;
    int out[2];
    ncclResult_t result;
};

static ncclResult_t gather(const struct rank *r, int out[2])
{
    const int in = 100 + r->rank;
    return ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL);
}

static void *gather_beside(void *argument)
{
    struct pending *call = argument;
    atomic_store(&call->tid, (int)syscall(SYS_gettid));
    call->result = gather(call->rank, call->out);
    return NULL;
}

static bool stays_in_progress(const struct rank *r)
{
    int out[2];
    ncclResult_t error = IN_PROGRESS;
    for (int i = 0; i < 20 && error == IN_PROGRESS; i++) {
        if (ncclCommGetAsyncError(r->comm, &error) != 0)
            return false;
        usleep(1000);
    }
    return error == IN_PROGRESS && gather(r, out) == REFUSED &&
           ncclCommFinalize(r->comm) == REFUSED && ncclCommDestroy(r->comm) == REFUSED;
}

static bool finalize_beside(const struct rank *r, struct pending *call)
{
    *call = (struct pending){.rank = r};
    bool is = await_comm(r->comm) == 0;
    pthread_create(&call->thread, NULL, gather_beside, call);
    is = thread_falls_asleep(&call->tid) && is; /* inside the call */
    is = ncclCommFinalize(r->comm) == IN_PROGRESS && is;
    is = stays_in_progress(r) && is;
    atomic_store(&has_looked, true);
    return is;
}

static bool await_look(const struct rank *r)
{
    const bool is = await_comm(r->comm) == 0;
    for (int i = 0; i < 5000 && !atomic_load(&has_looked); i++)
        usleep(1000);
    return is;
}

static bool finalize_and_destroy(const struct rank *r)
{
    return await_comm(r->comm) == 0 && ncclCommDestroy(r->comm) == 0;
}

static bool finalize_with_a_call(struct rank *r)
{
    struct pending call;
    int out[2];
    if (r->rank == 1)
        return await_look(r) && gather(r, out) == 0 && ncclCommFinalize(r->comm) == IN_PROGRESS &&
               finalize_and_destroy(r);
    bool is = finalize_beside(r, &call);
    is = await_comm(r->comm) == 0 && is;
    pthread_join(call.thread, NULL); /* no thread may be inside a call at the end */
    is = ncclCommDestroy(r->comm) == 0 && is;
    return is && call.result == 0 && call.out[0] == 100 && call.out[1] == 101;
}

TEST(finalizing_does_not_wait_for_served_calls)
{
    atomic_store(&has_looked, false);
    assert_true(run_beginning(2, finalize_with_a_call));
}

static bool abort_with_a_call(struct rank *r)
{
    struct pending call;
    if (r->rank == 1)
        return await_look(r) && ncclCommAbort(r->comm) == 0;
    bool is = finalize_beside(r, &call);
    is = ncclCommAbort(r->comm) == 0 && is;
    pthread_join(call.thread, NULL);
    return is && call.result == (ncclResult_t)ceclRemoteError;
}

TEST(an_abort_while_it_is_finalized_leaves_nothing)
{
    assert_true(run_beginning(2, await_and_gather)); /* completes one-time setup */
    const int descriptors = open_descriptors(), threads = threads_alive();
    const time_t start = time(NULL);
    atomic_store(&has_looked, false);
    assert_true(run_beginning(2, abort_with_a_call));
    assert_true(comes_back_to(descriptors, threads));
    assert_true(time(NULL) - start < PROMPT);
}

/* Rank 1 aborts, and never takes part in the call. */
static bool finalize_after_an_abort(struct rank *r)
{
    struct pending call;
    if (r->rank == 1)
        return await_look(r) && ncclCommAbort(r->comm) == 0;
    bool is = finalize_beside(r, &call);
    is = await_comm(r->comm) == (ncclResult_t)ceclRemoteError && is;
    pthread_join(call.thread, NULL);
    return ncclCommAbort(r->comm) == 0 && is && call.result == (ncclResult_t)ceclRemoteError;
}

TEST(finalizing_ends_with_the_error_of_a_served_call)
{
    atomic_store(&has_looked, false);
    assert_true(run_beginning(2, finalize_after_an_abort));
}

/* ---- groups with calls for NCCL and for cecl */

/* If cecl served its part at once, ranks could enqueue the two parts in different orders. */
TEST_BEGINNING(ncclGroupEnd_waits_for_nccls_part_before_it_serves, 2, RANKS)
{
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    int in = r->rank, out[RANKS] = {-1};
    double mine = r->rank, theirs = -1, none = 0;
    ncclResult_t error = IN_PROGRESS;
    bool is = await_comm(r->comm) == 0 && ncclGroupStart() == 0 &&
              ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL) == 0 &&
              ncclAllGather(&none, &none, 0, ncclFloat64, r->comm, NULL) == 0 &&
              ncclSend(&mine, 1, ncclFloat64, next, r->comm, NULL) == 0 &&
              ncclRecv(&theirs, 1, ncclFloat64, before, r->comm, NULL) == 0;
    const ncclResult_t result = ncclGroupEnd();
    is = is && (result == 0 || result == IN_PROGRESS);
    is = is && STANDIN(ncclCommGetAsyncError)(r->comm, &error) == 0 && error == 0;
    is = is && await_comm(r->comm) == 0 && out[r->nranks - 1] == r->nranks - 1 && theirs == before;
    return ncclCommDestroy(r->comm) == 0 && is;
}

/* The library sleeps by nanosleep. With `pauses`, this thread's next sleep lasts until the abort is done. */
static _Thread_local bool pauses;
static _Atomic bool has_paused, has_aborted;
static size_t looks; /* calls of the stand-in's ncclCommGetAsyncError until the abort was done */

__attribute__((visibility("default"))) int nanosleep(const struct timespec *time,
                                                     struct timespec *left)
{
    if (pauses) {
        pauses = false;
        atomic_store(&has_paused, true);
        while (!atomic_load(&has_aborted))
            sched_yield();
        looks = calls_of("ncclCommGetAsyncError");
    }
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

static void *abort_beside(void *argument)
{
    struct rank *r = argument;
    while (!atomic_load(&has_paused))
        sched_yield();
    r->is_right = ncclCommAbort(r->comm) == 0;
    atomic_store(&has_aborted, true);
    return NULL;
}

/* Rank 1 only waits, and calls nothing meanwhile. */
TEST_BEGINNING(after_an_abort_a_group_does_not_ask_for_the_communicator, 2)
{
    static _Atomic bool is_done;
    struct rank same = *r;
    double none = 0;
    pthread_t thread;
    bool is = await_comm(r->comm) == 0;
    if (r->rank == 1) {
        while (!atomic_load(&is_done))
            usleep(1000);
        return ncclCommAbort(r->comm) == 0 && is;
    }
    usleep(100000); /* by then rank 1 polls no more */
    pthread_create(&thread, NULL, abort_beside, &same);
    is = ncclGroupStart() == 0 && is;
    is = ncclAllGather(&none, &none, 0, ncclFloat64, r->comm, NULL) == 0 && is;
    is = ncclSend(&none, 1, ncclFloat64, 1, r->comm, NULL) == 0 && is;
    pauses = true;
    (void)!ncclGroupEnd();
    is = calls_of("ncclCommGetAsyncError") == looks && is;
    pthread_join(thread, NULL);
    atomic_store(&is_done, true);
    return is && same.is_right;
}
