/* Graphs that hold captured calls; see replays.h. */
#include "comm/replays.h"

#include <stdlib.h>
#include <time.h>

#include "flags/awaited.h"
#include "flags/pads.h"
#include "util/log.h"
#include "util/thread.h"

#define RELEASE_TICK_MS 5

static const char *last_captured(ceclComm_t comm)
{
    const char *name = atomic_load(&comm->last_captured);
    return name ? name : "no call";
}

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

/* A communicator that has ended while graphs hold its calls. */
struct orphan {
    ceclComm_t comm;
    bool is_named;
    struct orphan *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct orphan *orphans;
static bool runs;

/* Ends the waits of an orphan's graphs. Returns whether graphs still hold its calls. */
static bool release(struct orphan *orphan)
{
    struct cecl_flags *flags = &orphan->comm->engine.flags;
    if (atomic_load(&orphan->comm->captured) == 0)
        return false;
    if ((cecl_turns_run(flags) || cecl_awaited_by_graphs(flags)) && !orphan->is_named) {
        orphan->is_named = true;
        cecl_log(CECL_LOG_WARN, orphan->comm->rank,
                 "a graph was launched whose communicator has ended; last captured call: %s. Its "
                 "waits for peers end at once, and its results are undefined",
                 last_captured(orphan->comm));
    }
    cecl_replays_release(orphan->comm);
    return true;
}

/* Returns whether orphans are left. */
static bool release_all(void)
{
    pthread_mutex_lock(&lock);
    struct orphan **at = &orphans;
    while (*at) {
        struct orphan *orphan = *at;
        if (release(orphan)) {
            at = &orphan->next;
            continue;
        }
        *at = orphan->next;
        free(orphan);
    }
    runs = orphans != NULL;
    const bool go_on = runs;
    pthread_mutex_unlock(&lock);
    return go_on;
}

static void *keep(void *unused)
{
    (void)unused;
    while (release_all()) {
        const struct timespec pause = {.tv_nsec = RELEASE_TICK_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

void cecl_replays_keep(ceclComm_t comm)
{
    struct orphan *orphan = malloc(sizeof(*orphan));
    pthread_t thread;
    /* kernels that start from now on do not wait */
    (void)!cecl_pads_end(&comm->engine.flags);
    int error = orphan ? 0 : 1;
    pthread_mutex_lock(&lock);
    if (orphan) {
        *orphan = (struct orphan){.comm = comm, .next = orphans};
        orphans = orphan;
    }
    if (orphan && !runs) {
        error = cecl_thread_start(&thread, "cecl-orphans", keep, NULL);
        runs = error == 0;
        if (runs)
            pthread_detach(thread);
    }
    pthread_mutex_unlock(&lock);
    if (error)
        cecl_log(
            CECL_LOG_WARN, comm->rank,
            "no thread for graphs of an ended communicator: they hang if they are launched again");
}
