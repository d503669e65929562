/* See birth.h. NCCL writes a child's handle to memory of the program, which is valid until the program
 * learns that the parent is ready. So the thread that asks for the parent's state reads the handle before
 * it reports the parent as ready. */
#include "nccl/birth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "nccl/comms.h"

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
static _Atomic int
    expected; /* how many there are; 0 lets programs without such children skip the lock */

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

/* Calls `of` for each child of `parent`, and forgets those that are no longer in progress. */
static ncclResult_t each_of(ncclComm_t parent, ncclResult_t (*of)(struct birth *))
{
    ncclResult_t result = ceclSuccess;
    if (atomic_load(&expected) == 0)
        return ceclSuccess;
    pthread_mutex_lock(&lock);
    for (struct birth **at = &first; *at;) {
        struct birth *birth = *at;
        const ncclResult_t one = birth->parent == parent ? of(birth) : ceclSuccess;
        result = one != ceclSuccess ? one : result;
        if (birth->parent != parent || one == ceclInProgress) {
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
    return each_of(parent, look_at);
}

static ncclResult_t let_go(struct birth *unused)
{
    (void)unused;
    return ceclSuccess;
}

void cecl_nccl_birth_forget(ncclComm_t parent)
{
    (void)!each_of(parent, let_go);
}
