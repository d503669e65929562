/* Graphs that hold captured calls; see replays.h. */
#include "comm/replays.h"

#include <stdlib.h>
#include <time.h>

#include "flags/handed.h"
#include "flags/pads.h"
#include "flags/turns.h"
#include "util/clock.h"
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

/* The name of a captured call, also of a peer: the call with this number has the same name here. */
static const char *name_of(ceclComm_t comm, uint32_t number)
{
    const uint32_t ago = atomic_load(&comm->engine.flags.numbered) - number;
    return ago < CECL_NUMBERED_NAMES ? atomic_load(&comm->names[number % CECL_NUMBERED_NAMES])
                                     : "an earlier one";
}

/* Whether a peer has launched another graph. */
static bool has_found_difference(ceclComm_t comm)
{
    struct cecl_turns_difference found;
    if (!cecl_turns_differ(&comm->engine.flags, &found))
        return false;
    cecl_fail(
        ceclInvalidUsage,
        "rank %d launched a graph whose call is %s (captured call %u), and rank %d one whose call "
        "is %s (captured call %u): launch graphs in the same order on all ranks",
        found.rank, name_of(comm, found.theirs), found.theirs, comm->rank,
        name_of(comm, found.mine), found.mine);
    cecl_comm_set_async(comm, ceclInvalidUsage, cecl_message());
    return true;
}

/* Whether captured calls have gone on since the words of `sum` and `late` were read. A rank that leaves writes its
 * last word first. */
static bool has_gone_on(ceclComm_t comm, uint32_t sum)
{
    return cecl_turns_sum(&comm->engine.flags) != sum;
}

static void lose_a_leaver(ceclComm_t comm, const struct cecl_rank_list *late, uint32_t sum)
{
    struct cecl_mesh_goodbye last;
    for (int i = 0; i < late->count && i < CECL_RANKS_NAMED; i++)
        if (cecl_mesh_left_with(comm->mesh, late->ranks[i], &last) && !has_gone_on(comm, sum)) {
            cecl_fail(ceclRemoteError,
                      CECL_COMM_HAS_LEFT("a graph that rank %d launched waits for it"),
                      late->ranks[i], comm->rank);
            cecl_comm_set_async(comm, ceclRemoteError, cecl_message());
            return;
        }
}

static void time_out(ceclComm_t comm, struct cecl_rank_list *late, int64_t waited_ms)
{
    if (cecl_comm_knows_why(comm))
        return;
    cecl_fail(ceclTimeout,
              "a graph that was launched has waited for %s for %lld ms (CECL_TIMEOUT_MS=%d); last "
              "captured call: %s; did every rank launch the graph, in the same order among its "
              "calls, and did its stream reach it?",
              cecl_comm_to_blame(comm, late), (long long)waited_ms, comm->config.timeout_ms,
              last_captured(comm));
    cecl_comm_set_async(comm, ceclTimeout, cecl_message());
}

/* Whether a graph may wait for peers. At the wait with which a call begins, no word of this rank shows that it waits: only
 * the driver knows whether a graph was launched. The worker asks it, and only while a peer has not ended a call that has
 * ended here. is_certain: [out] false if the driver does not answer. */
static bool may_wait(ceclComm_t comm, bool *is_certain)
{
    bool pending = true;
    *is_certain = cecl_turns_run(&comm->engine.flags) ||
                  cecl_worker_ask_graphs(comm, &pending) == ceclSuccess;
    return pending;
}

void cecl_replays_look(ceclComm_t comm, int64_t now)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    struct cecl_rank_list late = {0};
    bool is_certain;
    if (!atomic_load(&comm->last_captured))
        return;
    if (cecl_turns_go_on(flags) || !may_wait(comm, &is_certain)) {
        comm->watch.turned = now;
        return;
    }
    const uint32_t sum = cecl_turns_sum(flags);
    if (sum != comm->watch.turns) {
        comm->watch.turns = sum;
        comm->watch.turned = now;
        return;
    }
    if (has_found_difference(comm))
        return;
    const int64_t waited_ms = now - comm->watch.turned;
    cecl_turns_late(flags, &late);
    if (late.count == 0)
        return;
    cecl_waits_add(&comm->waits, &late, cecl_now_ms());
    if (is_certain)
        lose_a_leaver(comm, &late, sum);
    if (cecl_comm_time_is_up(comm, &late, waited_ms))
        time_out(comm, &late, waited_ms);
}

void cecl_replays_release(ceclComm_t comm)
{
    cecl_turns_release(&comm->engine.flags);
    cecl_handed_release(&comm->engine.flags);
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
    if ((cecl_turns_run(flags) || cecl_handed_waits(flags)) && !orphan->is_named) {
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
