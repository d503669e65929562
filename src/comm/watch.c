/* The watchdog of a communicator: one thread that notices at once when a peer ends, checks for calls that take too
 * long, and ends waits once the communicator has failed. It makes no slow driver call: see worker.c and
 * docs/decisions/0020. */
#include "comm/comm.h"
#include "flags/awaited.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define TICK_MIN_MS 5

/* Warns only once, although the watchdog tries to release repeatedly. */
static void complain(ceclComm_t comm)
{
    if (!comm->watch.complained)
        cecl_log(CECL_LOG_WARN, comm->rank, "a failed communicator is not released yet: %s",
                 cecl_message());
    comm->watch.complained = true;
}

static void tell_peers(ceclComm_t comm)
{
    if (comm->watch.told)
        return;
    cecl_mesh_tell_abort(comm->mesh, comm->async_message);
    cecl_mesh_interrupt(comm->mesh); /* pending exchanges fail with the reason told to peers */
    comm->watch.told = true;
}

/* Notifies peers first, because a released stream goes on copying and signalling, and no peer may use what it copies. A
 * peer that has seen a signal of a released stream finds this rank's notice in cecl_comm_hear. */
void cecl_watch_release(ceclComm_t comm)
{
    if (comm->net) /* the thread of src/net does this */
        return;
    struct cecl_flags *flags = &comm->engine.flags;
    struct cecl_watch *watch = &comm->watch;
    CECL_LOCKED(&watch->lock);
    tell_peers(comm);
    const bool pending = !cecl_flags_idle(flags), hosted = pending && flags->on_host;
    /* Flags in memory of the host are released before any driver call, which pending waits may hold up. Such flags
     * cannot be silenced. */
    if (hosted) {
        (void)!cecl_flags_release(flags);
        cecl_awaited_release(flags, 0);
    }
    /* The release of captured calls' words needs no driver either. It happens even if nothing is pending: a graph may
     * be launched at any time. */
    if (atomic_load(&comm->last_captured))
        cecl_replays_release(comm);
    if (pending && !watch->silenced)
        watch->silenced = cecl_flags_silence(flags) == ceclSuccess;
    if (!watch->kernels_ended) /* lets work go on that is queued behind waiting kernels */
        watch->kernels_ended = cecl_pads_end(flags) == ceclSuccess;
    const bool is_quiet = watch->kernels_ended && (watch->silenced || !pending);
    if (!is_quiet)
        complain(comm);
    else if (pending && !hosted) /* only once released work cannot signal to peers */
        (void)!cecl_flags_release(flags);
    if (pending)
        cecl_awaited_release(flags, 0);
}

/* The time between two looks: an eighth of the time limit, but at least TICK_MIN_MS and at most CECL_WATCH_TICK_MS. */
static int tick_ms(ceclComm_t comm)
{
    const int tick = comm->config.timeout_ms > 0 ? comm->config.timeout_ms / 8 : CECL_WATCH_TICK_MS;
    return tick > CECL_WATCH_TICK_MS ? CECL_WATCH_TICK_MS : tick < TICK_MIN_MS ? TICK_MIN_MS : tick;
}

static void *watch(void *argument)
{
    ceclComm_t comm = argument;
    int64_t looked = cecl_now_ms(), skipped = 0, still = 0;
    cecl_thread_name("cecl-watchdog");
    while (!atomic_load(&comm->watch.stop)) {
        if (atomic_load(&comm->async_result) == ceclSuccess) {
            const ceclResult_t heard = cecl_mesh_watch(comm->mesh, tick_ms(comm));
            const int64_t now = cecl_now_ms();
            /* time in which this process stood still and heard no peer counts for no time limit */
            skipped = skipped == 0 && now - looked > CECL_WATCH_LATE_MS ? now - looked : 0;
            still += skipped; /* never skips twice in a row, so each wait reaches its limit */
            looked = now;
            if (heard != ceclSuccess)
                cecl_comm_lost_peer(comm, ceclRemoteError);
            else
                cecl_look(comm, now - still);
            cecl_comm_compare_calls(comm);
            continue;
        }
        cecl_watch_release(comm);
        cecl_pause_us(CECL_WATCH_RELEASE_MS * 1000);
    }
    return NULL;
}

ceclResult_t cecl_watch_start(ceclComm_t comm)
{
    const int error = cecl_thread_start(&comm->watch.thread, watch, comm);
    if (error)
        return cecl_fail(ceclSystemError, "pthread_create for the watchdog: error %d", error);
    comm->watch.running = true;
    return ceclSuccess;
}

void cecl_watch_stop(ceclComm_t comm)
{
    if (!comm->watch.running)
        return;
    atomic_store(&comm->watch.stop, true);
    cecl_mesh_wake(comm->mesh);
    pthread_join(comm->watch.thread, NULL);
    comm->watch.running = false;
}

/* Names the ranks that the watchdog's last look has found. */
static ceclResult_t name_who_is_late(ceclComm_t comm, int64_t waited_ms)
{
    struct cecl_rank_set late = {{0}};
    struct cecl_rank_list named;
    if (!comm->net)
        late = cecl_waits_of(&comm->waits, comm->rank, cecl_now_ms() - CECL_WATCH_LATE_MS);
    const char *who =
        cecl_rank_set_count(&late) > 0 ? cecl_comm_to_blame(comm, late, &named) : NULL;
    return cecl_fail(ceclTimeout, "%s is still pending after %lld ms%s%s", cecl_comm_pending(comm),
                     (long long)waited_ms, who ? ": it waits for " : "", who ? who : "");
}

ceclResult_t cecl_watch_drain(ceclComm_t comm, int64_t deadline)
{
    long pause_us = 20;
    const int64_t start = cecl_now_ms();
    while (!cecl_comm_is_done(comm)) {
        /* After an error the watchdog ends the waits of pending calls. A caller without a deadline gets the error at
         * once; ceclCommDestroy, which has one, waits for these calls. */
        if (deadline == CECL_NO_DEADLINE)
            CECL_TRY(cecl_comm_async(comm));
        if (cecl_ms_left(deadline) == 0)
            return name_who_is_late(comm, cecl_now_ms() - start);
        cecl_pause_us(pause_us);
        pause_us = pause_us < 1000 ? 2 * pause_us : pause_us;
    }
    /* A peer that gave up may have ended waits of these calls. It notified this rank first, so the error is here. */
    return cecl_comm_hear(comm);
}
