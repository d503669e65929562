/* CECL_CHECK: before a collective is enqueued, ranks compare their descriptions of it. This is slow, and is
 * for finding errors in programs. */
#include "launch/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "comm/together.h"
#include "launch/launcher.h"
#include "util/thread.h"

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

/* Refuses a call of a thread that has several ranks, because each rank would wait for the others. If all
 * ranks are in this process, every rank is refused, and the communicator stays usable. Otherwise the
 * communicator fails, because ranks of other processes wait for this one. `local`: the result of checking
 * this rank's own arguments. */
static ceclResult_t refuse_alone(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    if (local == ceclSuccess)
        local = cecl_fail(ceclInvalidUsage,
                          "%s: this process has other ranks of the communicator, and no other "
                          "thread that could make their calls: " CURE,
                          call->op->name);
    return comm->ranks_here == comm->nranks ? local : cecl_comm_break(comm, local);
}

ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    struct told mine = {.compared = comm->launcher->compared}, *all = comm->launcher->exchange;
    if (!comm->config.check)
        return local;
    if (comm->ranks_here > 1 && cecl_thread_is_alone())
        return refuse_alone(comm, call, local);
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

static ceclResult_t check_part(void *argument)
{
    struct cecl_check_part *part = argument;
    part->is_told = true;
    part->result =
        check_calls(part->comm, part->calls, part->count, cecl_fail_with(part->local, part->words));
    return part->result;
}

/* Compares the calls on all communicators at the same time, except on those that have a result already. */
static ceclResult_t check_together(struct cecl_check_part *parts, uint32_t count)
{
    struct cecl_task *tasks = calloc(count, sizeof(*tasks));
    uint32_t ntasks = 0;
    if (!tasks)
        return cecl_fail(ceclOutOfMemory, "no host memory to compare calls on %u communicators",
                         count);
    for (uint32_t i = 0; i < count; i++)
        if (!parts[i].is_told)
            tasks[ntasks++] = (struct cecl_task){.run = check_part, .argument = &parts[i]};
    const ceclResult_t result = cecl_together(tasks, ntasks);
    free(tasks);
    return result;
}

/* Whether ranks of a communicator are missing in this thread, and no other thread could make their
 * calls. */
static bool is_incomplete(const struct cecl_check_part *parts, uint32_t count, uint32_t index)
{
    const ceclComm_t comm = parts[index].comm;
    int here = 0;
    for (uint32_t i = 0; i < count && comm->ranks_here > 1; i++)
        here += parts[i].comm->id == comm->id;
    return here < comm->ranks_here && comm->ranks_here > 1 && cecl_thread_is_alone();
}

/* Refuses calls on communicators with missing ranks. Returns `local`, or the error of a refusal. */
static ceclResult_t refuse_incomplete(struct cecl_check_part *parts, uint32_t count,
                                      ceclResult_t local)
{
    ceclResult_t result = local;
    for (uint32_t i = 0; i < count; i++)
        if (is_incomplete(parts, count, i)) {
            parts[i].is_told = true;
            result = parts[i].result = refuse_alone(parts[i].comm, parts[i].calls, result);
        }
    return result;
}

/* Whether a part is the first one in the list with this communicator id. This thread may have several ranks
 * of a communicator, and each rank is a part. */
static bool is_first_of(const struct cecl_check_part *parts, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (parts[i].comm->id == parts[index].comm->id)
            return false;
    return true;
}

ceclResult_t cecl_check_parts(struct cecl_check_part *parts, uint32_t count, ceclResult_t local)
{
    char words[CECL_MESSAGE_BYTES];
    uint64_t compared = 0;
    if (count == 0)
        return local;
    for (uint32_t i = 0; i < count; i++)
        compared += is_first_of(parts, i) ? parts[i].comm->id : 0;
    for (uint32_t i = 0; i < count; i++)
        parts[i].comm->launcher->compared = compared == parts[0].comm->id ? 0 : compared;
    local = refuse_incomplete(parts, count, local);
    cecl_keep_message(words);
    for (uint32_t i = 0; i < count; i++) {
        parts[i].local = local;
        parts[i].words = parts[i].words ? parts[i].words : words;
    }
    ceclResult_t result = check_together(parts, count);
    if (result == ceclSuccess)
        result = cecl_fail_with(local, words);
    cecl_keep_message(words);
    /* no thread could be started for these parts: tells their peers why */
    for (uint32_t i = 0; i < count; i++) {
        if (!parts[i].is_told) {
            parts[i].local = result;
            (void)!check_part(&parts[i]);
        }
        parts[i].comm->launcher->compared = 0;
    }
    return cecl_fail_with(result, words);
}
