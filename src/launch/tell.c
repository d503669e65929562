/* Ranks tell each other where the buffers of a call lie: each publishes its places, and learns those of its peers. */
#include "launch/steps.h"

#include <inttypes.h>
#include <string.h>

/* A record's flags have two bits that may differ between ranks. The other bits are a signature of the call, which must
 * be equal on all ranks. OUTSIDE: cecl_call_is_outside. */
enum { INPUT_READABLE = 1, OUTSIDE = 2 };
static uint32_t without_bits(uint32_t flags)
{
    return flags & ~(uint32_t)(INPUT_READABLE | OUTSIDE);
}
static uint32_t signature_of(const struct cecl_call *call, uint32_t count)
{
    return without_bits(cecl_call_signature(call) + count * 0x9e3779b1u);
}
/* indices in a record's `spare`: how many bytes of recvbuff and of sendbuff peers may touch */
enum { RECV_ROOM, SEND_ROOM };

/* Whether ranks must know each other's places for these calls, which are carried out as one. Equal on all ranks. */
static bool is_told(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    if (comm->nranks == 1)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (calls[i].op->family != CECL_FAMILY_BARRIER &&
            !(count == 1 && cecl_keeps_to_own_buffers(comm, &calls[i])))
            return true;
    return false;
}

/* ---- publishing */

static struct cecl_buffer input_of(const struct cecl_call *call)
{
    return cecl_call_is_one_buffer(call) ? call->recv : call->send;
}

/* Whether the layout differs between ranks, so that only the sender knows where a block lies in its sendbuff. */
static bool has_own_layout(const struct cecl_call *call)
{
    return call->op->family == CECL_FAMILY_OWN_LAYOUT && call->layout_words > 0;
}

/* Whether SMs of peers can read `input`; true if the call has no input. */
static bool is_readable(struct cecl_buffer input)
{
    return !input.window || cecl_buffer_is_shared(input);
}

/* Fills in a record. *lent: [out] the buffer from which peers that come later fetch. */
static ceclResult_t fill_record(struct cecl_launch *launch, const struct cecl_call *call,
                                struct cecl_place_record *record, struct cecl_buffer *lent)
{
    const int nranks = call->nranks;
    struct cecl_buffer input = input_of(call);
    const bool readable = is_readable(input);
    memset(record, 0, cecl_place_record_bytes(nranks));
    if (!cecl_call_is_one_buffer(call) &&
        !launch->is_captured) /* no rank is late to a captured call */
        CECL_TRY(cecl_carry_lend(launch, call, &input));
    *lent = input;
    record->send_window = cecl_buffer_number(input);
    record->send_offset = input.offset;
    record->recv_window = cecl_buffer_number(call->recv);
    record->recv_offset = call->recv.offset;
    record->flags = signature_of(call, launch->nfull) | (readable ? INPUT_READABLE : 0) |
                    (cecl_call_is_outside(call) ? OUTSIDE : 0);
    if (!has_own_layout(call))
        return ceclSuccess;
    record->spare[RECV_ROOM] = cecl_call_recv_needed(call);
    record->spare[SEND_ROOM] = cecl_call_send_needed(call);
    for (int r = 0; r < nranks; r++)
        record->per_peer[r] = cecl_call_block(call, call->rank, r).send_offset;
    return ceclSuccess;
}

ceclResult_t cecl_tell_publish(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    struct cecl_places *places = &comm->launcher->places;
    const uint32_t count = launch->nfull;
    if (!is_told(comm, launch->calls, count))
        return ceclSuccess;
    if (!cecl_places_begin(places, count, cecl_launch_goes_on, comm))
        return cecl_launch_wait_ended(launch);
    for (uint32_t i = 0; i < count; i++)
        CECL_TRY(fill_record(launch, &launch->calls[i], cecl_places_own(places, i),
                             &launch->origins[i].lent));
    for (uint32_t i = 0; i < count; i++) /* after fill_record(), which may register memory */
        cecl_places_own(places, i)->version = comm->registry.posted;
    cecl_places_publish(places, count, &launch->places);
    launch->is_open = true;
    launch->is_owed = true;
    return ceclSuccess;
}

/* ---- learning */

/* The record of rank `rank` for a call. This rank must already know that rank's places. */
static const struct cecl_place_record *told_by(const struct cecl_launch *launch, uint32_t call,
                                               int rank)
{
    return cecl_places_of(&launch->comm->launcher->places, launch->places.first + call, rank);
}

static ceclResult_t check_block(ceclComm_t comm, int from, int to, uint64_t at, uint64_t bytes,
                                uint64_t room, const char *buffer, int owner)
{
    if (bytes == 0 || (bytes <= room && at <= room - bytes))
        return ceclSuccess;
    return cecl_fail(ceclInvalidUsage,
                     "the block from rank %d to rank %d: %" PRIu64 " bytes from byte %" PRIu64
                     " on end beyond %s of rank %d, of which %" PRIu64
                     " bytes are in use: counts or displacements of these ranks differ%s",
                     from, to, bytes, at, buffer, owner, room, cecl_comm_hint(comm));
}

/* Checks that blocks lie within the peer's buffers. If the two ranks' counts do not match, a block may lie outside.
 * `fetched_at`: where the block for this rank lies in the peer's sendbuff, if this rank fetches it; otherwise NULL. */
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

/* Refuses a call if rank `rank` makes a different one: ranks would write to wrong places. If only one of the two ranks
 * captures the call, the message says so. */
static ceclResult_t check_same(const struct cecl_launch *launch, uint32_t index, int rank,
                               uint32_t flags)
{
    ceclComm_t comm = launch->comm;
    const struct cecl_call *call = &launch->calls[index];
    if (without_bits(flags) == without_bits(told_by(launch, index, comm->rank)->flags))
        return ceclSuccess;
    struct cecl_call captured = *call;
    captured.captured = !call->captured;
    if (without_bits(flags) == signature_of(&captured, launch->nfull))
        return cecl_fail(ceclInvalidUsage,
                         "%s: a graph captures the call on rank %d, but not on rank %d; either all "
                         "ranks must capture a call, or none",
                         call->op->name, call->captured ? call->rank : rank,
                         call->captured ? rank : call->rank);
    struct cecl_facts facts, others;
    const bool known = cecl_history_next(&comm->history, rank, &facts, &others);
    return cecl_comm_differ(comm, call->op->name, rank, known ? &facts : NULL, &others);
}

static void note_outside(struct cecl_launch *launch, uint32_t call, int rank, bool outside)
{
    uint64_t *words = launch->told.outside + call * cecl_outside_words(launch->comm->nranks);
    words[rank / 64] |= (uint64_t)outside << rank % 64;
}

/* Copies what this rank needs of another rank's records of all calls. A faulty peer could change its records later, but
 * not the copy. Sets *differ if one of the two ranks is outside and the other is not. */
static ceclResult_t learn_rank(struct cecl_launch *launch, int rank, bool *differ)
{
    ceclComm_t comm = launch->comm;
    const struct cecl_call *calls = launch->calls;
    struct cecl_told *told = &launch->told;
    uint64_t version = 0;
    for (uint32_t i = 0; i < launch->nfull; i++) {
        const struct cecl_place_record *record = told_by(launch, i, rank);
        const size_t at = (size_t)i * (size_t)comm->nranks + (size_t)rank;
        const uint32_t flags = record->flags;
        told->buffers[2 * at] =
            told->late || told->inputs_readable
                ? (struct cecl_peer_buffer){record->send_window, record->send_offset}
                : (struct cecl_peer_buffer){CECL_WINDOW_NONE, 0};
        told->buffers[2 * at + 1] =
            (struct cecl_peer_buffer){record->recv_window, record->recv_offset};
        version = record->version;
        CECL_TRY(check_same(launch, i, rank, flags));
        note_outside(launch, i, rank, (flags & OUTSIDE) != 0);
        *differ = *differ || ((flags & OUTSIDE) != 0) != cecl_call_is_outside(&calls[i]);
        if (!has_own_layout(&calls[i]))
            continue;
        if (told->late)
            told->send_at[at] = record->per_peer[comm->rank];
        CECL_TRY(
            check_blocks(comm, &calls[i], rank, record, told->late ? &told->send_at[at] : NULL));
    }
    cecl_registry_promised(&comm->registry, rank, version);
    return ceclSuccess;
}

static bool are_readable(const struct cecl_launch *launch)
{
    bool readable = true;
    for (uint32_t i = 0; i < launch->nfull; i++)
        for (int r = 0; r < launch->comm->nranks; r++)
            readable = readable && (told_by(launch, i, r)->flags & INPUT_READABLE) != 0;
    return readable;
}

static ceclResult_t learn_places(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    struct cecl_told *told = &launch->told;
    const size_t words = (size_t)launch->nfull * (size_t)comm->nranks;
    const size_t bits = launch->nfull * cecl_outside_words(comm->nranks);
    bool own_layouts = false, differ = false;
    memset(told->outside, 0, bits * sizeof(*told->outside));
    memset(told->buffers, 0, 2 * words * sizeof(*told->buffers));
    memset(told->send_at, 0, words * sizeof(*told->send_at));
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && cecl_places_knows(&comm->launcher->places, &launch->places, r))
            CECL_TRY(learn_rank(launch, r, &differ));
    for (uint32_t i = 0; i < launch->nfull; i++) {
        own_layouts = own_layouts || has_own_layout(&launch->calls[i]);
        note_outside(launch, i, comm->rank, cecl_call_is_outside(&launch->calls[i]));
    }
    told->nbuffers = 2 * words;
    told->noutside = differ ? bits : 0;
    told->nsend_at = told->late && own_layouts ? words : 0;
    return ceclSuccess;
}

/* If a rank came later than this one, adds copies from private inputs to bounce buffers, where it fetches them. */
static ceclResult_t lend_inputs(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    const struct cecl_told *told = &launch->told;
    const uint64_t all = comm->nranks < 64 ? (UINT64_C(1) << comm->nranks) - 1 : UINT64_MAX,
                   others = all & ~(UINT64_C(1) << comm->rank);
    if (!told->late || (told->earlier & others) == others)
        return ceclSuccess;
    for (uint32_t i = 0; i < launch->nfull; i++)
        if (!cecl_buffer_is(launch->origins[i].lent, input_of(&launch->calls[i])))
            CECL_TRY(cecl_carry_sent(launch, &launch->calls[i], launch->origins[i].lent));
    return ceclSuccess;
}

#define PATIENCE_MAX_NS \
    UINT64_C(100000000) /* most ns that wait_ns() adds for registering, and worth_ns() returns */

/* How long this rank waits for late ranks. If it has just registered memory, it waits longer, by the time that
 * registering took: peers often have new memory at the same call, and may take longer to register it. */
static uint64_t wait_ns(ceclComm_t comm)
{
    const uint64_t took = cecl_registry_told_ns(&comm->registry);
    return cecl_tuning_get(&comm->tuning, CECL_TUNE_LATE_WAIT_NS) +
           (took < PATIENCE_MAX_NS ? took : PATIENCE_MAX_NS);
}

/* How much longer this rank waits: by the time that a late call would cost the GPUs. */
static uint64_t worth_ns(const struct cecl_launch *launch)
{
    const uint64_t each = cecl_tuning_get(&launch->comm->tuning, CECL_TUNE_LATE_WAIT_NS_PER_MIB);
    double ns = 0;
    for (uint32_t i = 0; i < launch->nfull && each > 0 && ns < PATIENCE_MAX_NS; i++)
        ns += (double)cecl_call_half_exchanged(&launch->calls[i]) / (1 << 20) * (double)each;
    return ns < PATIENCE_MAX_NS ? (uint64_t)ns : PATIENCE_MAX_NS;
}

/* Whether an earlier call of this rank is pending, other than one-sided calls, for which no launch waits. Reads only
 * words in memory of the host. */
static bool is_pending(void *context)
{
    ceclComm_t comm = context;
    return !cecl_flags_calls_idle(&comm->engine.flags);
}

void cecl_tell_enqueued(const struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    struct cecl_launcher *launcher = comm->launcher;
    if (launch->places.count == 0)
        return;
    launcher->ends[launcher->nends++ % CECL_TOLD_ENDS] =
        (struct cecl_told_end){launch->places.first + launch->places.count - 1,
                               cecl_flags_done_target(&comm->engine.flags)};
}

/* See cecl_places_behind. Reads only words in memory of the host. */
static uint32_t behind(void *context, uint64_t last)
{
    ceclComm_t comm = context;
    const struct cecl_launcher *launcher = comm->launcher;
    const struct cecl_flags *flags = &comm->engine.flags;
    for (uint64_t i = launcher->nends; i > 0 && i + CECL_TOLD_ENDS > launcher->nends; i--) {
        const struct cecl_told_end *end = &launcher->ends[(i - 1) % CECL_TOLD_ENDS];
        if (end->call < last)
            return cecl_flags_reached(flags, end->target) ? 0
                                                          : end->target - cecl_flags_done(flags);
    }
    return 0;
}

/* Waits until all peers have published their places, or until the call is late. */
static enum cecl_places_outcome meet_peers(struct cecl_launch *launch, uint64_t *pending_ns)
{
    ceclComm_t comm = launch->comm;
    const uint64_t most = cecl_tuning_get(&comm->tuning, CECL_TUNE_LATE_PENDING_NS);
    /* a captured call cannot be late: in each replay another rank may come last */
    const bool all_come = launch->is_captured;
    const uint64_t wait = all_come ? CECL_PLACES_MUST_MEET : wait_ns(comm);
    struct cecl_places_patience patience = {
        .wait_ns = wait,
        .pending_ns = *pending_ns < most ? *pending_ns : most,
        .is_pending = is_pending,
        .worth_ns = all_come ? 0 : worth_ns(launch),
        .behind_ns = cecl_tuning_get(&comm->tuning, CECL_TUNE_LATE_BEHIND_NS),
        .behind = behind};
    const enum cecl_places_outcome outcome = cecl_places_meet(
        &comm->launcher->places, &launch->places, &patience, cecl_launch_goes_on, comm);
    *pending_ns = patience.pending_ns;
    return outcome;
}

ceclResult_t cecl_tell_learn(struct cecl_launch *launch, uint64_t *pending_ns)
{
    struct cecl_places *places = &launch->comm->launcher->places;
    struct cecl_told *told = &launch->told;
    if (!launch->is_open) {
        told->inputs_readable = cecl_tell_alone(launch->calls, launch->nfull).inputs_readable;
        return ceclSuccess;
    }
    const enum cecl_places_outcome outcome = meet_peers(launch, pending_ns);
    if (outcome == CECL_PLACES_STOPPED)
        return cecl_launch_wait_ended(launch);
    launch->is_open = false;
    told->late = outcome == CECL_PLACES_LATE;
    told->earlier = told->late ? launch->places.earlier : 0;
    told->inputs_readable = !told->late && are_readable(launch);
    ceclResult_t result = learn_places(launch);
    if (result == ceclSuccess && launch->is_captured && told->late)
        result = cecl_fail(ceclInvalidUsage,
                           "%s: a graph captures the call on rank %d, but not on another rank; "
                           "either all ranks must capture a call, or none",
                           launch->calls[0].op->name, launch->comm->rank);
    if (result == ceclSuccess)
        result = lend_inputs(launch);
    cecl_places_finish(places, &launch->places);
    return result;
}

struct cecl_told cecl_tell_alone(const struct cecl_call *calls, uint32_t count)
{
    struct cecl_told told = {.inputs_readable = true};
    for (uint32_t i = 0; i < count; i++)
        told.inputs_readable = told.inputs_readable && is_readable(input_of(&calls[i]));
    return told;
}
