/* The watchdog of a communicator: one thread that notices at once when a peer ends, checks for calls that
 * take too long, and ends waits once the communicator has failed. It touches nothing of a call in
 * progress except flags and their counters. It makes no slow driver call: see worker.c and decision
 * 20. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "comm/replays.h"
#include "comm/signalled.h"
#include "flags/pads.h"
#include "flags/pairs.h"
#include "flags/signals.h"
#include "flags/turns.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define TICK_MIN_MS 5
#define RELEASE_TICK_MS 5

/* The state of the pending call when it last made progress. */
struct watched {
    uint32_t done, flags[CECL_LANES], messages;
    int64_t since;       /* since when the started call has made no progress, ms */
    bool started, blind; /* blind: the driver does not answer */
    int64_t blind_since; /* since when the driver does not answer, ms */
};

static bool is_hosted(ceclComm_t comm)
{
    return comm->engine.flags.on_host;
}

/* Asks for the progress of the pending call. The words of messages, and in some communicators the flags, lie
 * in memory of the host; these words are read without the driver. */
static ceclResult_t ask_progress(ceclComm_t comm, struct cecl_progress *progress)
{
    const ceclResult_t result = is_hosted(comm) ? cecl_flags_progress(&comm->engine.flags, progress)
                                                : cecl_worker_ask(comm, progress);
    if (result == ceclSuccess)
        cecl_pair_progress(&comm->engine.flags, progress);
    return result;
}

/* Returns a rank that has left without making its part of a call that is pending here, or -1. A call adds the same
 * number to the epoch of the main lane on all ranks, so epochs tell whether a rank has made the call. A rank's signals
 * of messages arrive before its goodbye. */
static int missing_for_good(ceclComm_t comm)
{
    const uint32_t target = atomic_load(&comm->engine.flags.target[CECL_LANE_MAIN]);
    struct cecl_mesh_goodbye last;
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && cecl_mesh_left_with(comm->mesh, r, &last) &&
            ((int32_t)(target - last.epoch) > 0 || cecl_pair_is_late(&comm->engine.flags, r)))
            return r;
    return -1;
}

static bool has_lost_a_leaver(ceclComm_t comm)
{
    const int gone = missing_for_good(comm);
    if (gone >= 0)
        cecl_comm_lost_leaver(comm, gone);
    return gone >= 0;
}

#define PENDING_BYTES 64

/* Names the call that waits for a peer. If that call is not known, names the call that was enqueued last,
 * because that call ends last. Names a message's peer only if no other rank is late. */
static const char *what_is_pending(ceclComm_t comm, const struct cecl_progress *progress,
                                   char out[PENDING_BYTES])
{
    const struct cecl_rank_list *late = &progress->late;
    if (!progress->in_message || progress->message_peer < 0)
        return cecl_comm_last_call(comm);
    const int length =
        snprintf(out, PENDING_BYTES, "%s",
                 cecl_ops[progress->message_sends ? CECL_OP_SEND : CECL_OP_RECV].name);
    if (late->count == 1 && late->ranks[0] == progress->message_peer)
        snprintf(out + length, (size_t)(PENDING_BYTES - length), " %s rank %d",
                 progress->message_sends ? "to" : "from", progress->message_peer);
    return out;
}

/* Says what may be wrong. Calls that differ are found before the time limit, so here a call is missing. */
static const char *what_to_look_for(ceclComm_t comm, const struct cecl_progress *progress)
{
    if (!progress->in_message)
        return "did every rank make the call, and did its stream reach it?";
    if (progress->message_peer < 0)
        return "did the peer make its part of each message?";
    return cecl_pair_is_mutual(&comm->engine.flags, &comm->watch.posts, progress)
               ? "did the peer make its part? Ranks that send to each other put ceclSend and "
                 "ceclRecv into one group (ceclGroupStart, ceclGroupEnd)"
               : "did the peer make its part?";
}

static void time_out(ceclComm_t comm, struct cecl_progress *progress, int64_t waited_ms)
{
    if (cecl_comm_knows_why(comm))
        return;
    char pending[PENDING_BYTES];
    const char *who = cecl_comm_to_blame(comm, &progress->late);
    cecl_fail(ceclTimeout,
              "a call has waited for %s for %lld ms (CECL_TIMEOUT_MS=%d); pending on rank %d: %s; "
              "%s",
              who, (long long)waited_ms, comm->config.timeout_ms, comm->rank,
              what_is_pending(comm, progress, pending), what_to_look_for(comm, progress));
    cecl_comm_set_async(comm, ceclTimeout, cecl_message());
}

/* Used when the driver does not report the progress of the pending call, for example because freeing
 * memory waits for the call. Checks only the time limit, because the mesh reports ends of peers without
 * the driver. The time of the caller's earlier work on the stream counts, too, because whether that work
 * has ended is not known either. */
static void look_on_blindly(ceclComm_t comm, struct watched *seen, uint32_t done, int64_t now)
{
    if (!seen->blind || done != seen->done) {
        seen->blind = true;
        seen->blind_since = now;
        seen->done = done;
    }
    const int64_t waited_ms = now - seen->blind_since;
    if (comm->config.timeout_ms <= 0 || waited_ms < comm->config.timeout_ms)
        return;
    cecl_fail(ceclTimeout,
              "%s has been pending for more than %lld ms (CECL_TIMEOUT_MS=%d). Which ranks it "
              "waits for is not known, because the GPU's driver does not answer: does a thread "
              "free memory (cudaFree), which waits for all pending work?",
              cecl_comm_last_call(comm), (long long)waited_ms, comm->config.timeout_ms);
    cecl_comm_set_async(comm, ceclTimeout, cecl_message());
}

/* Whether signals were sent or received since the last look. */
static bool has_moved(const struct cecl_progress *progress, const struct watched *seen)
{
    return memcmp(progress->flags, seen->flags, sizeof(seen->flags)) != 0 ||
           progress->messages != seen->messages;
}

/* Checks a pending call: which peer keeps it waiting, and for how long. Sets the asynchronous error
 * when that is too long, or when the missing peer has left. */
static void look_after(ceclComm_t comm, struct watched *seen, int64_t now)
{
    struct cecl_progress progress;
    const uint32_t done = cecl_flags_done(&comm->engine.flags);
    if (cecl_comm_hear_kernels(comm) != ceclSuccess)
        return;
    if (cecl_flags_calls_idle(&comm->engine.flags)) {
        *seen = (struct watched){.since = now};
        return;
    }
    if (has_lost_a_leaver(comm))
        return;
    const ceclResult_t asked = ask_progress(comm, &progress);
    if (asked == ceclInProgress) {
        look_on_blindly(comm, seen, done, now);
        return;
    }
    seen->blind = false;
    if (asked != ceclSuccess) {
        cecl_comm_set_async(comm, ceclUnhandledCudaError, cecl_message());
        return;
    }
    if (progress.started)
        cecl_waits_add(&comm->waits, &progress.late, cecl_now_ms());
    /* The time of the caller's earlier work on the stream does not count, however long it takes. */
    if (!progress.started || !seen->started || done != seen->done || has_moved(&progress, seen) ||
        progress.late.count == 0) {
        *seen = (struct watched){
            .done = done, .messages = progress.messages, .since = now, .started = progress.started};
        memcpy(seen->flags, progress.flags, sizeof(seen->flags));
        if (!progress.started || progress.late.count == 0)
            return;
    }
    if (cecl_comm_time_is_up(comm, &progress.late, now - seen->since))
        time_out(comm, &progress, now - seen->since);
}

/* Warns once: the watchdog tries again and again. */
static void complain(ceclComm_t comm)
{
    if (!comm->watch.complained)
        cecl_log(CECL_LOG_WARN, comm->rank, "a failed communicator is not released yet: %s",
                 cecl_message());
    comm->watch.complained = true;
}

/* Ends the waits for words in memory of the host, except for rows of epochs. */
static void release_words(ceclComm_t comm)
{
    cecl_pair_release(&comm->engine.flags);
    cecl_signals_release(&comm->engine.flags);
}

static void tell_peers(ceclComm_t comm)
{
    if (comm->watch.told)
        return;
    cecl_mesh_interrupt(comm->mesh);
    cecl_mesh_tell_abort(comm->mesh, comm->async_message);
    comm->watch.told = true;
}

/* Peers are notified first, because a released stream goes on copying and signalling, and no peer may use
 * data that is copied then. A peer that sees a signal of a released stream finds this rank's notice in
 * cecl_comm_hear. */
void cecl_watch_release(ceclComm_t comm)
{
    if (comm->net) /* its own thread does */
        return;
    pthread_mutex_lock(&comm->watch.lock);
    tell_peers(comm);
    const bool pending = !cecl_flags_idle(&comm->engine.flags);
    /* Flags in memory of the host are released first: pending waits may hold up the driver, but these flags
     * need no driver. They cannot be silenced. */
    if (pending && is_hosted(comm)) {
        (void)!cecl_flags_release(&comm->engine.flags);
        release_words(comm);
    }
    /* The same holds for words of captured calls. A graph may be launched at any time. */
    if (atomic_load(&comm->last_captured))
        cecl_replays_release(comm);
    if (pending && !comm->watch.silenced)
        comm->watch.silenced = cecl_flags_silence(&comm->engine.flags) == ceclSuccess;
    if (pending && !comm->watch.silenced)
        complain(comm);
    if (!comm->watch.kernels_ended) /* work enqueued behind waiting kernels then goes on */
        comm->watch.kernels_ended = cecl_pads_end(&comm->engine.flags) == ceclSuccess;
    if (!comm->watch.kernels_ended)
        complain(comm);
    /* released work must signal nothing to peers */
    if (pending && !is_hosted(comm) && comm->watch.silenced && comm->watch.kernels_ended)
        (void)!cecl_flags_release(&comm->engine.flags);
    if (pending)
        release_words(comm);
    pthread_mutex_unlock(&comm->watch.lock);
}

/* The watchdog looks eight times in a time limit. */
static int tick_ms(ceclComm_t comm)
{
    const int tick = comm->config.timeout_ms > 0 ? comm->config.timeout_ms / 8 : CECL_WATCH_TICK_MS;
    return tick > CECL_WATCH_TICK_MS ? CECL_WATCH_TICK_MS : tick < TICK_MIN_MS ? TICK_MIN_MS : tick;
}

static void *watch(void *argument)
{
    ceclComm_t comm = argument;
    int64_t looked = cecl_now_ms(), skipped = 0, still = 0;
    struct watched seen = {.since = looked};
    while (!atomic_load(&comm->watch.stop)) {
        if (atomic_load(&comm->async_result) == ceclSuccess) {
            cecl_waits_begin(&comm->waits);
            const ceclResult_t heard = cecl_mesh_watch(comm->mesh, tick_ms(comm));
            const int64_t now = cecl_now_ms();
            /* for time limits, no time passes while this process stands still and hears nobody */
            skipped = skipped == 0 && now - looked > CECL_WATCH_LATE_MS ? now - looked : 0;
            still += skipped; /* never twice in a row, so that each wait ends */
            looked = now;
            if (heard != ceclSuccess)
                cecl_comm_lost_peer(comm, ceclRemoteError);
            else
                look_after(comm, &seen, now - still);
            cecl_replays_look(comm, now - still);
            cecl_signalled_look(comm, now - still);
            cecl_waits_end(&comm->waits, cecl_now_ms());
            cecl_comm_compare_calls(comm);
            continue;
        }
        cecl_watch_release(comm);
        nanosleep(&(struct timespec){.tv_nsec = RELEASE_TICK_MS * 1000000L}, NULL);
    }
    return NULL;
}

ceclResult_t cecl_watch_start(ceclComm_t comm)
{
    CECL_TRY(cecl_posts_open(&comm->watch.posts, cecl_shared_at(&comm->shared, CECL_SHARED_POSTS),
                             comm->rank, comm->nranks, 0));
    const int error = cecl_thread_start(&comm->watch.thread, "cecl-watchdog", watch, comm);
    if (error)
        return cecl_fail(ceclSystemError, "pthread_create for the watchdog: error %d", error);
    comm->watch.running = true;
    return ceclSuccess;
}

void cecl_watch_stop(ceclComm_t comm)
{
    if (comm->watch.running) {
        atomic_store(&comm->watch.stop, true);
        cecl_mesh_wake(comm->mesh);
        pthread_join(comm->watch.thread, NULL);
        comm->watch.running = false;
    }
    cecl_posts_close(&comm->watch.posts);
}

static ceclResult_t name_who_is_late(ceclComm_t comm, int64_t waited_ms)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    struct cecl_progress progress;
    if (comm->net || ask_progress(comm, &progress) != ceclSuccess || !progress.started ||
        progress.late.count == 0)
        return cecl_fail(ceclTimeout, "%s is still pending after %lld ms",
                         comm->net                      ? cecl_comm_last_call(comm)
                         : cecl_flags_idle(flags)       ? "a graph that was launched"
                         : cecl_flags_calls_idle(flags) ? "a one-sided call"
                                                        : cecl_comm_last_call(comm),
                         (long long)waited_ms);
    char pending[PENDING_BYTES];
    const char *who = cecl_comm_to_blame(comm, &progress.late);
    return cecl_fail(ceclTimeout, "%s is still pending after %lld ms: a call waits for %s",
                     what_is_pending(comm, &progress, pending), (long long)waited_ms, who);
}

ceclResult_t cecl_watch_drain(ceclComm_t comm, int64_t deadline)
{
    struct timespec pause = {.tv_nsec = 20000};
    const int64_t start = cecl_now_ms();
    while (!cecl_comm_is_done(comm)) {
        /* After an error the watchdog ends the waits of pending calls. The caller then waits for
         * these calls, with a deadline of its own. */
        if (deadline == CECL_NO_DEADLINE)
            CECL_TRY(cecl_comm_async(comm));
        if (cecl_ms_left(deadline) == 0)
            return name_who_is_late(comm, cecl_now_ms() - start);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 1000000)
            pause.tv_nsec *= 2;
    }
    /* a peer that gave up may have ended these calls, after it told this rank */
    return cecl_comm_hear(comm);
}
