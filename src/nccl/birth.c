/* See birth.h. The program's pointer to the handle is read by the thread that asks for the parent's
 * state, before the program hears that the parent is ready: until then the pointer must be valid. */
#include "nccl/birth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "nccl/comms.h"

#define SUCCESS ((ncclResult_t)ceclSuccess)

struct birth {
    struct birth *next;
    ncclComm_t parent;
    ncclComm_t *place; /* where NCCL writes the handle */
    int together;
    ncclComm_t child; /* NULL: it has not come */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct birth *first;
static _Atomic int expected; /* most programs never take the lock */

ncclResult_t cecl_nccl_birth_expect(ncclComm_t parent, ncclComm_t *child, int together)
{
    struct birth *birth = malloc(sizeof(*birth));
    if (!birth)
        return ceclSystemError;
    pthread_mutex_lock(&lock);
    *birth = (struct birth){.next = first, .parent = parent, .place = child, .together = together};
    first = birth;
    atomic_fetch_add(&expected, 1);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

/* ncclInProgress, or what came of it. A rank without a color gets no child. */
static ncclResult_t look_at(struct birth *birth)
{
    const ncclComm_t come = birth->child ? NULL : __atomic_load_n(birth->place, __ATOMIC_ACQUIRE);
    if (come) {
        birth->child = come;
        const ncclResult_t result = cecl_nccl_comm_make_later(come, birth->together);
        if (result != SUCCESS)
            return result;
    }
    return cecl_nccl_comm_is_in_progress(birth->child) ? (ncclResult_t)ceclInProgress : SUCCESS;
}

static void remove_at(struct birth **at)
{
    struct birth *birth = *at;
    *at = birth->next;
    free(birth);
    atomic_fetch_sub(&expected, 1);
}

ncclResult_t cecl_nccl_birth_look(ncclComm_t parent)
{
    ncclResult_t result = SUCCESS;
    if (atomic_load(&expected) == 0)
        return SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct birth **at = &first; *at;) {
        const bool is_of_parent = (*at)->parent == parent;
        const ncclResult_t one = is_of_parent ? look_at(*at) : SUCCESS;
        if (one != SUCCESS)
            result = one;
        if (is_of_parent && one != (ncclResult_t)ceclInProgress)
            remove_at(at);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void cecl_nccl_birth_forget(ncclComm_t parent)
{
    if (atomic_load(&expected) == 0)
        return;
    pthread_mutex_lock(&lock);
    for (struct birth **at = &first; *at;) {
        if ((*at)->parent == parent)
            remove_at(at);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&lock);
}
