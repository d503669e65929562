/* Two ways in which ranks find each other: the caller's callbacks, and threads of one process.
 * tcp*.c has the third, TCP. */
#include "boot/oob.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/thread.h"

/* ---- callbacks */

static ceclResult_t callbacks_allgather(struct cecl_oob *oob, const void *send, void *recv,
                                        size_t bytes)
{
    const ceclOob_t *callbacks = oob->context;
    const int failed = callbacks->allGather(callbacks->context, send, recv, bytes);
    return failed ? cecl_fail(ceclSystemError, "the caller's allGather of %zu bytes returned %d",
                              bytes, failed)
                  : ceclSuccess;
}

void cecl_oob_from_callbacks(struct cecl_oob *oob, const ceclOob_t *callbacks, int nranks, int rank,
                             int64_t timeout_ms)
{
    *oob = (struct cecl_oob){.nranks = nranks,
                             .rank = rank,
                             .timeout_ms = timeout_ms,
                             .context = (void *)(uintptr_t)callbacks,
                             .allgather = callbacks_allgather};
}

/* ---- threads */

struct cecl_oob_group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int nranks;
    int64_t timeout_ms;
    int arrived; /* ranks that have brought their part of this all-gather */
    int leaving; /* ranks that still have to take its result */
    int closed;  /* members that have closed and will not call again */
    bool failed; /* it failed for a member, so no later all-gather can be right */
    unsigned long round;
    char *parts; /* [nranks * bytes] */
    size_t bytes;
};

ceclResult_t cecl_oob_group_create(int nranks, int64_t timeout_ms, struct cecl_oob_group **out)
{
    struct cecl_oob_group *group = calloc(1, sizeof(*group));
    if (!group)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of ranks");
    cecl_cond_init(&group->changed);
    pthread_mutex_init(&group->lock, NULL);
    group->nranks = nranks;
    group->timeout_ms = timeout_ms;
    *out = group;
    return ceclSuccess;
}

void cecl_oob_group_destroy(struct cecl_oob_group *group)
{
    pthread_mutex_destroy(&group->lock);
    pthread_cond_destroy(&group->changed);
    free(group->parts);
    free(group);
}

/* Waits for a change of the group. The caller holds the lock. */
static ceclResult_t wait_for_news(struct cecl_oob_group *group, const struct timespec *until)
{
    const int error = group->timeout_ms > 0
                          ? pthread_cond_timedwait(&group->changed, &group->lock, until)
                          : pthread_cond_wait(&group->changed, &group->lock);
    return error == ETIMEDOUT
               ? cecl_fail(ceclTimeout, "%d of %d ranks came within %lld ms (CECL_INIT_TIMEOUT_MS)",
                           group->arrived, group->nranks, (long long)group->timeout_ms)
               : ceclSuccess;
}

/* Brings this rank's part. The last rank to come wakes all. The caller holds the lock. */
static ceclResult_t bring(struct cecl_oob_group *group, int rank, const void *part, size_t bytes)
{
    if (group->failed || group->closed > 0)
        return cecl_fail(ceclRemoteError, "a rank of this process gave up");
    if (group->arrived == 0) {
        char *parts = realloc(group->parts, (size_t)group->nranks * bytes);
        if (!parts)
            return cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", group->nranks);
        group->parts = parts;
        group->bytes = bytes;
    } else if (bytes != group->bytes) {
        return cecl_fail(ceclInternalError, "ranks exchange %zu and %zu bytes", bytes,
                         group->bytes);
    }
    memcpy(group->parts + (size_t)rank * bytes, part, bytes);
    if (++group->arrived == group->nranks) {
        group->arrived = 0;
        group->leaving = group->nranks;
        group->round++;
        pthread_cond_broadcast(&group->changed);
    }
    return ceclSuccess;
}

static ceclResult_t group_allgather(struct cecl_oob *oob, const void *send, void *recv,
                                    size_t bytes)
{
    struct cecl_oob_group *group = oob->context;
    ceclResult_t result = ceclSuccess;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(group->timeout_ms / 1000);
    until.tv_nsec += (long)(group->timeout_ms % 1000) * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }

    pthread_mutex_lock(&group->lock);
    while (result == ceclSuccess && group->leaving > 0) /* until all have the last result */
        result = wait_for_news(group, &until);
    const unsigned long round = group->round;
    if (result == ceclSuccess)
        result = bring(group, oob->rank, send, bytes);
    while (result == ceclSuccess && group->round == round)
        result = group->failed || group->closed > 0
                     ? cecl_fail(ceclRemoteError, "a rank of this process gave up")
                     : wait_for_news(group, &until);
    if (result == ceclSuccess) {
        memcpy(recv, group->parts, (size_t)group->nranks * bytes);
        if (--group->leaving == 0)
            pthread_cond_broadcast(&group->changed);
    } else {
        /* its part may already be there and would be counted although it has left */
        group->failed = true;
        pthread_cond_broadcast(&group->changed);
    }
    pthread_mutex_unlock(&group->lock);
    return result;
}

static void group_close(struct cecl_oob *oob)
{
    struct cecl_oob_group *group = oob->context;
    pthread_mutex_lock(&group->lock);
    group->closed++;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

void cecl_oob_from_group(struct cecl_oob *oob, struct cecl_oob_group *group, int rank)
{
    *oob = (struct cecl_oob){.nranks = group->nranks,
                             .rank = rank,
                             .timeout_ms = group->timeout_ms,
                             .context = group,
                             .allgather = group_allgather,
                             .close = group_close};
}
