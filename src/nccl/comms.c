/* The side table, and the life of cecl's communicators in it. make.c makes them. */
#include "nccl/comms.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nccl/last_error.h"
#include "nccl/library.h"
#include "nccl/make.h"
#include "nccl/process.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define BUCKETS 256
#define OUT_MS 10000         /* how long the end waits for a thread inside a call */
#define LOST ((ncclComm_t)1) /* of an entry that a thread never left: nothing else may get it */

static _Atomic(struct cecl_nccl_comm *) buckets[BUCKETS];
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER; /* look-ups and ends do without it */

/* ---- the table */

static _Atomic(struct cecl_nccl_comm *) *bucket_of(ncclComm_t comm)
{
    const uint64_t bits = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);
    return &buckets[bits >> 56];
}

static struct cecl_nccl_comm *find_in(struct cecl_nccl_comm *entry, ncclComm_t comm)
{
    while (entry && atomic_load_explicit(&entry->nccl, memory_order_acquire) != comm)
        entry = entry->next;
    return entry;
}

struct cecl_nccl_comm *cecl_nccl_comm_find(ncclComm_t comm)
{
    return comm ? find_in(atomic_load_explicit(bucket_of(comm), memory_order_acquire), comm) : NULL;
}

/* A free entry of the bucket, or a new one at its head. The caller holds the lock. */
static struct cecl_nccl_comm *entry_for(ncclComm_t comm)
{
    _Atomic(struct cecl_nccl_comm *) *bucket = bucket_of(comm);
    struct cecl_nccl_comm *entry = find_in(atomic_load(bucket), NULL);
    if (entry)
        return entry;
    entry = calloc(1, sizeof(*entry));
    if (entry) {
        entry->next = atomic_load(bucket);
        atomic_store_explicit(bucket, entry, memory_order_release);
    }
    return entry;
}

/* NCCL may give a communicator the address of one that ended by another way, whose entry is still
 * here. Nobody finds the new entry before it is published. */
static struct cecl_nccl_comm *reserve(ncclComm_t comm)
{
    (void)!cecl_nccl_comm_abort(comm);
    pthread_mutex_lock(&adding);
    struct cecl_nccl_comm *entry = entry_for(comm);
    if (entry) {
        atomic_store(&entry->nccl, LOST);
        atomic_store(&entry->stage, CECL_NCCL_MAKING);
        atomic_store(&entry->ends, false);
        atomic_store(&entry->ended_by, CECL_NCCL_BY_NONE);
        atomic_store(&entry->has_told, false);
        atomic_store(&entry->has_windows, false);
    }
    pthread_mutex_unlock(&adding);
    return entry;
}

static void publish(struct cecl_nccl_comm *entry, ncclComm_t comm)
{
    atomic_store_explicit(&entry->nccl, comm, memory_order_release);
}

/* ---- making */

struct making {
    ncclComm_t comm;
    struct cecl_nccl_comm *entry; /* reserved first: nothing can fail once ours is made */
    int together;
    pthread_t thread;
    bool has_thread;
    ncclResult_t result;
};

/* Returns whether the entry is ready; otherwise the communicator was given up. */
static bool fill(struct making *making, const struct cecl_nccl_made *made)
{
    struct cecl_nccl_comm *entry = making->entry;
    enum cecl_nccl_stage stage = CECL_NCCL_MAKING;
    entry->ours = made->ours;
    entry->reason = made->reason;
    entry->result = making->result;
    entry->nranks = made->nranks;
    entry->rank = made->rank;
    entry->on_gpu = made->on_gpu;
    entry->ordinal = made->ordinal;
    entry->flags_on_host = made->flags_on_host;
    return atomic_compare_exchange_strong(&entry->stage, &stage, CECL_NCCL_READY);
}

static void drop(ceclComm_t ours)
{
    if (ours)
        cecl_nccl_library()->ceclCommAbort(ours);
}

static void *make_one(void *argument)
{
    struct making *making = argument;
    struct cecl_nccl_made made;
    making->result = cecl_nccl_make(making->comm, NULL, making->together, &made);
    const bool is_made = making->result == (ncclResult_t)ceclSuccess && fill(making, &made);
    publish(making->entry, is_made ? making->comm : NULL);
    return NULL;
}

static void *make_one_later(void *argument)
{
    struct making making = *(struct making *)argument;
    struct cecl_nccl_made made;
    free(argument);
    making.result = cecl_nccl_make(making.comm, making.entry, making.together, &made);
    if (!fill(&making, &made)) {
        drop(made.ours);
        publish(making.entry, NULL);
    }
    return NULL;
}

/* Ranks of one thread wait for each other, so they get a thread each. */
static void make_all(struct making *makings, int count)
{
    if (count == 1) {
        make_one(makings);
        return;
    }
    for (int i = 0; i < count; i++)
        makings[i].has_thread =
            cecl_thread_start(&makings[i].thread, "cecl-make", make_one, &makings[i]) == 0;
    for (int i = 0; i < count; i++) {
        if (makings[i].has_thread) {
            pthread_join(makings[i].thread, NULL);
        } else {
            makings[i].result = ceclSystemError;
            publish(makings[i].entry, NULL);
        }
    }
}

static bool reserve_all(struct making *makings, int count)
{
    int reserved = 0;
    while (reserved < count && (makings[reserved].entry = reserve(makings[reserved].comm)))
        reserved++;
    for (int i = 0; i < reserved && reserved < count; i++)
        publish(makings[i].entry, NULL);
    return reserved == count;
}

ncclResult_t cecl_nccl_comms_make(const ncclComm_t *comms, int count)
{
    ncclResult_t result = ceclSuccess;
    struct making *makings = calloc((size_t)count + 1, sizeof(*makings));
    if (!makings)
        return ceclSystemError;
    for (int i = 0; i < count; i++)
        makings[i] = (struct making){.comm = comms[i], .together = count};
    if (!reserve_all(makings, count))
        result = ceclSystemError;
    else
        make_all(makings, count);
    for (int i = 0; i < count && result == (ncclResult_t)ceclSuccess; i++)
        result = makings[i].result;
    free(makings);
    return result;
}

/* Nobody waits for the thread, which may outlive an abort by CECL_INIT_TIMEOUT_MS (make.h). */
ncclResult_t cecl_nccl_comm_make_later(ncclComm_t comm, int together)
{
    struct making *making = malloc(sizeof(*making));
    struct cecl_nccl_comm *entry = making ? reserve(comm) : NULL;
    pthread_t thread;
    if (!entry) {
        free(making);
        return ceclSystemError;
    }
    *making = (struct making){.comm = comm, .entry = entry, .together = together};
    publish(entry, comm);
    if (cecl_thread_start(&thread, "cecl-make", make_one_later, making) != 0) {
        publish(entry, NULL);
        free(making);
        return ceclSystemError;
    }
    pthread_detach(thread);
    return ceclSuccess;
}

/* ---- the end */

/* A child of fork has its parent's entries, whose communicators and threads belong to the parent. So all
 * of them are given up there. */
static enum cecl_nccl_stage stage_of(const struct cecl_nccl_comm *entry)
{
    return entry && !cecl_nccl_process()->is_forked ? atomic_load(&entry->stage)
                                                    : CECL_NCCL_GIVEN_UP;
}

static struct cecl_nccl_comm *find_at(ncclComm_t comm, enum cecl_nccl_stage stage)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    return stage_of(entry) == stage ? entry : NULL;
}

static struct cecl_nccl_comm *find_own(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    const enum cecl_nccl_stage stage = stage_of(entry);
    const bool is_made = stage == CECL_NCCL_READY || stage == CECL_NCCL_FINALIZING;
    return is_made && entry->ours ? entry : NULL;
}

bool cecl_nccl_comm_is_in_progress(ncclComm_t comm)
{
    return find_at(comm, CECL_NCCL_MAKING) != NULL;
}

bool cecl_nccl_comm_refuses(ncclComm_t comm, const char *function)
{
    const enum cecl_nccl_stage stage = stage_of(cecl_nccl_comm_find(comm));
    if (stage != CECL_NCCL_MAKING && stage != CECL_NCCL_FINALIZING)
        return false;
    char words[CECL_MESSAGE_BYTES];
    snprintf(words, sizeof(words), "%s is refused: %s", function,
             cecl_nccl_reason_words[CECL_NCCL_IN_PROGRESS]);
    cecl_nccl_last_error_set(words);
    cecl_log(CECL_LOG_WARN, -1, "%s", words);
    return true;
}

ceclResult_t cecl_nccl_comm_finalize(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = find_own(comm);
    if (!entry || !cecl_nccl_comm_enter(entry))
        return ceclSuccess;
    const ceclResult_t result = cecl_nccl_library()->ceclCommFinalize(entry->ours);
    cecl_nccl_comm_leave(entry);
    return (ceclResult_t)cecl_nccl_comm_result(entry, result);
}

static void *finalize_one(void *argument)
{
    struct cecl_nccl_comm *entry = argument;
    const ceclResult_t result = cecl_nccl_library()->ceclCommFinalize(entry->ours);
    atomic_store(&entry->result, cecl_nccl_comm_result(entry, result));
    atomic_store(&entry->stage, CECL_NCCL_READY);
    cecl_nccl_comm_leave(entry);
    return NULL;
}

/* Nobody waits for the thread: it is inside, so an abort ends its waiting, and then waits for it to
 * leave. Without a thread the caller waits. */
void cecl_nccl_comm_finalize_later(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = find_own(comm);
    pthread_t thread;
    if (!entry || !cecl_nccl_comm_enter(entry))
        return;
    atomic_store(&entry->stage, CECL_NCCL_FINALIZING);
    if (cecl_thread_start(&thread, "cecl-finalize", finalize_one, entry) == 0)
        pthread_detach(thread);
    else
        finalize_one(entry);
}

static void forget(ncclComm_t comm, ncclComm_t instead)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    if (entry)
        atomic_store_explicit(&entry->nccl, instead, memory_order_release);
}

/* Waits until no thread is inside; of an entry that is being made, no longer than that. Returns whether
 * none is. */
static bool close_door(struct cecl_nccl_comm *entry, bool while_making)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const int64_t deadline = cecl_deadline(OUT_MS);
    while (atomic_load(&entry->inside) > 0 &&
           (!while_making || atomic_load(&entry->stage) == CECL_NCCL_MAKING) &&
           cecl_ms_left(deadline) != 0)
        nanosleep(&pause, NULL);
    return atomic_load(&entry->inside) == 0;
}

/* Gives up what is being made. Afterwards its thread no longer uses `comm`, which NCCL may free.
 * Returns false if nothing is being made; it may have been completed just now. */
static bool give_up(ncclComm_t comm)
{
    enum cecl_nccl_stage stage = CECL_NCCL_MAKING;
    struct cecl_nccl_comm *entry = find_at(comm, stage);
    if (!entry)
        return false;
    atomic_store(&entry->ends, true);
    close_door(entry, true);
    if (!atomic_compare_exchange_strong(&entry->stage, &stage, CECL_NCCL_GIVEN_UP)) {
        atomic_store(&entry->ends, false);
        return false;
    }
    /* the thread may already have freed the entry, and another communicator may have it */
    atomic_compare_exchange_strong(&entry->nccl, &comm, LOST);
    return true;
}

/* `end` is ceclCommDestroy or ceclCommAbort. Returns what the entry is to have in place of NCCL's communicator. */
static ncclComm_t end_own(struct cecl_nccl_comm *entry, ceclResult_t (*end)(ceclComm_t))
{
    if (close_door(entry, false)) {
        (void)!end(entry->ours);
        return NULL;
    }
    cecl_log(CECL_LOG_WARN, entry->rank,
             "a thread is still inside a call %d ms after its communicator was ended: what belongs "
             "to the communicator is kept",
             OUT_MS);
    return LOST;
}

/* Whether the caller is to end NCCL's communicator. */
static bool claims(struct cecl_nccl_comm *entry, enum cecl_nccl_end by)
{
    enum cecl_nccl_end before = CECL_NCCL_BY_NONE;
    return atomic_compare_exchange_strong(&entry->ended_by, &before, by);
}

/* Another thread ends ours. Waits until it has: NCCL's is not to end before. */
static void await_end(const struct cecl_nccl_comm *entry, ncclComm_t comm)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const int64_t deadline = cecl_deadline(2 * OUT_MS);
    while (atomic_load(&entry->nccl) == comm && cecl_ms_left(deadline) != 0)
        nanosleep(&pause, NULL);
}

/* Waits for other threads that are inside, and for pending calls, as long as these may wait; ceclCommDestroy
 * itself has a limit. An abort in another thread ends the waiting. Returns whether the caller is to end
 * ours. */
static bool await_calls(struct cecl_nccl_comm *entry)
{
    const struct timespec pause = {.tv_nsec = 100000};
    atomic_fetch_add(&entry->awaiting, 1);
    while (atomic_load(&entry->inside) > atomic_load(&entry->awaiting) &&
           !atomic_load(&entry->ends))
        nanosleep(&pause, NULL);
    if (!atomic_load(&entry->ends))
        (void)!cecl_nccl_library()->ceclCommFinalize(entry->ours);
    atomic_fetch_sub(&entry->awaiting, 1);
    return !atomic_exchange(&entry->ends, true);
}

/* An abort may come while ours ends. Then it ends NCCL's. */
static bool destroy_own(struct cecl_nccl_comm *entry, ncclComm_t comm)
{
    const ncclComm_t instead = end_own(entry, cecl_nccl_library()->ceclCommDestroy);
    const bool is_mine = claims(entry, CECL_NCCL_BY_DESTROY);
    forget(comm, instead);
    return is_mine;
}

bool cecl_nccl_comm_destroy(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = find_own(comm);
    if (!entry) {
        forget(comm, NULL);
        return true;
    }
    const bool is_inside = cecl_nccl_comm_enter(entry);
    const bool is_first = is_inside && await_calls(entry);
    /* before it leaves, because another communicator may have the entry afterwards */
    const bool is_mine = !is_first && claims(entry, CECL_NCCL_BY_DESTROY);
    if (is_inside)
        cecl_nccl_comm_leave(entry);
    if (is_first)
        return destroy_own(entry, comm);
    if (is_mine)
        await_end(entry, comm);
    return is_mine;
}

/* If a thread is inside, the communicator fails first: that ends what the thread waits for. If none is, and
 * no call is pending, peers go on: many programs abort what they no longer need as they end. */
static void abort_own(struct cecl_nccl_comm *entry, ncclComm_t comm)
{
    if (atomic_exchange(&entry->ends, true)) {
        await_end(entry, comm);
        return;
    }
    if (atomic_load(&entry->inside) > 0)
        cecl_nccl_library()->ceclCommRevoke(entry->ours);
    forget(comm, end_own(entry, cecl_nccl_library()->ceclCommAbort));
}

bool cecl_nccl_comm_abort(ncclComm_t comm)
{
    if (give_up(comm))
        return true;
    struct cecl_nccl_comm *entry = find_own(comm);
    if (!entry) {
        forget(comm, NULL);
        return true;
    }
    const bool is_mine = claims(entry, CECL_NCCL_BY_ABORT);
    abort_own(entry, comm);
    return is_mine;
}

void cecl_nccl_comm_revoke(ncclComm_t comm)
{
    if (give_up(comm))
        return;
    struct cecl_nccl_comm *entry = find_own(comm);
    if (entry)
        abort_own(entry, comm);
}

/* ---- errors */

/* cecl has two results of its own. The newest NCCL has other meanings for one of their numbers. */
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

/* cecl has printed an asynchronous error itself. */
static void tell(struct cecl_nccl_comm *comm)
{
    char words[CECL_MESSAGE_BYTES];
    snprintf(words, sizeof(words), "%s", cecl_nccl_library()->ceclGetLastError(NULL));
    cecl_nccl_last_error_set(words);
    if (comm && error_of(comm->ours) == ceclSuccess && !atomic_exchange(&comm->has_told, true))
        cecl_log(CECL_LOG_WARN, comm->rank, "%s", words);
}

ncclResult_t cecl_nccl_comm_result(struct cecl_nccl_comm *comm, ceclResult_t result)
{
    if (result != ceclSuccess)
        tell(comm);
    return number_of(result);
}

ncclResult_t cecl_nccl_comm_error(ncclComm_t comm)
{
    if (find_at(comm, CECL_NCCL_FINALIZING))
        return ceclInProgress;
    struct cecl_nccl_comm *entry = find_at(comm, CECL_NCCL_READY);
    const ncclResult_t result = entry ? atomic_load(&entry->result) : (ncclResult_t)ceclSuccess;
    if (result != (ncclResult_t)ceclSuccess)
        return result;
    if (!entry || !entry->ours || !cecl_nccl_comm_enter(entry))
        return ceclSuccess;
    const ceclResult_t error = error_of(entry->ours);
    if (error != ceclSuccess)
        cecl_nccl_last_error_set(cecl_nccl_library()->ceclGetLastError(entry->ours));
    cecl_nccl_comm_leave(entry);
    return number_of(error);
}
