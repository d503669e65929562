/* How the network of GPUs fails and ends; see nccl.c.
 *
 * An abort of NCCL frees memory of the GPU, which may wait for streams that wait for flags. So a separate
 * thread aborts, while the watchdog goes on. */
#include <stdlib.h>
#include <time.h>

#include "net/nccl_internal.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define FINALIZE_MS 2000
#define ABORT_MS 10000 /* how long give_up and close wait for an abort in the background */

static ceclResult_t abort_now(void *context)
{
    struct nccl *nccl = context;
    nccl->api->CommAbort(nccl->aborted);
    return ceclSuccess;
}

static void *abort_apart(void *argument)
{
    struct nccl *nccl = argument;
    (void)!nccl->dev->ops->within(nccl->dev, abort_now, nccl);
    atomic_store(&nccl->has_aborted, true);
    return NULL;
}

void cecl_net_nccl_fail(struct cecl_net *net)
{
    struct nccl *nccl = (struct nccl *)net;
    atomic_store(&nccl->failed, true);
    pthread_mutex_lock(&nccl->lock);
    if (nccl->comm) {
        nccl->aborted = nccl->comm;
        nccl->comm = NULL;
        nccl->has_aborter = cecl_thread_start(&nccl->aborter, "cecl-net", abort_apart, nccl) == 0;
        if (!nccl->has_aborter) /* the watchdog calls this function again */
            nccl->comm = nccl->aborted;
    }
    pthread_mutex_unlock(&nccl->lock);
}

struct ending {
    struct nccl *nccl;
    nccl_comm comm; /* taken out of `nccl`, so no other thread uses it */
};

/* Finalizes NCCL's communicator. Returns false if that does not end in time, for example because a peer
 * has gone. */
static bool is_finalized(const struct ending *ending)
{
    const struct nccl_functions *api = ending->nccl->api;
    const struct timespec pause = {.tv_nsec = POLL_NS};
    const int64_t deadline = cecl_deadline(FINALIZE_MS);
    nccl_result state = api->CommFinalize(ending->comm);
    bool is_asked = state == NCCL_SUCCESS || state == NCCL_IN_PROGRESS;
    state = NCCL_IN_PROGRESS;
    while (is_asked && state == NCCL_IN_PROGRESS && cecl_ms_left(deadline) != 0) {
        is_asked = api->CommGetAsyncError(ending->comm, &state) == NCCL_SUCCESS;
        if (is_asked && state == NCCL_IN_PROGRESS)
            nanosleep(&pause, NULL);
    }
    return is_asked && state == NCCL_SUCCESS;
}

static ceclResult_t end_comm(void *context)
{
    const struct ending *ending = context;
    const struct nccl *nccl = ending->nccl;
    if (!atomic_load(&nccl->failed) && is_finalized(ending))
        nccl->api->CommDestroy(ending->comm);
    else
        nccl->api->CommAbort(ending->comm);
    return ceclSuccess;
}

void cecl_net_nccl_finish(struct cecl_net *net)
{
    struct nccl *nccl = (struct nccl *)net;
    pthread_mutex_lock(&nccl->lock);
    struct ending ending = {nccl, nccl->comm};
    nccl->comm = NULL;
    pthread_mutex_unlock(&nccl->lock);
    if (ending.comm)
        (void)!nccl->dev->ops->within(nccl->dev, end_comm, &ending);
}

/* Waits for an abort in the background, if there is one. Returns whether it has ended. */
static bool await_aborter(const struct nccl *nccl)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    const int64_t deadline = cecl_deadline(ABORT_MS);
    while (nccl->has_aborter && !atomic_load(&nccl->has_aborted) && cecl_ms_left(deadline) != 0)
        nanosleep(&pause, NULL);
    return !nccl->has_aborter || atomic_load(&nccl->has_aborted);
}

/* Waits for the abort, because the program ends its own communicator next, and NCCL must abort the split
 * before that. Without a split, and if graphs may hold exchanges, nobody waits: NCCL's abort then waits for
 * the graphs. */
void cecl_net_nccl_give_up(struct cecl_net *net)
{
    const struct nccl *nccl = (struct nccl *)net;
    cecl_net_nccl_fail(net);
    if (nccl->lent.library || nccl->ncaptured == 0)
        (void)await_aborter(nccl);
}

void cecl_net_nccl_close(struct cecl_net *net)
{
    struct nccl *nccl = (struct nccl *)net;
    if (!await_aborter(nccl)) {
        cecl_log(CECL_LOG_WARN, nccl->rank,
                 "%s: ncclCommAbort did not end within %d ms: its memory stays", net->name,
                 ABORT_MS);
        return;
    }
    if (nccl->has_aborter)
        pthread_join(nccl->aborter, NULL);
    cecl_net_nccl_finish(net);
    if (nccl->begun)
        nccl->dev->ops->words_free(nccl->dev, nccl->begun);
    pthread_mutex_destroy(&nccl->lock);
    free(nccl);
}
