/* See decide.h. All ranks must reach the same decision. So a decision uses only what is equal on all ranks of the
 * communicator (for a send or a receive: on its two ranks), and never the addresses of buffers. */
#include "nccl/decide.h"

#include "nccl/captured.h"
#include "nccl/report.h"
#include "nccl/serve.h"

/* Why all calls on the communicator go to NCCL; NO_REASON: they do not. */
static enum cecl_nccl_reason reason_of_comm(const struct cecl_nccl_process *process,
                                            const struct cecl_nccl_comm *comm, bool is_inside)
{
    if (process->is_forked)
        return CECL_NCCL_FORKED;
    if (process->is_old)
        return CECL_NCCL_OLD;
    if (process->policy == CECL_NCCL_OFF)
        return CECL_NCCL_BY_SETTING;
    if (comm && cecl_nccl_life_is(&comm->life, CECL_NCCL_NOT_READY))
        return CECL_NCCL_IN_PROGRESS;
    return is_inside ? comm->reason : CECL_NCCL_UNKNOWN;
}

/* Whether cecl supports the call's datatype, reduction and size. It does not support NCCL's premultiplied sums. */
static bool is_served_type(const struct cecl_nccl_call *call, const ceclLimits_t *limits)
{
    if (call->datatype < 0 || call->datatype >= CECL_NUM_TYPES ||
        (call->reduces && (call->redop < 0 || call->redop >= CECL_NUM_RED_OPS)))
        return false;
    const uint32_t types = call->reduces ? limits->reductions[call->redop] : limits->types;
    return types >> call->datatype & 1 &&
           call->count <= limits->blockBytes / cecl_nccl_type_bytes(call->datatype);
}

/* Why cecl cannot make calls of this kind; NO_REASON: it can. */
static enum cecl_nccl_reason reason_of_kind(const struct cecl_nccl_call *call,
                                            const struct cecl_nccl_comm *comm)
{
    if (cecl_nccl_is_message(call->op) && comm->limits.groupMessages == 0)
        return CECL_NCCL_MANY_RANKS;
    /* Sends and receives without bytes do not go to NCCL: they would be made before the group's other messages
     * (group.c), and ranks could wait for each other in a circle. */
    if (call->count == 0 && !cecl_nccl_is_message(call->op))
        return CECL_NCCL_EMPTY;
    if (!is_served_type(call, &comm->limits))
        return CECL_NCCL_TYPE;
    if (call->reduces && comm->limits.smPolicy == CECL_SM_NEVER)
        return CECL_NCCL_SMS_FORBIDDEN;
    return CECL_NCCL_NO_REASON;
}

/* For CECL_NCCL=auto: NO_GAIN, unless the table of gains.c says that cecl is faster. */
static enum cecl_nccl_reason reason_of_table(const struct cecl_nccl_process *process,
                                             const struct cecl_nccl_call *call,
                                             const struct cecl_nccl_comm *comm,
                                             const struct cecl_nccl_group *group)
{
    return process->policy != CECL_NCCL_AUTO || cecl_nccl_gains(call, comm, group)
               ? CECL_NCCL_NO_REASON
               : CECL_NCCL_NO_GAIN;
}

/* Why a captured call goes to NCCL; NO_REASON: it does not. A thread with several ranks cannot make a captured call
 * outside a group: it would wait in the first rank's call for its other ranks. */
static enum cecl_nccl_reason reason_of_capture(const struct cecl_nccl_call *call,
                                               const struct cecl_nccl_comm *comm, bool in_group)
{
    if (cecl_nccl_is_message(call->op))
        return CECL_NCCL_CAPTURED_MESSAGE;
    return comm->together > 1 && !in_group ? CECL_NCCL_CAPTURED : CECL_NCCL_NO_REASON;
}

/* In a group, asks the driver only once for consecutive calls on the same communicator and stream. */
static bool is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                        struct cecl_nccl_group *group)
{
    bool is_sound;
    if (group->depth == 0)
        return cecl_nccl_is_captured(call, comm, &is_sound);
    if (group->asked.group != group->number || group->asked.comm != comm ||
        group->asked.stream != call->stream) {
        group->asked.is_captured = cecl_nccl_is_captured(call, comm, &is_sound);
        group->asked.group = group->number;
        group->asked.comm = comm;
        group->asked.stream = call->stream;
    }
    return group->asked.is_captured;
}

/* Whether trials decide which library makes calls of this kind. */
static bool is_learned(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    return comm->learns && !cecl_nccl_is_message(call->op);
}

struct cecl_nccl_way cecl_nccl_decide(const struct cecl_nccl_process *process,
                                      const struct cecl_nccl_call *call,
                                      struct cecl_nccl_comm *comm, bool is_inside,
                                      struct cecl_nccl_group *group)
{
    const bool in_group = group->depth > 0;
    struct cecl_nccl_way way = {.reason = reason_of_comm(process, comm, is_inside)};
    if (way.reason == CECL_NCCL_NO_REASON && !cecl_nccl_has_rank(call, comm))
        way.reason = CECL_NCCL_NO_SUCH_RANK;
    if (way.reason != CECL_NCCL_NO_REASON)
        return way;
    way.reason = reason_of_kind(call, comm);
    way.policy = comm->limits.smPolicy;
    const bool learns = way.reason == CECL_NCCL_NO_REASON && is_learned(call, comm);
    if (way.reason == CECL_NCCL_NO_REASON && !learns)
        way.reason = reason_of_table(process, call, comm, group);
    /* Also asks the driver about some calls that NCCL makes: in a group, because one library makes all captured
     * collectives, and for --stats, which shows which calls were captured. */
    if (way.reason == CECL_NCCL_NO_REASON || in_group || process->counts)
        way.is_captured = is_captured(call, comm, group);
    if (learns && (way.is_captured || !in_group))
        cecl_nccl_learn(call, comm, group, &way);
    else
        way.is_open = learns;
    if (way.reason == CECL_NCCL_NO_REASON && way.is_captured)
        way.reason = reason_of_capture(call, comm, in_group);
    return way;
}

/* ---- decided calls */

static ncclResult_t refuse(const struct cecl_nccl_call *call)
{
    static _Atomic uint32_t warned; /* a bit for each op whose refusal was printed */
    const uint32_t bit = UINT32_C(1) << call->op;
    if (call->way.reason == CECL_NCCL_IN_PROGRESS) {
        (void)cecl_nccl_comm_refuses(call->comm, cecl_nccl_op_names[call->op]);
        return CECL_NCCL_REFUSED;
    }
    cecl_nccl_tell_refusal(cecl_nccl_op_names[call->op], call->way.reason,
                           !(atomic_fetch_or(&warned, bit) & bit));
    return ceclInvalidUsage;
}

/* CECL_NCCL=strict refuses calls that only move data and go to NCCL, with three exceptions: empty calls; calls whose
 * root or peer does not exist, which NCCL refuses; and all calls if ranks have different policies, none of them off. */
static bool is_to_refuse(const struct cecl_nccl_process *process, const struct cecl_nccl_call *call)
{
    const enum cecl_nccl_reason reason = call->way.reason;
    return reason == CECL_NCCL_IN_PROGRESS ||
           (process->policy == CECL_NCCL_STRICT && reason != CECL_NCCL_NO_REASON &&
            reason != CECL_NCCL_NO_SUCH_RANK && reason != CECL_NCCL_SETTINGS_DIFFER &&
            !call->reduces && call->count > 0);
}

bool cecl_nccl_is_refused(const struct cecl_nccl_process *process,
                          const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                          ncclResult_t *result)
{
    const bool is = is_to_refuse(process, call);
    if (process->counts)
        cecl_nccl_stats_count(call,
                              cecl_nccl_is_served(call) ? cecl_nccl_uses_sms(call, comm) : is);
    if (is)
        *result = refuse(call);
    return is;
}
