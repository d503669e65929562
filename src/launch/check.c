/* CECL_CHECK: before a collective is enqueued, ranks compare their descriptions of it. This is slow, and is
 * for finding errors in programs. */
#include "launch/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "comm/together.h"
#include "launch/launcher.h"

/* What a rank sends to the others. */
struct told {
    struct cecl_verdict verdict;
    struct cecl_facts facts;
    uint64_t compared; /* which communicators are compared together: as in struct cecl_launcher */
};
_Static_assert(sizeof(struct told) <= CECL_EXCHANGE_BYTES, "the launcher has room for it");

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

#define CURE "CECL_CHECK=1 needs a thread for each rank, or the calls of all ranks in one group"

ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    struct told mine = {.compared = comm->launcher->compared}, *all = comm->launcher->exchange;
    if (!comm->config.check)
        return local;
    if (local == ceclSuccess)
        mine.facts = cecl_facts_of(call, 1);
    ceclResult_t result =
        cecl_exchange(comm, call->op->name, "call", &mine.verdict, sizeof(mine), local);
    if (local != ceclSuccess)
        return result;
    result = cecl_comm_add_cure(comm, result, CURE);
    comm->launcher->compares_alike = true;
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++)
        if (all[r].compared != mine.compared)
            comm->launcher->compares_alike = false;
    for (int r = 1; r < comm->nranks && result == ceclSuccess; r++)
        result = compare_facts(&all[0].facts, &all[r].facts, r);
    return result;
}

static ceclResult_t check_one(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    CECL_TRY(cecl_check_call(comm, call, local));
    return cecl_op_states_places(call->op) ? cecl_exchange_compare(comm, call) : ceclSuccess;
}

/* Compares calls that are carried out as one. If the senders' calls say where their blocks belong at the receivers,
 * ranks compare these places, too. */
static ceclResult_t check_calls(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclResult_t local)
{
    if (count == 1)
        return check_one(comm, &calls[0], local);
    const struct cecl_call group = {.op = &cecl_ops[CECL_OP_GROUP_END], .count = count};
    ceclResult_t result = cecl_check_call(comm, &group, local);
    for (uint32_t i = 0; i < count && result == ceclSuccess; i++)
        result = check_one(comm, &calls[i], ceclSuccess);
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
