/* The exchange between the ranks of a unit test, which are its threads, and the creation of their
 * mesh. */
#ifndef CECL_TESTS_OOB_THREADS_H
#define CECL_TESTS_OOB_THREADS_H

#include <pthread.h>
#include <string.h>

#include "boot/mesh.h"
#include "util/clock.h"

#define OOB_THREADS_MOST 8

struct oob_threads {
    pthread_mutex_t lock;
    pthread_cond_t all_came;
    int came;
    char parts[OOB_THREADS_MOST][CECL_OOB_PART_BYTES];
};
#define OOB_THREADS_NONE \
    { \
        .lock = PTHREAD_MUTEX_INITIALIZER, .all_came = PTHREAD_COND_INITIALIZER \
    }

static inline ceclResult_t oob_threads_gather(struct cecl_oob *oob, const void *send, void *recv,
                                              size_t bytes)
{
    struct oob_threads *all = oob->context;
    pthread_mutex_lock(&all->lock);
    memcpy(all->parts[oob->rank], send, bytes);
    if (++all->came == oob->nranks)
        pthread_cond_broadcast(&all->all_came);
    while (all->came < oob->nranks)
        pthread_cond_wait(&all->all_came, &all->lock);
    pthread_mutex_unlock(&all->lock);
    for (int r = 0; r < oob->nranks; r++)
        memcpy((char *)recv + (size_t)r * bytes, all->parts[r], bytes);
    return ceclSuccess;
}

/* Used once: `all` must be OOB_THREADS_NONE before. */
static inline struct cecl_oob oob_of_thread(struct oob_threads *all, int nranks, int rank,
                                            int64_t timeout_ms)
{
    return (struct cecl_oob){.nranks = nranks,
                             .rank = rank,
                             .timeout_ms = timeout_ms,
                             .deadline = cecl_deadline(timeout_ms),
                             .context = all,
                             .allgather = oob_threads_gather};
}

/* Makes the mesh and connects it, as an init does. */
static inline ceclResult_t open_mesh(struct cecl_oob *oob, int64_t timeout_ms,
                                     struct cecl_mesh **out)
{
    struct cecl_invitation mine, all[OOB_THREADS_MOST];
    struct cecl_mesh *mesh = NULL;
    char words[CECL_MESSAGE_BYTES];
    CECL_TRY(cecl_mesh_new(oob, timeout_ms, 0, &mine, &mesh));
    ceclResult_t result = oob->allgather(oob, &mine, all, sizeof(mine));
    cecl_lifeline_close(oob->line);
    if (result == ceclSuccess)
        result = cecl_mesh_connect(mesh, all, sizeof(all[0]), NULL);
    if (result == ceclSuccess) {
        *out = mesh;
        return ceclSuccess;
    }
    cecl_keep_message(words);
    cecl_mesh_tell_abort(mesh, words);
    cecl_mesh_close(mesh);
    return cecl_fail_with(result, words);
}

#endif
