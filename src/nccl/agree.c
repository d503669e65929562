/* Ranks agree whether cecl makes captured calls; see captured.h. */
#include "nccl/captured.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "nccl/library.h"
#include "nccl/process.h"
#include "nccl/trial.h"
#include "util/clock.h"
#include "util/log.h"

#define LINE_BYTES 64 /* each rank's words have a cache line of their own */
#define SPINS 1000    /* a wait polls this many times, then sleeps between polls */

/* What a rank tells the others. In agreement n it writes 2 * n, plus 1 if it can capture, to told[n & 1]. Two words are
 * enough: a rank ends agreement n only after it has read the words of all ranks, so no rank is two agreements ahead. */
struct cecl_nccl_words {
    _Alignas(LINE_BYTES) _Atomic uint64_t told[2];
    _Atomic uint64_t calls; /* collectives that cecl has made so far */
    _Atomic bool has_left;
};

/* ---- the life of a communicator's words */

void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry)
{
    struct cecl_nccl_words *words = atomic_exchange(&entry->words, NULL);
    if (words)
        atomic_store(&words[entry->rank].has_left, true);
}

static void leave_one(struct cecl_nccl_comm *entry)
{
    if (!cecl_nccl_life_enter(&entry->life, CECL_NCCL_MADE))
        return;
    cecl_nccl_agree_leave(entry);
    cecl_nccl_life_leave(&entry->life);
}

/* Called when the process ends. Tells peers that wait in an agreement that this rank has left; the goodbye of
 * libcecl.so would reach only peers that wait in a call of libcecl.so. */
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

static bool has_told(const struct cecl_nccl_comm *comm, const struct cecl_nccl_words *theirs,
                     bool *can)
{
    const uint64_t word =
        atomic_load_explicit(&theirs->told[comm->agreed & 1], memory_order_acquire);
    *can = word & 1;
    return word >> 1 == comm->agreed;
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

/* Why the wait for `rank` must end; ceclSuccess: the wait goes on. A rank writes `told` before it counts its next call,
 * and before it leaves. So this function reads `told` last: if the answer is missing then, a rank that has counted
 * another call, or has left, will never answer. */
static ceclResult_t reason_to_end(const struct cecl_nccl_comm *comm,
                                  const struct cecl_nccl_words *theirs, int rank, int64_t deadline)
{
    const bool makes_another = atomic_load(&theirs->calls) > comm->served,
               has_left = atomic_load(&theirs->has_left), is_late = cecl_ms_left(deadline) == 0;
    bool can;
    if (has_told(comm, theirs, &can))
        return ceclSuccess;
    if (makes_another)
        return cecl_fail(
            ceclInvalidUsage,
            "a graph captures a call on rank %d, but not on rank %d; all ranks must do so, or none",
            comm->rank, rank);
    if (has_left)
        return cecl_fail(ceclRemoteError,
                         "a graph captures a call on rank %d, but rank %d has left", comm->rank,
                         rank);
    return is_late ? cecl_fail(ceclTimeout,
                               "a graph captures a call on rank %d, but rank %d did not do so "
                               "within %d ms (CECL_TIMEOUT_MS)",
                               comm->rank, rank, cecl_nccl_process()->timeout_ms)
                   : ceclSuccess;
}

static ceclResult_t await_rank(const struct cecl_nccl_comm *comm,
                               const struct cecl_nccl_words *theirs, int rank, int64_t deadline,
                               bool *can)
{
    for (unsigned looks = 0; !has_told(comm, theirs, can); looks++) {
        if (looks < SPINS) {
            sched_yield();
            continue;
        }
        CECL_TRY(async_error(comm));
        const ceclResult_t result = reason_to_end(comm, theirs, rank, deadline);
        if (result != ceclSuccess) {
            cecl_log(CECL_LOG_WARN, comm->rank, "%s", cecl_message());
            /* tells peers that wait for this rank that it gives up */
            cecl_nccl_library()->ceclCommRevoke(comm->ours);
            return result;
        }
        cecl_pause_us(20);
    }
    return ceclSuccess;
}

ceclResult_t cecl_nccl_agree_await(struct cecl_nccl_comm *comm, bool *all)
{
    const struct cecl_nccl_words *words = words_of(comm);
    const int64_t deadline = cecl_deadline(cecl_nccl_process()->timeout_ms);
    bool common = words != NULL;
    *all = false;
    for (int rank = 0; words && rank < comm->nranks; rank++) {
        bool can = false;
        CECL_TRY(await_rank(comm, &words[rank], rank, deadline, &can));
        common = common && can;
    }
    *all = common;
    return ceclSuccess;
}
