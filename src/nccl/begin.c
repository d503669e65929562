/* Makes cecl's communicators for new NCCL communicators, at once or in the background. make.c makes a single one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "nccl/captured.h"
#include "nccl/decide.h"
#include "nccl/group.h"
#include "nccl/library.h"
#include "util/grow.h"
#include "util/thread.h"

struct making {
    ncclComm_t comm;
    /* reserved first, so that nothing can fail after the communicator is made */
    struct cecl_nccl_comm *entry;
    struct cecl_nccl_meeting *meeting;
    int together;
    bool in_background;
    pthread_t thread;
    bool has_thread;
    ncclResult_t result;
};

/* Makes cecl's communicator. Then the entry is READY, unless an abort has given it up. After an error in the background
 * the entry keeps the error. After any other error this function frees the entry, and the program's call fails. */
static void *make_one(void *argument)
{
    struct making *making = argument;
    struct cecl_nccl_comm *entry = making->entry;
    const ncclResult_t result = cecl_nccl_make(making->comm, entry, making->together,
                                               making->in_background, making->meeting);
    making->result = result;
    entry->result = result;
    if ((result != ceclSuccess && !making->in_background &&
         cecl_nccl_comm_retire(entry, CECL_NCCL_MAKING_TO_FREE)) ||
        cecl_nccl_life_go(&entry->life, CECL_NCCL_MAKING_TO_READY) ||
        cecl_nccl_life_go(&entry->life, CECL_NCCL_GIVING_UP_TO_ENDING))
        return NULL;
    cecl_nccl_agree_leave(entry);
    cecl_nccl_learn_close(entry);
    if (entry->ours)
        cecl_nccl_library()->ceclCommAbort(entry->ours);
    cecl_nccl_comm_retire(entry, CECL_NCCL_GIVEN_UP_TO_FREE);
    return NULL;
}

static void *make_one_beside(void *argument)
{
    cecl_thread_name("cecl-make");
    return make_one(argument);
}

static void *make_one_later(void *argument)
{
    struct making making = *(struct making *)argument;
    free(argument);
    return make_one_beside(&making);
}

/* Frees the entry and the meeting, because there is no memory or no thread to make the communicator. */
static void drop(struct making *making)
{
    making->result = ceclSystemError;
    cecl_nccl_meeting_close(making->meeting);
    if (making->entry)
        cecl_nccl_comm_retire(making->entry, CECL_NCCL_MAKING_TO_FREE);
}

/* Making a communicator waits for its other ranks. So each communicator but the first gets a thread of its own. */
static void make_all(struct making *makings, int count)
{
    for (int i = 1; i < count; i++) {
        makings[i].has_thread =
            cecl_thread_start(&makings[i].thread, make_one_beside, &makings[i]) == 0;
        if (!makings[i].has_thread)
            drop(&makings[i]);
    }
    if (count > 0)
        make_one(makings);
    for (int i = 1; i < count; i++)
        if (makings[i].has_thread)
            pthread_join(makings[i].thread, NULL);
}

/* Fills `makings` with the communicators that NCCL has made. Returns their number. */
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
    CECL_OWNED struct making *makings = calloc((size_t)count + 1, sizeof(*makings));
    if (!makings) {
        cecl_nccl_wishes_drop(wishes, count);
        return ceclSystemError;
    }
    const int made = list_made(wishes, count, makings);
    for (int i = 0; i < made; i++)
        if (!(makings[i].entry = cecl_nccl_comm_reserve(makings[i].comm)))
            result = ceclSystemError;
    for (int i = 0; i < made && result != ceclSuccess; i++)
        drop(&makings[i]);
    if (result == ceclSuccess)
        make_all(makings, made);
    for (int i = 0; i < made && result == ceclSuccess; i++)
        result = makings[i].result;
    return result;
}

/* Detaches the new thread, because it may go on after an abort. */
ncclResult_t cecl_nccl_comm_make_later(ncclComm_t comm, int together,
                                       struct cecl_nccl_meeting *meeting)
{
    struct making *making = calloc(1, sizeof(*making)),
                  its = {.comm = comm,
                         .entry = making ? cecl_nccl_comm_reserve(comm) : NULL,
                         .meeting = meeting,
                         .together = together,
                         .in_background = true};
    if (its.entry) {
        *making = its;
        if (cecl_thread_start(&its.thread, make_one_later, making) == 0) {
            pthread_detach(its.thread);
            return ceclSuccess;
        }
    }
    drop(&its);
    free(making);
    return ceclSystemError;
}

/* ---- children that NCCL makes in the background. In this case ncclCommSplit and similar calls return ncclInProgress,
 * and NCCL writes the child's handle to the program's variable only when the parent is ready again. The variable is
 * valid until the program learns that the parent is ready. So ncclCommGetAsyncError reads the handle before it tells
 * the program that the parent is ready. */

struct birth {
    struct birth *next;
    struct cecl_nccl_wish wish; /* wish.made: NULL until this library has read the handle */
    int together;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct birth *first;
/* length of the list; while it is 0, calls do not take the lock */
static _Atomic int expected;

ncclResult_t cecl_nccl_birth_expect(const struct cecl_nccl_wish *wish, int together)
{
    struct birth *birth = malloc(sizeof(*birth));
    if (!birth) {
        cecl_nccl_meeting_close(wish->meeting);
        return ceclSystemError;
    }
    CECL_LOCKED(&lock);
    *birth = (struct birth){.next = first, .wish = *wish, .together = together};
    first = birth;
    atomic_fetch_add(&expected, 1);
    return ceclSuccess;
}

/* If NCCL has written the child's handle, begins to make cecl's communicator for it. Returns ncclInProgress until
 * cecl's communicator is made. If this rank has no color, it gets no child, and the result is ncclSuccess. */
static ncclResult_t look_at(struct birth *birth)
{
    struct cecl_nccl_wish *wish = &birth->wish;
    if (!wish->made && (wish->made = cecl_nccl_wish_handle(wish))) {
        struct cecl_nccl_meeting *meeting = wish->meeting;
        wish->meeting = NULL;
        const ncclResult_t result = cecl_nccl_comm_make_later(wish->made, birth->together, meeting);
        if (result != ceclSuccess)
            return result;
    }
    return cecl_nccl_comm_is(wish->made, CECL_NCCL_UNMADE) ? ceclInProgress : ceclSuccess;
}

/* Looks at the children of `parent`, and removes those that are made or have failed; if `has_ended`, removes all. */
static ncclResult_t look_at_all(ncclComm_t parent, bool has_ended)
{
    ncclResult_t all = ceclSuccess;
    if (atomic_load(&expected) == 0)
        return ceclSuccess;
    CECL_LOCKED(&lock);
    for (struct birth **at = &first, *birth; (birth = *at);) {
        const bool is_its = birth->wish.parent == parent;
        const ncclResult_t one = is_its && !has_ended ? look_at(birth) : ceclSuccess;
        all = all == ceclSuccess || (all == ceclInProgress && one != ceclSuccess) ? one : all;
        if (!is_its || one == ceclInProgress) {
            at = &birth->next;
            continue;
        }
        *at = birth->next;
        cecl_nccl_meeting_close(birth->wish.meeting);
        free(birth);
        atomic_fetch_sub(&expected, 1);
    }
    return all;
}

ncclResult_t cecl_nccl_birth_look(ncclComm_t parent)
{
    return look_at_all(parent, false);
}

void cecl_nccl_birth_forget(ncclComm_t parent)
{
    (void)!look_at_all(parent, true);
}
