/* Ranks tell each other where the buffers of a call lie: publishing, learning, and what follows from
 * it for this rank. */
#include "comm/tell.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective.h"
#include "tune/choose.h"
#include "util/clock.h"

/* A record's flags: these bits, and above them what ranks must have equal, as a number. OUTSIDE:
 * cecl_call_is_outside. */
enum { INPUT_READABLE = 1, OUTSIDE = 2 };
static uint32_t without_bits(uint32_t flags)
{
    return flags & ~(uint32_t)(INPUT_READABLE | OUTSIDE);
}
static uint32_t signature_of(const struct cecl_call *call, uint32_t count)
{
    return without_bits(cecl_call_signature(call) + count * 0x9e3779b1u);
}
/* A record's spare words: bytes of the buffers that peers may touch, from their start on. */
enum { RECV_ROOM, SEND_ROOM };

void cecl_teller_close(struct cecl_teller *teller)
{
    free(teller->records);
    free(teller->buffers);
    free(teller->send_at);
    free(teller->outside);
    free(teller->lent);
    *teller = (struct cecl_teller){0};
}

/* Whether ranks must know each other's places: alike on all ranks. */
static bool is_told(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    if (comm->nranks == 1)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!calls[i].op->moves_nothing &&
            !(count == 1 && cecl_keeps_to_own_buffers(comm, &calls[i])))
            return true;
    return false;
}

/* ---- settling */

/* Whether the registry may have, or make, a window of a buffer. Not of a peer's slice of the pool,
 * which the check of buffers refuses. */
static bool may_be_registered(ceclComm_t comm, struct cecl_buffer buffer)
{
    return buffer.window && !cecl_buffer_is_pool(buffer) &&
           !cecl_pool_holds(&comm->pool, cecl_buffer_address(buffer));
}

static struct cecl_use use_of(const struct cecl_call *call, const struct cecl_touched *touched)
{
    const void *ptr = cecl_buffer_address(touched->buffer);
    const bool is_recv = touched->written;
    return (struct cecl_use){.name = is_recv ? "recvbuff" : "sendbuff",
                             .buffer = ptr,
                             .low = (uint64_t)(uintptr_t)ptr + touched->low,
                             .high = (uint64_t)(uintptr_t)ptr + touched->high,
                             .written = is_recv && cecl_call_writes_recv(call)};
}

/* Settles the windows of both buffers, which looks at registered memory. If no window has changed,
 * looks at private memory, too; otherwise the caller comes again. */
ceclResult_t cecl_tell_settle(ceclComm_t comm, const struct cecl_call *call, bool *changed)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    const bool make = comm->windows.register_on_use && comm->nranks > 1;
    const uint64_t before = comm->registry.changes;
    struct cecl_touched touched[2];
    struct cecl_use unshared[CECL_USES];
    size_t nunshared = 0;
    *changed = false;
    if (call->op->moves_nothing || cecl_call_is_empty(call))
        return ceclSuccess;
    const int count = cecl_call_touched(call, touched);
    for (int i = 0; i < count && comm->registry.changes == before; i++) {
        if (!may_be_registered(comm, touched[i].buffer))
            continue;
        const struct cecl_use use = use_of(call, &touched[i]);
        /* settling may forget the window, to which the call has no reference yet */
        const bool is_private = cecl_buffer_is_private(touched[i].buffer);
        CECL_TRY(cecl_comm_cause(comm, cecl_registry_settle(&comm->registry, &use, make)));
        if (is_private)
            unshared[nunshared++] = use;
    }
    *changed = comm->registry.changes != before;
    return *changed || nunshared == 0 || !ops->check_uses
               ? ceclSuccess
               : ops->check_uses(comm->dev, unshared, nunshared);
}

/* ---- publishing */

static bool make_room(struct cecl_teller *teller, int nranks, uint32_t count)
{
    if (count <= teller->room)
        return true;
    const size_t words = (size_t)count * (size_t)nranks;
    void *records = realloc(teller->records, count * cecl_place_record_bytes(nranks));
    teller->records = records ? records : teller->records;
    void *buffers = realloc(teller->buffers, 2 * words * sizeof(*teller->buffers));
    teller->buffers = buffers ? buffers : teller->buffers;
    void *send_at = realloc(teller->send_at, words * sizeof(*teller->send_at));
    teller->send_at = send_at ? send_at : teller->send_at;
    void *outside =
        realloc(teller->outside, count * cecl_outside_words(nranks) * sizeof(*teller->outside));
    teller->outside = outside ? outside : teller->outside;
    void *lent = realloc(teller->lent, count * sizeof(*teller->lent));
    teller->lent = lent ? lent : teller->lent;
    if (!records || !buffers || !send_at || !outside || !lent)
        return false;
    teller->room = count;
    return true;
}

static struct cecl_place_record *record_at(const struct cecl_teller *teller, int nranks,
                                           uint32_t call)
{
    return (void *)((char *)teller->records + call * cecl_place_record_bytes(nranks));
}

static struct cecl_buffer input_of(const struct cecl_call *call)
{
    return cecl_call_is_one_buffer(call) ? call->recv : call->send;
}

/* Each rank has a layout of its own: only the sender knows where a block lies in its sendbuff. */
static bool has_own_layout(const struct cecl_call *call)
{
    return call->op->per_rank && call->layout_words > 0;
}

/* Whether SMs of peers can read a rank's input, if it has one. */
static bool is_readable(struct cecl_buffer input)
{
    return !input.window || cecl_buffer_is_shared(input);
}

/* *lent: what peers may fetch from, if they come late. */
static ceclResult_t fill(ceclComm_t comm, const struct cecl_call *call, uint32_t count,
                         struct cecl_place_record *record, struct cecl_buffer *lent)
{
    struct cecl_buffer input = input_of(call);
    const bool readable = is_readable(input);
    memset(record, 0, cecl_place_record_bytes(comm->nranks));
    if (!cecl_call_is_one_buffer(call))
        CECL_TRY(cecl_carry_lend(comm, call, &input));
    *lent = input;
    record->send_window = cecl_buffer_number(input);
    record->send_offset = input.offset;
    record->recv_window = cecl_buffer_number(call->recv);
    record->recv_offset = call->recv.offset;
    record->flags = signature_of(call, count) | (readable ? INPUT_READABLE : 0) |
                    (cecl_call_is_outside(call) ? OUTSIDE : 0);
    record->spare[RECV_ROOM] = cecl_call_recv_needed(call);
    record->spare[SEND_ROOM] = cecl_call_send_needed(call);
    if (!has_own_layout(call))
        return ceclSuccess;
    record->nper_peer = (uint32_t)comm->nranks;
    for (int r = 0; r < comm->nranks; r++)
        record->per_peer[r] = cecl_call_block(call, comm->rank, r).send_offset;
    return ceclSuccess;
}

bool cecl_tell_goes_on(void *context)
{
    ceclComm_t comm = context;
    return atomic_load(&comm->async_result) == ceclSuccess &&
           cecl_ms_left(comm->teller.deadline) != 0;
}

/* The error of a wait that cecl_tell_goes_on ended. */
static ceclResult_t ended(ceclComm_t comm, const struct cecl_call *calls)
{
    CECL_TRY(cecl_comm_async(comm));
    cecl_fail(ceclTimeout,
              "%s: a rank did not make the calls before this one within %d ms (CECL_TIMEOUT_MS)",
              calls[0].op->name, comm->config.timeout_ms);
    cecl_comm_set_async(comm, ceclTimeout, cecl_message());
    return cecl_comm_async(comm);
}

ceclResult_t cecl_tell_reserve(ceclComm_t comm, uint32_t count)
{
    return comm->nranks == 1 || make_room(&comm->teller, comm->nranks, count)
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for the places of %u calls", count);
}

ceclResult_t cecl_tell_publish(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    struct cecl_teller *teller = &comm->teller;
    teller->is_open = false;
    if (!is_told(comm, calls, count))
        return ceclSuccess;
    CECL_TRY(cecl_tell_reserve(comm, count));
    for (uint32_t i = 0; i < count; i++)
        CECL_TRY(
            fill(comm, &calls[i], count, record_at(teller, comm->nranks, i), &teller->lent[i]));
    for (uint32_t i = 0; i < count; i++) /* lending may have registered memory */
        record_at(teller, comm->nranks, i)->version = comm->registry.posted;
    teller->deadline =
        comm->config.timeout_ms > 0 ? cecl_deadline(comm->config.timeout_ms) : CECL_NO_DEADLINE;
    if (!cecl_places_publish(&teller->places, teller->records, count, cecl_tell_goes_on, comm,
                             &teller->group))
        return ended(comm, calls);
    teller->is_open = teller->owes = true;
    return ceclSuccess;
}

ceclResult_t cecl_tell_break(ceclComm_t comm, ceclResult_t result)
{
    const bool owed = comm->teller.owes;
    comm->teller.owes = comm->teller.is_open = false;
    cecl_registry_made(&comm->registry);
    return owed ? cecl_comm_break(comm, result) : result;
}

/* ---- learning */

static ceclResult_t check_block(ceclComm_t comm, int from, int to, uint64_t at, uint64_t bytes,
                                uint64_t room, const char *buffer, int owner)
{
    if (bytes == 0 || (bytes <= room && at <= room - bytes))
        return ceclSuccess;
    return cecl_fail(ceclInvalidUsage,
                     "the block from rank %d to rank %d: %" PRIu64 " bytes from byte %" PRIu64
                     " on end beyond %s of rank %d, of which %" PRIu64
                     " bytes are in use: counts or "
                     "displacements of these ranks do not agree%s",
                     from, to, bytes, at, buffer, owner, room, cecl_comm_hint(comm));
}

/* Each rank has its own counts: a block must not leave the peer's buffer. `fetched_at`: where in the
 * peer's sendbuff this rank's block lies, if this rank fetches it; else NULL. */
static ceclResult_t check_blocks(ceclComm_t comm, const struct cecl_call *call, int peer,
                                 const struct cecl_place_record *record, const uint64_t *fetched_at)
{
    const int me = call->rank;
    const struct cecl_block there = cecl_call_block(call, me, peer),
                            here = cecl_call_block(call, peer, me);
    CECL_TRY(check_block(comm, me, peer, there.recv_offset, there.bytes, record->spare[RECV_ROOM],
                         "recvbuff", peer));
    return fetched_at ? check_block(comm, peer, me, *fetched_at, here.bytes,
                                    record->spare[SEND_ROOM], "sendbuff", peer)
                      : ceclSuccess;
}

/* What of a rank's record this rank uses. A copy, because a broken peer may change it. */
static void note_buffers(const struct cecl_place_record *record, bool wants_input,
                         struct cecl_peer_buffer buffers[2])
{
    buffers[0] = wants_input ? (struct cecl_peer_buffer){record->send_window, record->send_offset}
                             : (struct cecl_peer_buffer){CECL_WINDOW_NONE, 0};
    buffers[1] = (struct cecl_peer_buffer){record->recv_window, record->recv_offset};
}

/* Ranks that make different calls would write where they must not. NCCL has no all-to-all in place, so
 * that difference has words of its own. */
static ceclResult_t check_same(ceclComm_t comm, const struct cecl_call *call, uint32_t count,
                               int rank, uint32_t flags)
{
    const uint32_t theirs = without_bits(flags);
    struct cecl_call other = *call;
    other.in_place = !call->in_place;
    if (theirs == signature_of(call, count))
        return ceclSuccess;
    if (theirs == signature_of(&other, count))
        return cecl_fail(ceclInvalidUsage,
                         "%s is in place on rank %d, and not on rank %d; an all-to-all is in place "
                         "on all ranks or on none",
                         call->op->name, call->in_place ? call->rank : rank,
                         call->in_place ? rank : call->rank);
    return cecl_fail(ceclInvalidUsage,
                     "%s: rank %d makes another call, or this one with another count, type, root, "
                     "options or group%s",
                     call->op->name, rank, cecl_comm_hint(comm));
}

static void note_outside(ceclComm_t comm, uint32_t call, int rank, bool outside)
{
    uint64_t *words = comm->teller.outside + call * cecl_outside_words(comm->nranks);
    words[rank / 64] |= (uint64_t)outside << rank % 64;
}

/* A rank's record of each call. *differ is set if that rank and this one differ in
 * cecl_call_is_outside. */
static ceclResult_t learn_rank(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                               int rank, struct cecl_told *told, bool *differ)
{
    struct cecl_teller *teller = &comm->teller;
    uint64_t version = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct cecl_place_record *record =
            cecl_places_of(&teller->places, teller->group.first + i, rank);
        const size_t at = (size_t)i * (size_t)comm->nranks + (size_t)rank;
        const uint32_t flags = record->flags;
        note_buffers(record, told->late || told->inputs_readable, &teller->buffers[2 * at]);
        version = record->version;
        CECL_TRY(check_same(comm, &calls[i], count, rank, flags));
        note_outside(comm, i, rank, (flags & OUTSIDE) != 0);
        *differ = *differ || ((flags & OUTSIDE) != 0) != cecl_call_is_outside(&calls[i]);
        if (!has_own_layout(&calls[i]))
            continue;
        if (told->late)
            teller->send_at[at] = record->per_peer[comm->rank];
        CECL_TRY(
            check_blocks(comm, &calls[i], rank, record, told->late ? &teller->send_at[at] : NULL));
    }
    cecl_registry_promised(&comm->registry, rank, version);
    return ceclSuccess;
}

static bool are_readable(ceclComm_t comm, uint32_t count)
{
    const struct cecl_teller *teller = &comm->teller;
    bool readable = true;
    for (uint32_t i = 0; i < count; i++)
        for (int r = 0; r < comm->nranks; r++)
            readable =
                readable && (cecl_places_of(&teller->places, teller->group.first + i, r)->flags &
                             INPUT_READABLE) != 0;
    return readable;
}

/* Whether a peer's buffer lies where this rank has its own, in the pool. */
static bool is_at(struct cecl_peer_buffer theirs, struct cecl_buffer mine)
{
    return cecl_buffer_is_pool(mine) && theirs.window == CECL_WINDOW_POOL &&
           theirs.offset == mine.offset;
}

/* Whether all ranks that this one knows have the buffers of a call where it has its own, in the
 * pool. */
static bool is_symmetric(ceclComm_t comm, const struct cecl_call *call, uint32_t index,
                         const struct cecl_told *told)
{
    const struct cecl_teller *teller = &comm->teller;
    const struct cecl_buffer input = input_of(call);
    const bool wants_input = told->late || told->inputs_readable;
    for (int r = 0; r < comm->nranks; r++) {
        const size_t at = (size_t)index * (size_t)comm->nranks + (size_t)r;
        const struct cecl_peer_buffer *theirs = &teller->buffers[2 * at];
        if (r == comm->rank || !cecl_places_knows(&teller->places, &teller->group, r))
            continue;
        if (!is_at(theirs[1], call->recv) || (wants_input && !is_at(theirs[0], input)))
            return false;
    }
    return true;
}

static bool all_symmetric(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                          const struct cecl_told *told)
{
    for (uint32_t i = 0; i < count; i++)
        if (!calls[i].op->moves_nothing && !is_symmetric(comm, &calls[i], i, told))
            return false;
    return true;
}

static ceclResult_t learn(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                          struct cecl_told *told)
{
    struct cecl_teller *teller = &comm->teller;
    const size_t words = (size_t)count * (size_t)comm->nranks;
    const size_t bits = count * cecl_outside_words(comm->nranks);
    bool own_layouts = false, differ = false;
    memset(teller->outside, 0, bits * sizeof(*teller->outside));
    memset(teller->buffers, 0, 2 * words * sizeof(*teller->buffers));
    memset(teller->send_at, 0, words * sizeof(*teller->send_at));
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && cecl_places_knows(&teller->places, &teller->group, r))
            CECL_TRY(learn_rank(comm, calls, count, r, told, &differ));
    for (uint32_t i = 0; i < count; i++) {
        own_layouts = own_layouts || has_own_layout(&calls[i]);
        note_outside(comm, i, comm->rank, cecl_call_is_outside(&calls[i]));
    }
    if (differ) {
        told->outside = teller->outside;
        told->noutside = bits;
    }
    if (!all_symmetric(comm, calls, count, told)) {
        told->buffers = teller->buffers;
        told->nbuffers = 2 * words;
    }
    if (told->late && own_layouts) {
        told->send_at = teller->send_at;
        told->nsend_at = words;
    }
    return ceclSuccess;
}

/* Ranks that come later fetch what this rank sends, out of bounce buffers where it is private. */
static ceclResult_t lend(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                         const struct cecl_told *told)
{
    const uint64_t all = comm->nranks < 64 ? (UINT64_C(1) << comm->nranks) - 1 : UINT64_MAX,
                   others = all & ~(UINT64_C(1) << comm->rank);
    if (!told->late || (told->earlier & others) == others)
        return ceclSuccess;
    for (uint32_t i = 0; i < count; i++) {
        if (cecl_buffer_is_private(calls[i].send) && !calls[i].op->reduces)
            CECL_TRY(cecl_carry_sent(comm, &calls[i], comm->teller.lent[i]));
    }
    return ceclSuccess;
}

#define PATIENCE_MAX_NS UINT64_C(100000000) /* registering may have waited for a peer */

/* How long this rank waits for late ones. Where it has just registered memory it waits as long again:
 * its peers often have new memory at the same call, and take more or less time to register it. */
static uint64_t patience(ceclComm_t comm)
{
    const uint64_t took = comm->registry.telling_ns;
    comm->registry.telling_ns = 0;
    return cecl_tuning_get(&comm->tuning, CECL_TUNE_LATE_WAIT_NS) +
           (took < PATIENCE_MAX_NS ? took : PATIENCE_MAX_NS);
}

ceclResult_t cecl_tell_learn(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                             struct cecl_told *told)
{
    struct cecl_teller *teller = &comm->teller;
    *told = cecl_tell_alone(calls, count);
    if (!teller->is_open)
        return ceclSuccess;
    teller->is_open = false;
    const enum cecl_places_outcome outcome =
        cecl_places_meet(&teller->places, &teller->group, patience(comm), cecl_tell_goes_on, comm);
    if (outcome == CECL_PLACES_STOPPED)
        return ended(comm, calls);
    *told = (struct cecl_told){.late = outcome == CECL_PLACES_LATE};
    told->earlier = told->late ? teller->group.earlier : 0;
    told->inputs_readable = !told->late && are_readable(comm, count);
    ceclResult_t result = learn(comm, calls, count, told);
    if (result == ceclSuccess)
        result = lend(comm, calls, count, told);
    cecl_places_finish(&teller->places, &teller->group);
    return result == ceclSuccess ? ceclSuccess : cecl_tell_break(comm, result);
}

struct cecl_told cecl_tell_alone(const struct cecl_call *calls, uint32_t count)
{
    struct cecl_told told = {.inputs_readable = true};
    for (uint32_t i = 0; i < count; i++) {
        const struct cecl_buffer input = input_of(&calls[i]);
        told.inputs_readable = told.inputs_readable && is_readable(input);
    }
    return told;
}
