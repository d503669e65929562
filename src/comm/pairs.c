/* Messages between two ranks, from their descriptions to the stream; see pairs.h. */
#include "comm/pairs.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective.h"
#include "util/clock.h"
#include "util/round.h"

/* Where a message's bytes lie on both ranks. */
struct cecl_pair_place {
    const struct cecl_call *call;  /* while the group is being posted */
    struct cecl_buffer here;       /* the caller's buffer */
    struct cecl_buffer posted;     /* what peers are told: `here`, or a bounce buffer */
    struct cecl_peer_buffer there; /* this rank came second: the peer's */
    uint64_t version;              /* the peer's messages about its memory by then */
};

/* ---- life */

ceclResult_t cecl_pairs_open(ceclComm_t comm, void *memory)
{
    struct cecl_pairs *pairs = &comm->pairs;
    pairs->counts = calloc(CECL_ROLES * (size_t)comm->nranks, sizeof(*pairs->counts));
    pairs->lanes = calloc((size_t)comm->nranks, sizeof(ceclStream_t));
    if (!pairs->counts || !pairs->lanes)
        return cecl_fail(ceclOutOfMemory, "no host memory for messages of %d ranks", comm->nranks);
    CECL_TRY(cecl_posts_open(&pairs->posts, memory, comm->rank, comm->nranks, 0));
    return comm->hosted.words
               ? cecl_pair_flags_open(&pairs->flags, &comm->hosted, comm->rank, comm->nranks)
               : ceclSuccess;
}

void cecl_pairs_close(ceclComm_t comm)
{
    struct cecl_pairs *pairs = &comm->pairs;
    while (pairs->nlanes > 0)
        (void)!comm->dev->ops->stream_destroy(comm->dev, pairs->lanes[--pairs->nlanes]);
    cecl_posts_close(&pairs->posts);
    cecl_pair_flags_close(&pairs->flags);
    cecl_pair_plan_free(&pairs->plan);
    free(pairs->messages);
    free(pairs->places);
    free(pairs->before.calls);
    free(pairs->after.calls);
    free(pairs->ops);
    free(pairs->pointers);
    free(pairs->bytes);
    free(pairs->counts);
    free(pairs->lanes);
    *pairs = (struct cecl_pairs){0};
}

static void reset(struct cecl_pairs *pairs)
{
    pairs->count = pairs->pulled = pairs->pushed = 0;
    pairs->before.count = pairs->after.count = 0;
}

/* ---- checking */

static enum cecl_role role_of(const struct cecl_call *call)
{
    return call->op->pair == CECL_PAIR_SENDS ? CECL_SENDER : CECL_RECEIVER;
}

static bool is_own(const struct cecl_call *call)
{
    return call->root == call->rank;
}

static uint32_t *count_with(ceclComm_t comm, enum cecl_role role, int peer)
{
    return &comm->pairs.counts[(int)role * comm->nranks + peer];
}

static void count_messages(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    memset(comm->pairs.counts, 0, CECL_ROLES * (size_t)comm->nranks * sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++)
        ++*count_with(comm, role_of(&calls[i]), calls[i].root);
}

/* The peers' rings have so many slots, and the peer may come to none of the messages before this rank
 * has posted all of them. */
static ceclResult_t check_counts(ceclComm_t comm)
{
    const uint32_t most = comm->pairs.posts.nslots;
    for (int peer = 0; peer < comm->nranks; peer++)
        for (int role = 0; role < CECL_ROLES && peer != comm->rank; role++) {
            const uint32_t count = *count_with(comm, (enum cecl_role)role, peer);
            if (count > 0 && most == 0)
                return cecl_fail(ceclInvalidUsage,
                                 "a communicator of %d ranks has no ceclSend and ceclRecv: %d "
                                 "ranks at most",
                                 comm->nranks, CECL_POSTS_RANKS);
            if (count > most)
                return cecl_fail(ceclInvalidUsage, "a group of %u messages %s rank %d: %u at most",
                                 count, role == CECL_SENDER ? "to" : "from", peer, most);
        }
    return ceclSuccess;
}

/* Message `index` of those that this rank sends to itself, or receives from itself. */
static const struct cecl_call *own_message(const struct cecl_call *calls, uint32_t count,
                                           enum cecl_role role, uint32_t index)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_own(&calls[i]) && role_of(&calls[i]) == role && index-- == 0)
            return &calls[i];
    return NULL;
}

/* A rank's own messages must meet in one group, because a stream cannot wait for itself. */
static ceclResult_t check_own(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    const uint32_t sent = *count_with(comm, CECL_SENDER, comm->rank),
                   received = *count_with(comm, CECL_RECEIVER, comm->rank);
    if (sent != received)
        return cecl_fail(
            ceclInvalidUsage,
            "peer %d is this rank: a group has as many ceclSend to it as ceclRecv from "
            "it; %u and %u are here",
            comm->rank, sent, received);
    for (uint32_t i = 0; i < sent; i++) {
        const struct cecl_call *from = own_message(calls, count, CECL_SENDER, i),
                               *to = own_message(calls, count, CECL_RECEIVER, i);
        if (from->bytes != to->bytes)
            return cecl_fail(ceclInvalidUsage,
                             "this rank sends itself %" PRIu64 " bytes and receives %" PRIu64,
                             from->bytes, to->bytes);
        if (comm->nranks == 1 && from->bytes > 0 && !(comm->local_copies & CECL_LOCAL_CONTIGUOUS) &&
            from->options.sm_policy == CECL_SM_NEVER)
            return cecl_fail(ceclInvalidUsage, "CECL_SM_NEVER: this call needs an SM for its "
                                               "copy within one GPU");
    }
    return ceclSuccess;
}

static bool grow(struct cecl_pairs *pairs, uint32_t count)
{
    void *messages = realloc(pairs->messages, count * sizeof(*pairs->messages));
    pairs->messages = messages ? messages : pairs->messages;
    void *places = realloc(pairs->places, count * sizeof(*pairs->places));
    pairs->places = places ? places : pairs->places;
    void *ops = realloc(pairs->ops, 2 * (size_t)count * sizeof(*pairs->ops));
    pairs->ops = ops ? ops : pairs->ops;
    void *pointers = realloc(pairs->pointers, 2 * (size_t)count * sizeof(*pairs->pointers));
    pairs->pointers = pointers ? pointers : pairs->pointers;
    void *bytes = realloc(pairs->bytes, count * sizeof(*pairs->bytes));
    pairs->bytes = bytes ? bytes : pairs->bytes;
    return messages && places && ops && pointers && bytes;
}

static ceclResult_t reserve(struct cecl_pairs *pairs, uint32_t count)
{
    const uint32_t room = count > 2 * pairs->room ? count : 2 * pairs->room;
    if (count <= pairs->room)
        return ceclSuccess;
    if (!grow(pairs, room))
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u messages", count);
    CECL_TRY(cecl_pair_plan_reserve(&pairs->plan, room));
    pairs->room = room;
    return ceclSuccess;
}

/* Makes streams for as many lanes as a group with these peers may need. */
static ceclResult_t make_lanes(ceclComm_t comm)
{
    struct cecl_pairs *pairs = &comm->pairs;
    int peers = 0;
    for (int peer = 0; peer < comm->nranks; peer++)
        peers += peer != comm->rank &&
                 *count_with(comm, CECL_SENDER, peer) + *count_with(comm, CECL_RECEIVER, peer) > 0;
    while (peers > 1 && pairs->nlanes < peers) {
        CECL_TRY(comm->dev->ops->stream_create_urgent(comm->dev, &pairs->lanes[pairs->nlanes]));
        pairs->nlanes++;
    }
    return ceclSuccess;
}

static bool has_room(ceclComm_t comm)
{
    bool room = true;
    for (int peer = 0; peer < comm->nranks; peer++)
        for (int role = 0; role < CECL_ROLES && peer != comm->rank; role++) {
            const uint32_t count = *count_with(comm, (enum cecl_role)role, peer);
            room = room && (count == 0 ||
                            cecl_posts_room(&comm->pairs.posts, (enum cecl_role)role, peer, count));
        }
    return room;
}

/* Waits while a peer is as many messages behind as its ring has slots. */
static ceclResult_t wait_for_room(ceclComm_t comm)
{
    comm->teller.deadline =
        comm->config.timeout_ms > 0 ? cecl_deadline(comm->config.timeout_ms) : CECL_NO_DEADLINE;
    while (!has_room(comm)) {
        if (!cecl_tell_goes_on(comm)) {
            CECL_TRY(cecl_comm_async(comm));
            cecl_fail(
                ceclTimeout,
                "a peer did not make the ceclSend or ceclRecv of this rank's last %u messages "
                "within %d ms (CECL_TIMEOUT_MS)",
                comm->pairs.posts.nslots, comm->config.timeout_ms);
            cecl_comm_set_async(comm, ceclTimeout, cecl_message());
            return cecl_comm_async(comm);
        }
        sched_yield();
    }
    return ceclSuccess;
}

ceclResult_t cecl_pairs_check(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              ceclStream_t stream)
{
    reset(&comm->pairs);
    count_messages(comm, calls, count);
    for (uint32_t i = 0; i < count; i++)
        CECL_TRY(cecl_call_check_buffers(&calls[i], &comm->windows));
    CECL_TRY(check_counts(comm));
    CECL_TRY(check_own(comm, calls, count));
    CECL_TRY(comm->dev->ops->stream_check(comm->dev, stream));
    CECL_TRY(reserve(&comm->pairs, count));
    CECL_TRY(make_lanes(comm));
    return wait_for_room(comm);
}

/* ---- posting */

static struct cecl_buffer buffer_of(const struct cecl_call *call)
{
    return role_of(call) == CECL_SENDER ? call->send : call->recv;
}

#define ALIGN UINT64_C(512) /* of a message in a bounce buffer */

/* Bytes of the bounce buffer for a message. Peers cannot reach private memory. */
static uint64_t bounce_bytes(const struct cecl_call *call)
{
    return !is_own(call) && cecl_buffer_is_private(buffer_of(call))
               ? cecl_round_up(call->bytes, ALIGN)
               : 0;
}

/* Collects the messages with peers. All of them share one bounce buffer. */
static ceclResult_t collect(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    struct cecl_pairs *pairs = &comm->pairs;
    struct cecl_buffer bounce = {NULL, 0};
    uint64_t all = 0;
    for (uint32_t i = 0; i < count; i++)
        all += bounce_bytes(&calls[i]);
    if (all > 0)
        CECL_TRY(cecl_carry_take(comm, all, &bounce));
    for (uint32_t i = 0; i < count; i++) {
        const struct cecl_call *call = &calls[i];
        struct cecl_pair_place *place = &pairs->places[pairs->count];
        const uint64_t bytes = bounce_bytes(call);
        if (is_own(call))
            continue;
        *place = (struct cecl_pair_place){.call = call, .here = buffer_of(call)};
        place->posted = bytes > 0 ? bounce : place->here;
        bounce = cecl_buffer_at(bounce, bytes);
        pairs->messages[pairs->count++] = (struct cecl_message){
            .peer = call->root, .role = (uint8_t)role_of(call), .bytes = call->bytes};
    }
    return ceclSuccess;
}

static ceclResult_t note_own(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    const uint32_t sent = *count_with(comm, CECL_SENDER, comm->rank);
    for (uint32_t i = 0; i < sent; i++) {
        const struct cecl_call *from = own_message(calls, count, CECL_SENDER, i),
                               *to = own_message(calls, count, CECL_RECEIVER, i);
        if (!cecl_buffer_is(from->send, to->recv))
            CECL_TRY(cecl_carry_note(&comm->pairs.before, from, from->send, to->recv));
    }
    return ceclSuccess;
}

/* The peer moves the bytes of a message in which this rank came first. Private memory is carried to the
 * bounce buffer before the group, or from it behind the group. */
static ceclResult_t note_private(struct cecl_pairs *pairs, const struct cecl_pair_place *place)
{
    if (cecl_buffer_is(place->here, place->posted))
        return ceclSuccess;
    return role_of(place->call) == CECL_SENDER
               ? cecl_carry_note(&pairs->before, place->call, place->here, place->posted)
               : cecl_carry_note(&pairs->after, place->call, place->posted, place->here);
}

/* Both ends must have the same number of bytes. The rank that came second finds a difference, and its
 * peers hear of it when the communicator fails. */
static ceclResult_t check_same(const struct cecl_call *call, uint64_t number, uint64_t theirs)
{
    const bool sends = role_of(call) == CECL_SENDER;
    if (call->bytes == theirs)
        return ceclSuccess;
    return cecl_fail(ceclInvalidUsage,
                     "message %" PRIu64 " from rank %d to rank %d: ceclSend has %" PRIu64
                     " bytes, ceclRecv %" PRIu64,
                     number, sends ? call->rank : call->root, sends ? call->root : call->rank,
                     sends ? call->bytes : theirs, sends ? theirs : call->bytes);
}

static ceclResult_t post_one(ceclComm_t comm, uint32_t index)
{
    struct cecl_pairs *pairs = &comm->pairs;
    struct cecl_message *message = &pairs->messages[index];
    struct cecl_pair_place *place = &pairs->places[index];
    const struct cecl_post mine = {.window = cecl_buffer_number(place->posted),
                                   .offset = place->posted.offset,
                                   .bytes = message->bytes,
                                   .version = comm->registry.posted,
                                   .group = pairs->groups};
    struct cecl_post theirs;
    message->second = cecl_posts_put(&pairs->posts, (enum cecl_role)message->role, message->peer,
                                     &mine, &message->number, &theirs);
    if (!message->second)
        return note_private(pairs, place);
    message->group = theirs.group;
    place->there = (struct cecl_peer_buffer){theirs.window, theirs.offset};
    place->version = theirs.version;
    pairs->pushed += message->role == CECL_SENDER;
    pairs->pulled += message->role == CECL_RECEIVER;
    return check_same(place->call, message->number, theirs.bytes);
}

static uint64_t bytes_of(const struct cecl_pairs *pairs, enum cecl_role role)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < pairs->count; i++)
        bytes += pairs->messages[i].role == role ? pairs->messages[i].bytes : 0;
    return bytes;
}

/* Whether the group exchanges much. If one rank moved all of it, its copy engine would carry both
 * directions, and the peer's none. */
static bool exchanges_much(ceclComm_t comm)
{
    const uint64_t least = cecl_tuning_get(&comm->tuning, CECL_TUNE_PAIR_WAIT_MIN_BYTES);
    return bytes_of(&comm->pairs, CECL_SENDER) >= least &&
           bytes_of(&comm->pairs, CECL_RECEIVER) >= least;
}

static bool has_receiver(ceclComm_t comm, int peer)
{
    const uint32_t sent = *count_with(comm, CECL_SENDER, peer);
    return peer == comm->rank || sent == 0 ||
           cecl_posts_came(&comm->pairs.posts, CECL_SENDER, peer, sent);
}

/* Waits for a short time until the peers have posted what they receive from this rank. The receives
 * of this rank's own group are posted by then, so if all ranks come in time, each one comes
 * second to what it sends. */
static void wait_for_receivers(ceclComm_t comm)
{
    const int64_t end =
        cecl_now_ns() + (int64_t)cecl_tuning_get(&comm->tuning, CECL_TUNE_LATE_WAIT_NS);
    for (int peer = 0; peer < comm->nranks; peer++)
        while (!has_receiver(comm, peer)) {
            if (cecl_now_ns() >= end || atomic_load(&comm->async_result) != ceclSuccess)
                return;
            sched_yield();
        }
}

/* Posts the messages of one role. Goes on after an error, so that peers find the messages that they
 * count. `result`: of the other role, whose message stays. */
static ceclResult_t post_role(ceclComm_t comm, enum cecl_role role, ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    if (result != ceclSuccess)
        cecl_keep_message(words);
    for (uint32_t i = 0; i < comm->pairs.count; i++) {
        if (comm->pairs.messages[i].role != role)
            continue;
        const ceclResult_t posted = post_one(comm, i);
        if (posted != ceclSuccess && result == ceclSuccess) {
            result = posted;
            cecl_keep_message(words);
        }
    }
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}

static ceclResult_t post_all(ceclComm_t comm, bool may_wait)
{
    const ceclResult_t received = post_role(comm, CECL_RECEIVER, ceclSuccess);
    if (may_wait && exchanges_much(comm))
        wait_for_receivers(comm);
    return post_role(comm, CECL_SENDER, received);
}

ceclResult_t cecl_pairs_post(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                             bool may_wait)
{
    struct cecl_pairs *pairs = &comm->pairs;
    CECL_TRY(collect(comm, calls, count));
    CECL_TRY(note_own(comm, calls, count));
    pairs->groups++;
    pairs->owes = true;
    const ceclResult_t result = post_all(comm, may_wait);
    return result == ceclSuccess ? ceclSuccess : cecl_pairs_break(comm, result);
}

ceclResult_t cecl_pairs_break(ceclComm_t comm, ceclResult_t result)
{
    const bool owed = comm->pairs.owes && comm->pairs.count > 0;
    comm->pairs.owes = false;
    reset(&comm->pairs);
    return owed ? cecl_comm_break(comm, result) : result;
}

/* ---- issuing */

/* Finds where the bytes lie that this rank moves. Memory of the peer's that is new may have to be
 * imported first. Posts of different age may come together, so the count of the peer's messages never
 * falls. */
static ceclResult_t bind_one(ceclComm_t comm, struct cecl_message *message,
                             const struct cecl_pair_place *place)
{
    const uint64_t known = comm->registry.peers[message->peer].promised;
    if (!message->second || message->bytes == 0)
        return ceclSuccess;
    cecl_registry_promised(&comm->registry, message->peer,
                           place->version > known ? place->version : known);
    message->here = cecl_buffer_address(place->here);
    return cecl_window_reach(&comm->windows, place->there, message->bytes, message->peer,
                             &message->there);
}

/* Notes which windows the group uses, here and at peers. */
static void note_use(ceclComm_t comm)
{
    const struct cecl_pairs *pairs = &comm->pairs;
    const uint32_t target = cecl_flags_done_target(&comm->engine.flags);
    cecl_registry_lock(&comm->registry);
    for (uint32_t i = 0; i < pairs->count; i++) {
        const struct cecl_pair_place *place = &pairs->places[i];
        cecl_window_used(place->here.window, target);
        cecl_window_used(place->posted.window, target);
        if (place->there.window >= CECL_WINDOW_FIRST)
            cecl_registry_used(&comm->registry, pairs->messages[i].peer, place->there.window,
                               target);
    }
    cecl_registry_unlock(&comm->registry);
}

static ceclResult_t run(ceclComm_t comm, ceclStream_t stream)
{
    struct cecl_pairs *pairs = &comm->pairs;
    const struct cecl_pair_work work = {.messages = pairs->messages,
                                        .count = pairs->count,
                                        .plan = &pairs->plan,
                                        .flags = &pairs->flags,
                                        .lanes = pairs->lanes,
                                        .ops = pairs->ops,
                                        .pointers = pairs->pointers,
                                        .bytes = pairs->bytes};
    bool started;
    if (pairs->count == 0)
        return ceclSuccess;
    cecl_lower_pairs(pairs->messages, pairs->count, &pairs->plan);
    const ceclResult_t result = cecl_pairs_run(&comm->engine, &work, stream, &started);
    note_use(comm);
    return result;
}

static ceclResult_t issue(ceclComm_t comm, ceclStream_t stream)
{
    struct cecl_pairs *pairs = &comm->pairs;
    for (uint32_t i = 0; i < pairs->count; i++)
        CECL_TRY(bind_one(comm, &pairs->messages[i], &pairs->places[i]));
    CECL_TRY(cecl_calls_carry(comm, &pairs->before, stream));
    CECL_TRY(run(comm, stream));
    return cecl_calls_carry(comm, &pairs->after, stream);
}

ceclResult_t cecl_pairs_issue(ceclComm_t comm, ceclStream_t stream)
{
    struct cecl_pairs *pairs = &comm->pairs;
    snprintf(pairs->path, sizeof(pairs->path), "point to point, %u pushed, %u pulled, %u by peers",
             pairs->pushed, pairs->pulled, pairs->count - pairs->pushed - pairs->pulled);
    const ceclResult_t result = issue(comm, stream);
    cecl_registry_made(&comm->registry);
    if (result != ceclSuccess)
        return cecl_pairs_break(comm, result);
    pairs->owes = false;
    reset(pairs);
    cecl_carry_reset(comm);
    return ceclSuccess;
}

ceclResult_t cecl_pairs_call(ceclComm_t comm, const struct cecl_call *call, ceclStream_t stream)
{
    CECL_TRY(cecl_pairs_check(comm, call, 1, stream));
    CECL_TRY(cecl_pairs_post(comm, call, 1, false));
    cecl_comm_called(comm, call->op->name);
    return cecl_pairs_issue(comm, stream);
}

/* ---- explaining */

ceclResult_t cecl_pairs_explain(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclExplanation_t *explanation)
{
    uint32_t sent = 0, received = 0;
    bool moves = false;
    const size_t length = strlen(explanation->path);
    reset(&comm->pairs);
    count_messages(comm, calls, count);
    for (uint32_t i = 0; i < count; i++) {
        CECL_TRY(cecl_call_check_buffers(&calls[i], &comm->windows));
        moves = moves || (!is_own(&calls[i]) && calls[i].bytes > 0);
        received += !is_own(&calls[i]) && role_of(&calls[i]) == CECL_RECEIVER;
        if (is_own(&calls[i]) || role_of(&calls[i]) != CECL_SENDER)
            continue;
        sent++;
        explanation->copies += calls[i].bytes > 0;
        explanation->bytesSent += calls[i].bytes;
    }
    CECL_TRY(check_counts(comm));
    CECL_TRY(check_own(comm, calls, count));
    CECL_TRY(note_own(comm, calls, count));
    snprintf(explanation->path + length, sizeof(explanation->path) - length,
             "%spoint to point, %u sent, %u received", length > 0 ? "; " : "", sent, received);
    if (moves && comm->shares_gpu && !(comm->local_copies & CECL_LOCAL_CONTIGUOUS)) {
        explanation->zeroSm = 0;
        snprintf(explanation->reason, sizeof(explanation->reason), "%s", CECL_SHARED_GPU_WORDS);
    }
    const ceclResult_t result = cecl_calls_explain_carried(comm, &comm->pairs.before, explanation);
    reset(&comm->pairs);
    return result;
}
