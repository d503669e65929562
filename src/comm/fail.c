/* How a communicator fails: the asynchronous error, its causes, and the calls that are refused because of it. */
#include <stdio.h>
#include <string.h>

#include "comm/comm.h"
#include "flags/turns.h"
#include "net/net.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/log.h"

ceclResult_t cecl_comm_check_handle(ceclComm_t comm)
{
    if (!comm)
        return cecl_fail(ceclInvalidArgument, "comm: NULL");
    if (comm->magic != CECL_COMM_MAGIC)
        return cecl_fail(ceclInvalidArgument, "comm %p: not a communicator (destroyed before?)",
                         (void *)comm);
    if (comm->process != cecl_fork_process())
        return cecl_fail(ceclInvalidUsage,
                         "comm %p: made before this process was forked; only the process that made "
                         "it can use it",
                         (void *)comm);
    return ceclSuccess;
}

ceclResult_t cecl_comm_check(ceclComm_t comm)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    if (comm->finalized)
        return cecl_fail(ceclInvalidUsage,
                         "comm: finalized; only queries, ceclStreamDestroy and ceclCommDestroy or "
                         "ceclCommAbort may follow");
    return cecl_comm_async(comm);
}

ceclResult_t cecl_comm_check_own(ceclComm_t comm, const char *what, const char *instead)
{
    return !comm->net ? ceclSuccess
                      : cecl_fail(ceclInvalidUsage, "%s over %d hosts: not supported; %s", what,
                                  comm->net->nhosts, instead);
}

ceclResult_t cecl_comm_refuse_second(ceclComm_t comm, const char *name, const char *other)
{
    return cecl_fail(ceclInvalidUsage,
                     "two threads are inside communicator %p (rank %d) at once: %s, while another "
                     "thread is inside %s; make one call at a time on a communicator",
                     (void *)comm, comm->rank, name, other);
}

void cecl_comm_set_async(ceclComm_t comm, ceclResult_t result, const char *message)
{
    CECL_LOCKED(&comm->async_lock);
    if (atomic_load(&comm->async_result) == ceclSuccess) {
        snprintf(comm->async_message, sizeof(comm->async_message), "%s", message);
        atomic_store(&comm->async_result, (int)result);
        cecl_log(CECL_LOG_WARN, comm->rank, "communicator failed: %s", comm->async_message);
        /* the watchdog, or over several hosts the thread cecl-net, notifies the peers and ends waits */
        if (comm->net)
            cecl_net_fail(comm->net, comm->async_message);
        else
            cecl_mesh_wake(comm->mesh);
    }
}

ceclResult_t cecl_comm_async(ceclComm_t comm)
{
    /* The message is written once, before the result, so readers of the message need no lock. */
    ceclResult_t result = (ceclResult_t)atomic_load(&comm->async_result);
    return result == ceclSuccess ? ceclSuccess : cecl_relay(result, comm->async_message);
}

ceclResult_t cecl_comm_cause(ceclComm_t comm, ceclResult_t result)
{
    const bool has_failed = atomic_load(&comm->async_result) != ceclSuccess;
    return result == ceclRemoteError && has_failed ? cecl_comm_async(comm) : result;
}

/* Records a message that says which rows do not fit. Every rank finds these rows in its own copy of the table of
 * splits. */
static ceclResult_t name_trouble(ceclComm_t comm, const struct cecl_splits_trouble *trouble)
{
    char expert[32] = "";
    if (trouble->experts > 1)
        snprintf(expert, sizeof(expert), " expert %u of", trouble->expert);
    if (trouble->what == CECL_SPLITS_SEND)
        return cecl_fail(
            ceclInvalidUsage,
            "splits on the device: what rank %u sends to%s rank %u ends beyond its sendbuff of %u "
            "rows; last call of rank %d: %s",
            trouble->rank, expert, trouble->to, trouble->room, comm->rank,
            cecl_comm_last_call(comm));
    return cecl_fail(
        ceclInvalidUsage,
        "splits on the device: %s%u rows are for rank %u, whose recvbuff has room for %u, and the "
        "first that do not fit are for%s rank %u; last call of rank %d: %s",
        trouble->rows > CECL_SPLITS_ROWS_MAX ? "more than " : "",
        trouble->rows > CECL_SPLITS_ROWS_MAX ? CECL_SPLITS_ROWS_MAX : trouble->rows, trouble->rank,
        trouble->room, expert, trouble->rank, comm->rank, cecl_comm_last_call(comm));
}

/* Whether the call whose rows do not fit has ended on this rank. By then all ranks have moved their rows, and have
 * noticed that some do not fit. If this rank failed earlier, it would cut off its peers' part of the call. The call
 * counts as ended once all calls have ended that were enqueued before this rank first saw that rows do not fit. */
static bool trouble_has_ended(ceclComm_t comm)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    uint64_t none = 0, seen = UINT64_C(1) << 32 | cecl_flags_done_target(flags);
    if (!atomic_compare_exchange_strong(&comm->trouble_seen, &none, seen))
        seen = none;
    return cecl_flags_calls_idle(flags) ||
           (cecl_flags_reached(flags, (uint32_t)seen) && !cecl_turns_run(flags));
}

/* If rows of a call did not fit, fails the communicator: at once if `now`, otherwise once the call has ended on this
 * rank. (fail_by_line is for a kernel that has found splits of another call.) */
static void hear_trouble(ceclComm_t comm, bool now)
{
    struct cecl_splits_trouble trouble;
    if (!cecl_flags_trouble(&comm->engine.flags, &trouble) || trouble.what == CECL_SPLITS_OTHER ||
        atomic_load(&comm->async_result) != ceclSuccess || !(now || trouble_has_ended(comm)))
        return;
    (void)!cecl_comm_break(comm, name_trouble(comm, &trouble));
}

ceclResult_t cecl_comm_hear_kernels(ceclComm_t comm)
{
    const int late = cecl_flags_gave_up_on(&comm->engine.flags);
    if (late >= 0 && atomic_load(&comm->async_result) == ceclSuccess)
        return cecl_comm_break(
            comm, cecl_fail(ceclTimeout,
                            "a small collective has waited for rank %d for more than %d ms "
                            "(CECL_TIMEOUT_MS); did that rank make the same call, and did its "
                            "stream reach it?%s",
                            late, comm->config.timeout_ms, cecl_comm_hint(comm)));
    hear_trouble(comm, false);
    return cecl_comm_async(comm);
}

ceclResult_t cecl_comm_break(ceclComm_t comm, ceclResult_t result)
{
    cecl_comm_set_async(comm, result, cecl_message());
    return cecl_comm_async(comm);
}

const char *cecl_comm_pending(ceclComm_t comm)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    if (comm->net || !cecl_flags_calls_idle(flags))
        return cecl_comm_last_call(comm);
    return cecl_lines_idle(flags) ? "a graph that was launched" : "a one-sided call";
}

void cecl_comm_lost_peer(ceclComm_t comm, ceclResult_t result)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    if (!cecl_flags_idle(flags) && !strstr(cecl_message(), "; pending on rank "))
        cecl_fail(result, "%s; pending on rank %d: %s", cecl_message(), comm->rank,
                  cecl_comm_pending(comm));
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    hear_trouble(comm, true); /* rows that do not fit may be why the peer gave up */
    cecl_comm_set_async(comm, result, words);
}

bool cecl_comm_knows_why(ceclComm_t comm)
{
    const ceclResult_t news = cecl_mesh_news(comm->mesh);
    if (news != ceclSuccess)
        cecl_comm_lost_peer(comm, news);
    return news != ceclSuccess;
}

ceclResult_t cecl_comm_differ_in(const char *name, const char *field, int rank, const char *value,
                                 int other, const char *others)
{
    return cecl_fail(ceclInvalidUsage, "%s: ranks differ in %s: %s on rank %d, %s on rank %d", name,
                     field, value, rank, others, other);
}

ceclResult_t cecl_comm_differ(ceclComm_t comm, const char *name, int other,
                              const struct cecl_facts *mine, const struct cecl_facts *theirs)
{
    struct cecl_facts_difference difference;
    const bool known = mine && theirs;
    if (known && cecl_facts_differ(mine, theirs, &difference))
        return cecl_comm_differ_in(name, difference.field, comm->rank, difference.one, other,
                                   difference.other);
    if (known && mine->ncalls > 1)
        return cecl_fail(ceclInvalidUsage,
                         "%s: rank %d made other calls than rank %d: the first of the group's %d "
                         "calls is equal, but a later one differs, or a call before the group%s",
                         name, other, comm->rank, mine->ncalls, cecl_comm_hint(comm));
    return cecl_fail(ceclInvalidUsage,
                     "%s: rank %d made a different call than rank %d: counts of single ranks, "
                     "displacements, rows, tiles, splits or an earlier call differ%s",
                     name, other, comm->rank, cecl_comm_hint(comm));
}

/* Fails the communicator because a kernel has found that the splits of `rank` are of another call. If `rank` has
 * failed, its released stream may have signalled without new splits. `rank` reported its reason before that, so the
 * reason becomes the error. */
static void fail_by_line(ceclComm_t comm, int rank)
{
    if (cecl_comm_hear_kernels(comm) != ceclSuccess || cecl_comm_knows_why(comm))
        return;
    (void)!cecl_comm_break(
        comm,
        cecl_fail(ceclInvalidUsage,
                  "splits on the device: rank %d's splits are of another call than rank %d's: rank "
                  "%d made a different call, or a different number of calls before, or has failed; "
                  "last call of rank %d: %s%s",
                  rank, comm->rank, rank, comm->rank, cecl_comm_last_call(comm),
                  cecl_comm_hint(comm)));
}

void cecl_comm_compare_calls(ceclComm_t comm)
{
    struct cecl_history_difference difference;
    struct cecl_splits_trouble trouble;
    char first[CECL_FACTS_NAME], name[2 * CECL_FACTS_NAME];
    /* read before the history, because peers write their splits after their history */
    const bool has_line =
        cecl_flags_trouble(&comm->engine.flags, &trouble) && trouble.what == CECL_SPLITS_OTHER;
    if (atomic_load(&comm->async_result) != ceclSuccess)
        return;
    if (!cecl_history_differs(&comm->history, &difference)) {
        if (has_line)
            fail_by_line(comm, (int)trouble.rank);
        return;
    }
    snprintf(name, sizeof(name), "%s, call %u of this communicator",
             difference.has_mine ? cecl_facts_name(&difference.mine, first) : "a collective",
             difference.call);
    const struct cecl_facts *mine = difference.has_facts ? &difference.mine : NULL;
    (void)!cecl_comm_break(comm,
                           cecl_comm_differ(comm, name, difference.rank, mine, &difference.theirs));
}

ceclResult_t cecl_comm_hear(ceclComm_t comm)
{
    if (!comm->net && cecl_comm_hear_kernels(comm) == ceclSuccess && !cecl_comm_knows_why(comm))
        cecl_comm_compare_calls(comm);
    return cecl_comm_async(comm);
}

const char *cecl_comm_to_blame(ceclComm_t comm, struct cecl_rank_set late,
                               struct cecl_rank_list *who)
{
    const int half = comm->config.timeout_ms / 2;
    const int kept = half > 0 && half < CECL_WATCH_LATE_MS ? half : CECL_WATCH_LATE_MS;
    cecl_waits_follow(&comm->waits, cecl_now_ms() - kept, &late);
    *who = cecl_rank_list_of(&late, comm->nranks, true);
    return cecl_rank_list_words(who);
}

bool cecl_comm_is_done(ceclComm_t comm)
{
    if (comm->net)
        return cecl_net_is_idle(comm->net);
    return cecl_flags_idle(&comm->engine.flags) &&
           cecl_engine_query(&comm->engine) != ceclInProgress;
}

ceclResult_t cecl_comm_exchanged(ceclComm_t comm, ceclResult_t result)
{
    const bool is_broken = comm->net ? comm->net->line.is_broken : cecl_mesh_broken(comm->mesh);
    return result == ceclSuccess || !is_broken ? result : cecl_comm_break(comm, result);
}

ceclResult_t cecl_comm_add_cure(ceclComm_t comm, ceclResult_t result, const char *cure)
{
    return result == ceclTimeout && comm->ranks_here > 1
               ? cecl_fail(result, "%.400s; %s", cecl_message(), cure)
               : result;
}
