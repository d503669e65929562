/* Makes launches; see make.h. */
#include "launch/make.h"

#include <stdlib.h>
#include <string.h>

#include "device/nvtx.h"
#include "launch/by_nccl.h"
#include "launch/captured.h"
#include "launch/check.h"
#include "launch/exchange.h"
#include "launch/kept.h"
#include "launch/launcher.h"
#include "launch/messages.h"
#include "launch/plan.h"
#include "launch/settle.h"
#include "launch/tell.h"

/* ---- checking */

static ceclResult_t check_stream(const struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    return launch->is_captured ? cecl_captured_check(launch)
                               : comm->dev->ops->stream_check(comm->dev, launch->stream);
}

/* The calls of a group must not overlap. What counts are the buffers that the program gave: a bounce buffer
 * overlaps nothing, but this rank carries bytes from it to the program's recvbuff, unless it receives nothing. */
static ceclResult_t check_apart(const struct cecl_launch *launch)
{
    const uint32_t count = launch->nfull;
    for (uint32_t i = 0; i < count; i++)
        if (launch->calls[i].op->family == CECL_FAMILY_SPLITS)
            return cecl_launch_blame(
                launch, i,
                cecl_fail(ceclInvalidUsage,
                          "it must be the only call of its communicator in the group; call it "
                          "outside the group"));
    struct cecl_call *given = calloc(count, sizeof(*given));
    uint32_t *numbers = calloc(count, sizeof(*numbers));
    if (!given || !numbers) {
        free(given);
        free(numbers);
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u calls", count);
    }
    memcpy(given, launch->calls, count * sizeof(*given));
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] = launch->origins[i].number ? launch->origins[i].number : i + 1;
        if (launch->origins[i].recv && cecl_call_writes_recv(&given[i]))
            given[i].recv = cecl_window_find(&launch->comm->windows, launch->origins[i].recv);
    }
    const ceclResult_t result = cecl_calls_check_apart(given, numbers, count);
    free(given);
    free(numbers);
    return result;
}

/* Checks where buffers lie, if the calls are new, and again after memory was freed. */
ceclResult_t cecl_launch_check_buffers(struct cecl_launch *launch)
{
    if (launch->nfull == 0)
        return ceclSuccess;
    cecl_kept_hash(launch);
    if (cecl_kept_has_checked(launch))
        return ceclSuccess;
    for (uint32_t i = 0; i < launch->nfull; i++)
        CECL_TRY(cecl_launch_blame(
            launch, i, cecl_call_check_buffers(&launch->calls[i], &launch->comm->windows)));
    if (launch->nfull > 1)
        CECL_TRY(check_apart(launch));
    CECL_TRY(cecl_plan_check_arithmetic(launch->calls, launch->nfull));
    cecl_kept_checked(launch);
    return ceclSuccess;
}

static ceclResult_t check_collectives(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    const uint32_t most = cecl_places_entries(&comm->launcher->places);
    CECL_TRY(cecl_launch_check_buffers(launch));
    if (comm->nranks > 1 && launch->ncalls > most)
        return cecl_fail(ceclInvalidUsage,
                         "a group of %u calls among %d ranks: at most %u expected", launch->ncalls,
                         comm->nranks, most);
    /* peers rely on a call once its places are published, so its stream is checked before */
    CECL_TRY(check_stream(launch));
    return cecl_tell_reserve(launch);
}

/* Over several hosts. */
static ceclResult_t check_by_nccl(struct cecl_launch *launch)
{
    CECL_TRY(cecl_launch_check_buffers(launch));
    CECL_TRY(check_stream(launch));
    return cecl_by_nccl_check(launch);
}

ceclResult_t cecl_launch_check(struct cecl_launch *launch)
{
    if (launch->comm->net)
        return check_by_nccl(launch);
    return launch->kind == CECL_LAUNCH_MESSAGES ? cecl_messages_check(launch)
                                                : check_collectives(launch);
}

/* ---- telling and binding */

/* Whether ranks have compared this call, or exchanged its layouts. If so, peers rely on the call even
 * before its places are published. */
static bool is_agreed(const struct cecl_launch *launch)
{
    return launch->comm->config.check || (launch->ncalls > 0 && launch->calls[0].op->asks_places);
}

static ceclResult_t tell_collectives(struct cecl_launch *launch)
{
    cecl_launch_bound_waits(launch);
    const ceclResult_t result = launch->nfull > 0 ? cecl_tell_publish(launch) : ceclSuccess;
    if (result != ceclSuccess && is_agreed(launch))
        cecl_launch_owe(launch);
    return result;
}

ceclResult_t cecl_launch_tell(struct cecl_launch *launch, bool may_wait)
{
    return launch->kind == CECL_LAUNCH_MESSAGES ? cecl_messages_post(launch, may_wait)
                                                : tell_collectives(launch);
}

ceclResult_t cecl_launch_prepare(struct cecl_launch *launch, uint64_t *pending_ns)
{
    launch->comm->launcher->making = launch;
    if (launch->kind ==
        CECL_LAUNCH_MESSAGES) { /* the program of messages is made when they are issued */
        if (launch->is_captured)
            CECL_TRY(cecl_messages_meet(launch));
        cecl_launch_bound(launch);
        return ceclSuccess;
    }
    if (launch->nfull > 0)
        CECL_TRY(cecl_tell_learn(launch, pending_ns));
    return cecl_launch_bind(launch);
}

/* ---- issuing */

static void note_use(const struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    const uint32_t target = cecl_flags_done_target(&comm->engine.flags);
    for (uint32_t i = 0; i < launch->nfull; i++) {
        cecl_window_used(launch->calls[i].send.window, target);
        cecl_window_used(launch->calls[i].recv.window, target);
    }
    cecl_imports_used(&comm->registry, &launch->runs->imports, target);
}

/* Enqueues the program. If only a part can be enqueued, the launch is owed, so the communicator fails: peers
 * wait for signals that will not come. */
static ceclResult_t run_program(struct cecl_launch *launch)
{
    bool started;
    if (launch->is_captured)
        return cecl_captured_issue(launch, launch->program);
    const ceclResult_t result =
        cecl_engine_run(&launch->comm->engine, launch->runs->program, launch->stream, &started);
    note_use(launch);
    if (result != ceclSuccess && started)
        cecl_launch_owe(launch);
    return result;
}

/* a plan carries at most this many blocks */
#define CARRIED_MOST 64u

static ceclResult_t run_carried(struct cecl_launch *launch, const struct cecl_call *calls,
                                uint32_t count)
{
    ceclResult_t result = ceclSuccess;
    for (uint32_t i = 0, index; i < count && result == ceclSuccess; i++)
        result = cecl_launch_add(launch, &calls[i], &index);
    CECL_TRY(result);
    cecl_kept_hash(launch);
    CECL_TRY(cecl_launch_bind(launch));
    CECL_TRY(run_program(launch));
    cecl_launch_go(launch, CECL_LAUNCH_ENQUEUED);
    return ceclSuccess;
}

ceclResult_t cecl_launch_carry(const struct cecl_launch *launch, const struct cecl_carried *carried)
{
    ceclResult_t result = ceclSuccess;
    for (uint32_t first = 0; first < carried->count && result == ceclSuccess;
         first += CARRIED_MOST) {
        const uint32_t left = carried->count - first,
                       count = left < CARRIED_MOST ? left : CARRIED_MOST;
        struct cecl_launch *carrying =
            cecl_launch_take(launch->comm, CECL_LAUNCH_CARRIED, launch->stream);
        if (!carrying)
            return ceclOutOfMemory;
        result = run_carried(carrying, &carried->calls[first], count);
        if (result != ceclSuccess)
            result = cecl_launch_give_up(carrying, result);
        cecl_launch_drop(carrying);
    }
    return result;
}

ceclResult_t cecl_launch_issue(struct cecl_launch *launch, const char *name)
{
    ceclComm_t comm = launch->comm;
    if (launch->runs || cecl_launch_is_owed(launch))
        cecl_comm_called(comm, name);
    if (launch->kind == CECL_LAUNCH_MESSAGES)
        CECL_TRY(cecl_messages_reach(launch));
    CECL_TRY(cecl_launch_carry(launch, &launch->leases.before));
    if (launch->kind == CECL_LAUNCH_MESSAGES) {
        CECL_TRY(cecl_messages_run(launch));
    } else if (launch->runs) {
        const struct cecl_facts facts = cecl_facts_of(launch->calls, launch->nfull);
        cecl_history_tell(&comm->history, &facts);
        cecl_history_note(&comm->history, launch->runs->signature, cecl_comm_last_call(comm));
        CECL_TRY(run_program(launch));
    }
    CECL_TRY(cecl_launch_carry(launch, &launch->leases.after));
    cecl_tell_enqueued(launch);
    cecl_launch_go(launch, CECL_LAUNCH_ENQUEUED);
    return ceclSuccess;
}

/* ---- a lone launch */

/* Exchanges places with the peers. First checks everything that this rank may refuse, so that all ranks learn
 * of a refusal. */
static ceclResult_t learn_places(struct cecl_launch *launch, const struct cecl_call *call,
                                 ceclResult_t result)
{
    ceclComm_t comm = launch->comm;
    const bool range = cecl_nvtx_begin(comm->has_ranges, call->op->asks_places);
    const struct cecl_call *described = result == ceclSuccess ? &launch->calls[0] : call;
    if (result == ceclSuccess)
        result = cecl_call_check_buffers(described, &comm->windows);
    if (result == ceclSuccess)
        result = check_stream(launch);
    if (result == ceclSuccess)
        result = cecl_tell_reserve(launch);
    if (comm->config.check) /* compares calls first, to find ranks that make a different call */
        result = cecl_check_calls(comm, described, 1, result);
    if (!comm->config.check || result == ceclSuccess)
        result = cecl_exchange_places(comm, described, comm->launcher->layout, result);
    if (result == ceclSuccess) {
        struct cecl_call derived = launch->calls[0];
        derived.view.layout = comm->launcher->layout;
        cecl_launch_derive(launch, 0, &derived);
    }
    cecl_nvtx_end(range);
    return result;
}

/* Messages are not compared, because only two ranks make a message. */
ceclResult_t cecl_launch_check_alone(struct cecl_launch *launch, const struct cecl_call *call,
                                     ceclResult_t local)
{
    ceclComm_t comm = launch->comm;
    if (call->op->asks_places)
        CECL_TRY(learn_places(launch, call, local)); /* the result is equal on all ranks */
    if (local == ceclSuccess)
        local = cecl_settle_again(launch, comm);
    if (local == ceclSuccess)
        local = cecl_launch_check(launch);
    if (local != ceclSuccess &&
        call->op->asks_places) /* peers rely on the call after the exchange */
        cecl_launch_owe(launch);
    if (call->op->family == CECL_FAMILY_MESSAGE)
        return local;
    return cecl_check_calls(comm, launch->ncalls > 0 ? &launch->calls[0] : call, 1, local);
}

static ceclResult_t make_by_nccl(struct cecl_launch *launch, ceclResult_t local)
{
    if (local == ceclSuccess)
        local = cecl_launch_check(launch);
    if (local == ceclSuccess)
        local = cecl_by_nccl_run(launch);
    return local == ceclSuccess ? ceclSuccess : cecl_launch_give_up(launch, local);
}

ceclResult_t cecl_launch_make(struct cecl_launch *launch, const struct cecl_call *call,
                              ceclResult_t local)
{
    if (launch->comm->net)
        return make_by_nccl(launch, local);
    uint64_t pending_ns = CECL_LAUNCH_PATIENCE;
    ceclResult_t result = cecl_launch_check_alone(launch, call, local);
    if (result == ceclSuccess)
        result = cecl_launch_tell(launch, false);
    if (result == ceclSuccess)
        result = cecl_launch_prepare(launch, &pending_ns);
    if (result == ceclSuccess)
        result = cecl_launch_issue(launch, call->op->name);
    return result == ceclSuccess ? ceclSuccess : cecl_launch_give_up(launch, result);
}
