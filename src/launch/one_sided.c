/* Checks and issues one-sided calls; see one_sided.h. */
#include "launch/one_sided.h"

#include <inttypes.h>
#include <stdio.h>

#include "flags/awaited.h"
#include "flags/flags.h"
#include "launch/steps.h"
#include "util/grow.h"

/* A call that is being made. */
struct making {
    ceclComm_t comm;
    const struct cecl_one_sided_args *args;
    uint32_t ngiven; /* how many pairs (slot, value) launcher->once.given has so far */
    uint64_t bytes;
    struct cecl_line_at at;
    struct cecl_one_sided call;
    struct cecl_one_sided_signal sent;
};

/* ---- checking */

ceclResult_t cecl_window_handle_check(ceclComm_t comm, ceclWindow_t window)
{
    CECL_TRY(cecl_check_given("window", window));
    if (window->magic != CECL_SHARE_MAGIC)
        return cecl_fail(ceclInvalidArgument, "window %p: not a window (freed before?)",
                         (void *)window);
    if (window->comm != comm)
        return cecl_fail(ceclInvalidArgument, "window %p: of a different communicator",
                         (void *)window);
    return ceclSuccess;
}

ceclResult_t cecl_peer_check(ceclComm_t comm, int peer)
{
    if (peer < 0 || peer >= comm->nranks)
        return cecl_fail(ceclInvalidArgument, "peer %d: 0 to %d expected", peer, comm->nranks - 1);
    return ceclSuccess;
}

static ceclResult_t check_signal(ceclComm_t comm, int signal)
{
    if (!comm->engine.flags.signals)
        return cecl_fail(ceclInvalidUsage,
                         "signals in a communicator of %d ranks: at most %d ranks expected",
                         comm->nranks, CECL_ONE_SIDED_RANKS);
    return signal >= 0 && signal < CECL_SIGNALS
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument, "signal %d: 0 to %d expected", signal,
                           CECL_SIGNALS - 1);
}

/* at most this many awaited signals may be missing, because words are compared modulo 2^32 */
#define AHEAD_MOST (1u << 30)

/* Several entries of `waits` may await one signal, so `sum` [in, out] adds up the counts of all entries so far. */
static ceclResult_t check_count(ceclComm_t comm, const ceclSignalWait_t *wait, int i, uint64_t *sum)
{
    const struct cecl_flags *flags = &comm->engine.flags;
    const uint64_t ahead = cecl_awaited_missing(
        flags, cecl_awaited_at(flags, CECL_ROW_SIGNAL + wait->signal, wait->peer));
    *sum += wait->count < 1 ? 0 : (uint64_t)wait->count;
    return wait->count >= 1 && *sum + ahead <= AHEAD_MOST
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "waits[%d].count %d: 1 or more expected, and at most %u together "
                           "with earlier entries and the %" PRIu64
                           " signals of earlier pending waits",
                           i, wait->count, AHEAD_MOST, ahead);
}

static ceclResult_t check_waits(ceclComm_t comm, const struct cecl_one_sided_args *args)
{
    uint64_t sum = 0;
    if (args->nwaits < 1)
        return cecl_fail(ceclInvalidArgument, "nwaits %d: 1 or more expected", args->nwaits);
    if (!args->waits)
        return cecl_fail(ceclInvalidArgument, "waits: NULL, with nwaits %d", args->nwaits);
    for (int i = 0; i < args->nwaits; i++) {
        ceclResult_t result = cecl_peer_check(comm, args->waits[i].peer);
        if (result == ceclSuccess)
            result = check_signal(comm, args->waits[i].signal);
        if (result != ceclSuccess)
            return cecl_fail(result, "waits[%d].%s", i, cecl_message());
        CECL_TRY(check_count(comm, &args->waits[i], i, &sum));
    }
    return ceclSuccess;
}

/* If the peer has left, fails the communicator, because the peer's memory may be gone. */
static ceclResult_t check_is_there(ceclComm_t comm, int peer)
{
    if (peer == comm->rank || !cecl_mesh_left(comm->mesh, peer))
        return ceclSuccess;
    return cecl_comm_break(
        comm, cecl_fail(ceclRemoteError, CECL_COMM_HAS_LEFT("a one-sided call needs it"), peer));
}

/* Checks that the bytes lie within the memory that the peer shares, and that the peer still has that memory. */
static ceclResult_t check_range(const struct making *making)
{
    const struct cecl_one_sided_args *args = making->args;
    const struct cecl_share_part *part = &args->window->parts[args->peer];
    if (args->offset > part->bytes || making->bytes > part->bytes - args->offset)
        return cecl_fail(
            ceclInvalidArgument,
            "offset %zu: %" PRIu64 " bytes from this offset on end outside the %" PRIu64
            " bytes that rank %d shares in window %" PRIu32,
            args->offset, making->bytes, part->bytes, args->peer, args->window->number);
    return cecl_imports_are_dropped(&part->imports)
               ? cecl_fail(ceclInvalidUsage,
                           "window %" PRIu32
                           ": rank %d has freed or replaced its memory, which must "
                           "stay until ceclWindowFree",
                           args->window->number, args->peer)
               : ceclSuccess;
}

/* Checks the memory of both ranks, because the peer's host makes no call that could check it. Memory of the pool needs
 * no check: it is not unmapped while the communicator lives. */
static ceclResult_t check_memory(ceclComm_t comm, const struct making *making)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    const struct cecl_one_sided_args *args = making->args;
    const struct cecl_share_part *part = &args->window->parts[args->peer];
    const char *name = args->gets ? "recvbuff" : "sendbuff";
    char there[64];
    struct cecl_use uses[2];
    size_t count = 0;
    if (!args->local)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", name);
    const struct cecl_buffer buffer = cecl_window_find(&comm->windows, args->local);
    CECL_TRY(cecl_window_check(&comm->windows, buffer, making->bytes, name));
    if (!cecl_buffer_is_pool(buffer)) {
        uses[count] = cecl_use_all(args->local, making->bytes, name);
        uses[count++].written = args->gets;
    }
    if (cecl_buffer_is_private(buffer))
        cecl_settle_say_private(comm, args->name, &uses[0]);
    if (part->at.window != CECL_WINDOW_POOL) {
        snprintf(there, sizeof(there), "window %" PRIu32 ", memory of rank %d",
                 args->window->number, args->peer);
        uses[count] = cecl_use_all(part->address + args->offset, making->bytes, there);
        uses[count++].written = !args->gets;
    }
    return ops->check_uses && count > 0 ? ops->check_uses(comm->dev, uses, count) : ceclSuccess;
}

/* Refuses a copy within one GPU without CECL_SM_ALLOW: with today's drivers such a copy needs an SM. */
static ceclResult_t check_policy(ceclComm_t comm, int peer)
{
    if (peer != comm->rank || comm->options.sm_policy == CECL_SM_ALLOW)
        return ceclSuccess;
    return cecl_fail(
        ceclInvalidUsage,
        "peer %d is the rank itself: a copy within one GPU needs an SM; set smPolicy or "
        "CECL_SM_POLICY to CECL_SM_ALLOW, or copy by ceclMemcpyAsync",
        peer);
}

static ceclResult_t check_copy(ceclComm_t comm, struct making *making)
{
    const struct cecl_one_sided_args *args = making->args;
    const uint64_t element = cecl_type_bytes(args->type);
    if (element == 0)
        return cecl_fail(ceclInvalidArgument, "datatype %d: 0 to %d expected (ceclDataType_t)",
                         (int)args->type, CECL_NUM_TYPES - 1);
    if (__builtin_mul_overflow(args->count, element, &making->bytes))
        return cecl_fail(ceclInvalidArgument,
                         "count %zu: as many elements do not fit into the address space",
                         args->count);
    CECL_TRY(cecl_window_handle_check(comm, args->window));
    CECL_TRY(check_range(making));
    if (making->bytes == 0)
        return ceclSuccess;
    CECL_TRY(check_policy(comm, args->peer));
    return check_memory(comm, making);
}

static ceclResult_t check_args(ceclComm_t comm, struct making *making)
{
    const struct cecl_one_sided_args *args = making->args;
    if (args->is_wait)
        return check_waits(comm, args);
    CECL_TRY(cecl_peer_check(comm, args->peer));
    if (args->is_signal)
        CECL_TRY(check_signal(comm, args->signal));
    if (args->is_copy)
        CECL_TRY(check_copy(comm, making));
    return check_is_there(comm, args->peer);
}

/* ---- describing: slots and values of the call's signals and waits */

/* Adds a pair (slot, value) for a signal or a wait of the plan. Returns the counter and the value's index. */
static struct cecl_counted give_value(struct making *making, uint32_t counter, uint32_t slot,
                                      uint32_t value)
{
    uint64_t *given = making->comm->launcher->once.given;
    const uint32_t at = 2 * making->ngiven++;
    given[at] = slot;
    given[at + 1] = value;
    return (struct cecl_counted){counter, at + 1};
}

static struct cecl_counted give_line(struct making *making, struct cecl_line_at at)
{
    return give_value(making, CECL_COUNTER_LINE, at.line, cecl_line_value(at));
}

/* A wait for call `last`; zeroed if no wait is needed, because that call is on the same line or done. */
static struct cecl_counted behind(struct making *making, struct cecl_line_at last)
{
    const struct cecl_flags *flags = &making->comm->engine.flags;
    return last.line == making->at.line || cecl_line_is_done(flags, last) ? (struct cecl_counted){0}
                                                                          : give_line(making, last);
}

static struct cecl_signal *signal_of(const struct making *making, int peer, int number)
{
    const struct cecl_flags *flags = &making->comm->engine.flags;
    return &flags->signals[cecl_signal_at(flags, peer, number)];
}

static void describe_sent(struct making *making)
{
    const struct cecl_one_sided_args *args = making->args;
    struct cecl_signal *signal = signal_of(making, args->peer, args->signal);
    making->sent = (struct cecl_one_sided_signal){
        .peer = args->peer,
        .after = behind(making, signal->last_sent),
        .of = give_value(making, CECL_COUNTER_SIGNAL, (uint32_t)args->signal,
                         CECL_FIRST_EPOCH + ++signal->sent)};
    making->call.sent = &making->sent;
}

/* The index of the word that entry i of `waits` awaits. */
static uint32_t awaited_of(const struct making *making, int i)
{
    const ceclSignalWait_t *wait = &making->args->waits[i];
    return cecl_awaited_at(&making->comm->engine.flags, CECL_ROW_SIGNAL + wait->signal, wait->peer);
}

/* Writes the awaited values before the waits are enqueued, because after a failure the watchdog ends waits up to the
 * values that it finds. */
static void describe_waits(struct making *making)
{
    const struct cecl_one_sided_args *args = making->args;
    const struct cecl_flags *flags = &making->comm->engine.flags;
    for (int i = 0; i < args->nwaits; i++) {
        const ceclSignalWait_t *wait = &args->waits[i];
        const uint32_t at = awaited_of(making, i), count = (uint32_t)wait->count,
                       value = atomic_fetch_add(&flags->awaited.last[at], count) + count;
        making->comm->launcher->one_sided.waits[i] = (struct cecl_one_sided_signal){
            .peer = wait->peer,
            .after = behind(making, signal_of(making, wait->peer, wait->signal)->last_wait),
            .reached = give_value(making, CECL_COUNTER_WAITS, at, value),
            .of = give_value(making, CECL_COUNTER_SIGNAL, (uint32_t)wait->signal, value)};
    }
    making->call.waits = making->comm->launcher->one_sided.waits;
    making->call.nwaits = (uint32_t)args->nwaits;
}

static void describe_call(struct making *making, uint64_t stream_id)
{
    const struct cecl_one_sided_args *args = making->args;
    struct cecl_line_at after;
    making->at = cecl_line_begin(&making->comm->engine.flags, stream_id, &after);
    making->call = (struct cecl_one_sided){
        .peer = args->peer, .gets = args->gets, .bytes = args->is_copy ? making->bytes : 0};
    if (after.call)
        making->call.after = give_line(making, after);
    if (args->is_signal)
        describe_sent(making);
    if (args->is_wait)
        describe_waits(making);
    making->call.done = give_line(making, making->at);
}

/* Undoes describe_call(). Nothing of the call may be enqueued yet. */
static void roll_back(struct making *making)
{
    const struct cecl_one_sided_args *args = making->args;
    struct cecl_flags *flags = &making->comm->engine.flags;
    if (args->is_signal)
        signal_of(making, args->peer, args->signal)->sent--;
    for (int i = 0; args->is_wait && i < args->nwaits; i++)
        atomic_fetch_sub(&flags->awaited.last[awaited_of(making, i)],
                         (uint32_t)args->waits[i].count);
    cecl_line_roll_back(flags, making->at);
}

static void commit_call(struct making *making)
{
    const struct cecl_one_sided_args *args = making->args;
    if (args->is_copy)
        args->window->used[making->at.line] = making->at.call;
    if (args->is_signal)
        signal_of(making, args->peer, args->signal)->last_sent = making->at;
    for (int i = 0; args->is_wait && i < args->nwaits; i++)
        signal_of(making, args->waits[i].peer, args->waits[i].signal)->last_wait = making->at;
}

/* ---- issuing */

/* Ends a call that was enqueued only in part: behind that part the stream marks the call as done, so that its memory
 * can be given back. If even this write cannot be enqueued, the call counts as pending for ever and keeps its
 * memory. */
static void end_what_began(const struct making *making, ceclStream_t work)
{
    const struct cecl_flags *flags = &making->comm->engine.flags;
    const struct cecl_memop done = {&flags->lines.done[making->at.line],
                                    cecl_line_value(making->at), CECL_MEMOP_WRITE};
    (void)!flags->dev->ops->memops(flags->dev, work, &done, 1);
}

static ceclResult_t bind_call(struct making *making)
{
    ceclComm_t comm = making->comm;
    const struct cecl_one_sided_args *args = making->args;
    struct cecl_ends ends[2] = {{NULL, NULL}};
    if (making->call.bytes > 0) {
        char *at = args->window->parts[args->peer].address + args->offset;
        ends[0] = (struct cecl_ends){.here = args->local, .there = at};
        ends[1] = (struct cecl_ends){.here = at};
    }
    CECL_TRY(cecl_lower_one_sided(&making->call, cecl_once_plan(comm, false, true)));
    return cecl_once_bind(comm, ends);
}

static ceclResult_t issue_call(struct making *making, ceclStream_t work)
{
    const struct cecl_engine *engine = &making->comm->engine;
    const struct cecl_bound *bound = &making->comm->launcher->once.bound;
    char words[CECL_MESSAGE_BYTES];
    describe_call(making, engine->dev->ops->stream_id(engine->dev, work));
    ceclResult_t result = bind_call(making);
    if (result != ceclSuccess) {
        roll_back(making);
        return result;
    }
    cecl_cells_fill(bound->cells, bound->ncells, engine->flags.epoch, bound->given);
    result = cecl_bound_issue(engine, bound, work, false);
    commit_call(making);
    if (result == ceclSuccess)
        return ceclSuccess;
    cecl_keep_message(words);
    end_what_began(making, work);
    return cecl_comm_break(making->comm, cecl_fail_with(result, words));
}

/* Makes room for pairs (slot, value): at most three for each wait (its `after`, `reached` and `of`) and four for the
 * rest of the call (its `after` and `done`; `after` and `of` of the signal that it sends). */
static ceclResult_t reserve_values(struct cecl_launcher *launcher, uint32_t nwaits)
{
    struct cecl_one_sided_room *room = &launcher->one_sided;
    if (nwaits > room->waits_room && cecl_list_grow(&room->waits, nwaits * sizeof(*room->waits)))
        room->waits_room = nwaits;
    return nwaits <= room->waits_room
               ? cecl_once_reserve(&launcher->once, 2 * (3 * nwaits + 4))
               : cecl_fail(ceclOutOfMemory, "no host memory for a wait for %u signals", nwaits);
}

ceclResult_t cecl_one_sided_make(ceclComm_t comm, const struct cecl_one_sided_args *args,
                                 ceclStream_t stream)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    struct making making = {.comm = comm, .args = args};
    struct cecl_capture capture;
    ceclStream_t work;
    CECL_TRY(ops->stream_check(comm->dev, stream, &capture));
    if (capture.id != 0)
        return cecl_fail(ceclInvalidUsage,
                         "%s: stream %p captures a graph, and one-sided calls cannot be captured; "
                         "capture a message (ceclSend, ceclRecv) or ceclAlltoAllvAt instead",
                         args->name, (void *)stream);
    CECL_TRY(check_args(comm, &making));
    if (args->is_copy && !args->is_signal && making.bytes == 0)
        return ceclSuccess;
    CECL_TRY(reserve_values(comm->launcher, (uint32_t)args->nwaits));
    CECL_TRY(ops->stream_fork(comm->dev, stream, &work));
    const ceclResult_t result = issue_call(&making, work),
                       joined = ops->stream_join(comm->dev, stream, work);
    if (result != ceclSuccess || joined == ceclSuccess)
        return result;
    /* the call is carried out, but `stream` does not wait for it */
    return cecl_comm_break(comm, joined);
}
