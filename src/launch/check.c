/* Exchanges of all ranks in which each rank may refuse its call. cecl_exchange_call compares the ranks' descriptions of
 * a call before the call is enqueued. Under CECL_CHECK, which is slow and meant for finding errors in programs, ranks
 * do this for each collective; otherwise only for ceclAlltoAllv, whose senders do not know where their blocks
 * belong. */
#include "launch/exchange.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "boot/rank_list.h"
#include "comm/together.h"
#include "launch/launcher.h"
#include "launch/make.h"
#include "net/net.h"
#include "util/clock.h"
#include "util/fds.h"

/* This rank's error if rank `rank` has refused. That rank's invalid argument is invalid usage here. */
static ceclResult_t refusal_of(ceclComm_t comm, int rank, const struct cecl_verdict *verdict)
{
    const ceclResult_t status = (ceclResult_t)verdict->status;
    if (status == ceclSuccess)
        return ceclSuccess;
    if (verdict->has_failed) { /* `text` is that rank's asynchronous error */
        const char *first = cecl_words_who_began(verdict->text);
        if (first)
            cecl_record("%s", first);
        else
            cecl_record("rank %d gave up: %s", rank, verdict->text);
        return cecl_comm_break(comm, status);
    }
    const bool refuses =
        status == ceclInvalidArgument || status == ceclInvalidUsage || status == ceclRemoteError;
    return cecl_fail(status == ceclInvalidArgument ? ceclInvalidUsage : status, "rank %d%s: %s",
                     rank, refuses ? " refused its call" : "", verdict->text);
}

ceclResult_t cecl_gather(ceclComm_t comm, const char *kind, const void *mine, void *all,
                         size_t bytes)
{
    struct cecl_net *net = comm->net;
    return cecl_comm_exchanged(
        comm, net ? cecl_lifeline_gather(&net->line, mine, all, bytes,
                                         cecl_deadline(comm->config.init_timeout_ms), &net->failed)
                  : cecl_mesh_allgather(comm->mesh, kind, mine, all, bytes));
}

ceclResult_t cecl_exchange(ceclComm_t comm, const char *name, const char *kind,
                           struct cecl_verdict *mine, size_t bytes, ceclResult_t local)
{
    char *all = comm->launcher->exchange;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    mine->status = (int32_t)local;
    mine->has_failed = false;
    if (local != ceclSuccess) {
        const ceclResult_t failed =
            local == ceclRemoteError ? cecl_comm_hear(comm) : cecl_comm_async(comm);
        mine->has_failed = failed != ceclSuccess;
        if (mine->has_failed) /* peers must get the communicator's failure, not this rank's result */
            mine->status = (int32_t)failed;
        cecl_shorten(mine->text, sizeof(mine->text), mine->has_failed ? cecl_message() : words);
    }
    cecl_mesh_activity(comm->mesh, name);
    ceclResult_t result = cecl_gather(comm, kind, mine, all, bytes);
    if (local != ceclSuccess)
        return cecl_fail_with(local, words);
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++)
        result = refusal_of(comm, r, (const void *)(all + (size_t)r * bytes));
    return result;
}

/* ---- calls */

/* What a rank sends to the others about a call. */
struct told {
    struct cecl_verdict verdict;
    struct cecl_facts facts;
    uint64_t compared; /* as in struct cecl_launcher */
    uint64_t layout[]; /* of a call whose layout differs between ranks */
};

static size_t bytes_of(int nranks)
{
    return sizeof(struct told) + CECL_LAYOUT_OWN_ARRAYS * (size_t)nranks * sizeof(uint64_t);
}

void *cecl_exchange_room(int nranks)
{
    const size_t told = bytes_of(nranks);
    return calloc((size_t)nranks + 1, /* one more, for what this rank sends */
                  told > CECL_EXCHANGE_BYTES ? told : CECL_EXCHANGE_BYTES);
}

static struct told *told_by(ceclComm_t comm, int rank)
{
    return (void *)((char *)comm->launcher->exchange + (size_t)rank * bytes_of(comm->nranks));
}

static uint64_t word(ceclComm_t comm, int rank, int array, int peer)
{
    return told_by(comm, rank)->layout[cecl_layout_at(comm->nranks, array, peer)];
}

static ceclResult_t compare_blocks(ceclComm_t comm, const struct cecl_call *call, int from, int to)
{
    const size_t size = call->element;
    const uint64_t sent = word(comm, from, CECL_LAYOUT_SENT, to),
                   received = word(comm, to, CECL_LAYOUT_RECEIVED, from);
    if (sent != received)
        return cecl_fail(ceclInvalidUsage,
                         "rank %d sends %" PRIu64 " elements to rank %d (sendcounts[%d]), which "
                         "expects %" PRIu64 " (recvcounts[%d])",
                         from, sent / size, to, to, received / size, from);
    const uint64_t target = word(comm, from, CECL_LAYOUT_TARGET, to),
                   place = word(comm, to, CECL_LAYOUT_RECEIVED_AT, from);
    if (!call->op->asks_places && sent > 0 && target != place)
        return cecl_fail(ceclInvalidUsage,
                         "rank %d sends its block to element %" PRIu64
                         " of rank %d's recvbuff (peerdispls[%d]), which expects it at %" PRIu64
                         " (rdispls[%d])",
                         from, target / size, to, to, place / size, from);
    return ceclSuccess;
}

static ceclResult_t compare_facts(const struct cecl_facts *first, const struct cecl_facts *facts,
                                  int rank)
{
    struct cecl_facts_difference difference;
    char name[CECL_FACTS_NAME];
    return cecl_facts_differ(first, facts, &difference)
               ? cecl_comm_differ_in(cecl_facts_name(first, name), difference.field, 0,
                                     difference.one, rank, difference.other)
               : ceclSuccess;
}

ceclResult_t cecl_exchange_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    const int n = comm->nranks;
    const bool has_own_layout = call->op->family == CECL_FAMILY_OWN_LAYOUT;
    struct told *mine = told_by(comm, n);
    *mine = (struct told){.compared = comm->launcher->compared};
    if (local == ceclSuccess)
        mine->facts = cecl_facts_of(call, 1);
    if (local == ceclSuccess && has_own_layout)
        memcpy(mine->layout, call->view.layout, call->layout_words * sizeof(*mine->layout));
    CECL_TRY(cecl_exchange(comm, call->op->name, "call", &mine->verdict, bytes_of(n), local));
    comm->launcher->compares_alike = true;
    for (int r = 0; r < n; r++)
        if (told_by(comm, r)->compared != mine->compared)
            comm->launcher->compares_alike = false;
    for (int r = 1; r < n; r++)
        CECL_TRY(compare_facts(&told_by(comm, 0)->facts, &told_by(comm, r)->facts, r));
    for (int from = 0; from < n && has_own_layout; from++)
        for (int to = 0; to < n; to++)
            CECL_TRY(compare_blocks(comm, call, from, to));
    return ceclSuccess;
}

void cecl_exchanged_places(ceclComm_t comm, const struct cecl_call *call, uint64_t *layout)
{
    memcpy(layout, call->view.layout, call->layout_words * sizeof(*layout));
    for (int r = 0; r < comm->nranks; r++)
        layout[cecl_layout_at(comm->nranks, CECL_LAYOUT_TARGET, r)] =
            word(comm, r, CECL_LAYOUT_RECEIVED_AT, comm->rank);
}

#define CURE "CECL_CHECK=1 needs a thread for each rank, or the calls of all ranks in one group"

ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    if (!comm->config.check)
        return local;
    const ceclResult_t result = cecl_exchange_call(comm, call, local);
    return local == ceclSuccess ? cecl_comm_add_cure(comm, result, CURE) : result;
}

/* Compares the calls of a launch with the peers' calls, or tells the peers that this rank refuses them. */
static ceclResult_t compare_calls(const struct cecl_launches *all, const struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    /* the description of a refused call may be incomplete */
    const struct cecl_call refused = {.op = all->op},
                           group = {.op = &cecl_ops[CECL_OP_GROUP_END], .count = launch->ncalls};
    if (all->failed != ceclSuccess)
        return cecl_check_call(comm, &refused, cecl_launches_failure(all, comm));
    if (launch->ncalls > 1)
        CECL_TRY(cecl_check_call(comm, &group, ceclSuccess));
    for (uint32_t i = 0; i < launch->ncalls; i++)
        CECL_TRY(cecl_check_call(comm, &launch->calls[i], ceclSuccess));
    return ceclSuccess;
}

static ceclResult_t compare(void *argument)
{
    struct cecl_launch *launch = argument;
    return launch->compared = compare_calls(launch->all, launch);
}

/* The first launch, from `launch` on, whose ranks compare calls. */
static struct cecl_launch *find_compared(struct cecl_launch *launch)
{
    while (launch && !launch->all)
        launch = launch->next;
    return launch;
}

static void *next_compared(void *launch)
{
    return find_compared(((struct cecl_launch *)launch)->next);
}

/* Whether an earlier launch of the list is on the same communicator, of which this thread may have several ranks. */
static bool is_counted(struct cecl_launch *first, const struct cecl_launch *launch)
{
    while (first != launch && first->comm->id != launch->comm->id)
        first = next_compared(first);
    return first != launch;
}

static bool is_checked(ceclComm_t comm)
{
    return comm->magic == CECL_COMM_MAGIC && comm->config.check && !comm->finalized &&
           comm->process == cecl_fork_process() && atomic_load(&comm->async_result) == ceclSuccess;
}

/* The communicator of the first launch whose comparison failed; NULL: none has failed. `compared` is still
 * ceclInProgress if no thread could be started for a launch. */
static ceclComm_t who_refuses(struct cecl_launch *launch)
{
    while (launch && (launch->compared == ceclSuccess || launch->compared == ceclInProgress))
        launch = next_compared(launch);
    return launch ? launch->comm : NULL;
}

void cecl_launches_compare(struct cecl_launches *all)
{
    uint64_t compared = 0;
    for (struct cecl_launch *launch = all->first; launch; launch = launch->next) {
        const bool compares = launch->kind == CECL_LAUNCH_COLLECTIVES && is_checked(launch->comm);
        launch->all = compares ? all : NULL;
        launch->compared = ceclInProgress;
    }
    struct cecl_launch *const first = find_compared(all->first);
    if (!first)
        return;
    for (struct cecl_launch *launch = first; launch; launch = next_compared(launch))
        compared += is_counted(first, launch) ? 0 : launch->comm->id;
    for (struct cecl_launch *launch = first; launch; launch = next_compared(launch))
        launch->comm->launcher->compared = compared == first->comm->id ? 0 : compared;
    /* all communicators at once, because peers may compare on them in another order, or one after another */
    const ceclResult_t result = cecl_together(compare, first, next_compared);
    (void)!cecl_launches_note(all, who_refuses(first), result);
    for (struct cecl_launch *launch = first; launch; launch = next_compared(launch)) {
        if (launch->compared == ceclInProgress) /* no thread was started: tells the peers of that */
            (void)!compare(launch);
        if (all->failed != ceclSuccess && launch->compared == ceclSuccess &&
            !launch->comm->launcher->compares_alike)
            launch->is_owed = true;
        launch->comm->launcher->compared = 0;
    }
}
