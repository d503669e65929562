/* Frees a communicator: ends its threads, then frees its parts. */
#include <stdlib.h>

#include "api/life.h"
#include "launch/launcher.h"
#include "net/net.h"
#include "util/log.h"

/* Handles of ended communicators. Public functions recognize and refuse the last 64 of them. */
static struct cecl_handles ended = CECL_HANDLES(64);

/* Keeps the memory of a communicator for ever, because pending work or a thread may still use it. */
static void lose(ceclComm_t comm)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ceclComm_t lost;

    CECL_LOCKED(&lock);
    comm->next = lost;
    lost = comm;
}

ceclComm_t cecl_comm_alloc(void)
{
    return cecl_handle_new(&ended, sizeof(struct ceclComm));
}

/* Frees the parts of a communicator whose threads have ended; unless `drained`, keeps what pending work may use. */
static void free_parts(ceclComm_t comm, bool drained)
{
    if (!drained) /* a graph may still give back a launch; its thread sees by `magic` that the communicator has ended */
        comm->magic = 0;
    cecl_mesh_close(comm->mesh);
    cecl_windows_end(comm, drained);
    /* before the flags are freed: other communicators' threads read in them, by the registry, which calls are done */
    if (drained)
        cecl_registry_close(&comm->registry);
    cecl_launcher_free(comm, drained);
    if (drained) {
        cecl_engine_close(&comm->engine);
        cecl_pool_close(&comm->pool);
        cecl_hosted_close(&comm->hosted);
        cecl_net_free(comm->net);
        if (comm->dev)
            comm->dev->ops->close(comm->dev);
        cecl_shared_close(&comm->shared);
    }
    cecl_meetings_close(&comm->meetings);
    cecl_registrations_free(comm);
    free(comm->parent_ranks);
    pthread_mutex_destroy(&comm->async_lock);
    pthread_mutex_destroy(&comm->watch.lock);
    pthread_mutex_destroy(&comm->worker.lock);
    pthread_cond_destroy(&comm->worker.news);
    if (drained)
        cecl_handle_free(&ended, comm, sizeof(*comm));
    else
        lose(comm);
}

uint32_t cecl_comm_free(ceclComm_t comm, bool drained)
{
    cecl_living_remove(comm);
    cecl_watch_stop(comm);
    /* the peers are told first that this rank leaves: waiting for graphs and for the worker may take seconds */
    if (comm->mesh)
        cecl_mesh_say_goodbye(
            comm->mesh, comm->engine.flags.done ? &comm->engine.flags.epoch[CECL_LANE_MAIN] : NULL);
    const uint32_t held = comm->dev ? cecl_captured_await(comm) : 0;
    if (comm->net && !cecl_net_shut(comm->net, held > 0))
        drained = false;
    if (held > 0) { /* graphs may still use the communicator's memory, so it stays */
        cecl_log(CECL_LOG_WARN, comm->rank,
                 "the communicator ends while graphs hold %u captured calls: their memory stays "
                 "mapped",
                 held);
        if (!comm->net)
            cecl_replays_keep(comm);
    }
    if (cecl_worker_stop(comm)) {
        free_parts(comm, drained && held == 0);
        return held;
    }
    comm->magic = 0;
    lose(comm);
    cecl_log(CECL_LOG_WARN, comm->rank,
             "a thread of an ended communicator is still in a call of the GPU's driver; the "
             "communicator's memory stays mapped");
    return held;
}
