/* Threads call, finalize, destroy, abort and revoke a communicator at random while another thread creates it. No thread
 * uses cecl's communicator, or NCCL's, after its end, and cecl's ends once. This test replaces the code that creates
 * communicators, and cecl's library. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "../with_cmocka.h"

#include "nccl/captured.h"
#include "nccl/decide.h"
#include "nccl/library.h"
#include "nccl/process.h"

#define ROUNDS 1500
#define THREADS 3
#define COMMS 4 /* used in turn, so entries of the table are reused */

struct ceclComm {
    _Atomic int ends, users;
    _Atomic bool has_failed;
};
struct ncclComm {
    struct ceclComm ours;
    _Atomic bool has_ended, is_being_made, was_made;
    uint64_t seed;
};

static struct ncclComm comms[COMMS];
static _Atomic int faults; /* cmocka's assertions work only in its own thread */

#define REQUIRE(what) \
    do { \
        if (!(what)) { \
            print_error("line %d: " #what "\n", __LINE__); \
            atomic_fetch_add(&faults, 1); \
        } \
    } while (0)

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void linger(uint64_t us)
{
    const struct timespec pause = {.tv_nsec = (long)(us * 1000)};
    if (us > 0)
        nanosleep(&pause, NULL);
}

/* Makes a call, which ends by itself after a while, or when its communicator has failed. */
static void use(ceclComm_t ours)
{
    REQUIRE(ours->ends == 0);
    atomic_fetch_add(&ours->users, 1);
    for (int i = 0; i < 5 && !ours->has_failed; i++)
        linger(40);
    REQUIRE(ours->ends == 0);
    atomic_fetch_sub(&ours->users, 1);
}

static ceclResult_t finalize(ceclComm_t ours)
{
    use(ours);
    return ceclSuccess;
}

static ceclResult_t end(ceclComm_t ours)
{
    REQUIRE(ours->users == 0);
    REQUIRE(atomic_fetch_add(&ours->ends, 1) == 0);
    return ceclSuccess;
}

static _Thread_local bool destroys; /* otherwise the thread must not wait for the calls */

static ceclResult_t destroy(ceclComm_t ours)
{
    REQUIRE(destroys);
    return end(ours);
}

static ceclResult_t revoked(ceclComm_t ours)
{
    REQUIRE(ours->ends == 0);
    ours->has_failed = true;
    return ceclSuccess;
}

static ceclResult_t ask(ceclComm_t ours, ceclResult_t *error)
{
    REQUIRE(ours->ends == 0);
    *error = ceclSuccess;
    return ceclSuccess;
}

void cecl_nccl_learn_close(struct cecl_nccl_comm *entry)
{
}

void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry)
{
}

const struct cecl_nccl_library *cecl_nccl_library(void)
{
    static const struct cecl_nccl_library library = {.ceclCommAbort = end,
                                                     .ceclCommDestroy = destroy,
                                                     .ceclCommFinalize = finalize,
                                                     .ceclCommGetAsyncError = ask,
                                                     .ceclCommRevoke = revoked};
    return &library;
}

const struct cecl_nccl_process *cecl_nccl_process(void)
{
    static const struct cecl_nccl_process process = {.is_forked = false};
    return &process;
}

ncclResult_t cecl_nccl_make(ncclComm_t comm, struct cecl_nccl_comm *entry, int together,
                            bool in_background, struct cecl_nccl_meeting *meeting)
{
    REQUIRE(!meeting);
    entry->ours = NULL;
    entry->reason = CECL_NCCL_NOT_MADE;
    REQUIRE(in_background);
    bool goes_on = true;
    for (int i = 0; i < 3 && goes_on; i++) {
        goes_on = cecl_nccl_comm_enter(entry, comm, CECL_NCCL_SET(MAKING));
        if (!goes_on)
            continue;
        REQUIRE(!comm->has_ended);
        linger(draw(&comm->seed) % 3 * 20);
        REQUIRE(!comm->has_ended);
        cecl_nccl_comm_leave(entry);
    }
    if (goes_on) {
        entry->ours = &comm->ours;
        entry->reason = CECL_NCCL_NO_REASON;
    }
    comm->was_made = goes_on;
    comm->is_being_made = false;
    return goes_on ? ceclSuccess : ceclInvalidUsage;
}

struct thread {
    pthread_t thread;
    ncclComm_t comm;
    uint64_t seed;
};

static void end_nccls(ncclComm_t comm, bool is_mine)
{
    if (is_mine)
        comm->has_ended = true;
}

static void call(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    if (!entry || !cecl_nccl_comm_enter(entry, comm, CECL_NCCL_MADE))
        return;
    if (entry->ours)
        use(entry->ours);
    cecl_nccl_comm_leave(entry);
}

static void *run(void *argument)
{
    struct thread *t = argument;
    linger(draw(&t->seed) % 8 * 40);
    for (int i = 0; i < 2; i++) {
        const uint64_t choice = draw(&t->seed) % 8;
        const bool may = !cecl_nccl_comm_is(t->comm, CECL_NCCL_NOT_READY);
        destroys = choice == 5;
        if (choice < 3)
            call(t->comm);
        else if (choice == 3 && may)
            cecl_nccl_comm_finalize_later(t->comm);
        else if (choice == 4)
            REQUIRE(cecl_nccl_comm_error(t->comm) <= (ncclResult_t)ceclInProgress);
        else if (choice == 5 && may)
            end_nccls(t->comm, cecl_nccl_comm_destroy(t->comm));
        else if (choice == 6)
            end_nccls(t->comm, cecl_nccl_comm_abort(t->comm));
        else if (choice == 7)
            cecl_nccl_comm_revoke(t->comm);
    }
    return NULL;
}

static void one_round(ncclComm_t comm, uint64_t seed)
{
    struct thread threads[THREADS];
    memset(comm, 0, sizeof(*comm));
    comm->seed = seed;
    comm->is_being_made = true;
    assert_int_equal(cecl_nccl_comm_make_later(comm, 1, NULL), ceclSuccess);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.comm = comm, .seed = seed * 31 + (uint64_t)i * 977 + 1};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, run, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i].thread, NULL);
    end_nccls(comm, cecl_nccl_comm_abort(comm));
    assert_null(cecl_nccl_comm_find(comm));
    assert_true(comm->has_ended);
    /* If the communicator ended during its creation, the creating thread soon destroys it. */
    for (int tries = 0; comm->is_being_made || (comm->was_made && comm->ours.ends == 0); tries++) {
        assert_in_range(tries, 0, 100000);
        linger(50);
    }
    assert_int_equal(comm->ours.ends, comm->was_made);
}

TEST(threads_end_a_communicator_at_random)
{
    const char *given = getenv("CECL_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    int made = 0;
    for (int i = 0; i < ROUNDS && faults == 0; i++) {
        struct ncclComm *comm = &comms[i % COMMS];
        one_round(comm, seed * 1000003 + (uint64_t)i + 1);
        made += comm->was_made;
    }
    assert_int_equal(faults, 0);
    assert_in_range(made, ROUNDS / 10, ROUNDS);
}
