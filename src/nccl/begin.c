/* Makes cecl's communicators for new NCCL communicators, by threads. make.c makes a single one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "nccl/captured.h"
#include "nccl/decide.h"
#include "nccl/group.h"
#include "nccl/library.h"
#include "util/thread.h"

struct making {
    ncclComm_t comm;
    /* reserved first, so that nothing can fail after the communicator is made */
    struct cecl_nccl_comm *entry;
    struct cecl_nccl_meeting *meeting;
    int together;
    pthread_t thread;
    bool has_thread;
    ncclResult_t result;
};

static void *make_one(void *argument)
{
    struct making *making = argument;
    struct cecl_nccl_comm *entry = making->entry;
    making->result = cecl_nccl_make(making->comm, entry, making->together, false, making->meeting);
    if (making->result == ceclSuccess && cecl_nccl_life_go(&entry->life, CECL_NCCL_MAKING_TO_READY))
        cecl_nccl_comm_publish(entry, making->comm);
    else
        cecl_nccl_comm_retire(entry, CECL_NCCL_MAKING_TO_FREE);
    return NULL;
}

/* Makes the entry ready, unless another thread has given it up. */
static void finish(struct cecl_nccl_comm *entry, ncclResult_t result)
{
    entry->result = result;
    if (cecl_nccl_life_go(&entry->life, CECL_NCCL_MAKING_TO_READY) ||
        cecl_nccl_life_go(&entry->life, CECL_NCCL_GIVING_UP_TO_ENDING))
        return;
    cecl_nccl_agree_leave(entry);
    cecl_nccl_learn_close(entry);
    if (entry->ours)
        cecl_nccl_library()->ceclCommAbort(entry->ours);
    cecl_nccl_comm_retire(entry, CECL_NCCL_GIVEN_UP_TO_FREE);
}

static void *make_one_later(void *argument)
{
    const struct making making = *(struct making *)argument;
    free(argument);
    finish(making.entry,
           cecl_nccl_make(making.comm, making.entry, making.together, true, making.meeting));
    return NULL;
}

/* A thread's ranks wait for each other, so each gets its own thread. */
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
            cecl_nccl_meeting_close(makings[i].meeting);
            cecl_nccl_comm_retire(makings[i].entry, CECL_NCCL_MAKING_TO_FREE);
        }
    }
}

static bool reserve_all(struct making *makings, int count)
{
    int reserved = 0;
    while (reserved < count &&
           (makings[reserved].entry = cecl_nccl_comm_reserve(makings[reserved].comm)))
        reserved++;
    for (int i = 0; i < reserved && reserved < count; i++)
        cecl_nccl_comm_retire(makings[i].entry, CECL_NCCL_MAKING_TO_FREE);
    return reserved == count;
}

/* Lists the communicators that NCCL has made. Returns their number. */
static int list_made(const struct cecl_nccl_wish *wishes, int count, struct making *makings)
{
    int made = 0;
    for (int i = 0; i < count; i++) {
        const ncclComm_t comm = cecl_nccl_wish_handle(&wishes[i]);
        if (comm)
            makings[made++] = (struct making){.comm = comm, .meeting = wishes[i].meeting};
        else
            cecl_nccl_meeting_close(wishes[i].meeting);
    }
    for (int i = 0; i < made; i++)
        makings[i].together = made;
    return made;
}

ncclResult_t cecl_nccl_comms_make(const struct cecl_nccl_wish *wishes, int count)
{
    ncclResult_t result = ceclSuccess;
    struct making *makings = calloc((size_t)count + 1, sizeof(*makings));
    if (!makings) {
        cecl_nccl_wishes_drop(wishes, count);
        return ceclSystemError;
    }
    const int made = list_made(wishes, count, makings);
    if (reserve_all(makings, made))
        make_all(makings, made);
    else
        result = ceclSystemError;
    for (int i = 0; i < made && result == ceclSystemError; i++)
        cecl_nccl_meeting_close(makings[i].meeting);
    for (int i = 0; i < made && result == ceclSuccess; i++)
        result = makings[i].result;
    free(makings);
    return result;
}

/* No other thread waits for the new thread, which may outlive an abort. */
ncclResult_t cecl_nccl_comm_make_later(ncclComm_t comm, int together,
                                       struct cecl_nccl_meeting *meeting)
{
    struct making *making = malloc(sizeof(*making));
    struct cecl_nccl_comm *entry = making ? cecl_nccl_comm_reserve(comm) : NULL;
    pthread_t thread;
    if (!entry) {
        cecl_nccl_meeting_close(meeting);
        free(making);
        return ceclSystemError;
    }
    *making =
        (struct making){.comm = comm, .entry = entry, .meeting = meeting, .together = together};
    cecl_nccl_comm_publish(entry, comm);
    if (cecl_thread_start(&thread, "cecl-make", make_one_later, making) != 0) {
        entry->ours = NULL;
        entry->reason = CECL_NCCL_NOT_MADE;
        cecl_nccl_meeting_close(meeting);
        finish(entry, ceclSystemError);
        free(making);
        return ceclSystemError;
    }
    pthread_detach(thread);
    return ceclSuccess;
}

/* ---- children that NCCL makes in the background. ncclCommSplit and similar calls return ncclInProgress then, and NCCL
 * writes the child's handle, to memory of the program, only when the parent is ready again. The memory is valid until
 * the program learns that. So the thread that asks for the parent's state reads the handle before it reports the parent
 * as ready. */

struct birth {
    struct birth *next;
    ncclComm_t parent;
    ncclComm_t *place; /* where NCCL writes the handle */
    int together;
    struct cecl_nccl_meeting *meeting; /* NULL once the child is being made */
    ncclComm_t child;                  /* NULL: NCCL has not written it yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct birth *first;
/* how many there are; 0 lets programs without such children skip the lock */
static _Atomic int expected;

ncclResult_t cecl_nccl_birth_expect(ncclComm_t parent, ncclComm_t *child, int together,
                                    struct cecl_nccl_meeting *meeting)
{
    struct birth *birth = malloc(sizeof(*birth));
    if (!birth) {
        cecl_nccl_meeting_close(meeting);
        return ceclSystemError;
    }
    pthread_mutex_lock(&lock);
    *birth = (struct birth){
        .next = first, .parent = parent, .place = child, .together = together, .meeting = meeting};
    first = birth;
    atomic_fetch_add(&expected, 1);
    pthread_mutex_unlock(&lock);
    return ceclSuccess;
}

/* Returns ncclInProgress, or the result of making the child. If the rank gave no color, there is no child,
 * and this succeeds. */
static ncclResult_t look_at(struct birth *birth)
{
    const ncclComm_t come = birth->child ? NULL : __atomic_load_n(birth->place, __ATOMIC_ACQUIRE);
    if (come) {
        struct cecl_nccl_meeting *meeting = birth->meeting;
        birth->child = come;
        birth->meeting = NULL;
        const ncclResult_t result = cecl_nccl_comm_make_later(come, birth->together, meeting);
        if (result != ceclSuccess)
            return result;
    }
    return cecl_nccl_comm_is(birth->child, CECL_NCCL_UNMADE) ? ceclInProgress : ceclSuccess;
}

/* Forgets the children of `parent` that are no longer in progress; or, if the parent ends, all of them. */
static ncclResult_t look_at_all(ncclComm_t parent, bool has_ended)
{
    ncclResult_t result = ceclSuccess;
    if (atomic_load(&expected) == 0)
        return ceclSuccess;
    pthread_mutex_lock(&lock);
    for (struct birth **at = &first, *birth; (birth = *at);) {
        const bool is_its = birth->parent == parent;
        const ncclResult_t one = is_its && !has_ended ? look_at(birth) : ceclSuccess;
        result = one != ceclSuccess ? one : result;
        if (!is_its || one == ceclInProgress) {
            at = &birth->next;
            continue;
        }
        *at = birth->next;
        cecl_nccl_meeting_close(birth->meeting);
        free(birth);
        atomic_fetch_sub(&expected, 1);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

ncclResult_t cecl_nccl_birth_look(ncclComm_t parent)
{
    return look_at_all(parent, false);
}

void cecl_nccl_birth_forget(ncclComm_t parent)
{
    (void)!look_at_all(parent, true);
}
