/* Decides what becomes of a call. Each call comes here once, and nothing else decides. */
#include "nccl/call.h"

#include <stdatomic.h>
#include <stdint.h>

#include "nccl/comms.h"
#include "nccl/depth.h"
#include "nccl/gains.h"
#include "nccl/gpu.h"
#include "nccl/group.h"
#include "nccl/learn.h"
#include "nccl/passed.h"
#include "nccl/process.h"
#include "nccl/serve.h"
#include "nccl/stats.h"

/* ---- serve or pass. Ranks must decide alike, so the following functions use only what is equal on
 * all ranks of the communicator, and never where buffers lie. For a send or receive, what is equal
 * on its two ranks may be used. */

/* Whether the root or peer exists. NCCL refuses other calls at once, in a group too. */
static bool has_rank(const struct cecl_nccl_call *call, int nranks)
{
    return call->root >= 0 && call->root < nranks;
}

/* NCCL's premultiplied sums are not served: their numbers are higher than those of the other
 * reductions. */
static bool is_served_type(const struct cecl_nccl_call *call, const ceclLimits_t *limits)
{
    if (call->datatype < 0 || call->datatype >= CECL_NUM_TYPES ||
        (call->reduces && (call->redop < 0 || call->redop >= CECL_NUM_RED_OPS)))
        return false;
    const uint32_t types = call->reduces ? limits->reductions[call->redop] : limits->types;
    return types >> call->datatype & 1 &&
           call->count <= limits->blockBytes / cecl_nccl_type_bytes(call->datatype);
}

/* Whether cecl could serve a call of this kind. */
static enum cecl_nccl_reason reason_of_kind(const struct cecl_nccl_call *call,
                                            const struct cecl_nccl_comm *comm, bool is_strict)
{
    if (!has_rank(call, comm->nranks))
        return CECL_NCCL_NO_SUCH_RANK;
    if (cecl_nccl_is_message(call->op) && comm->limits.groupMessages == 0)
        return CECL_NCCL_MANY_RANKS;
    /* Messages without bytes are served, too: their two ranks wait for each other. If some messages
     * of a group were passed, the group would wait for one part before the other. */
    if (call->count == 0 && !cecl_nccl_is_message(call->op))
        return CECL_NCCL_EMPTY;
    if (!is_served_type(call, &comm->limits))
        return CECL_NCCL_TYPE;
    if (call->reduces && comm->limits.smPolicy == CECL_SM_NEVER)
        return CECL_NCCL_SMS_FORBIDDEN;
    return comm->rails.exist &&
                   (comm->limits.smPolicy == CECL_SM_NEVER || (is_strict && !call->reduces))
               ? CECL_NCCL_BETWEEN_NODES
               : CECL_NCCL_NO_REASON;
}

static bool is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    return comm->ordinal >= 0 && cecl_nccl_gpu_captures(call->stream);
}

static enum cecl_nccl_reason reason_of_call(const struct cecl_nccl_process *process,
                                            const struct cecl_nccl_call *call,
                                            struct cecl_nccl_comm *comm, bool *is_timed)
{
    const enum cecl_nccl_reason reason =
        reason_of_kind(call, comm, process->policy == CECL_NCCL_STRICT);
    if (reason != CECL_NCCL_NO_REASON)
        return reason;
    /* A captured call is made once and may be replayed any number of times, so it does not count in
     * a period. */
    if (process->learns && comm->learns && !cecl_nccl_is_message(call->op))
        return is_captured(call, comm) ? CECL_NCCL_CAPTURED
                                       : cecl_nccl_learn_reason(call, comm, is_timed);
    if (process->policy == CECL_NCCL_AUTO && !cecl_nccl_gains(call, comm))
        return CECL_NCCL_NO_GAIN;
    return is_captured(call, comm) ? CECL_NCCL_CAPTURED : CECL_NCCL_NO_REASON;
}

/* The only function that decides whether a call is passed, and why. */
static enum cecl_nccl_reason reason_to_pass(const struct cecl_nccl_process *process,
                                            const struct cecl_nccl_call *call,
                                            struct cecl_nccl_comm *comm, bool *is_timed)
{
    if (process->is_forked)
        return CECL_NCCL_FORKED;
    if (process->is_old)
        return CECL_NCCL_OLD;
    if (process->policy == CECL_NCCL_OFF)
        return CECL_NCCL_BY_SETTING;
    if (!comm)
        return CECL_NCCL_UNKNOWN;
    if (cecl_nccl_life_is(&comm->life, CECL_NCCL_EARLY))
        return CECL_NCCL_IN_PROGRESS;
    return comm->reason == CECL_NCCL_NO_REASON ? reason_of_call(process, call, comm, is_timed)
                                               : comm->reason;
}

static bool is_refused(const struct cecl_nccl_process *process, const struct cecl_nccl_call *call,
                       enum cecl_nccl_reason reason)
{
    if (reason == CECL_NCCL_IN_PROGRESS)
        return true;
    if (reason == CECL_NCCL_NO_SUCH_RANK) /* NCCL refuses it */
        return false;
    return process->policy == CECL_NCCL_STRICT && !call->reduces && call->count > 0;
}

static ncclResult_t refuse(const struct cecl_nccl_call *call, enum cecl_nccl_reason reason)
{
    static _Atomic uint32_t warned; /* a bit for each op */
    const uint32_t bit = UINT32_C(1) << call->op;
    if (reason == CECL_NCCL_IN_PROGRESS) {
        (void)cecl_nccl_comm_refuses(call->comm, cecl_nccl_op_names[call->op]);
        return CECL_NCCL_REFUSED;
    }
    cecl_nccl_tell_refusal(cecl_nccl_op_names[call->op], reason,
                           !(atomic_fetch_or(&warned, bit) & bit));
    return ceclInvalidUsage;
}

/* Whether an abort has begun is no reason to pass, as ranks do not know it of each other. NCCL gives
 * the call its error. */
static bool serve(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm, bool is_timed,
                  ncclResult_t *result)
{
    if (!cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE))
        return false;
    if (cecl_nccl_process()->counts)
        cecl_nccl_stats_count(call, CECL_NCCL_NO_REASON, cecl_nccl_serve_uses_sms(call, comm));
    if (is_timed)
        cecl_nccl_learn_time(call, comm, false);
    *result = cecl_nccl_group_depth() > 0
                  ? cecl_nccl_group_keep(call, true)
                  : cecl_nccl_comm_result(comm, cecl_nccl_serve(call, comm));
    if (is_timed)
        cecl_nccl_learn_time(call, comm, true);
    cecl_nccl_comm_leave(comm);
    return true;
}

/* Whether a passed call of a group is kept until the group ends. A message is, if cecl could serve
 * collectives of the group. */
static bool waits_in_group(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                           ncclResult_t *result)
{
    if (!cecl_nccl_is_message(call->op) || !comm || !comm->ours || !has_rank(call, comm->nranks)) {
        cecl_nccl_group_passed(call->comm);
        return false;
    }
    *result = cecl_nccl_group_keep(call, false);
    return true;
}

static bool pass_timed(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                       ncclResult_t *result)
{
    cecl_nccl_learn_time(call, comm, false);
    *result = cecl_nccl_pass_ordered(call, comm, cecl_nccl_group_depth() == 0);
    cecl_nccl_learn_time(call, comm, true);
    return true;
}

bool cecl_nccl_take(const struct cecl_nccl_call *call, ncclResult_t *result)
{
    if (cecl_nccl_is_own(call->caller))
        return false;
    cecl_nccl_last_error_clear();
    const struct cecl_nccl_process *process = cecl_nccl_process();
    struct cecl_nccl_comm *comm = cecl_nccl_comm_find(call->comm);
    bool is_timed = false;
    const enum cecl_nccl_reason reason = reason_to_pass(process, call, comm, &is_timed);
    if (reason == CECL_NCCL_NO_REASON)
        return serve(call, comm, is_timed, result);
    const bool refused = is_refused(process, call, reason);
    if (process->counts)
        cecl_nccl_stats_count(call, reason, refused);
    if (refused)
        *result = cecl_nccl_group_refuse(refuse(call, reason));
    if (is_timed)
        return pass_timed(call, comm, result);
    if (refused || (cecl_nccl_group_depth() > 0 && waits_in_group(call, comm, result)))
        return true;
    if (!comm || !comm->rails.exist)
        return false;
    *result = cecl_nccl_pass_ordered(call, comm, cecl_nccl_group_depth() == 0);
    return true;
}
