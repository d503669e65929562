/* Keeps a group's calls, and divides them into stages; see group.h. A stage is a cecl group or, for calls that go to
 * NCCL, an NCCL group. Most groups have one stage. Calls that cecl would refuse in one group go into consecutive
 * stages. The stages come in this order: collectives that cecl makes, collectives that NCCL makes, messages that NCCL
 * makes, messages that cecl makes. Messages have stages of their own, because a group's messages differ between ranks.
 * NCCL orders only the streams of calls in its own group. So a stage's stream first waits for the streams of the
 * group's calls on the same communicator; at the stage's end, those streams wait for it. */
#include "nccl/group.h"

#include "nccl/captured.h"
#include "nccl/decide.h"
#include "nccl/serve.h"
#include "util/clock.h"
#include "util/grow.h"
#include "util/log.h"

/* ---- calls of an open group */

static ncclResult_t note_refusal(struct cecl_nccl_group *group, ncclResult_t result)
{
    if (group->refusal == ceclSuccess)
        group->refusal = result;
    return result;
}

/* Also keeps a call that NCCL makes, if cecl could make other calls of the group on the same communicator. */
bool cecl_nccl_group_take(struct cecl_nccl_group *group, const struct cecl_nccl_call *call,
                          struct cecl_nccl_comm *comm, ncclResult_t *result)
{
    const bool is_decided = !call->way.is_open && !call->way.is_captured;
    *result = ceclSuccess;
    if (is_decided && cecl_nccl_is_refused(cecl_nccl_process(), call, comm, result)) {
        note_refusal(group, *result);
    } else if (!cecl_nccl_is_served(call) &&
               (!comm || !comm->ours || !cecl_nccl_has_rank(call, comm))) {
        group->passed = call->comm;
        return false;
    } else if (CECL_HAS_ROOM(group->kept, group->count, group->room)) {
        group->kept[group->count] = (struct cecl_nccl_kept){.call = *call, .number = group->count};
        group->count++;
    } else {
        *result = note_refusal(group, ceclSystemError);
    }
    return true;
}

/* ---- stages */

/* Whether the stage of `call`, which cecl makes, depends on the stage of `kept`. A message depends only on messages
 * between the same ranks in the same direction. */
static bool is_counted(const struct cecl_nccl_call *kept, const struct cecl_nccl_call *call)
{
    if (!cecl_nccl_is_served(kept) || kept->comm != call->comm)
        return false;
    return cecl_nccl_is_message(call->op) ? kept->op == call->op && kept->root == call->root
                                          : !cecl_nccl_is_message(kept->op);
}

/* The last call before `kept` on which the stage of `call` depends; NULL: there is none. */
static const struct cecl_nccl_kept *last_before(const struct cecl_nccl_kept *kept,
                                                const struct cecl_nccl_call *call)
{
    for (int i = kept->number; i > 0; i--) {
        kept--;
        if (is_counted(&kept->call, call))
            return kept;
    }
    return NULL;
}

static bool have_one_result(const struct cecl_nccl_call *a, const struct cecl_nccl_call *b)
{
    return a->recvbuff == b->recvbuff && cecl_nccl_has_result_on_all(a->op) &&
           cecl_nccl_has_result_on_all(b->op);
}

/* How many calls cecl makes in a stage at most: collectives of one communicator, or messages from one rank to another.
 * All ranks of these calls count alike, so they find the same stages. An NCCL group may have any number of calls. */
static int most_at_once(const struct cecl_nccl_call *call)
{
    const struct cecl_nccl_comm *comm = cecl_nccl_comm_find(call->comm);
    if (!comm) /* the communicator was aborted */
        return 1;
    return cecl_nccl_is_message(call->op) ? comm->limits.groupMessages : comm->limits.groupCalls;
}

/* Whether `call` needs a stage after the stage of the kept call `last`. cecl refuses a group that writes twice to the
 * same memory; NCCL accepts it, and benchmarks repeat a call in one group. All ranks must find the same stages. So two
 * calls are kept apart only if both use recvbuff on all ranks, and their recvbuffs are equal. */
static bool is_full(const struct cecl_nccl_kept *last, const struct cecl_nccl_call *call)
{
    if (last->nth + 1 >= most_at_once(call))
        return true;
    if (cecl_nccl_is_message(call->op))
        return false;
    while (last->nth > 0 && !have_one_result(&last->call, call))
        last = last_before(last, call);
    return have_one_result(&last->call, call);
}

/* Warns that cecl makes a group's messages in several stages; NCCL would make all of them at the same time. */
static void warn_of_stages(const struct cecl_nccl_call *call)
{
    static _Atomic bool has_warned;
    if (!atomic_exchange(&has_warned, true))
        cecl_log(
            CECL_LOG_WARN, -1,
            "a group has more than %d calls of %s with rank %d: %d of them are carried out at a "
            "time. A peer that waits for a later one before it takes part in an earlier one waits "
            "forever",
            most_at_once(call), cecl_nccl_op_names[call->op], call->root, most_at_once(call));
}

/* Finds the stage of a call, once the calls before it have theirs. */
static void place(struct cecl_nccl_kept *kept)
{
    const struct cecl_nccl_call *call = &kept->call;
    const bool is_message = cecl_nccl_is_message(call->op);
    if (!cecl_nccl_is_served(call)) {
        kept->stage = is_message ? CECL_NCCL_PASSED_MESSAGES : CECL_NCCL_PASSED_COLLECTIVES;
        return;
    }
    const struct cecl_nccl_kept *last = last_before(kept, call);
    kept->stage = last ? last->stage : is_message ? CECL_NCCL_FIRST_MESSAGE_STAGE : 0;
    if (last && is_full(last, call)) {
        kept->stage++;
        if (is_message)
            warn_of_stages(call);
    } else if (last) {
        kept->nth = last->nth + 1;
    }
}

/* ---- the end of a group */

/* Decides on a call whose decision was left to the group's end. If the communicator was aborted, does nothing, and the
 * call's stage drops the call. */
static void decide_late(struct cecl_nccl_group *group, struct cecl_nccl_call *call)
{
    struct cecl_nccl_comm *comm = cecl_nccl_comm_enter_made(call->comm);
    const bool is_open = call->way.is_open;
    ncclResult_t refusal;
    call->way.is_open = false;
    if (!comm)
        return;
    if (is_open)
        cecl_nccl_learn(call, comm, group, &call->way);
    if (cecl_nccl_is_refused(cecl_nccl_process(), call, comm, &refusal))
        note_refusal(group, refusal);
    cecl_nccl_comm_leave(comm);
}

/* Once a call was refused, the group carries out nothing, so learning notes no further calls. */
static ncclResult_t decide_all(struct cecl_nccl_group *group)
{
    for (int i = 0; i < group->count && group->refusal == ceclSuccess; i++)
        if (group->kept[i].call.way.is_open)
            decide_late(group, &group->kept[i].call);
    const ncclResult_t result = cecl_nccl_captured_decide(group->kept, group->count);
    for (int i = 0; i < group->count && result == ceclSuccess; i++)
        if (group->kept[i].call.way.is_captured)
            decide_late(group, &group->kept[i].call);
    return result;
}

ncclResult_t cecl_nccl_group_decide(struct cecl_nccl_group *group)
{
    bool serves = false;
    ncclResult_t result = decide_all(group);
    if (result != ceclSuccess || group->refusal != ceclSuccess)
        return result;
    for (int i = 0; i < group->count; i++) {
        place(&group->kept[i]);
        serves = serves || cecl_nccl_is_served(&group->kept[i].call);
    }
    if (!serves) { /* NCCL gets all calls in one group, as without cecl */
        result = cecl_nccl_group_pass(group, group->kept, group->count);
        group->count = 0;
    }
    return result;
}

/* ---- the part of a group that NCCL carries out */

ncclResult_t cecl_nccl_group_pass(struct cecl_nccl_group *group, const struct cecl_nccl_kept *kept,
                                  int count)
{
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++) {
        group->passed = kept[i].call.comm;
        result = cecl_nccl_pass(&kept[i].call);
    }
    return result;
}

/* Asks NCCL about only one communicator, because NCCL finishes enqueueing a group on all of them at once. Looks up the
 * communicator's entry only once: if another thread aborted the communicator, a second look-up would find no entry, and
 * NCCL would be asked about freed memory. */
void cecl_nccl_group_await_passed(const struct cecl_nccl_group *group)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(group->passed);
    while (group->count > 0 && group->passed && !cecl_nccl_is_enqueued(group->passed, entry))
        cecl_pause_us(20);
}
