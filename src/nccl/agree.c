/* Agreements of ranks, for captured calls; see captured.h. */
#include "nccl/captured.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "nccl/library.h"
#include "nccl/process.h"
#include "nccl/trial.h"
#include "util/clock.h"
#include "util/log.h"

#define LINE_BYTES 64 /* so that ranks do not share cache lines */
#define SPINS 1000    /* looks of a wait before it sleeps between looks */

/* What a rank tells. In agreement n it writes n << 1 | can to told[n & 1]. Two words are enough: when a
 * rank writes for agreement n + 2, it has seen all words of agreement n + 1, so all ranks have read its
 * word of agreement n. */
struct cecl_nccl_words {
    _Alignas(LINE_BYTES) _Atomic uint64_t told[2];
    _Atomic uint64_t calls; /* served collectives so far */
    _Atomic bool has_left;
};

/* ---- the life of a communicator's words */

void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry)
{
    struct cecl_nccl_words *words = atomic_exchange(&entry->words, NULL);
    if (words)
        atomic_store(&words[entry->rank].has_left, true);
}

/* Enters the entry first, so that no part of the entry ends meanwhile. */
static void leave_one(struct cecl_nccl_comm *entry)
{
    if (!cecl_nccl_life_enter(&entry->life, CECL_NCCL_MADE))
        return;
    cecl_nccl_agree_leave(entry);
    cecl_nccl_life_leave(&entry->life);
}

/* Called at the end of the process, to tell peers that wait in an agreement. They do not learn it from
 * cecl's goodbye, which is an error only for peers that wait in a call of libcecl.so. */
static void leave_all(void)
{
    if (!cecl_nccl_process()->is_forked)
        cecl_nccl_comms_each(leave_one);
}

static void leave_at_exit(void)
{
    atexit(leave_all);
}

ceclResult_t cecl_nccl_agree_open(struct cecl_nccl_comm *entry)
{
    const size_t needed = (size_t)entry->nranks * sizeof(struct cecl_nccl_words);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *shared;
    size_t bytes;
    CECL_TRY(cecl_nccl_library()->ceclCommGetSharedMemory(entry->ours, &shared, &bytes));
    if (cecl_trial_bytes(entry->nranks) + needed > bytes)
        return ceclSuccess;
    pthread_once(&once, leave_at_exit);
    atomic_store(&entry->words, (struct cecl_nccl_words *)((char *)shared + bytes - needed));
    return ceclSuccess;
}

/* ---- telling */

static struct cecl_nccl_words *words_of(const struct cecl_nccl_comm *comm)
{
    return atomic_load_explicit(&comm->words, memory_order_relaxed);
}

void cecl_nccl_agree_note_calls(struct cecl_nccl_comm *comm, int count)
{
    struct cecl_nccl_words *words = words_of(comm);
    comm->served += (uint64_t)count;
    if (words)
        atomic_store_explicit(&words[comm->rank].calls, comm->served, memory_order_release);
}

void cecl_nccl_agree_tell(struct cecl_nccl_comm *comm, bool can)
{
    struct cecl_nccl_words *words = words_of(comm);
    const uint64_t number = ++comm->agreed;
    if (words)
        atomic_store_explicit(&words[comm->rank].told[number & 1], number << 1 | can,
                              memory_order_release);
}

/* ---- waiting */

/* A wait for a rank's word. */
struct wait {
    const struct cecl_nccl_comm *comm;
    struct cecl_nccl_words *words; /* the rank's words */
    int rank;
    int64_t deadline;
};

static bool has_told(const struct wait *wait, bool *can)
{
    const uint64_t number = wait->comm->agreed;
    const uint64_t word =
        atomic_load_explicit(&wait->words->told[number & 1], memory_order_acquire);
    *can = word & 1;
    return word >> 1 == number;
}

/* Whether the rank has made a later call instead. */
static bool is_beyond(const struct wait *wait)
{
    return atomic_load(&wait->words->calls) > wait->comm->served;
}

static ceclResult_t async_error(const struct cecl_nccl_comm *comm)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    ceclResult_t error = ceclSuccess;
    const ceclResult_t asked = cecl->ceclCommGetAsyncError(comm->ours, &error);
    if (asked == ceclSuccess && error != ceclSuccess)
        return cecl_fail_with(error, cecl->ceclGetLastError(comm->ours));
    return asked == ceclSuccess ? ceclSuccess : cecl_fail_with(asked, cecl->ceclGetLastError(NULL));
}

/* Returns an error if the wait must end before the rank has told. A rank tells before it counts
 * its next call, and before it leaves. So has_told is called again after the other words were read: if the rank
 * has counted or left, and has still not told, it will not tell. */
static ceclResult_t reason_to_end(const struct wait *wait)
{
    const int mine = wait->comm->rank, rank = wait->rank;
    const bool has_left = atomic_load(&wait->words->has_left), makes_another = is_beyond(wait);
    bool can;
    if (makes_another && !has_told(wait, &can))
        return cecl_fail(
            ceclInvalidUsage,
            "a graph captures a call on rank %d, but not on rank %d; all ranks must do so, or none",
            mine, rank);
    if (has_left && !has_told(wait, &can))
        return cecl_fail(ceclRemoteError,
                         "a graph captures a call on rank %d, but rank %d has left", mine, rank);
    if (cecl_ms_left(wait->deadline) == 0)
        return cecl_fail(ceclTimeout,
                         "a graph captures a call on rank %d, but rank %d did not do so within %d "
                         "ms (CECL_TIMEOUT_MS)",
                         mine, rank, cecl_nccl_process()->timeout_ms);
    return ceclSuccess;
}

/* Revokes the communicator, so that peers that wait for this rank learn that it gives up. */
static ceclResult_t give_up(const struct wait *wait, ceclResult_t result)
{
    cecl_log(CECL_LOG_WARN, wait->comm->rank, "%s", cecl_message());
    cecl_nccl_library()->ceclCommRevoke(wait->comm->ours);
    return result;
}

/* Whether the wait goes on; otherwise an error. */
static ceclResult_t goes_on(const struct wait *wait)
{
    CECL_TRY(async_error(wait->comm));
    const ceclResult_t result = reason_to_end(wait);
    return result == ceclSuccess ? ceclSuccess : give_up(wait, result);
}

static void pause_between(unsigned looks)
{
    if (looks < SPINS)
        sched_yield();
    else
        cecl_nccl_pause_us(20);
}

static ceclResult_t await_rank(const struct wait *wait, bool *can)
{
    for (unsigned looks = 0; !has_told(wait, can); looks++) {
        if (looks >= SPINS)
            CECL_TRY(goes_on(wait));
        pause_between(looks);
    }
    return ceclSuccess;
}

ceclResult_t cecl_nccl_agree_await(struct cecl_nccl_comm *comm, bool *all)
{
    struct cecl_nccl_words *words = words_of(comm);
    struct wait wait = {.comm = comm, .deadline = cecl_deadline(cecl_nccl_process()->timeout_ms)};
    bool common = words != NULL;
    *all = false;
    for (int rank = 0; words && rank < comm->nranks; rank++) {
        bool theirs = false;
        wait.rank = rank;
        wait.words = &words[rank];
        CECL_TRY(await_rank(&wait, &theirs));
        common = common && theirs;
    }
    *all = common;
    return ceclSuccess;
}
