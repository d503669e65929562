/* Graphs that hold captured calls: the numbers and names of these calls, and how their waits end
 * after the communicator has failed or ended. */
#include "comm/comm.h"

#include "flags/awaited.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

uint32_t cecl_replays_number(ceclComm_t comm, const char *name)
{
    const uint32_t number = atomic_load(&comm->engine.flags.numbered) + 1;
    atomic_store(&comm->names[number % CECL_NUMBERED_NAMES], name);
    atomic_store(&comm->engine.flags.numbered, number);
    return number;
}

const char *cecl_replays_name(ceclComm_t comm, uint32_t number)
{
    const uint32_t ago = atomic_load(&comm->engine.flags.numbered) - number;
    return ago < CECL_NUMBERED_NAMES ? atomic_load(&comm->names[number % CECL_NUMBERED_NAMES])
                                     : "an earlier one";
}

void cecl_replays_release(ceclComm_t comm)
{
    cecl_turns_release(&comm->engine.flags);
    cecl_awaited_release(&comm->engine.flags, CECL_ROW_HANDED);
}

/* ---- after the end */

/* Runs until no graph holds calls of the communicator, whose memory stays mapped even then. */
static void *keep(void *argument)
{
    ceclComm_t comm = argument;
    const struct cecl_flags *flags = &comm->engine.flags;
    bool is_named = false;
    cecl_thread_name("cecl-orphans");
    while (atomic_load(&comm->captured) > 0) {
        if (!is_named && (cecl_turns_run(flags) || cecl_awaited_by_graphs(flags))) {
            is_named = true;
            cecl_log(CECL_LOG_WARN, comm->rank,
                     "a graph was launched whose communicator has ended; last captured call: %s. "
                     "Its waits for peers end at once, and its results are undefined",
                     atomic_load(&comm->last_captured));
        }
        cecl_replays_release(comm);
        cecl_pause_us(CECL_WATCH_RELEASE_MS * 1000);
    }
    return NULL;
}

void cecl_replays_keep(ceclComm_t comm)
{
    pthread_t thread;
    /* ends the waits of kernels, also of those that start later */
    (void)!cecl_pads_end(&comm->engine.flags);
    if (cecl_thread_start(&thread, keep, comm) == 0)
        pthread_detach(thread);
    else
        cecl_log(CECL_LOG_WARN, comm->rank,
                 "no thread for graphs of an ended communicator: they hang if they are launched "
                 "again");
}
