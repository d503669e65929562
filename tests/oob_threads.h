/* Ranks that are threads of a unit test: their oob (boot/oob.h), and their mesh. A test defines RANKS before it
 * includes this file. */
#ifndef CECL_TESTS_OOB_THREADS_H
#define CECL_TESTS_OOB_THREADS_H

#include <pthread.h>
#include <string.h>

#include "boot/mesh_internal.h"
#include "util/clock.h"

#define LONG_MS 60000 /* ms; a step that takes longer has hung */

struct oob_threads {
    pthread_mutex_t lock;
    pthread_cond_t all_came;
    int came;
    char parts[RANKS][CECL_OOB_PART_BYTES];
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

/* `all`, which the ranks share, serves one all-gather. It must be OOB_THREADS_NONE before. */
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

/* Makes the mesh and connects it, as a communicator's init does. */
static inline ceclResult_t open_mesh(struct cecl_oob *oob, int64_t timeout_ms,
                                     struct cecl_mesh **out)
{
    struct cecl_invitation mine, all[64];
    struct cecl_mesh *mesh = NULL;
    char words[CECL_MESSAGE_BYTES];
    if (oob->nranks > 64)
        return cecl_fail(ceclInternalError, "a test of more than 64 ranks");
    CECL_TRY(cecl_mesh_new(oob, timeout_ms, 0, &mine, &mesh));
    ceclResult_t result = oob->allgather(oob, &mine, all, sizeof(mine));
    cecl_lifeline_close(&oob->line);
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

static struct rank {
    pthread_t thread;
    struct cecl_oob oob;
    struct cecl_mesh *mesh;
    ceclResult_t result;
    int index, all[RANKS];
    char words[CECL_MESSAGE_BYTES];
} ranks[RANKS];
static struct oob_threads oobs;
static int64_t patience_ms; /* time limit of exchanges after joining */

static inline void *run_open(void *argument)
{
    struct rank *me = argument;
    me->result = open_mesh(&me->oob, patience_ms, &me->mesh);
    cecl_keep_message(me->words);
    return NULL;
}

static inline void start(struct rank *rank, void *(*run)(void *))
{
    assert_int_equal(pthread_create(&rank->thread, NULL, run, rank), 0);
}

static inline void await_all(ceclResult_t result)
{
    for (int r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].result, result);
    }
}

/* Runs `run` on a thread for each rank. It must succeed on all. */
static inline void all_run(void *(*run)(void *))
{
    for (int r = 0; r < RANKS; r++)
        start(&ranks[r], run);
    await_all(ceclSuccess);
}

static inline void make_group(int64_t join_ms)
{
    oobs = (struct oob_threads)OOB_THREADS_NONE;
    for (int r = 0; r < RANKS; r++)
        ranks[r] = (struct rank){.index = r, .oob = oob_of_thread(&oobs, RANKS, r, join_ms)};
}

/* Opens the mesh with one time limit for joining and another one for later exchanges. */
static inline void open_with(int64_t join_ms, int64_t timeout_ms)
{
    patience_ms = timeout_ms;
    make_group(join_ms);
    all_run(run_open);
}

/* Makes all other ranks find that this rank's process has ended. */
static inline void die(int rank)
{
    for (int r = 0; r < RANKS; r++)
        if (r != rank && ranks[r].mesh)
            atomic_store(&ranks[r].mesh->peers[rank].has_died, true);
}

static inline int close_ranks(void **state)
{
    for (int r = 0; r < RANKS; r++) {
        cecl_mesh_close(ranks[r].mesh);
        ranks[r].mesh = NULL;
    }
    return 0;
}

#endif
