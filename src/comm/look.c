/* One look of the watchdog. Three functions, find_..., find for each kind of wait which ranks are late and since when.
 * Code for all kinds then publishes the late ranks, and fails the communicator if a wait takes too long, or is for a
 * rank that has left. */
#include "comm/comm.h"

#include <stdio.h>

#include "flags/awaited.h"
#include "util/clock.h"

enum kind {
    COLLECTIVES,
    MESSAGES,
    SIGNALS,
    CAPTURED_MESSAGES,
    CAPTURED_CALLS, /* captured collectives */
    KINDS
};

/* What a look has found of the waits of one kind. */
struct found {
    struct cecl_rank_set late; /* the peers for which streams wait */
    int64_t since;             /* when the longest of these waits began */
    int gone;                  /* a rank that has left, for which a stream waits; -1: none */
    bool is_blind;             /* the driver does not tell for which peers the stream waits */
    /* -- the rest: for messages and signals, whose words are in the table of awaited.h -- */
    int count;        /* how many words streams wait for */
    int row, peer;    /* the word for which a stream has waited longest */
    uint32_t missing; /* how far that word is below the awaited value */
};

/* ---- collectives */

/* Returns a rank that has left before it made a call that is pending here, or -1. A call adds the same number to the
 * main lane's epoch on all ranks, so epochs tell whether a rank has made the call. */
static int missing_for_good(ceclComm_t comm)
{
    const uint32_t target = atomic_load(&comm->engine.flags.target[CECL_LANE_MAIN]);
    uint32_t last;
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && cecl_mesh_left_with(comm->mesh, r, &last) &&
            (int32_t)(target - last) > 0)
            return r;
    return -1;
}

/* Time counts only from the call's first signal, not while the stream is busy with the caller's earlier work. If flags
 * lie in memory of the device, only the driver can read the signals. If the driver does not answer, for example because
 * freeing memory waits for the call, all time counts, and a timeout names no rank. The mesh reports ends of peers
 * without the driver. */
static void find_collectives(ceclComm_t comm, int64_t now, struct found *found)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    struct cecl_clock *clock = &comm->watch.flags;
    struct cecl_progress progress;
    if (cecl_flags_calls_idle(flags)) {
        clock->since = comm->watch.blind.since = 0;
        return;
    }
    found->gone = missing_for_good(comm);
    if (found->gone >= 0)
        return;
    const uint64_t done = cecl_flags_done(flags);
    const ceclResult_t asked =
        flags->on_host ? cecl_flags_progress(flags, &progress) : cecl_worker_ask(comm, &progress);
    if (asked == ceclInProgress) {
        found->is_blind = true;
        found->since = cecl_clock_since(&comm->watch.blind, done, now);
        return;
    }
    comm->watch.blind.since = 0;
    if (asked != ceclSuccess)
        (void)!cecl_comm_break(comm, ceclUnhandledCudaError);
    else if (!progress.started || cecl_rank_set_count(&progress.late) == 0)
        clock->since = 0;
    else {
        found->late = progress.late;
        found->since = cecl_clock_since(clock,
                                        done << 32 | progress.flags[CECL_LANE_MAIN] |
                                            progress.flags[CECL_LANE_SIDE] >> 16,
                                        now);
    }
}

/* ---- words in the table */

static enum kind kind_of(int row)
{
    return row < CECL_ROW_SIGNAL ? MESSAGES : row < CECL_ROW_HANDED ? SIGNALS : CAPTURED_MESSAGES;
}

/* After its wait for a captured message, a stream resets the word and then writes that the wait has ended. Between
 * these two writes the wait seems to last. So a captured message's wait for a rank that has left counts only if it has
 * lasted this many ms. */
#define GONE_MS 200

static void find_word(ceclComm_t comm, int row, int peer, bool has_left, int64_t now,
                      struct found *found)
{
    struct cecl_flags *flags = &comm->engine.flags;
    const uint32_t index = cecl_awaited_at(flags, row, peer);
    int64_t began = now;
    const uint32_t missing = cecl_awaited_look(flags, index, now, has_left, &began);
    if (has_left && cecl_awaited_missing(flags, index) > 0 &&
        (row < CECL_ROW_HANDED || now - began >= GONE_MS))
        found->gone = peer;
    if (missing == 0)
        return;
    cecl_rank_set_add(&found->late, peer);
    if (found->count++ > 0 && began >= found->since)
        return;
    found->since = began;
    found->row = row;
    found->peer = peer;
    found->missing = missing;
}

/* A rank's signals arrive before its goodbye. So this function first asks whether a rank has left, and then reads the
 * rank's words. */
static void find_words(ceclComm_t comm, int64_t now, struct found *found)
{
    const int rows = cecl_awaited_rows(&comm->engine.flags);
    cecl_awaited_find_messages(&comm->engine.flags);
    for (int peer = 0; peer < comm->nranks && rows > 0; peer++) {
        const bool has_left = peer != comm->rank && cecl_mesh_left(comm->mesh, peer);
        for (int row = 0; row < rows; row++)
            find_word(comm, row, peer, has_left, now, &found[kind_of(row)]);
    }
}

/* ---- captured collectives */

/* Returns true, and fails the communicator, if a peer has launched another graph. A failed peer's streams may also
 * have gone on to other calls; cecl_comm_knows_why finds that peer's report, which came before. */
static bool has_found_difference(ceclComm_t comm)
{
    struct cecl_turns_difference found;
    if (!cecl_turns_differ(&comm->engine.flags, &found) || cecl_comm_knows_why(comm))
        return false;
    (void)!cecl_comm_break(
        comm, cecl_fail(ceclInvalidUsage,
                        "rank %d launched a graph whose call is %s (captured call %u), and rank %d "
                        "one whose call is %s (captured call %u): launch graphs in the same order "
                        "on all ranks",
                        found.rank, cecl_replays_name(comm, found.theirs), found.theirs, comm->rank,
                        cecl_replays_name(comm, found.mine), found.mine));
    return true;
}

/* Whether a graph may wait for peers: within a captured call, or at the start of one. No word of this rank shows the
 * wait at the start, so the worker asks the driver whether a launched graph is pending. is_certain: [out] false if the
 * driver does not answer. */
static bool may_wait(ceclComm_t comm, bool *is_certain)
{
    struct cecl_progress progress = {.graphs = true};
    *is_certain =
        cecl_turns_run(&comm->engine.flags) || cecl_worker_ask(comm, &progress) != ceclInProgress;
    return progress.graphs;
}

/* Returns a late rank that has left, or -1. A rank writes its words before it leaves. So if words have changed since
 * `sum` was calculated, `late` is outdated, and the result is -1. */
static int gone_from(ceclComm_t comm, const struct cecl_rank_set *late, uint32_t sum)
{
    for (int r = 0; r < comm->nranks; r++)
        if (cecl_rank_set_has(late, r) && cecl_mesh_left(comm->mesh, r) &&
            cecl_turns_sum(&comm->engine.flags) == sum)
            return r;
    return -1;
}

static void find_captured_calls(ceclComm_t comm, int64_t now, struct found *found)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    bool is_certain;
    if (!atomic_load(&comm->last_captured))
        return;
    if (cecl_turns_go_on(flags) || !may_wait(comm, &is_certain)) {
        comm->watch.turns.since = now;
        return;
    }
    const uint32_t sum = cecl_turns_sum(flags);
    found->since = cecl_clock_since(&comm->watch.turns, sum, now);
    if (has_found_difference(comm))
        return;
    cecl_turns_late(flags, &found->late);
    if (is_certain)
        found->gone = gone_from(comm, &found->late, sum);
}

/* ---- judging */

static const char *const names[KINDS] = {[COLLECTIVES] = "a call",
                                         [MESSAGES] = "a call",
                                         [SIGNALS] = "ceclWaitSignal",
                                         [CAPTURED_MESSAGES] = "a graph that was launched",
                                         [CAPTURED_CALLS] = "a graph that was launched"};

/* Describes the pending messages: a single one with its peer; of several only the last call, which ends last. */
static void say_message(ceclComm_t comm, const struct found *found, char *out, size_t bytes)
{
    const bool sends = (found->row - CECL_ROW_READY) % CECL_ROLES == CECL_RECEIVER;
    const int rank = comm->rank;
    char peer[24] = "";
    if (cecl_rank_set_count(&found->late) == 1)
        snprintf(peer, sizeof(peer), " %s rank %d", sends ? "to" : "from", found->peer);
    if (found->count > 1)
        snprintf(out, bytes,
                 "; pending on rank %d: %s; did the peer make its part of each message?", rank,
                 cecl_comm_last_call(comm));
    else
        snprintf(out, bytes,
                 "; pending on rank %d: %s%s; did the peer make its part? Ranks that send to each "
                 "other put ceclSend and ceclRecv into one group (ceclGroupStart, ceclGroupEnd)",
                 rank, cecl_ops[sends ? CECL_OP_SEND : CECL_OP_RECV].name, peer);
}

/* The end of the error text about a wait: what is missing. */
static void say(ceclComm_t comm, enum kind kind, const struct found *found, char *out, size_t bytes)
{
    const int rank = comm->rank;
    switch (kind) {
    case COLLECTIVES:
        snprintf(out, bytes, "; pending on rank %d: %s; %s", rank, cecl_comm_last_call(comm),
                 found->is_blind ? "the GPU's driver does not answer: does a thread free memory "
                                   "(cudaFree), which waits for all pending work?"
                                 : "did every rank make the call, and did its stream reach it?");
        break;
    case MESSAGES: say_message(comm, found, out, bytes); break;
    case SIGNALS:
        snprintf(out, bytes,
                 ": %u more of signal %d awaited; did the peer make its ceclSignal or "
                 "ceclPutSignal, and did its stream reach the call?",
                 found->missing, found->row - CECL_ROW_SIGNAL);
        break;
    case CAPTURED_MESSAGES:
        snprintf(out, bytes,
                 ": %s; did the peer launch a graph with its part, as often as rank %d?",
                 found->row >= CECL_ROW_TAKEN ? "its captured ceclRecv has not begun"
                                              : "its captured ceclSend has not moved the bytes",
                 rank);
        break;
    case CAPTURED_CALLS:
    case KINDS:
        snprintf(out, bytes,
                 "; last captured call: %s; did every rank launch the graph, in the same order "
                 "among its calls, and did its stream reach it?",
                 atomic_load(&comm->last_captured));
        break;
    }
}

/* Whether a wait for the ranks in found->late has reached its time limit. If several ranks are late, one of them may
 * itself wait for a rank that is not late here. That late rank soon reaches its own limit and names the rank at fault,
 * so this rank waits CECL_MESH_WORD_MS longer. */
static bool is_time_up(ceclComm_t comm, const struct found *found, int64_t waited_ms)
{
    const int limit = comm->config.timeout_ms, late = cecl_rank_set_count(&found->late);
    return limit > 0 && (late > 0 || found->is_blind) &&
           waited_ms >= limit + (late > 1 ? CECL_MESH_WORD_MS : 0);
}

static void judge(ceclComm_t comm, enum kind kind, struct found *found, int64_t now)
{
    const int64_t waited_ms = now - found->since;
    char detail[320];
    struct cecl_rank_list named;
    if (found->gone >= 0) {
        cecl_fail(ceclRemoteError, CECL_COMM_HAS_LEFT("%s waits for it"), found->gone, names[kind]);
        cecl_comm_lost_peer(comm, ceclRemoteError);
    }
    if (found->gone >= 0 || !is_time_up(comm, found, waited_ms) || cecl_comm_knows_why(comm))
        return;
    const char *who =
        found->is_blind ? "unknown ranks" : cecl_comm_to_blame(comm, found->late, &named);
    say(comm, kind, found, detail, sizeof(detail));
    (void)!cecl_comm_break(
        comm, cecl_fail(ceclTimeout, "%s has waited for %s for %lld ms (CECL_TIMEOUT_MS=%d)%s",
                        names[kind], who, (long long)waited_ms, comm->config.timeout_ms, detail));
}

void cecl_look(ceclComm_t comm, int64_t now)
{
    struct found found[KINDS];
    struct cecl_rank_set late = {{0}};
    if (cecl_comm_hear_kernels(comm) != ceclSuccess)
        return;
    for (int kind = 0; kind < KINDS; kind++)
        found[kind] = (struct found){.gone = -1};
    find_collectives(comm, now, &found[COLLECTIVES]);
    find_words(comm, now, found);
    find_captured_calls(comm, now, &found[CAPTURED_CALLS]);
    for (int kind = 0; kind < KINDS; kind++)
        cecl_rank_set_join(&late, &found[kind].late);
    cecl_waits_tell(&comm->waits, &late, cecl_now_ms());
    for (enum kind kind = 0; kind < KINDS && atomic_load(&comm->async_result) == ceclSuccess;
         kind++)
        judge(comm, kind, &found[kind], now);
}
