/* The table of communicators: look-ups, finalizing and ending cecl's communicators, and their errors. */
#include "nccl/comms.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "nccl/captured.h"
#include "nccl/decide.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define BUCKETS 256
#define OUT_MS 10000 /* most ms that the end of a communicator waits for threads inside */

static _Atomic(struct cecl_nccl_comm *) buckets[BUCKETS];
/* Held while entries are reserved or removed. A thread that ends a communicator also holds it, from when it looks up
 * the entry until it has entered the entry or has taken the first step of the end. So no other communicator can get the
 * entry in between. Calls look up entries without the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the table */

static _Atomic(struct cecl_nccl_comm *) *bucket_of(ncclComm_t comm)
{
    const uint64_t bits = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);
    return &buckets[bits >> 56];
}

/* A forked child finds nothing, because communicators and threads belong to its parent. */
struct cecl_nccl_comm *cecl_nccl_comm_find(ncclComm_t comm)
{
    if (!comm || cecl_nccl_process()->is_forked)
        return NULL;
    struct cecl_nccl_comm *entry = atomic_load_explicit(bucket_of(comm), memory_order_acquire);
    while (entry && atomic_load_explicit(&entry->nccl, memory_order_acquire) != comm)
        entry = entry->next;
    return entry;
}

/* Returns a free entry of the bucket, or puts a new one at the bucket's head. The caller holds the lock. */
static struct cecl_nccl_comm *entry_for(ncclComm_t comm)
{
    _Atomic(struct cecl_nccl_comm *) *bucket = bucket_of(comm);
    struct cecl_nccl_comm *entry = atomic_load(bucket);
    while (entry && !cecl_nccl_life_go(&entry->life, CECL_NCCL_FREE_TO_MAKING))
        entry = entry->next;
    if (entry || !(entry = calloc(1, sizeof(*entry))))
        return entry;
    (void)!cecl_nccl_life_go(&entry->life, CECL_NCCL_FREE_TO_MAKING);
    entry->next = atomic_load(bucket);
    atomic_store_explicit(bucket, entry, memory_order_release);
    return entry;
}

/* If the table has an entry with this handle, first aborts its communicator: NCCL has ended the former communicator
 * without cecl's knowledge, and given its address to the new one. */
struct cecl_nccl_comm *cecl_nccl_comm_reserve(ncclComm_t comm)
{
    (void)!cecl_nccl_comm_abort(comm);
    pthread_mutex_lock(&lock);
    struct cecl_nccl_comm *entry = entry_for(comm);
    pthread_mutex_unlock(&lock);
    if (!entry)
        return NULL;
    atomic_store(&entry->has_told, false);
    atomic_store(&entry->windows, 0);
    atomic_store_explicit(&entry->nccl, comm, memory_order_release);
    return entry;
}

bool cecl_nccl_comm_retire(struct cecl_nccl_comm *entry, enum cecl_nccl_step step)
{
    CECL_LOCKED(&lock);
    const bool is_mine = cecl_nccl_life_go(&entry->life, step);
    if (is_mine)
        atomic_store_explicit(&entry->nccl, NULL, memory_order_release);
    return is_mine;
}

struct cecl_nccl_comm *cecl_nccl_comm_enter_made(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    return entry && cecl_nccl_comm_enter(entry, comm, CECL_NCCL_MADE) ? entry : NULL;
}

bool cecl_nccl_comm_is(ncclComm_t comm, unsigned states)
{
    const struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    return entry && cecl_nccl_life_is(&entry->life, states);
}

bool cecl_nccl_comm_refuses(ncclComm_t comm, const char *function)
{
    char words[CECL_MESSAGE_BYTES];
    if (!cecl_nccl_comm_is(comm, CECL_NCCL_NOT_READY))
        return false;
    snprintf(words, sizeof(words), "%s is refused: %s", function,
             cecl_nccl_reason_words[CECL_NCCL_IN_PROGRESS]);
    cecl_nccl_last_error_set(words);
    cecl_log(CECL_LOG_WARN, -1, "%s", words);
    return true;
}

void cecl_nccl_comms_each(void (*each)(struct cecl_nccl_comm *entry))
{
    for (int i = 0; i < BUCKETS; i++)
        for (struct cecl_nccl_comm *entry = atomic_load(&buckets[i]); entry; entry = entry->next)
            each(entry);
}

/* ---- finalizing */

static ncclResult_t finalize_ours(struct cecl_nccl_comm *entry)
{
    return entry->ours
               ? cecl_nccl_comm_result(entry, cecl_nccl_library()->ceclCommFinalize(entry->ours))
               : ceclSuccess;
}

ncclResult_t cecl_nccl_comm_finalize(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_enter_made(comm);
    const ncclResult_t result = entry ? finalize_ours(entry) : ceclSuccess;
    if (entry)
        cecl_nccl_comm_leave(entry);
    return result;
}

static void *finalize_one(void *argument)
{
    struct cecl_nccl_comm *entry = argument;
    atomic_store(&entry->result, finalize_ours(entry));
    (void)!cecl_nccl_life_go(&entry->life, CECL_NCCL_FINALIZING_TO_READY);
    cecl_nccl_comm_leave(entry);
    return NULL;
}

static void *finalize_one_beside(void *argument)
{
    cecl_thread_name("cecl-finalize");
    return finalize_one(argument);
}

/* The new thread counts as inside the entry: an abort interrupts it, and then waits until it has left. If the thread
 * cannot be started, the calling thread finalizes. */
void cecl_nccl_comm_finalize_later(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_enter_made(comm);
    pthread_t thread;
    if (!entry)
        return;
    if (!entry->ours || !cecl_nccl_life_go(&entry->life, CECL_NCCL_READY_TO_FINALIZING))
        cecl_nccl_comm_leave(entry);
    else if (cecl_thread_start(&thread, finalize_one_beside, entry) == 0)
        pthread_detach(thread);
    else
        finalize_one(entry);
}

/* ---- the end */

/* Waits until at most `most` threads are inside, and returns true. False: the entry's life is no longer in `state`, or
 * `deadline` has passed. After the return the number of threads inside may grow for a moment, because
 * cecl_nccl_life_enter counts a thread before it looks at the state. */
static bool await_out(const struct cecl_nccl_comm *entry, uint32_t most, unsigned state,
                      int64_t deadline)
{
    while (cecl_nccl_life_inside(&entry->life) > most) {
        if (!cecl_nccl_life_is(&entry->life, state) || cecl_ms_left(deadline) == 0)
            return false;
        cecl_pause_us(100);
    }
    return true;
}

/* Whether a thread is ending the entry's communicator, or waits to end it. */
static bool is_ending(const struct cecl_nccl_comm *entry)
{
    return cecl_nccl_life_is(&entry->life, CECL_NCCL_SET(DESTROYING) | CECL_NCCL_SET(ENDING) |
                                               CECL_NCCL_SET(GIVING_UP));
}

/* Waits until another thread has ended cecl's communicator: NCCL's must not end before it. */
static void await_end(const struct cecl_nccl_comm *entry, ncclComm_t comm, int64_t deadline)
{
    while (atomic_load(&entry->nccl) == comm && is_ending(entry) && cecl_ms_left(deadline) != 0)
        cecl_pause_us(100);
}

/* Ends cecl's communicator. The caller has taken the step to ENDING. Returns whether the caller must also end NCCL's
 * communicator: true for a destroy, unless an abort has claimed that meanwhile. */
static bool end_ours(struct cecl_nccl_comm *entry, bool destroys)
{
    const bool is_out = await_out(entry, 0, CECL_NCCL_SET(ENDING), cecl_deadline(OUT_MS));
    cecl_nccl_agree_leave(entry);
    if (is_out)
        cecl_nccl_learn_close(entry);
    if (!is_out)
        cecl_log(
            CECL_LOG_WARN, entry->rank,
            "a thread is still inside a call %d ms after its communicator was ended: memory of "
            "the communicator is not freed",
            OUT_MS);
    else if (entry->ours && destroys)
        cecl_nccl_library()->ceclCommDestroy(entry->ours);
    else if (entry->ours)
        cecl_nccl_library()->ceclCommAbort(entry->ours);
    const bool is_mine = destroys && cecl_nccl_life_claim(&entry->life);
    cecl_nccl_comm_retire(entry, is_out ? CECL_NCCL_ENDING_TO_FREE : CECL_NCCL_ENDING_TO_LOST);
    return is_mine;
}

/* If a thread is inside, first revokes cecl's communicator, which ends the thread's wait. Otherwise does not revoke it:
 * a revoke is an error for the peers, and many programs abort communicators that they merely no longer need. */
static void abort_ours(struct cecl_nccl_comm *entry)
{
    if (entry->ours && cecl_nccl_life_inside(&entry->life) > 0)
        cecl_nccl_library()->ceclCommRevoke(entry->ours);
    (void)!end_ours(entry, false);
}

/* Takes the first step of an abort. False: another thread is already ending the communicator. */
static bool begin_abort(struct cecl_nccl_comm *entry)
{
    cecl_nccl_life *life = &entry->life;
    bool is_begun = false;
    while (!is_begun && cecl_nccl_life_is(life, CECL_NCCL_SET(MAKING) | CECL_NCCL_MADE))
        is_begun = cecl_nccl_life_go(life, CECL_NCCL_MAKING_TO_GIVING_UP) ||
                   cecl_nccl_life_go(life, CECL_NCCL_READY_TO_ENDING) ||
                   cecl_nccl_life_go(life, CECL_NCCL_FINALIZING_TO_ENDING) ||
                   cecl_nccl_life_go(life, CECL_NCCL_DESTROYING_TO_ENDING);
    return is_begun;
}

/* Returns whether the caller must end NCCL's communicator. If `claims`, NCCL's communicator must also end. */
static bool abort_it(ncclComm_t comm, bool claims)
{
    pthread_mutex_lock(&lock);
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    const bool stays =
        !entry || (!claims && cecl_nccl_life_is(&entry->life, CECL_NCCL_MADE) && !entry->ours);
    const bool is_mine = !entry || (claims && cecl_nccl_life_claim(&entry->life));
    const bool is_first = !stays && begin_abort(entry);
    pthread_mutex_unlock(&lock);
    if (stays)
        return is_mine;
    if (!is_first)
        await_end(entry, comm, cecl_deadline(2 * OUT_MS));
    else if (cecl_nccl_life_is(&entry->life, CECL_NCCL_SET(GIVING_UP)))
        (void)!await_out(entry, 0, CECL_NCCL_SET(GIVING_UP), cecl_deadline(OUT_MS));
    /* if the maker (life.h) is still at work, it ends what it has made; otherwise this thread does */
    if (is_first && !cecl_nccl_comm_retire(entry, CECL_NCCL_GIVING_UP_TO_GIVEN_UP))
        abort_ours(entry);
    return is_mine;
}

bool cecl_nccl_comm_abort(ncclComm_t comm)
{
    return abort_it(comm, true);
}

void cecl_nccl_comm_revoke(ncclComm_t comm)
{
    (void)!abort_it(comm, false);
}

/* Waits, without a time limit, until other threads have left and pending calls are done. Returns true if the caller
 * must end cecl's communicator. False: another thread has aborted it. */
static bool await_calls(struct cecl_nccl_comm *entry)
{
    const unsigned here = CECL_NCCL_SET(DESTROYING);
    if (await_out(entry, 1, here, CECL_NO_DEADLINE) && cecl_nccl_life_is(&entry->life, here) &&
        entry->ours)
        (void)!cecl_nccl_library()->ceclCommFinalize(entry->ours);
    return cecl_nccl_life_go(&entry->life, CECL_NCCL_DESTROYING_TO_ENDING);
}

/* The caller is inside the entry. */
static bool destroy_it(struct cecl_nccl_comm *entry, ncclComm_t comm)
{
    cecl_nccl_life *life = &entry->life;
    bool is_first;
    while (!(is_first = cecl_nccl_life_go(life, CECL_NCCL_READY_TO_DESTROYING)) &&
           cecl_nccl_life_is(life, CECL_NCCL_SET(READY) | CECL_NCCL_SET(FINALIZING)))
        cecl_pause_us(100);
    is_first = is_first && await_calls(entry);
    /* read while this thread is inside: once it has left, another communicator may get the entry */
    const bool is_destroying = cecl_nccl_life_is(life, CECL_NCCL_SET(DESTROYING));
    const bool is_mine = !is_first && !is_destroying && cecl_nccl_life_claim(life);
    cecl_nccl_comm_leave(entry);
    if (is_first)
        return end_ours(entry, true);
    await_end(entry, comm, is_destroying ? CECL_NO_DEADLINE : cecl_deadline(2 * OUT_MS));
    return is_mine;
}

bool cecl_nccl_comm_destroy(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    const bool is_inside = entry && cecl_nccl_comm_enter(entry, comm, CECL_NCCL_MADE);
    const bool is_mine = !entry || (!is_inside && cecl_nccl_life_claim(&entry->life));
    pthread_mutex_unlock(&lock);
    if (is_inside)
        return destroy_it(entry, comm);
    if (entry)
        await_end(entry, comm, cecl_deadline(2 * OUT_MS));
    return is_mine;
}

/* ---- errors */

/* Replaces two results that NCCL does not have; the newest NCCL uses the number of one of them for another error. */
static ncclResult_t number_of(ceclResult_t result)
{
    return result == ceclOutOfMemory ? (ncclResult_t)ceclSystemError
           : result == ceclTimeout   ? (ncclResult_t)ceclRemoteError
                                     : (ncclResult_t)result;
}

static ceclResult_t error_of(ceclComm_t ours)
{
    ceclResult_t error = ceclSuccess;
    const ceclResult_t asked = cecl_nccl_library()->ceclCommGetAsyncError(ours, &error);
    return asked != ceclSuccess ? asked : error;
}

/* Keeps the message for ncclGetLastError. Also prints the first message of a communicator, unless libcecl.so has
 * printed an asynchronous error. */
static void tell_error(struct cecl_nccl_comm *comm, const char *message)
{
    char words[CECL_MESSAGE_BYTES];
    snprintf(words, sizeof(words), "%s", message);
    cecl_nccl_last_error_set(words);
    if (comm && error_of(comm->ours) == ceclSuccess && !atomic_exchange(&comm->has_told, true))
        cecl_log(CECL_LOG_WARN, comm->rank, "%s", words);
}

ncclResult_t cecl_nccl_comm_result(struct cecl_nccl_comm *comm, ceclResult_t result)
{
    if (result != ceclSuccess)
        tell_error(comm, cecl_nccl_library()->ceclGetLastError(NULL));
    return number_of(result);
}

ncclResult_t cecl_nccl_comm_own_result(struct cecl_nccl_comm *comm, ceclResult_t result)
{
    if (result != ceclSuccess)
        tell_error(comm, cecl_message());
    return number_of(result);
}

ncclResult_t cecl_nccl_comm_error(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_enter_made(comm);
    if (!entry)
        return ceclSuccess;
    ncclResult_t result = atomic_load(&entry->result);
    const ceclResult_t error =
        result == ceclSuccess && entry->ours ? error_of(entry->ours) : ceclSuccess;
    if (error != ceclSuccess) {
        cecl_nccl_last_error_set(cecl_nccl_library()->ceclGetLastError(entry->ours));
        result = number_of(error);
    }
    cecl_nccl_comm_leave(entry);
    return result;
}
