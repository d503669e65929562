/* Ranks exchange their descriptions of a call, before it is enqueued, and compare them: under CECL_CHECK of each
 * collective, which is slow, and is for finding errors in programs; otherwise only of an all-to-all in which senders do
 * not know where their blocks belong. */
#include "launch/exchange.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "comm/together.h"
#include "launch/launcher.h"

/* What a rank sends to the others. */
struct told {
    struct cecl_verdict verdict;
    struct cecl_facts facts;
    uint64_t compared; /* which communicators are compared together: as in struct cecl_launcher */
    uint64_t layout[]; /* of a call whose ranks have layouts of their own */
};

static size_t bytes_of(int nranks)
{
    return sizeof(struct told) + CECL_LAYOUT_OWN_ARRAYS * (size_t)nranks * sizeof(uint64_t);
}

void *cecl_exchange_room(int nranks)
{
    const size_t told = bytes_of(nranks);
    return calloc((size_t)nranks + 1, /* one more, for what this rank tells */
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

/* Compares calls that are carried out as one. */
static ceclResult_t check_calls(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclResult_t local)
{
    if (count == 1)
        return cecl_check_call(comm, &calls[0], local);
    const struct cecl_call group = {.op = &cecl_ops[CECL_OP_GROUP_END], .count = count};
    ceclResult_t result = cecl_check_call(comm, &group, local);
    for (uint32_t i = 0; i < count && result == ceclSuccess; i++)
        result = cecl_check_call(comm, &calls[i], ceclSuccess);
    return result;
}

/* ---- groups on several communicators */

static ceclComm_t comm_of(const struct cecl_check_part *part)
{
    return part->launch->comm;
}

static ceclResult_t check_part(void *argument)
{
    struct cecl_check_part *part = argument;
    part->is_told = true;
    part->result = check_calls(comm_of(part), part->calls, part->count,
                               cecl_fail_with(part->local, part->words));
    return part->result;
}

/* Whether an earlier part is on the same communicator, of which this thread may have several ranks. */
static bool is_counted(const struct cecl_check_part *first, const struct cecl_check_part *part)
{
    while (first != part && comm_of(first)->id != comm_of(part)->id)
        first = first->next;
    return first != part;
}

/* Compares the calls on all communicators at the same time. */
static ceclResult_t check_together(struct cecl_check_part *first)
{
    uint32_t count = 0, ntasks = 0;
    for (const struct cecl_check_part *part = first; part; part = part->next)
        count++;
    struct cecl_task *tasks = calloc(count, sizeof(*tasks));
    if (!tasks)
        return cecl_fail(ceclOutOfMemory, "no host memory to compare calls on %u communicators",
                         count);
    for (struct cecl_check_part *part = first; part; part = part->next)
        tasks[ntasks++] = (struct cecl_task){.run = check_part, .argument = part};
    const ceclResult_t result = cecl_together(tasks, ntasks);
    free(tasks);
    return result;
}

ceclResult_t cecl_check_parts(struct cecl_check_part *first, ceclResult_t local)
{
    char words[CECL_MESSAGE_BYTES];
    uint64_t compared = 0;
    for (const struct cecl_check_part *part = first; part; part = part->next)
        compared += is_counted(first, part) ? 0 : comm_of(part)->id;
    for (struct cecl_check_part *part = first; part; part = part->next)
        comm_of(part)->launcher->compared = compared == comm_of(first)->id ? 0 : compared;
    cecl_keep_message(words);
    for (struct cecl_check_part *part = first; part; part = part->next) {
        part->local = local;
        part->words = part->words ? part->words : words;
    }
    ceclResult_t result = check_together(first);
    if (result == ceclSuccess)
        result = cecl_fail_with(local, words);
    cecl_keep_message(words);
    /* no thread could be started for these parts: tells their peers why */
    for (struct cecl_check_part *part = first; part; part = part->next) {
        if (!part->is_told) {
            part->local = result;
            (void)!check_part(part);
        }
        comm_of(part)->launcher->compared = 0;
    }
    return cecl_fail_with(result, words);
}
