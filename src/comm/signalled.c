/* See signalled.h. */
#include "comm/signalled.h"

#include "flags/handed.h"
#include "flags/signals.h"
#include "util/clock.h"

/* A rank's signals arrive before its goodbye, so no signal is on its way once the rank has left. */
static bool has_lost_a_leaver(ceclComm_t comm)
{
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && cecl_mesh_left(comm->mesh, r) &&
            cecl_signal_is_late(&comm->engine.flags, r)) {
            cecl_fail(ceclRemoteError, CECL_COMM_HAS_LEFT("ceclWaitSignal waits for its signal"),
                      r);
            cecl_comm_set_async(comm, ceclRemoteError, cecl_message());
            return true;
        }
    return false;
}

static void time_out(ceclComm_t comm, const struct cecl_signal_wait *wait,
                     struct cecl_rank_list *late, int64_t waited_ms)
{
    if (cecl_comm_knows_why(comm))
        return;
    const char *who = cecl_comm_to_blame(comm, late);
    cecl_fail(
        ceclTimeout,
        "ceclWaitSignal has waited for %s for %lld ms (CECL_TIMEOUT_MS=%d): %u more of "
        "signal %d awaited; did the peer make its ceclSignal or ceclPutSignal, and did its stream "
        "reach the call?",
        who, (long long)waited_ms, comm->config.timeout_ms, wait->missing, wait->number);
    cecl_comm_set_async(comm, ceclTimeout, cecl_message());
}

static void time_out_graph(ceclComm_t comm, const struct cecl_handed_wait *wait,
                           struct cecl_rank_list *late, int64_t waited_ms)
{
    if (cecl_comm_knows_why(comm))
        return;
    cecl_fail(ceclTimeout,
              "a graph that was launched has waited for %s for %lld ms (CECL_TIMEOUT_MS=%d): %s; "
              "did the peer launch a graph with its part, as often as rank %d?",
              cecl_comm_to_blame(comm, late), (long long)waited_ms, comm->config.timeout_ms,
              wait->sends ? "its captured ceclRecv has not begun"
                          : "its captured ceclSend has not moved the bytes",
              comm->rank);
    cecl_comm_set_async(comm, ceclTimeout, cecl_message());
}

/* Looks at the waits of graphs. *first: the wait that has lasted longest. Adds the peers of all waits to
 * `late`. Returns a peer for which a graph waits although it has left, or -1. What a rank signals arrives before
 * its goodbye, so this function asks whether a peer has left before it looks for the peer's words. */
static int look_at_peers(ceclComm_t comm, int64_t now_ms, struct cecl_handed_wait *first,
                         struct cecl_rank_list *late)
{
    int gone = -1;
    *first = (struct cecl_handed_wait){.peer = -1};
    for (int peer = 0; peer < comm->nranks; peer++) {
        const bool has_left = peer != comm->rank && cecl_mesh_left(comm->mesh, peer);
        if (!cecl_handed_look(&comm->engine.flags, peer, now_ms, first))
            continue;
        cecl_rank_list_add(late, peer);
        gone = has_left ? peer : gone;
    }
    return gone;
}

/* A stream resets a word, and then says that its wait has ended. In between the wait seems to last. If it
 * still lasts after this many ms, the word of a rank that has left will not be set. */
#define GONE_MS 200

static bool waits_in_vain(ceclComm_t comm, int gone, int64_t now_ms)
{
    int64_t *since = &comm->watch.vain_since;
    if (gone < 0 || *since == 0)
        *since = gone < 0 ? 0 : now_ms;
    return gone >= 0 && now_ms - *since >= GONE_MS;
}

/* Waits of captured messages. */
static void look_at_graphs(ceclComm_t comm, int64_t now_ms)
{
    struct cecl_handed_wait first;
    struct cecl_rank_list late = {0};
    const int gone = look_at_peers(comm, now_ms, &first, &late);
    const bool is_in_vain = waits_in_vain(comm, gone, now_ms);
    if (first.peer < 0)
        return;
    cecl_waits_add(&comm->waits, &late, cecl_now_ms());
    if (is_in_vain) {
        cecl_fail(ceclRemoteError, CECL_COMM_HAS_LEFT("a graph that rank %d launched waits for it"),
                  gone, comm->rank);
        cecl_comm_set_async(comm, ceclRemoteError, cecl_message());
    } else if (cecl_comm_time_is_up(comm, &late, now_ms - first.since)) {
        time_out_graph(comm, &first, &late, now_ms - first.since);
    }
}

void cecl_signalled_look(ceclComm_t comm, int64_t now_ms)
{
    struct cecl_signal_wait first;
    struct cecl_rank_list late = {0};
    if (has_lost_a_leaver(comm))
        return;
    look_at_graphs(comm, now_ms);
    cecl_signals_look(&comm->engine.flags, now_ms, &first, &late);
    if (first.peer < 0)
        return;
    cecl_waits_add(&comm->waits, &late, cecl_now_ms());
    if (cecl_comm_time_is_up(comm, &late, now_ms - first.since))
        time_out(comm, &first, &late, now_ms - first.since);
}
