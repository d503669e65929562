/* See living.h. */
#include "comm/living.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "util/clock.h"
#include "util/fork.h"

/* How long the end of the process is held up at most, while calls that are pending end. */
#define ENDING_MS 200

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ceclComm_t first;

/* A communicator of the parent of a forked child belongs to the parent. */
static bool is_healthy(ceclComm_t comm)
{
    return comm->generation == cecl_fork_generation() &&
           atomic_load(&comm->async_result) == ceclSuccess;
}

static void pause_shortly(void)
{
    const struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
}

/* A call that does not end in time needs peers. They hear that this rank ended unexpectedly. */
static void say_goodbye(ceclComm_t comm, int64_t deadline)
{
    while (is_healthy(comm) && !cecl_flags_idle(&comm->engine.flags) && cecl_ms_left(deadline) != 0)
        pause_shortly();
    if (!is_healthy(comm) || !cecl_comm_owes_nothing(comm))
        return;
    cecl_mesh_last_word(comm->mesh, comm->engine.flags.epoch[CECL_LANE_MAIN]);
    cecl_mesh_say_goodbye(comm->mesh);
}

/* In a forked child a thread of the parent may have held the lock, and never gives it back. */
static bool take_lock(int64_t deadline)
{
    while (pthread_mutex_trylock(&lock) != 0) {
        if (cecl_ms_left(deadline) == 0)
            return false;
        pause_shortly();
    }
    return true;
}

static void end(void)
{
    const int64_t deadline = cecl_deadline(ENDING_MS);
    if (!take_lock(deadline))
        return;
    for (ceclComm_t comm = first; comm; comm = comm->living.next)
        say_goodbye(comm, deadline);
    pthread_mutex_unlock(&lock);
}

/* CUDA was used before, so its own handlers run later. */
static void begin(void)
{
    (void)!atexit(end);
}

void cecl_living_add(ceclComm_t comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
    comm->living.next = first;
    comm->living.at = &first;
    if (first)
        first->living.at = &comm->living.next;
    first = comm;
    pthread_mutex_unlock(&lock);
}

void cecl_living_remove(ceclComm_t comm)
{
    pthread_mutex_lock(&lock);
    if (comm->living.at) {
        *comm->living.at = comm->living.next;
        if (comm->living.next)
            comm->living.next->living.at = comm->living.at;
        comm->living.at = NULL;
    }
    pthread_mutex_unlock(&lock);
}
