/* See agree.h. */
#include "nccl/agree.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "learn/trial.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "util/clock.h"
#include "util/log.h"

#define LINE_BYTES 64 /* so that ranks do not share cache lines */

/* What a rank tells. In agreement n it writes n << 32 | bits to told[n & 1]. Two words are enough: when a
 * rank writes for agreement n + 2, it has seen all words of agreement n + 1, so all ranks have read its
 * word of agreement n. */
struct cecl_nccl_line {
    _Alignas(LINE_BYTES) _Atomic uint64_t told[2];
    _Atomic uint64_t calls; /* served collectives so far */
    _Atomic bool has_left;
};

/* What a rank tells about its messages with a peer in one direction. `can` has a bit for each of the last 64
 * captured messages. That is enough: a rank tells at most CECL_NCCL_CAPTURED_AT_ONCE of them before it
 * waits for the peer's words, so the peer reads words that are at most twice as many messages old. */
struct pair {
    _Atomic uint64_t can; /* bit n % 64: the rank can capture message n */
    /* captured messages so far; with NO_MORE: the rank passes all later ones */
    _Atomic uint32_t told;
    _Atomic uint32_t eager; /* served messages that were not captured */
};
#define NO_MORE (UINT32_C(1) << 31)
_Static_assert(2 * CECL_NCCL_CAPTURED_AT_ONCE <= 64, "a bit for each message");

/* The pairs of one rank: whole cache lines. */
static size_t pairs_of(int nranks)
{
    return 2 * ((size_t)nranks + (size_t)nranks % 2);
}
_Static_assert(4 * sizeof(struct pair) == LINE_BYTES, "pairs of an even number of peers");

/* ---- the life of a communicator's words */

void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry)
{
    struct cecl_nccl_line *lines = atomic_exchange(&entry->lines, NULL);
    if (lines)
        atomic_store(&lines[entry->rank].has_left, true);
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
    const size_t nranks = (size_t)entry->nranks, needed = nranks * sizeof(struct cecl_nccl_line),
                 pairs = nranks * pairs_of(entry->nranks) * sizeof(struct pair);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *shared;
    size_t bytes;
    entry->has_pairs = false;
    CECL_TRY(cecl_nccl_library()->ceclCommGetSharedMemory(entry->ours, &shared, &bytes));
    if (cecl_trial_bytes(entry->nranks) + needed > bytes)
        return ceclSuccess;
    entry->has_pairs = cecl_trial_bytes(entry->nranks) + needed + pairs <= bytes;
    pthread_once(&once, leave_at_exit);
    atomic_store(&entry->lines, (struct cecl_nccl_line *)((char *)shared + bytes - needed));
    return ceclSuccess;
}

/* ---- telling */

static struct cecl_nccl_line *lines_of(const struct cecl_nccl_comm *comm)
{
    return atomic_load_explicit(&comm->lines, memory_order_relaxed);
}

/* The words of `rank` about its messages with `peer`. They lie before the lines. NULL: there are none. */
static struct pair *pair_of(const struct cecl_nccl_comm *comm, int rank, int peer, bool sends)
{
    struct cecl_nccl_line *lines = lines_of(comm);
    if (!lines || !comm->has_pairs)
        return NULL;
    struct pair *last = (struct pair *)lines - pairs_of(comm->nranks); /* those of the last rank */
    return last - (size_t)(comm->nranks - 1 - rank) * pairs_of(comm->nranks) + 2 * (size_t)peer +
           sends;
}

void cecl_nccl_agree_note_calls(struct cecl_nccl_comm *comm, int count)
{
    struct cecl_nccl_line *lines = lines_of(comm);
    comm->served += (uint64_t)count;
    if (lines)
        atomic_store_explicit(&lines[comm->rank].calls, comm->served, memory_order_release);
}

void cecl_nccl_agree_note(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call)
{
    if (!cecl_nccl_is_message(call->op)) {
        cecl_nccl_agree_note_calls(comm, 1);
        return;
    }
    struct pair *mine = pair_of(comm, comm->rank, call->root, call->op == CECL_NCCL_OP_ncclSend);
    if (mine) /* only this thread writes it */
        atomic_store_explicit(&mine->eager,
                              atomic_load_explicit(&mine->eager, memory_order_relaxed) + 1,
                              memory_order_release);
}

uint32_t cecl_nccl_agree_tell_message(struct cecl_nccl_comm *comm,
                                      const struct cecl_nccl_call *call, bool can)
{
    struct pair *mine = pair_of(comm, comm->rank, call->root, call->op == CECL_NCCL_OP_ncclSend);
    const uint32_t told = mine ? atomic_load_explicit(&mine->told, memory_order_relaxed) : NO_MORE;
    if (told & NO_MORE)
        return 0;
    const uint32_t number = (told + 1) & ~NO_MORE;
    const uint64_t bit = UINT64_C(1) << number % 64,
                   others = atomic_load_explicit(&mine->can, memory_order_relaxed) & ~bit;
    atomic_store_explicit(&mine->can, others | (can ? bit : 0), memory_order_relaxed);
    atomic_store_explicit(&mine->told, number, memory_order_release);
    return number;
}

void cecl_nccl_agree_tell_no_more(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call)
{
    struct pair *mine = pair_of(comm, comm->rank, call->root, call->op == CECL_NCCL_OP_ncclSend);
    if (mine)
        atomic_fetch_or_explicit(&mine->told, NO_MORE, memory_order_release);
}

void cecl_nccl_agree_tell(struct cecl_nccl_comm *comm, uint32_t bits)
{
    struct cecl_nccl_line *lines = lines_of(comm);
    const uint64_t number = ++comm->agreed;
    if (lines)
        atomic_store_explicit(&lines[comm->rank].told[number & 1], number << 32 | bits,
                              memory_order_release);
}

/* ---- waiting */

int64_t cecl_nccl_agree_deadline(void)
{
    const int ms = cecl_nccl_process()->timeout_ms;
    return ms > 0 ? cecl_deadline(ms) : CECL_NO_DEADLINE;
}

/* A wait for a rank's word. */
struct wait {
    const struct cecl_nccl_comm *comm;
    struct cecl_nccl_line *line; /* the rank's words */
    int rank;
    const char *what, *who; /* for errors: what this rank does, and who must do so, too */
    int64_t deadline;
    /* -- a captured message -- */
    const struct pair *mine, *theirs; /* NULL: an agreement of all ranks */
    uint32_t number;
};

static bool has_told(const struct wait *wait, uint32_t *bits)
{
    if (wait->theirs) {
        const uint32_t told = atomic_load_explicit(&wait->theirs->told, memory_order_acquire);
        const uint64_t can = atomic_load_explicit(&wait->theirs->can, memory_order_relaxed);
        const bool is = (int32_t)((told - wait->number) << 1) >= 0; /* without NO_MORE */
        *bits = is && (can >> wait->number % 64 & 1);
        return is || (told & NO_MORE);
    }
    const uint64_t number = wait->comm->agreed;
    const uint64_t word = atomic_load_explicit(&wait->line->told[number & 1], memory_order_acquire);
    *bits = (uint32_t)word;
    return word >> 32 == (uint32_t)number;
}

/* Whether the rank has made a later call instead. */
static bool is_beyond(const struct wait *wait)
{
    return wait->theirs
               ? (int32_t)(atomic_load(&wait->theirs->eager) - atomic_load(&wait->mine->eager)) > 0
               : atomic_load(&wait->line->calls) > wait->comm->served;
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

/* Returns an error if the wait must end before the rank has told its bits. A rank writes its bits before it counts
 * its next call, and before it leaves. So has_told is called again after the other words were read: if the rank
 * has counted or left, and the bits are still missing, they will not come. */
static ceclResult_t reason_to_end(const struct wait *wait)
{
    const int mine = wait->comm->rank, rank = wait->rank;
    const bool has_left = atomic_load(&wait->line->has_left), makes_another = is_beyond(wait);
    uint32_t bits;
    if (makes_another && !has_told(wait, &bits))
        return cecl_fail(ceclInvalidUsage,
                         "%s on rank %d, but not on rank %d; %s must do so, or none", wait->what,
                         mine, rank, wait->who);
    if (has_left && !has_told(wait, &bits))
        return cecl_fail(ceclRemoteError, "%s on rank %d, but rank %d has left", wait->what, mine,
                         rank);
    if (cecl_ms_left(wait->deadline) == 0)
        return cecl_fail(ceclTimeout,
                         "%s on rank %d, but rank %d did not do so within %d ms (CECL_TIMEOUT_MS)",
                         wait->what, mine, rank, cecl_nccl_process()->timeout_ms);
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

void cecl_nccl_agree_pause(unsigned looks)
{
    if (looks < CECL_NCCL_AGREE_SPINS)
        sched_yield();
    else
        cecl_nccl_pause_us(20);
}

static ceclResult_t await_rank(const struct wait *wait, uint32_t *bits)
{
    for (unsigned looks = 0; !has_told(wait, bits); looks++) {
        if (looks >= CECL_NCCL_AGREE_SPINS)
            CECL_TRY(goes_on(wait));
        cecl_nccl_agree_pause(looks);
    }
    return ceclSuccess;
}

ceclResult_t cecl_nccl_agree_await(struct cecl_nccl_comm *comm, const char *what, uint32_t *bits)
{
    struct cecl_nccl_line *lines = lines_of(comm);
    struct wait wait = {
        .comm = comm, .what = what, .who = "all ranks", .deadline = cecl_nccl_agree_deadline()};
    uint32_t common = lines ? UINT32_MAX : 0;
    *bits = 0;
    for (int rank = 0; lines && rank < comm->nranks; rank++) {
        uint32_t theirs = 0;
        wait.rank = rank;
        wait.line = &lines[rank];
        CECL_TRY(await_rank(&wait, &theirs));
        common &= theirs;
    }
    *bits = common;
    return ceclSuccess;
}

/* ---- waiting for the peer of a captured message */

/* False: there are no words any more, because the process ends. */
static bool wait_for(const struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                     uint32_t number, struct wait *wait)
{
    const bool sends = call->op == CECL_NCCL_OP_ncclSend;
    struct cecl_nccl_line *lines = lines_of(comm);
    *wait = (struct wait){.comm = comm,
                          .line = lines ? &lines[call->root] : NULL,
                          .rank = call->root,
                          .what = "a graph captures a message",
                          .who = "both ranks",
                          .mine = pair_of(comm, comm->rank, call->root, sends),
                          .theirs = pair_of(comm, call->root, comm->rank, !sends),
                          .number = number};
    return wait->line && wait->mine && wait->theirs;
}

bool cecl_nccl_agree_has_told(const struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                              uint32_t number, bool *can)
{
    struct wait wait;
    uint32_t bits = 0;
    const bool is = !wait_for(comm, call, number, &wait) || has_told(&wait, &bits);
    *can = bits != 0;
    return is;
}

ceclResult_t cecl_nccl_agree_goes_on(const struct cecl_nccl_comm *comm,
                                     const struct cecl_nccl_call *call, uint32_t number,
                                     int64_t end)
{
    struct wait wait;
    if (!wait_for(comm, call, number, &wait))
        return ceclSuccess;
    wait.deadline = end;
    return goes_on(&wait);
}
