/* Ranks exchange the sizes of the blocks that they send, and the places where they receive blocks. They do
 * so before an all-to-all in which senders do not know these places. Under CECL_CHECK they do so to compare
 * the senders' places with the receivers' places. */
#include "launch/exchange.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "boot/rank_list.h"
#include "launch/launcher.h"

/* What a rank sends to the others. */
struct places {
    struct cecl_verdict verdict;
    int32_t type;     /* ceclDataType_t */
    uint64_t words[]; /* the rank's layout */
};

static size_t bytes_of(int nranks)
{
    return sizeof(struct places) + CECL_LAYOUT_OWN_ARRAYS * (size_t)nranks * sizeof(uint64_t);
}

void *cecl_exchange_room(int nranks)
{
    const size_t layout = bytes_of(nranks);
    return calloc((size_t)nranks + 1, /* one more, for the layout that this rank sends */
                  layout > CECL_EXCHANGE_BYTES ? layout : CECL_EXCHANGE_BYTES);
}

static struct places *told_by(ceclComm_t comm, int rank)
{
    return (void *)((char *)comm->launcher->exchange + (size_t)rank * bytes_of(comm->nranks));
}

/* A peer's invalid argument is reported here as invalid usage; other errors keep their code. */
static ceclResult_t refusal_of(ceclComm_t comm, int rank, const struct cecl_verdict *verdict)
{
    const ceclResult_t status = (ceclResult_t)verdict->status;
    if (status == ceclSuccess)
        return ceclSuccess;
    if (verdict->has_failed) { /* `text` is the message of that rank's watchdog */
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

ceclResult_t cecl_exchange(ceclComm_t comm, const char *name, const char *what,
                           struct cecl_verdict *mine, size_t bytes, ceclResult_t local)
{
    char *all = comm->launcher->exchange;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    mine->status = (int32_t)local;
    mine->has_failed = false;
    if (local != ceclSuccess) {
        cecl_shorten(mine->text, sizeof(mine->text), words);
        mine->has_failed = (local == ceclRemoteError ? cecl_comm_hear(comm)
                                                     : cecl_comm_async(comm)) != ceclSuccess;
    }
    cecl_mesh_activity(comm->mesh, name);
    ceclResult_t result =
        cecl_comm_exchanged(comm, cecl_mesh_allgather(comm->mesh, what, mine, all, bytes));
    if (local != ceclSuccess)
        return cecl_fail_with(local, words);
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++)
        result = refusal_of(comm, r, (const void *)(all + (size_t)r * bytes));
    return result;
}

static uint64_t word(ceclComm_t comm, int rank, int array, int peer)
{
    return told_by(comm, rank)->words[cecl_layout_at(comm->nranks, array, peer)];
}

static ceclResult_t compare_types(ceclComm_t comm, const char *name, int rank)
{
    const struct places *a = told_by(comm, 0), *b = told_by(comm, rank);
    return a->type == b->type
               ? ceclSuccess
               : cecl_comm_differ_in(name, "datatype", 0, cecl_type_name((uint64_t)a->type), rank,
                                     cecl_type_name((uint64_t)b->type));
}

static ceclResult_t compare_blocks(ceclComm_t comm, int from, int to, size_t size, bool targets)
{
    const uint64_t sent = word(comm, from, CECL_LAYOUT_SENT, to),
                   received = word(comm, to, CECL_LAYOUT_RECEIVED, from);
    if (sent != received)
        return cecl_fail(ceclInvalidUsage,
                         "rank %d sends %" PRIu64 " elements to rank %d (sendcounts[%d]), which "
                         "expects %" PRIu64 " (recvcounts[%d])",
                         from, sent / size, to, to, received / size, from);
    const uint64_t target = word(comm, from, CECL_LAYOUT_TARGET, to),
                   place = word(comm, to, CECL_LAYOUT_RECEIVED_AT, from);
    if (targets && sent > 0 && target != place)
        return cecl_fail(ceclInvalidUsage,
                         "rank %d sends its block to element %" PRIu64
                         " of rank %d's recvbuff (peerdispls[%d]), which expects it at %" PRIu64
                         " (rdispls[%d])",
                         from, target / size, to, to, place / size, from);
    return ceclSuccess;
}

/* Compares all types and blocks. The result is equal on all ranks. */
static ceclResult_t compare_layouts(ceclComm_t comm, const struct cecl_call *call, bool targets)
{
    const int n = comm->nranks;
    for (int r = 1; r < n; r++)
        CECL_TRY(compare_types(comm, call->op->name, r));
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            CECL_TRY(compare_blocks(comm, from, to, call->element, targets));
    return ceclSuccess;
}

static ceclResult_t gather_layouts(ceclComm_t comm, const struct cecl_call *call, bool targets,
                                   ceclResult_t local)
{
    struct places *mine = told_by(comm, comm->nranks);
    mine->type = (int32_t)call->type;
    if (local == ceclSuccess)
        memcpy(mine->words, call->view.layout, call->layout_words * sizeof(*mine->words));
    CECL_TRY(cecl_exchange(comm, call->op->name, "blocks", &mine->verdict, bytes_of(comm->nranks),
                           local));
    return compare_layouts(comm, call, targets);
}

ceclResult_t cecl_exchange_places(ceclComm_t comm, const struct cecl_call *call, uint64_t *layout,
                                  ceclResult_t local)
{
    CECL_TRY(gather_layouts(comm, call, false, local));
    memcpy(layout, call->view.layout, call->layout_words * sizeof(*layout));
    for (int r = 0; r < comm->nranks; r++)
        layout[cecl_layout_at(comm->nranks, CECL_LAYOUT_TARGET, r)] =
            word(comm, r, CECL_LAYOUT_RECEIVED_AT, comm->rank);
    return ceclSuccess;
}

ceclResult_t cecl_exchange_compare(ceclComm_t comm, const struct cecl_call *call)
{
    return gather_layouts(comm, call, true, ceclSuccess);
}
