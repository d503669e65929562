/* Makes launches; see make.h. A step that fails records a message. */
#include "launch/make.h"

#include <string.h>

#include "device/nvtx.h"
#include "launch/exchange.h"
#include "launch/messages.h"
#include "launch/steps.h"
#include "util/grow.h"

/* ---- checking */

/* Refuses a group if the buffers that the caller gave to its calls overlap. For a call with a bounce buffer this checks
 * the caller's recvbuff, to which the bytes are carried, unless this rank receives nothing. */
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
    CECL_OWNED struct cecl_call *given = calloc(count, sizeof(*given));
    CECL_OWNED uint32_t *numbers = calloc(count, sizeof(*numbers));
    if (!given || !numbers)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u calls", count);
    memcpy(given, launch->calls, count * sizeof(*given));
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] = launch->origins[i].number ? launch->origins[i].number : i + 1;
        if (launch->origins[i].recv && cecl_call_writes_recv(&given[i]))
            given[i].recv = cecl_window_find(&launch->comm->windows, launch->origins[i].recv);
    }
    return cecl_calls_check_apart(given, numbers, count);
}

/* Checks where buffers lie, unless equal calls were checked before and no memory was freed since then. */
ceclResult_t cecl_launch_check_buffers(struct cecl_launch *launch)
{
    if (launch->nfull == 0 || cecl_kept_find(launch))
        return ceclSuccess;
    for (uint32_t i = 0; i < launch->nfull; i++)
        CECL_TRY(cecl_launch_blame(
            launch, i, cecl_call_check_buffers(&launch->calls[i], &launch->comm->windows)));
    if (launch->nfull > 1 && (launch->kind == CECL_LAUNCH_COLLECTIVES || launch->comm->net))
        CECL_TRY(check_apart(launch));
    CECL_TRY(cecl_calls_check_arithmetic(launch->calls, launch->nfull));
    cecl_kept_checked(launch);
    return ceclSuccess;
}

ceclResult_t cecl_launch_check(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    const uint32_t most = cecl_places_entries(&comm->launcher->places);
    CECL_TRY(cecl_launch_check_buffers(launch));
    /* the stream is checked before peers know of the call and rely on it */
    CECL_TRY(cecl_launch_check_stream(launch));
    if (comm->net)
        return cecl_by_nccl_check(launch);
    if (launch->kind == CECL_LAUNCH_MESSAGES)
        return cecl_messages_check(launch);
    if (comm->nranks > 1 && launch->ncalls > most)
        return cecl_fail(ceclInvalidUsage,
                         "a group of %u calls among %d ranks: at most %u expected", launch->ncalls,
                         comm->nranks, most);
    return cecl_launch_reserve_told(launch);
}

/* Makes all checks of the launch. */
static ceclResult_t check_launch(struct cecl_launches *all, struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    if (launch->is_grouped) /* the communicator may have failed since the calls were made */
        CECL_TRY(cecl_comm_check(comm));
    if (!comm->net && cecl_launches_of(all->first, comm) == launch)
        CECL_TRY(cecl_settle_again(launch, comm));
    return cecl_launch_check(launch);
}

/* ---- telling and binding */

/* Tells the peers where this rank's buffers lie. After ranks have compared a call, peers rely on it even before its
 * places are published. */
static ceclResult_t tell_launch(struct cecl_launches *all, struct cecl_launch *launch)
{
    /* restarts the time limit, because comparing calls may have waited for peers */
    cecl_launch_bound_waits(launch);
    if (launch->kind == CECL_LAUNCH_MESSAGES)
        return cecl_messages_post(launch, all->first == launch && !launch->next);
    if (launch->nfull == 0)
        return ceclSuccess;
    const struct cecl_facts facts = cecl_facts_of(launch->calls, launch->nfull);
    cecl_history_tell(&launch->comm->history, &facts);
    const ceclResult_t result = cecl_tell_publish(launch);
    if (result != ceclSuccess && launch->comm->config.check)
        launch->is_owed = true;
    return result;
}

/* Learns where the peers' buffers lie, and gives the launch a program. A launch of messages gets its program when it is
 * issued. */
static ceclResult_t prepare_launch(struct cecl_launches *all, struct cecl_launch *launch)
{
    launch->comm->launcher->making = launch;
    if (launch->kind == CECL_LAUNCH_MESSAGES)
        return launch->is_captured ? cecl_messages_meet(launch) : ceclSuccess;
    if (launch->nfull > 0)
        CECL_TRY(cecl_tell_learn(launch, &all->pending_ns));
    return cecl_launch_bind(launch);
}

/* ---- issuing */

/* Notes until which value of `done` the launch uses its windows and imports. */
static void note_use(const struct cecl_launch *launch, const struct cecl_imports *imports)
{
    ceclComm_t comm = launch->comm;
    const uint32_t target = cecl_flags_done_target(&comm->engine.flags);
    for (uint32_t i = 0; i < launch->nfull; i++) {
        cecl_window_used(launch->calls[i].send.window, target);
        cecl_window_used(launch->calls[i].recv.window, target);
    }
    cecl_imports_used(&comm->registry, imports, target);
}

/* Enqueues a program, or adds it to the graph that captures the launch. program NULL: there is nothing to enqueue.
 * If only a part can be enqueued, peers wait for signals that will not come; so sets is_owed, and the communicator
 * fails. */
static ceclResult_t run_program(struct cecl_launch *launch, const struct cecl_bound *program,
                                const struct cecl_imports *imports)
{
    ceclComm_t comm = launch->comm;
    bool started = false;
    ceclResult_t result = launch->is_captured ? cecl_captured_hold(launch) : ceclSuccess;
    if (result == ceclSuccess && program)
        result =
            cecl_engine_run(&comm->engine, program, launch->stream, &launch->capture, &started);
    if (launch->is_captured) {
        cecl_registry_made(&comm->registry);
        if (result == ceclSuccess || started) /* from now on the watchdog watches replays */
            atomic_store(&comm->last_captured, cecl_comm_last_call(comm));
    } else if (program) {
        note_use(launch, imports);
    }
    if (result != ceclSuccess && started)
        launch->is_owed = true;
    return result;
}

/* Enqueues the launches of `list`, which copy between private memory and bounce buffers of this rank. */
static ceclResult_t run_carried(struct cecl_launch *list)
{
    for (struct cecl_launch *launch = list; launch; launch = launch->next) {
        cecl_kept_find(launch);
        ceclResult_t result = cecl_launch_bind(launch);
        if (result == ceclSuccess)
            result = run_program(launch, launch->runs->program, &launch->runs->imports);
        if (result != ceclSuccess)
            return cecl_launch_give_up(launch, result);
        launch->state = CECL_LAUNCH_ENQUEUED;
    }
    return ceclSuccess;
}

/* Enqueues a launch. On all ranks a communicator's collectives come before its messages in the list. Otherwise rank A
 * could wait in a message for rank B, and B in a collective for A: they may have the message in different groups. */
static ceclResult_t issue_launch(struct cecl_launches *all, struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    if (launch->runs || launch->is_owed)
        cecl_comm_called(comm, all->op->name);
    CECL_TRY(run_carried(launch->leases.before));
    if (launch->kind == CECL_LAUNCH_MESSAGES) {
        const struct cecl_bound *program;
        CECL_TRY(cecl_messages_bind(launch, &program));
        CECL_TRY(run_program(launch, program, &launch->imports));
    } else if (launch->runs) {
        cecl_history_note(&comm->history, launch->runs->signature);
        CECL_TRY(run_program(launch, launch->runs->program, &launch->runs->imports));
    }
    CECL_TRY(run_carried(launch->leases.after));
    cecl_tell_enqueued(launch);
    launch->state = CECL_LAUNCH_ENQUEUED;
    return ceclSuccess;
}

/* ---- leading launches */

/* For ceclAlltoAllv: asks the peers where this rank's blocks belong, or tells them that this rank refuses the call.
 * Either all ranks go on, and then peers rely on the launch, or all refuse. */
static ceclResult_t ask_places(const struct cecl_launches *all, struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    /* the description of a refused call may be incomplete */
    const struct cecl_call refused = {.op = all->op};
    const bool is_refused = all->failed != ceclSuccess;
    ceclResult_t result = all->failed;
    if (!comm->config.check) { /* ranks that compare calls have already exchanged this */
        CECL_NVTX_RANGE(comm->has_ranges, all->op->asks_places);
        result = cecl_exchange_call(comm, is_refused ? &refused : &launch->calls[0],
                                    cecl_launches_failure(all, comm));
    } else if (!is_refused)
        result = cecl_comm_async(comm); /* if it has failed, calls were not compared */
    CECL_TRY(result);
    cecl_exchanged_places(comm, &launch->calls[0], comm->launcher->layout);
    struct cecl_call derived = launch->calls[0];
    derived.view.layout = comm->launcher->layout;
    cecl_launch_derive(launch, 0, &derived);
    cecl_kept_find(launch);
    launch->is_owed = true;
    return ceclSuccess;
}

/* Gives up all launches, whether or not peers know of them. Returns the error of the public call. */
static ceclResult_t give_up_all(const struct cecl_launches *all)
{
    ceclResult_t result = all->failed;
    for (struct cecl_launch *launch = all->first; launch; launch = launch->next)
        if (launch->state != CECL_LAUNCH_BROKEN &&
            cecl_comm_check_handle(launch->comm) == ceclSuccess)
            result = cecl_launch_give_up(launch, cecl_launches_failure(all, launch->comm));
    return all->first && !all->first->is_grouped ? result : cecl_fail_with(all->failed, all->words);
}

/* The steps, in order. What can be refused is checked before peers learn of a launch, and before anything is enqueued.
 * The places of all launches are published before any launch waits for its peers' places. Calls that NCCL makes take
 * only the first step. */
static ceclResult_t (*const steps[])(struct cecl_launches *all, struct cecl_launch *launch) = {
    check_launch, tell_launch, prepare_launch, issue_launch};

ceclResult_t cecl_launches_make(struct cecl_launches *all)
{
    bool is_refused = false;
    for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
        for (struct cecl_launch *launch = all->first; launch && all->failed == ceclSuccess;
             launch = launch->next) {
            if (launch->kind == CECL_LAUNCH_ALLOCATIONS ||
                (launch->comm->net && steps[s] != check_launch))
                continue;
            const ceclResult_t result = steps[s](all, launch);
            if (result != ceclSuccess) /* fails the communicator if peers rely on the launch */
                (void)!cecl_launches_note(all, launch->comm, cecl_launch_give_up(launch, result));
        }
        if (steps[s] == check_launch) {
            cecl_launches_compare(all);
            if (all->op->asks_places && !all->first->comm->net)
                (void)!cecl_launches_note(all, all->first->comm, ask_places(all, all->first));
            is_refused = all->failed != ceclSuccess;
        }
    }
    if (!is_refused)
        cecl_by_nccl_run(all);
    return all->failed == ceclSuccess ? ceclSuccess : give_up_all(all);
}
