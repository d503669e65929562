/* See life.h. */
#include "api/life.h"

#include <stdlib.h>

#include "flags/flags.h"
#include "net/net.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/thread.h"

/* ms for which pending calls may delay the end of the process */
#define ENDING_MS 200

/* Locked with a time limit when the process ends, because it may never become free: a signal handler may end the
 * process while its thread holds the lock, or another thread may have held it when the parent forked this process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ceclComm_t first;

/* Whether this process may say goodbye for the communicator; a forked child may not. Takes no lock. */
static bool is_healthy(ceclComm_t comm)
{
    return comm->process == cecl_fork_process() &&
           atomic_load(&comm->async_result) == ceclSuccess && !atomic_load(&comm->gave_pointers);
}

/* Whether all calls of the communicator are done; if they are, notes the value of `done`. Reads each target only
 * once, because another thread may begin or give up a call meanwhile. */
static bool look(ceclComm_t comm)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    if (comm->net)
        return comm->living.is_idle = cecl_net_is_idle(comm->net);
    const uint32_t word = atomic_load(&flags->target[CECL_LANE_MAIN]);
    const uint32_t calls = word + atomic_load(&flags->unsignalled_target);
    const uint64_t one_sided = cecl_lines_made(flags);
    if (!cecl_flags_reached(flags, calls) || cecl_flags_gave_up_on(flags) >= 0 ||
        !cecl_lines_idle(flags))
        return false;
    comm->living.word = word;
    comm->living.calls = calls;
    comm->living.one_sided = one_sided;
    return comm->living.is_idle = true;
}

/* Waits for pending calls, for ENDING_MS at most: a call that takes longer probably waits for peers. */
static void settle(void)
{
    const int64_t deadline = cecl_deadline(ENDING_MS);
    if (!cecl_lock_until(&lock, deadline))
        return;
    for (ceclComm_t comm = first; comm; comm = comm->living.next)
        while (is_healthy(comm) && !look(comm) && cecl_ms_left(deadline) != 0)
            cecl_pause_us(200);
    pthread_mutex_unlock(&lock);
}

/* Whether all calls are known to be done. On GPUs this is so only if settle() found them done and no call was made
 * since: by now CUDA may have shut down and freed the memory that shows how far calls are. */
static bool is_idle(ceclComm_t comm)
{
    if (comm->dev->ordinal < 0)
        return look(comm);
    if (comm->net)
        return comm->living.is_idle;
    return comm->living.is_idle &&
           comm->living.calls == cecl_flags_done_target(&comm->engine.flags) &&
           comm->living.one_sided == cecl_lines_made(&comm->engine.flags);
}

static void say_goodbye(ceclComm_t comm)
{
    if (!is_healthy(comm) || !is_idle(comm))
        return; /* the peers then take this rank for dead */
    if (comm->net) {
        cecl_lifeline_leave(&comm->net->line);
        return;
    }
    cecl_mesh_say_goodbye(comm->mesh, &comm->living.word);
}

/* Runs after the program's exit handlers and destructors of static objects, which may still make calls. */
__attribute__((destructor)) static void end(void)
{
    if (!cecl_lock_until(&lock, cecl_deadline(ENDING_MS)))
        return;
    for (ceclComm_t comm = first; comm; comm = comm->living.next)
        say_goodbye(comm);
    pthread_mutex_unlock(&lock);
}

/* Exit handlers run in reverse order, and CUDA has registered its own already, so settle() runs before CUDA ends. */
static void begin(void)
{
    (void)!atexit(settle);
}

void cecl_living_add(ceclComm_t comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    CECL_LOCKED(&lock);
    comm->living.next = first;
    first = comm;
}

void cecl_living_remove(ceclComm_t comm)
{
    CECL_LOCKED(&lock);
    ceclComm_t *at = &first;
    while (*at && *at != comm)
        at = &(*at)->living.next;
    if (*at)
        *at = comm->living.next;
}
