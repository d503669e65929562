/* The side table, and the life of cecl's communicators in it. make.c makes them. */
#include "nccl/comms.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nccl/library.h"
#include "nccl/make.h"
#include "nccl/process.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define BUCKETS 256
#define OUT_MS 10000         /* how long an abort waits for a thread inside a call */
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

static void fill(struct cecl_nccl_comm *entry, ncclComm_t comm, const struct cecl_nccl_made *made)
{
    entry->ours = made->ours;
    entry->reason = made->reason;
    entry->nranks = made->nranks;
    entry->rank = made->rank;
    entry->on_gpu = made->on_gpu;
    entry->ordinal = made->ordinal;
    atomic_store(&entry->ends, false);
    atomic_store(&entry->has_told, false);
    atomic_store_explicit(&entry->nccl, comm, memory_order_release);
}

/* NCCL may give a communicator the address of one that ended by another way, whose entry is still
 * here. */
static ncclResult_t add(ncclComm_t comm, const struct cecl_nccl_made *made)
{
    cecl_nccl_comm_abort(comm);
    pthread_mutex_lock(&adding);
    struct cecl_nccl_comm *entry = entry_for(comm);
    if (entry)
        fill(entry, comm, made);
    pthread_mutex_unlock(&adding);
    return entry ? ceclSuccess : ceclSystemError;
}

/* ---- making */

struct making {
    struct cecl_nccl_new wanted;
    int together;
    pthread_t thread;
    bool has_thread;
    ncclResult_t result;
};

static void *make_one(void *argument)
{
    struct making *making = argument;
    struct cecl_nccl_made made;
    making->result = cecl_nccl_make(&making->wanted, making->together, &made);
    if (making->result == (ncclResult_t)ceclSuccess)
        making->result = add(making->wanted.comm, &made);
    return NULL;
}

static void make_on_threads(struct making *makings, int count)
{
    for (int i = 0; i < count; i++)
        makings[i].has_thread = cecl_thread_start(&makings[i].thread, make_one, &makings[i]) == 0;
    for (int i = 0; i < count; i++) {
        if (makings[i].has_thread)
            pthread_join(makings[i].thread, NULL);
        else
            makings[i].result = ceclSystemError;
    }
}

/* Each rank waits for the others, so ranks of one thread get a thread each. */
ncclResult_t cecl_nccl_comms_make(const struct cecl_nccl_new *made, int count)
{
    ncclResult_t result = ceclSuccess;
    struct making *makings = calloc((size_t)count + 1, sizeof(*makings));
    if (!makings)
        return ceclSystemError;
    for (int i = 0; i < count; i++)
        makings[i] = (struct making){.wanted = made[i], .together = count};
    if (count == 1)
        make_one(makings);
    else
        make_on_threads(makings, count);
    for (int i = 0; i < count && result == (ncclResult_t)ceclSuccess; i++)
        result = makings[i].result;
    free(makings);
    return result;
}

/* ---- using */

/* The order of the two atomic operations here and of those in `close_door` decides: either this
 * thread sees that the communicator ends, or the thread that ends it sees this one inside. */
bool cecl_nccl_comm_enter(struct cecl_nccl_comm *comm)
{
    atomic_fetch_add(&comm->inside, 1);
    if (!atomic_load(&comm->ends))
        return true;
    cecl_nccl_comm_leave(comm);
    return false;
}

void cecl_nccl_comm_leave(struct cecl_nccl_comm *comm)
{
    atomic_fetch_sub(&comm->inside, 1);
}

/* ---- the end */

/* What of the table may be used: a child of fork has its parent's entries, whose communicators belong
 * to the parent. */
static struct cecl_nccl_comm *find_own(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    return entry && entry->ours.moves && !cecl_nccl_process()->is_forked ? entry : NULL;
}

ceclResult_t cecl_nccl_comm_finalize(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = find_own(comm);
    if (!entry || !cecl_nccl_comm_enter(entry))
        return ceclSuccess;
    const ceclResult_t moves = cecl_nccl_library()->ceclCommFinalize(entry->ours.moves);
    const ceclResult_t result =
        moves == ceclSuccess ? cecl_nccl_library()->ceclCommFinalize(entry->ours.reduces) : moves;
    cecl_nccl_comm_leave(entry);
    return (ceclResult_t)cecl_nccl_comm_result(entry, result);
}

static void forget(ncclComm_t comm, ncclComm_t instead)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(comm);
    if (entry)
        atomic_store_explicit(&entry->nccl, instead, memory_order_release);
}

ceclResult_t cecl_nccl_comm_destroy(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = find_own(comm);
    ceclResult_t result = ceclSuccess;
    if (entry && !atomic_exchange(&entry->ends, true)) {
        result = cecl_nccl_library()->ceclCommDestroy(entry->ours.moves);
        const ceclResult_t other = cecl_nccl_library()->ceclCommDestroy(entry->ours.reduces);
        result = result == ceclSuccess ? other : result;
    }
    forget(comm, NULL);
    return result;
}

/* Waits until no thread is inside. Returns whether that is so. */
static bool close_door(struct cecl_nccl_comm *entry)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const int64_t deadline = cecl_deadline(OUT_MS);
    while (atomic_load(&entry->inside) > 0 && cecl_ms_left(deadline) != 0)
        nanosleep(&pause, NULL);
    return atomic_load(&entry->inside) == 0;
}

/* The communicator fails first: that ends what a thread inside waits for. */
void cecl_nccl_comm_abort(ncclComm_t comm)
{
    struct cecl_nccl_comm *entry = find_own(comm);
    ncclComm_t instead = NULL;
    if (entry && !atomic_exchange(&entry->ends, true)) {
        const struct cecl_nccl_library *cecl = cecl_nccl_library();
        cecl->ceclCommRevoke(entry->ours.moves);
        cecl->ceclCommRevoke(entry->ours.reduces);
        if (close_door(entry)) {
            cecl->ceclCommAbort(entry->ours.moves);
            cecl->ceclCommAbort(entry->ours.reduces);
        } else {
            instead = LOST;
            cecl_log(CECL_LOG_WARN, entry->rank,
                     "a thread is still inside a call %d ms after its communicator was aborted: "
                     "what belongs to the communicator is kept",
                     OUT_MS);
        }
    }
    forget(comm, instead);
}

void cecl_nccl_comm_revoke(ncclComm_t comm)
{
    if (find_own(comm))
        cecl_nccl_comm_abort(comm);
}

/* ---- errors */

/* NCCL has no number for two of them. */
static ncclResult_t number_of(ceclResult_t result)
{
    return result == ceclOutOfMemory ? (ncclResult_t)ceclSystemError
           : result == ceclTimeout   ? (ncclResult_t)ceclRemoteError
                                     : (ncclResult_t)result;
}

/* The asynchronous error of `moves`; without one that of `reduces`. */
static ceclResult_t error_of(const struct cecl_nccl_ours *ours)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    ceclResult_t error = ceclSuccess;
    ceclResult_t asked = cecl->ceclCommGetAsyncError(ours->moves, &error);
    if (asked == ceclSuccess && error == ceclSuccess)
        asked = cecl->ceclCommGetAsyncError(ours->reduces, &error);
    return asked != ceclSuccess ? asked : error;
}

/* cecl has printed an asynchronous error itself. */
static void tell(struct cecl_nccl_comm *comm)
{
    char words[CECL_MESSAGE_BYTES];
    snprintf(words, sizeof(words), "%s", cecl_nccl_library()->ceclGetLastError(NULL));
    if (error_of(&comm->ours) == ceclSuccess && !atomic_exchange(&comm->has_told, true))
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
    struct cecl_nccl_comm *entry = find_own(comm);
    if (!entry || !cecl_nccl_comm_enter(entry))
        return ceclSuccess;
    const ceclResult_t error = error_of(&entry->ours);
    cecl_nccl_comm_leave(entry);
    return number_of(error);
}
