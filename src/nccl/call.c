/* Decides whether a call is served, passed or refused. Only this file decides, once for each call. */
#include "nccl/call.h"

#include <stdatomic.h>
#include <stdint.h>

#include "nccl/agree.h"
#include "nccl/captured.h"
#include "nccl/comms.h"
#include "nccl/depth.h"
#include "nccl/gains.h"
#include "nccl/group.h"
#include "nccl/learn.h"
#include "nccl/passed.h"
#include "nccl/process.h"
#include "nccl/serve.h"
#include "nccl/stats.h"
#include "util/thread.h"

/* ---- serve or pass. Ranks must decide alike, so the following functions use only what is equal on all ranks of
 * the communicator, and never the addresses of buffers. For a send or a receive they may also use what is equal on
 * the two ranks of that message. */

/* Whether the root or peer exists. If not, NCCL refuses the call at once, also in a group. */
static bool has_rank(const struct cecl_nccl_call *call, int nranks)
{
    return call->root >= 0 && call->root < nranks;
}

/* NCCL's premultiplied sums are not served. Their numbers are higher than those of the other reductions. */
static bool is_served_type(const struct cecl_nccl_call *call, const ceclLimits_t *limits)
{
    if (call->datatype < 0 || call->datatype >= CECL_NUM_TYPES ||
        (call->reduces && (call->redop < 0 || call->redop >= CECL_NUM_RED_OPS)))
        return false;
    const uint32_t types = call->reduces ? limits->reductions[call->redop] : limits->types;
    return types >> call->datatype & 1 &&
           call->count <= limits->blockBytes / cecl_nccl_type_bytes(call->datatype);
}

/* Why cecl cannot serve calls of this kind; NO_REASON: it can. */
static enum cecl_nccl_reason reason_of_kind(const struct cecl_nccl_call *call,
                                            const struct cecl_nccl_comm *comm)
{
    if (!has_rank(call, comm->nranks))
        return CECL_NCCL_NO_SUCH_RANK;
    if (cecl_nccl_is_message(call->op) && comm->limits.groupMessages == 0)
        return CECL_NCCL_MANY_RANKS;
    /* Messages without bytes are served, because their two ranks wait for each other. If only messages without
     * bytes were passed, a group would finish its passed messages before its served ones, and ranks could wait for
     * each other in a circle. */
    if (call->count == 0 && !cecl_nccl_is_message(call->op))
        return CECL_NCCL_EMPTY;
    if (!is_served_type(call, &comm->limits))
        return CECL_NCCL_TYPE;
    if (call->reduces && comm->limits.smPolicy == CECL_SM_NEVER)
        return CECL_NCCL_SMS_FORBIDDEN;
    return CECL_NCCL_NO_REASON;
}

/* In a group the driver is asked once for consecutive calls on one stream of a communicator. */
static bool is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    static _Thread_local struct {
        uint64_t group;
        const struct cecl_nccl_comm *comm;
        cudaStream_t stream;
        bool is;
    } latest;
    const uint64_t group = cecl_nccl_group_depth() > 0 ? cecl_nccl_group_number() : 0;
    if (group == 0 || latest.group != group || latest.comm != comm ||
        latest.stream != call->stream) {
        latest.is = cecl_nccl_is_captured(call, comm);
        latest.group = group;
        latest.comm = comm;
        latest.stream = call->stream;
    }
    return latest.is;
}

/* The decision on a call. */
struct decision {
    enum cecl_nccl_reason reason; /* why it is passed; NO_REASON: it is served */
    bool is_captured;             /* found out only if it makes a difference */
    bool waits;                   /* learning decides when the group ends */
};

/* Why trials or the table say that the call must be passed. Equal on all ranks. */
static enum cecl_nccl_reason reason_of_gain(const struct cecl_nccl_process *process,
                                            const struct cecl_nccl_call *call,
                                            struct cecl_nccl_comm *comm, struct decision *decision)
{
    const bool by_learning = comm->learns && !cecl_nccl_is_message(call->op);
    const bool gains =
        by_learning || process->policy != CECL_NCCL_AUTO || cecl_nccl_gains(call, comm);
    /* also needed in groups, whose captured calls are served or passed together, and for counting */
    if (gains || cecl_nccl_group_depth() > 0 || process->counts)
        decision->is_captured = is_captured(call, comm);
    decision->waits = by_learning && cecl_nccl_group_depth() > 0 && !decision->is_captured;
    if (decision->waits)
        return CECL_NCCL_NO_REASON;
    if (by_learning)
        return cecl_nccl_learn_reason(call, comm, decision->is_captured);
    return gains ? CECL_NCCL_NO_REASON : CECL_NCCL_NO_GAIN;
}

/* Why a captured call is passed. A thread that has several ranks cannot make one outside of a group, because its ranks
 * would wait for each other. */
static enum cecl_nccl_reason reason_of_capture(const struct cecl_nccl_call *call,
                                               const struct cecl_nccl_comm *comm)
{
    if (cecl_nccl_is_message(call->op))
        return CECL_NCCL_CAPTURED_MESSAGE;
    return comm->together > 1 && cecl_nccl_group_depth() == 0 ? CECL_NCCL_CAPTURED
                                                              : CECL_NCCL_NO_REASON;
}

static enum cecl_nccl_reason reason_of_call(const struct cecl_nccl_process *process,
                                            const struct cecl_nccl_call *call,
                                            struct cecl_nccl_comm *comm, struct decision *decision)
{
    enum cecl_nccl_reason reason = reason_of_kind(call, comm);
    if (reason == CECL_NCCL_NO_REASON)
        reason = reason_of_gain(process, call, comm, decision);
    else if (reason != CECL_NCCL_NO_SUCH_RANK && cecl_nccl_group_depth() > 0)
        decision->is_captured = is_captured(call, comm);
    return reason == CECL_NCCL_NO_REASON && decision->is_captured ? reason_of_capture(call, comm)
                                                                  : reason;
}

/* Why all calls on a communicator are passed. */
static enum cecl_nccl_reason reason_of_comm(const struct cecl_nccl_comm *comm)
{
    const struct cecl_nccl_process *process = cecl_nccl_process();
    if (process->is_forked)
        return CECL_NCCL_FORKED;
    if (process->is_old)
        return CECL_NCCL_OLD;
    if (process->policy == CECL_NCCL_OFF)
        return CECL_NCCL_BY_SETTING;
    if (!comm)
        return CECL_NCCL_UNKNOWN;
    return cecl_nccl_life_is(&comm->life, CECL_NCCL_EARLY) ? CECL_NCCL_IN_PROGRESS : comm->reason;
}

/* The only function that decides whether a call is passed, and why. If it is captured, ranks may still
 * find that some of them cannot capture it (captured.h). */
static enum cecl_nccl_reason reason_to_pass(const struct cecl_nccl_call *call,
                                            struct cecl_nccl_comm *comm, struct decision *decision)
{
    const enum cecl_nccl_reason reason = reason_of_comm(comm);
    return reason == CECL_NCCL_NO_REASON ? reason_of_call(cecl_nccl_process(), call, comm, decision)
                                         : reason;
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

/* Counts a decided call, if the process counts its calls. */
static void count(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                  enum cecl_nccl_reason reason, bool refused)
{
    if (cecl_nccl_process()->counts)
        cecl_nccl_stats_count(call, reason,
                              reason == CECL_NCCL_NO_REASON ? cecl_nccl_serve_uses_sms(call, comm)
                                                            : refused);
}

/* Serves a call. Returns false if an abort has begun: NCCL then returns the error. The abort is no reason
 * to pass a call, because other ranks may not know of it. */
static bool serve(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                  ncclResult_t *result)
{
    if (!cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE))
        return false;
    count(call, comm, CECL_NCCL_NO_REASON, false);
    if (!call->is_captured && cecl_nccl_group_depth() == 0 && !cecl_nccl_is_message(call->op))
        cecl_nccl_agree_note_calls(comm, 1);
    *result = cecl_nccl_group_depth() > 0
                  ? cecl_nccl_group_keep(call, true)
                  : cecl_nccl_comm_result(comm, cecl_nccl_serve(call, comm));
    cecl_nccl_comm_leave(comm);
    return true;
}

/* Whether a passed call of a group is kept until the group ends: if cecl has a communicator that could serve
 * other calls of the group. */
static bool waits_in_group(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                           ncclResult_t *result)
{
    if (!comm || !comm->ours || !has_rank(call, comm->nranks)) {
        cecl_nccl_group_passed(call->comm);
        return false;
    }
    *result = cecl_nccl_group_keep(call, false);
    return true;
}

bool cecl_nccl_settle(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                      enum cecl_nccl_reason reason, ncclResult_t *result)
{
    if (reason == CECL_NCCL_NO_REASON)
        return serve(call, comm, result);
    const bool refused = is_refused(cecl_nccl_process(), call, reason);
    count(call, comm, reason, refused);
    if (refused)
        *result = cecl_nccl_group_refuse(refuse(call, reason));
    return refused || (cecl_nccl_group_depth() > 0 && waits_in_group(call, comm, result));
}

/* Ranks decide together on a captured call outside of a group. On failure the call returns the error. */
static bool settle_captured(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                            enum cecl_nccl_reason reason, ncclResult_t *result)
{
    bool serves = false;
    if (reason != CECL_NCCL_NO_REASON || !cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE))
        return cecl_nccl_settle(call, comm, reason, result);
    cecl_nccl_captured_tell(comm, call, 1, true);
    *result = cecl_nccl_comm_own_result(comm, cecl_nccl_captured_await(comm, 1, &serves));
    cecl_nccl_comm_leave(comm);
    return *result != ceclSuccess ||
           cecl_nccl_settle(call, comm, serves ? CECL_NCCL_NO_REASON : CECL_NCCL_CAPTURED, result);
}

static bool take_captured(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                          enum cecl_nccl_reason reason, ncclResult_t *result)
{
    struct cecl_nccl_call captured = *call;
    captured.is_captured = true;
    if (cecl_nccl_group_depth() == 0)
        return settle_captured(&captured, comm, reason, result);
    *result = cecl_nccl_captured_keep(&captured, reason) ? (ncclResult_t)ceclSuccess
                                                         : cecl_nccl_group_refuse(ceclSystemError);
    return true;
}

bool cecl_nccl_take(const struct cecl_nccl_call *call, const void *caller, ncclResult_t *result)
{
    if (cecl_nccl_is_own(caller))
        return false;
    CECL_UNCANCELLED;
    cecl_nccl_last_error_clear();
    struct cecl_nccl_comm *comm = cecl_nccl_comm_find(call->comm);
    struct decision decision = {0};
    const enum cecl_nccl_reason reason = reason_to_pass(call, comm, &decision);
    if (decision.waits) {
        *result = cecl_nccl_group_keep_open(call);
        return true;
    }
    return decision.is_captured ? take_captured(call, comm, reason, result)
                                : cecl_nccl_settle(call, comm, reason, result);
}

/* Decides on a collective of a group that ends. Returns whether it is served. If its communicator was aborted, its
 * turn drops it. */
static bool serves_at_end(const struct cecl_nccl_call *call)
{
    struct cecl_nccl_comm *comm = cecl_nccl_comm_find(call->comm);
    if (!comm || !cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE))
        return true;
    const enum cecl_nccl_reason reason = cecl_nccl_learn_reason(call, comm, false);
    count(call, comm, reason, false);
    cecl_nccl_comm_leave(comm);
    return reason == CECL_NCCL_NO_REASON;
}

void cecl_nccl_decide_group(void)
{
    cecl_nccl_group_decide(serves_at_end);
}
