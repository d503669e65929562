/* The worker of a communicator: a thread for driver calls that may be slow. It imports the memory that peers
 * announce, reads flags, and asks the driver about graphs. It closes no memory, because closing waits for the program's
 * kernels and holds up the program's threads (docs/decisions/0020).
 *
 * The watchdog must not make these calls itself. While the program frees memory (cudaFree, cudaFreeHost), CUDA waits
 * for pending work. Meanwhile CUDA holds up other threads that copy, allocate or launch; only their stream memory
 * operations and queries go on (docs/data/results.md, "What the driver holds up"). The pending work may be a call whose
 * peer has died, and only the watchdog can end its wait. So the watchdog makes only stream memory operations and
 * queries (decision 0020 has the exceptions). */
#include <errno.h>

#include "comm/comm.h"
#include "util/clock.h"
#include "util/thread.h"

#define REST_MS 500 /* the longest time between two looks for messages and questions */
#define END_MS 10000

/* Carries out only one message of a peer about its memory, because the worker answers questions between messages. */
static void take_message(ceclComm_t comm)
{
    bool any;
    const ceclResult_t taken = cecl_registry_take(&comm->registry, &any);
    if (taken != ceclSuccess)
        (void)!cecl_comm_break(comm, taken);
}

static void answer(ceclComm_t comm)
{
    struct cecl_worker *worker = &comm->worker;
    struct cecl_progress progress;
    pthread_mutex_lock(&worker->lock);
    const uint64_t question = worker->asked;
    const bool is_new = worker->answered < question;
    pthread_mutex_unlock(&worker->lock);
    if (!is_new)
        return;
    const bool graphs =
        atomic_load(&comm->last_captured) && cecl_engine_query(&comm->engine) == ceclInProgress;
    const ceclResult_t result = cecl_flags_progress(&comm->engine.flags, &progress);
    progress.graphs = graphs;
    CECL_LOCKED(&worker->lock);
    worker->result = result;
    worker->progress = progress;
    cecl_keep_message(worker->words);
    worker->answered = question;
    pthread_cond_broadcast(&worker->news);
}

static void *work(void *argument)
{
    ceclComm_t comm = argument;
    struct cecl_worker *worker = &comm->worker;
    cecl_thread_name("cecl-worker");
    while (!atomic_load(&worker->stop)) {
        const bool failed = atomic_load(&comm->async_result) != ceclSuccess;
        /* after a failure nobody reads messages, so one that is there must not end waits: all would end at once */
        const bool comes = cecl_mesh_await(comm->mesh, !failed, REST_MS);
        answer(comm);
        if (comes)
            take_message(comm);
    }
    CECL_LOCKED(&worker->lock);
    worker->ended = true;
    pthread_cond_broadcast(&worker->news);
    return NULL;
}

ceclResult_t cecl_worker_start(ceclComm_t comm)
{
    struct cecl_worker *worker = &comm->worker;
    const int error = cecl_thread_start(&worker->thread, work, comm);
    if (error)
        return cecl_fail(ceclSystemError, "pthread_create for the worker: error %d", error);
    worker->running = true;
    return ceclSuccess;
}

/* Waits for news. Returns false once the time `until` has passed. The caller holds the lock. */
static bool wait_for_news(struct cecl_worker *worker, const struct timespec *until)
{
    return pthread_cond_timedwait(&worker->news, &worker->lock, until) != ETIMEDOUT;
}

bool cecl_worker_stop(ceclComm_t comm)
{
    struct cecl_worker *worker = &comm->worker;
    const struct timespec until = cecl_time_in(END_MS);
    if (!worker->running)
        return true;
    atomic_store(&worker->stop, true);
    cecl_mesh_rouse(comm->mesh);
    pthread_mutex_lock(&worker->lock);
    while (!worker->ended && wait_for_news(worker, &until))
        ;
    const bool ended = worker->ended;
    pthread_mutex_unlock(&worker->lock);
    if (ended)
        pthread_join(worker->thread, NULL);
    else
        pthread_detach(worker->thread);
    worker->running = false;
    return ended;
}

ceclResult_t cecl_worker_ask(ceclComm_t comm, struct cecl_progress *progress)
{
    struct cecl_worker *worker = &comm->worker;
    const struct timespec until = cecl_time_in(CECL_WATCH_ANSWER_MS);
    ceclResult_t result = ceclInProgress;
    CECL_LOCKED(&worker->lock);
    const uint64_t question = ++worker->asked;
    cecl_mesh_rouse(comm->mesh);
    while (worker->answered < question && wait_for_news(worker, &until))
        ;
    if (worker->answered >= question) {
        *progress = worker->progress;
        result = worker->result == ceclSuccess ? ceclSuccess
                                               : cecl_fail_with(worker->result, worker->words);
    }
    return result;
}
