/* Keeps the calls of a group, and divides them into turns; see group.h. A turn is a cecl group. Most NCCL groups
 * are carried out in one turn. Calls that cecl refuses to have in one group go into consecutive turns. Sends
 * and receives have their own turns after all others, because ranks need not have the same ones in their groups.
 * Before them come the passed collectives and the passed messages, each in
 * an NCCL group. NCCL orders only the streams of its own group's calls, so a turn also waits for the streams of
 * the group's other calls, and they wait for the turn. */
#include "nccl/group.h"

#include <stdlib.h>

#include "nccl/agree.h"
#include "nccl/depth.h"
#include "nccl/kept.h"
#include "nccl/passed.h"
#include "util/grow.h"
#include "util/log.h"
#include "util/thread.h"

static _Thread_local struct cecl_nccl_group group;

struct cecl_nccl_group *cecl_nccl_group_mine(void)
{
    return &group;
}

/* Whether both calls are messages between the same ranks in the same direction. */
static bool is_of_one_pair(const struct cecl_nccl_call *a, const struct cecl_nccl_call *b)
{
    return a->comm == b->comm && a->op == b->op && a->root == b->root;
}

/* Whether the turn of a served call depends on this kept call. */
static bool is_counted(const struct cecl_nccl_kept *kept, const struct cecl_nccl_call *call)
{
    if (cecl_nccl_turn_is_passed(kept->turn))
        return false;
    if (cecl_nccl_is_message(call->op))
        return is_of_one_pair(&kept->call, call);
    return !cecl_nccl_is_message(kept->call.op) && kept->call.comm == call->comm;
}

/* The last kept call, searching backwards from `index`, on which the turn of `call` depends; -1: there is
 * none. */
static int last_of(const struct cecl_nccl_call *call, int index)
{
    while (index >= 0 && !is_counted(&group.kept[index], call))
        index--;
    return index;
}

static bool have_one_result(const struct cecl_nccl_call *a, const struct cecl_nccl_call *b)
{
    return a->recvbuff == b->recvbuff && cecl_nccl_has_result_on_all(a->op) &&
           cecl_nccl_has_result_on_all(b->op);
}

/* The most calls of this kind in a turn; an NCCL group may have any number. Ranks divide calls into turns
 * alike, because calls are counted separately for each communicator, and messages for each pair of ranks. */
static int most_at_once(const struct cecl_nccl_call *call)
{
    const struct cecl_nccl_comm *comm = cecl_nccl_comm_find(call->comm);
    if (!comm) /* it was aborted */
        return 1;
    return cecl_nccl_is_message(call->op) ? comm->limits.groupMessages : comm->limits.groupCalls;
}

/* Whether `call` does not fit into the turn of the kept call `last`. cecl refuses a group that writes
 * twice to the same memory. NCCL accepts such a group, and benchmarks repeat a call in one group. Ranks
 * must decide alike, so a call does not fit only if its recvbuff is equal to another's, and only if both
 * calls use recvbuff on all ranks. */
static bool is_full(int last, const struct cecl_nccl_call *call)
{
    if (group.kept[last].nth + 1 >= most_at_once(call))
        return true;
    if (cecl_nccl_is_message(call->op))
        return false;
    while (group.kept[last].nth > 0 && !have_one_result(&group.kept[last].call, call))
        last = last_of(call, last - 1);
    return have_one_result(&group.kept[last].call, call);
}

/* Warns that a group's messages are divided into turns, while NCCL makes all messages of a group at the
 * same time. */
static void warn_of_turns(const struct cecl_nccl_call *call)
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

static int first_turn(const struct cecl_nccl_call *call)
{
    return cecl_nccl_is_message(call->op) ? CECL_NCCL_FIRST_MESSAGE_TURN : 0;
}

/* number: how many calls were kept before */
static struct cecl_nccl_kept place_served(const struct cecl_nccl_call *call, int number)
{
    struct cecl_nccl_kept kept = {.call = *call, .number = number, .turn = first_turn(call)};
    const int last = last_of(call, number - 1);
    if (last >= 0 && is_full(last, call)) {
        kept.turn = group.kept[last].turn + 1;
        if (cecl_nccl_is_message(call->op))
            warn_of_turns(call);
    } else if (last >= 0) {
        kept.turn = group.kept[last].turn;
        kept.nth = group.kept[last].nth + 1;
    }
    return kept;
}

ncclResult_t cecl_nccl_group_refuse(ncclResult_t result)
{
    if (cecl_nccl_group_depth() > 0 && group.refusal == ceclSuccess)
        group.refusal = result;
    return result;
}

static void note_turn(const struct cecl_nccl_kept *kept)
{
    group.unsorted = group.unsorted || kept->turn < group.last_turn;
    group.last_turn = kept->turn > group.last_turn ? kept->turn : group.last_turn;
    group.served += !cecl_nccl_turn_is_passed(kept->turn);
}

ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call, bool is_served)
{
    static struct cecl_thread_end end = CECL_THREAD_END_NONE;
    if (group.count == 0)
        cecl_thread_at_end(&end, cecl_nccl_group_forget);
    if (!CECL_HAS_ROOM(group.kept, group.count, group.room))
        return cecl_nccl_group_refuse(ceclSystemError);
    const int turn =
        cecl_nccl_is_message(call->op) ? CECL_NCCL_PASSED_MESSAGES : CECL_NCCL_PASSED_COLLECTIVES;
    const struct cecl_nccl_kept passed = {.call = *call, .number = group.count, .turn = turn},
                                kept = is_served ? place_served(call, group.count) : passed;
    note_turn(&kept);
    group.kept[group.count++] = kept;
    return ceclSuccess;
}

ncclResult_t cecl_nccl_group_keep_open(const struct cecl_nccl_call *call)
{
    const ncclResult_t result = cecl_nccl_group_keep(call, false);
    if (result == ceclSuccess)
        group.has_open = group.kept[group.count - 1].is_open = true;
    return result;
}

void cecl_nccl_group_decide(bool (*serves)(const struct cecl_nccl_call *call))
{
    if (!group.has_open || group.refusal != ceclSuccess)
        return;
    group.has_open = group.unsorted = false;
    group.last_turn = group.served = 0;
    for (int i = 0; i < group.count; i++) {
        struct cecl_nccl_kept *kept = &group.kept[i];
        const bool is_served = kept->is_open && serves(&kept->call);
        kept->is_open = false;
        if (is_served) {
            const struct cecl_nccl_call call = kept->call;
            *kept = place_served(&call, i);
        }
        note_turn(kept);
    }
}

void cecl_nccl_group_forget(void)
{
    free(group.kept);
    group.kept = NULL;
    group.count = group.room = group.last_turn = group.served = 0;
    group.unsorted = group.has_open = false;
    group.passed = NULL;
    group.refusal = ceclSuccess;
}

/* ---- the part of a group that NCCL carries out */

void cecl_nccl_group_passed(ncclComm_t comm)
{
    group.passed = comm;
}

ncclResult_t cecl_nccl_group_refused(void)
{
    return group.refusal;
}

ncclResult_t cecl_nccl_group_pass_calls(const struct cecl_nccl_kept *kept, int count)
{
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++) {
        group.passed = kept[i].call.comm;
        result = cecl_nccl_pass(&kept[i].call);
    }
    return result;
}

/* If no call is served, all go into NCCL's group as they would without cecl. */
ncclResult_t cecl_nccl_group_pass(void)
{
    if (group.served > 0 || group.refusal != ceclSuccess)
        return ceclSuccess;
    const ncclResult_t result = cecl_nccl_group_pass_calls(group.kept, group.count);
    group.count = 0;
    return result;
}

ncclResult_t cecl_nccl_group_pass_all(void)
{
    return cecl_nccl_group_pass_calls(group.kept, group.count);
}

/* Asks only one communicator, because NCCL completes a group on all of its communicators at once. Its entry is looked
 * up once: after an abort by another thread it would not be found, and NCCL would be asked about freed memory. */
void cecl_nccl_group_await_passed(void)
{
    struct cecl_nccl_comm *entry = cecl_nccl_comm_find(group.passed);
    while (group.count > 0 && group.passed && !cecl_nccl_is_enqueued(group.passed, entry))
        cecl_nccl_pause_us(20);
}
