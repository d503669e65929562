/* Starts a request, with the shortest path of all calls: no look-up, no allocation, and no lock.
 *
 *     check_watched  the memory is unchanged: this rank's by the ids of its regions
 *     begin_imports  the peers' memory is still open, and stays open until the start is enqueued
 *     wait_at_gate   only ceclStartOnSignal: the stream waits for a word of the program's
 *     run_program    history, cells, commands
 *
 * What was checked and learned when the request was made is not checked or learned again. */
#include <inttypes.h>
#include <time.h>

#include "flags/early.h"
#include "flags/gates.h"
#include "launch/check.h"
#include "launch/describe.h"
#include "launch/launcher.h"
#include "launch/make.h"
#include "launch/request.h"
#include "launch/settle.h"

/* ---- checking the memory */

static ceclResult_t refuse_lost(const char *what, const void *ptr)
{
    return cecl_fail(ceclInvalidUsage,
                     "%s %p: the memory was freed or replaced since the request was made; free the "
                     "request and make it again, on all ranks",
                     what, ptr);
}

static ceclResult_t check_watched(ceclRequest_t request)
{
    ceclComm_t comm = request->comm;
    for (uint32_t i = 0; i < request->nwatched; i++) {
        const struct cecl_watched *watched = &request->watched[i];
        bool same = true;
        if (watched->window->number == CECL_WINDOW_PRIVATE)
            CECL_TRY(cecl_settle_check(comm, &watched->use, 1));
        else
            CECL_TRY(cecl_registry_is_same(&comm->registry, watched->window, &watched->use, &same));
        if (!same)
            return refuse_lost(watched->use.name, watched->use.buffer);
    }
    return ceclSuccess;
}

ceclResult_t cecl_request_check_memory(ceclRequest_t request)
{
    return request->is_stale ? refuse_lost("request", request) : check_watched(request);
}

ceclResult_t cecl_request_refuse_replaced(void)
{
    return cecl_fail(ceclInvalidUsage,
                     "a peer's memory was freed or replaced since the request was made; free the "
                     "request and make it again, on all ranks");
}

bool cecl_request_is_lost(ceclRequest_t request)
{
    const struct cecl_launch *launch = request->collectives;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    const bool lost = cecl_request_check_memory(request) != ceclSuccess ||
                      (launch && cecl_imports_are_dropped(&launch->imports));
    (void)!cecl_fail_with(ceclSuccess, words);
    return lost;
}

/* Refuses a word for which a stream cannot wait. */
static ceclResult_t check_gate(ceclRequest_t request, const struct cecl_start_signal *signal)
{
    CECL_TRY(request->comm->dev->ops->check_pointer(request->comm->dev, signal->word,
                                                    sizeof(*signal->word), "word"));
    if ((uintptr_t)signal->word % sizeof(*signal->word) != 0)
        return cecl_fail(ceclInvalidArgument, "word %p: an address that 4 divides is expected",
                         (void *)signal->word);
    return ceclSuccess;
}

/* The stream is checked first, because *captured decides how peers learn of a refusal. */
static ceclResult_t check(ceclRequest_t request, const struct cecl_start_signal *signal,
                          ceclStream_t stream, bool *captured)
{
    ceclComm_t comm = request->comm;
    CECL_TRY(comm->dev->ops->stream_check(comm->dev, stream, captured));
    CECL_TRY(cecl_request_check_memory(request));
    return signal ? check_gate(request, signal) : ceclSuccess;
}

static ceclResult_t compare(ceclRequest_t request, ceclResult_t local)
{
    const struct cecl_call start = {.op = &cecl_ops[CECL_OP_START], .count = request->number};
    return request->collectives ? cecl_check_call(request->comm, &start, local) : local;
}

/* ---- running */

static void note_windows(const struct cecl_launch *launch, uint32_t target)
{
    for (uint32_t i = 0; i < launch->nfull; i++) {
        cecl_window_used(launch->calls[i].send.window, target);
        cecl_window_used(launch->calls[i].recv.window, target);
    }
}

/* Chooses the program of this start. The history finds ranks that choose differently. */
static struct cecl_bound *choose(ceclRequest_t request, uint32_t *signature)
{
    struct cecl_early_part *early = &request->early;
    *signature = request->signature;
    if (!request->is_ready || !early->is_awaited)
        return request->collectives->program;
    *signature ^= 0x5bd1e995u;
    early->program->given = early->awaited;
    cecl_early_await(&request->comm->engine.flags, (uint32_t)early->awaited[0],
                     (uint32_t)early->awaited[1]);
    return early->program;
}

/* Runs the program. Peers that have also started the request rely on this start. So if only a part of the
 * program can be enqueued, the communicator fails. */
static ceclResult_t run_program(ceclRequest_t request, ceclStream_t stream)
{
    ceclComm_t comm = request->comm;
    struct cecl_launch *launch = request->collectives;
    bool started = false;
    uint32_t signature;
    struct cecl_bound *program = choose(request, &signature);
    request->begun = comm->engine.flags.epoch[CECL_LANE_MAIN];
    request->ran = program;
    const struct cecl_facts facts = {.op = CECL_OP_START, .ncalls = 1, .count = request->number};
    cecl_history_tell(&comm->history, &facts);
    cecl_history_note(&comm->history, signature, cecl_ops[CECL_OP_START].name);
    const ceclResult_t result = cecl_engine_run(&comm->engine, program, stream, &started);
    note_windows(launch, cecl_flags_done_target(&comm->engine.flags));
    return result == ceclSuccess ? ceclSuccess : cecl_comm_break(comm, result);
}

/* If the copies behind the program fail, the caller's buffer is incomplete and no peer knows this. So the
 * communicator fails. */
static ceclResult_t run_collectives(ceclRequest_t request, ceclStream_t stream)
{
    struct cecl_launch *launch = request->collectives;
    const struct cecl_leases *leases = &launch->leases;
    launch->order.stream = stream;
    if (launch->runs && leases->before.count > 0)
        CECL_TRY(cecl_launch_carry(launch, &leases->before));
    if (launch->runs)
        CECL_TRY(run_program(request, stream));
    request->is_ready = false;
    if (leases->after.count == 0)
        return ceclSuccess;
    const ceclResult_t result = cecl_launch_carry(launch, &leases->after);
    return result == ceclSuccess ? ceclSuccess : cecl_comm_break(request->comm, result);
}

/* ---- messages */

/* Describes the request's messages in a new launch, and settles their windows again. */
static ceclResult_t describe_messages(ceclRequest_t request, struct cecl_launch *launch)
{
    CECL_TRY(cecl_launch_describe_again(launch, request->messages));
    return cecl_launch_check(launch);
}

static ceclResult_t issue_messages(ceclRequest_t request, struct cecl_launch *launch)
{
    uint64_t pending_ns = 0;
    CECL_TRY(cecl_launch_tell(launch, request->is_grouped && !request->collectives));
    CECL_TRY(cecl_launch_prepare(launch, &pending_ns));
    return cecl_launch_issue(launch, cecl_ops[CECL_OP_START].name);
}

/* If messages fail after collectives, the communicator fails, because peers rely on the whole start. */
static ceclResult_t run_messages(ceclRequest_t request, struct cecl_launch *launch)
{
    const ceclResult_t result = issue_messages(request, launch);
    if (result != ceclSuccess && request->collectives)
        cecl_launch_owe(launch);
    return result == ceclSuccess ? ceclSuccess : cecl_launch_give_up(launch, result);
}

/* ---- waiting for a word of the program's */

/* The host waits only if very many gates are pending. */
static ceclResult_t wait_for_room(ceclComm_t comm)
{
    const struct timespec pause = {.tv_nsec = 50000};
    while (cecl_gates_pending(&comm->engine.flags) >= CECL_GATES) {
        CECL_TRY(cecl_comm_async(comm));
        nanosleep(&pause, NULL);
    }
    return ceclSuccess;
}

static ceclResult_t issue_gate(ceclComm_t comm, const struct cecl_start_signal *signal,
                               ceclStream_t work)
{
    struct cecl_flags *flags = &comm->engine.flags;
    struct cecl_memop ops[CECL_GATE_OPS];
    if (!cecl_gate_begin(flags, signal->word, signal->value, ops))
        return cecl_fail(ceclRemoteError, "the communicator failed while the call was enqueued");
    const ceclResult_t result = comm->dev->ops->memops(comm->dev, work, ops, CECL_GATE_OPS);
    if (result != ceclSuccess)
        cecl_gate_roll_back(flags);
    return result;
}

/* Makes the stream wait for the word before it does anything of the start. */
static ceclResult_t wait_at_gate(ceclComm_t comm, const struct cecl_start_signal *signal,
                                 ceclStream_t stream)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    ceclStream_t work;
    CECL_TRY(ops->stream_fork(comm->dev, stream, &work));
    const ceclResult_t result = issue_gate(comm, signal, work),
                       joined = ops->stream_join(comm->dev, stream, work);
    return result != ceclSuccess ? result : joined;
}

/* ---- the whole start */

/* Checks the messages, and lets ranks compare the start. *messages: the launch of the request's messages, if there
 * are messages. */
static ceclResult_t check_rest(ceclRequest_t request, ceclStream_t stream, ceclResult_t result,
                               struct cecl_launch **messages)
{
    if (result == ceclSuccess && request->messages) {
        *messages = cecl_launch_take(request->comm, CECL_LAUNCH_MESSAGES, stream);
        result = *messages ? describe_messages(request, *messages) : ceclOutOfMemory;
    }
    return request->comm->config.check ? compare(request, result) : result;
}

/* If a peer's memory is closed, nothing of the start has been enqueued yet. */
static ceclResult_t begin_imports(ceclRequest_t request)
{
    return !request->collectives ||
                   cecl_imports_begin(&request->comm->registry, &request->collectives->imports)
               ? ceclSuccess
               : cecl_request_refuse_replaced();
}

static void end_imports(ceclRequest_t request)
{
    ceclComm_t comm = request->comm;
    if (request->collectives)
        cecl_imports_end(&comm->registry, &request->collectives->imports,
                         cecl_flags_done_target(&comm->engine.flags));
}

/* Enqueues the gate and the collectives. */
static ceclResult_t run_first(ceclRequest_t request, const struct cecl_start_signal *signal,
                              ceclStream_t stream)
{
    if (signal)
        CECL_TRY(wait_at_gate(request->comm, signal, stream));
    return request->collectives ? run_collectives(request, stream) : ceclSuccess;
}

static ceclResult_t start(ceclRequest_t request, const struct cecl_start_signal *signal,
                          ceclStream_t stream, ceclResult_t checked, struct cecl_launch **messages)
{
    CECL_TRY(check_rest(request, stream, checked, messages));
    if (!request->is_bound)
        CECL_TRY(cecl_request_bind(request));
    cecl_comm_called(request->comm, signal ? CECL_START_ON_SIGNAL : cecl_ops[CECL_OP_START].name);
    if (signal)
        CECL_TRY(wait_for_room(request->comm));
    CECL_TRY(begin_imports(request));
    const ceclResult_t result = run_first(request, signal, stream);
    end_imports(request);
    CECL_TRY(result);
    return *messages ? run_messages(request, *messages) : ceclSuccess;
}

ceclResult_t cecl_request_start(ceclRequest_t request, const struct cecl_start_signal *signal,
                                ceclStream_t stream, const char **path)
{
    const struct cecl_flags *flags = &request->comm->engine.flags;
    const uint32_t before = cecl_flags_done_target(flags);
    struct cecl_launch *messages = NULL;
    bool captured = false;
    const ceclResult_t checked = check(request, signal, stream, &captured);
    if (captured)
        return cecl_request_capture(request, signal, stream, checked, path);
    const ceclResult_t result = start(request, signal, stream, checked, &messages);
    cecl_launch_drop(messages);
    if (cecl_flags_done_target(flags) != before) { /* also if a part was enqueued before an error */
        request->target = cecl_flags_done_target(flags);
        request->is_used = true;
    }
    request->is_started = request->is_started || result == ceclSuccess;
    request->end = result == ceclSuccess ? cecl_flags_done_target(flags) : request->end;
    return result;
}
