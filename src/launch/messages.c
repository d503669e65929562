/* Messages between two ranks: posting, binding and issuing them; see messages.h. */
#include "launch/messages.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "flags/awaited.h"
#include "launch/steps.h"
#include "util/clock.h"

/* ---- posting */

static struct cecl_buffer buffer_of(const struct cecl_call *call)
{
    return cecl_role_of(call) == CECL_SENDER ? call->send : call->recv;
}

/* Whether the peer must reach this rank's buffer but cannot. A captured message is copied by its sender, whose buffer
 * the peer need not reach. */
static bool needs_bounce(const struct cecl_call *call)
{
    return call->bytes > 0 && !(call->captured && cecl_role_of(call) == CECL_SENDER) &&
           cecl_buffer_is_private(buffer_of(call));
}

/* Lists the launch's messages with peers; leaves out those of this rank to itself. */
static ceclResult_t collect_messages(struct cecl_launch *launch)
{
    launch->nmessages = 0;
    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct cecl_call *call = &launch->calls[i];
        struct cecl_pair_place *place = &launch->places_of[launch->nmessages];
        if (cecl_is_own(call))
            continue;
        *place = (struct cecl_pair_place){.call = call, .here = buffer_of(call)};
        place->posted = place->here;
        if (needs_bounce(call))
            CECL_TRY(cecl_bounce_lease(launch, call->bytes, &place->posted));
        launch->messages[launch->nmessages++] =
            (struct cecl_message){.peer = call->root,
                                  .role = (uint8_t)cecl_role_of(call),
                                  .captured = launch->is_captured,
                                  .bytes = call->bytes};
    }
    return ceclSuccess;
}

static ceclResult_t note_own(struct cecl_launch *launch)
{
    struct cecl_own_message own = {0};
    while (cecl_next_own_message(launch, &own))
        if (!cecl_buffer_is(own.from->send, own.to->recv))
            CECL_TRY(cecl_carry_note(launch, &launch->leases.before, own.from, own.from->send,
                                     own.to->recv));
    return ceclSuccess;
}

/* If this rank came first to a message, the peer moves the bytes. So if the buffer is private, this rank copies it to
 * the bounce buffer before the group (a send), or copies the bounce buffer to it after the group (a receive). */
static ceclResult_t note_private(struct cecl_launch *launch, const struct cecl_pair_place *place)
{
    struct cecl_leases *leases = &launch->leases;
    if (cecl_buffer_is(place->here, place->posted))
        return ceclSuccess;
    return cecl_role_of(place->call) == CECL_SENDER
               ? cecl_carry_note(launch, &leases->before, place->call, place->here, place->posted)
               : cecl_carry_note(launch, &leases->after, place->call, place->posted, place->here);
}

/* Checks that the two posts of a message have equal numbers of bytes, and that graphs capture both ends or neither. The
 * rank that comes second makes this check, or both ranks if they capture the message. An error fails the communicator,
 * so the peer learns of it. */
static ceclResult_t check_same(const struct cecl_call *call, uint64_t number,
                               const struct cecl_post *theirs)
{
    const bool sends = cecl_role_of(call) == CECL_SENDER;
    if ((call->captured != 0) != (theirs->captured != 0))
        return cecl_fail(
            ceclInvalidUsage,
            "message %" PRIu64 " from rank %d to rank %d: a graph captures it on rank "
            "%d, but not on rank %d; either both ranks must capture a message, or none",
            number, sends ? call->rank : call->root, sends ? call->root : call->rank,
            call->captured ? call->rank : call->root, call->captured ? call->root : call->rank);
    if (call->bytes == theirs->bytes)
        return ceclSuccess;
    return cecl_fail(ceclInvalidUsage,
                     "message %" PRIu64 " from rank %d to rank %d: ceclSend has %" PRIu64
                     " bytes, ceclRecv %" PRIu64,
                     number, sends ? call->rank : call->root, sends ? call->root : call->rank,
                     sends ? call->bytes : theirs->bytes, sends ? theirs->bytes : call->bytes);
}

ceclResult_t cecl_messages_learn(struct cecl_launch *launch, uint32_t index,
                                 const struct cecl_post *theirs)
{
    struct cecl_message *message = &launch->messages[index];
    struct cecl_pair_place *place = &launch->places_of[index];
    message->group = theirs->group;
    place->there = (struct cecl_peer_buffer){theirs->window, theirs->offset};
    place->version = theirs->version;
    return check_same(place->call, message->number, theirs);
}

static ceclResult_t post_one(struct cecl_launch *launch, uint32_t index)
{
    struct cecl_messenger *messenger = &launch->comm->launcher->messenger;
    struct cecl_message *message = &launch->messages[index];
    struct cecl_pair_place *place = &launch->places_of[index];
    const struct cecl_post mine = {.window = cecl_buffer_number(place->posted),
                                   .offset = place->posted.offset,
                                   .bytes = message->bytes,
                                   .version = launch->comm->registry.posted,
                                   .group = messenger->group,
                                   .captured = launch->is_captured};
    struct cecl_post theirs;
    message->second = cecl_posts_put(&messenger->posts, (enum cecl_role)message->role,
                                     message->peer, &mine, &message->number, &theirs);
    cecl_awaited_keep_near(&launch->comm->engine.flags, (enum cecl_role)message->role,
                           message->peer, message->number);
    if (launch->is_captured)
        message->second = message->role == CECL_SENDER;
    if (!message->second)
        return note_private(launch, place);
    return launch->is_captured ? ceclSuccess : cecl_messages_learn(launch, index, &theirs);
}

/* A group with at least this many bytes in each direction waits for the peers' receives. 8 MiB each way take one GPU's
 * copy engines 44 us, both GPUs' 22 us: the gain is no smaller than the wait. */
#define MUCH_CUDA (8u << 20)
#define MUCH_HOST (64u << 10)

/* Whether the group both sends and receives much data. If one rank moved the data of both directions, the peer's copy
 * engines would be idle meanwhile. */
static bool exchanges_much(const struct cecl_launch *launch)
{
    const uint64_t least = launch->comm->dev->kind == CECL_KIND_HOST ? MUCH_HOST : MUCH_CUDA;
    uint64_t bytes[CECL_ROLES] = {0};
    for (uint32_t i = 0; i < launch->nmessages; i++)
        bytes[launch->messages[i].role] += launch->messages[i].bytes;
    return bytes[CECL_SENDER] >= least && bytes[CECL_RECEIVER] >= least;
}

static bool has_receiver(ceclComm_t comm, int peer)
{
    const uint32_t sent = *cecl_count_with(comm, CECL_SENDER, peer);
    return peer == comm->rank || sent == 0 ||
           cecl_posts_came(&comm->launcher->messenger.posts, CECL_SENDER, peer, sent);
}

/* Waits a short time for the peers to post their receives from this rank, which has posted its own receives already. If
 * all ranks come in time, each rank comes second to the messages that it sends. */
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

ceclResult_t cecl_messages_post(struct cecl_launch *launch, bool may_wait)
{
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = ceclSuccess;
    CECL_TRY(collect_messages(launch));
    CECL_TRY(note_own(launch));
    struct cecl_messenger *messenger = &launch->comm->launcher->messenger;
    if (launch->nmessages == 0)
        return ceclSuccess;
    messenger->group =
        launch->is_captured ? cecl_posts_ticket(&messenger->posts) : ++messenger->groups;
    launch->is_owed = true;
    /* posts receives first; goes on after an error, because peers count on the other messages */
    for (int role = CECL_RECEIVER; role >= CECL_SENDER; role--) {
        if (role == CECL_SENDER && may_wait && !launch->is_captured && exchanges_much(launch))
            wait_for_receivers(launch->comm);
        for (uint32_t i = 0; i < launch->nmessages; i++) {
            const ceclResult_t posted =
                launch->messages[i].role == role ? post_one(launch, i) : ceclSuccess;
            if (posted != ceclSuccess && result == ceclSuccess) {
                result = posted;
                cecl_keep_message(words);
            }
        }
    }
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}

/* ---- binding */

/* Finds the addresses of the bytes that this rank moves. Waits until new memory of the peer is imported. */
static ceclResult_t find_ends(struct cecl_launch *launch, uint32_t index)
{
    ceclComm_t comm = launch->comm;
    const struct cecl_message *message = &launch->messages[index];
    const struct cecl_pair_place *place = &launch->places_of[index];
    launch->ends[index].here = cecl_buffer_address(place->here);
    if (!message->second || message->bytes == 0)
        return ceclSuccess;
    cecl_registry_promised(&comm->registry, message->peer, place->version);
    CECL_TRY(cecl_window_reach(&comm->windows, place->there, message->bytes, message->peer,
                               &launch->ends[index].there));
    return cecl_imports_add(&comm->registry, message->peer, place->there.window, &launch->imports);
}

/* Finds addresses only now, because peers' memory is sure to stay open only until the next launch is enqueued. */
ceclResult_t cecl_messages_bind(struct cecl_launch *launch, const struct cecl_bound **program)
{
    ceclComm_t comm = launch->comm;
    *program = NULL;
    if (launch->nmessages == 0)
        return ceclSuccess;
    if (launch->is_captured)
        cecl_messages_capture(launch);
    for (uint32_t i = 0; i < launch->nmessages; i++)
        CECL_TRY(find_ends(launch, i));
    CECL_TRY(cecl_lower_messages(launch->messages, launch->nmessages, launch->order,
                                 cecl_once_plan(comm, launch->is_captured, false)));
    CECL_TRY(cecl_once_bind(comm, launch->ends));
    *program = &comm->launcher->once.bound;
    for (uint32_t i = 0; i < launch->nmessages && !launch->is_captured; i++) {
        const struct cecl_message *m = &launch->messages[i];
        cecl_awaited_note(&comm->engine.flags, (enum cecl_role)m->role, m->second, m->peer,
                          m->number);
    }
    return ceclSuccess;
}

/* ---- explaining */

ceclResult_t cecl_messages_explain(struct cecl_launch *launch, ceclExplanation_t *explanation)
{
    ceclComm_t comm = launch->comm;
    uint32_t sent = 0, received = 0;
    bool moves = false;
    const size_t length = strlen(explanation->path);
    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct cecl_call *call = &launch->calls[i];
        moves = moves || (!cecl_is_own(call) && call->bytes > 0);
        received += !cecl_is_own(call) && cecl_role_of(call) == CECL_RECEIVER;
        if (cecl_is_own(call) || cecl_role_of(call) != CECL_SENDER)
            continue;
        sent++;
        explanation->copies += call->bytes > 0;
        explanation->bytesSent += call->bytes;
    }
    CECL_TRY(cecl_check_counts(launch));
    CECL_TRY(cecl_check_own(launch));
    CECL_TRY(note_own(launch));
    snprintf(explanation->path + length, sizeof(explanation->path) - length,
             "%spoint to point, %u sent, %u received", length > 0 ? "; " : "", sent, received);
    if (moves && comm->shares_gpu) {
        explanation->zeroSm = 0;
        snprintf(explanation->reason, sizeof(explanation->reason), "%s", CECL_SHARED_GPU_WORDS);
    }
    return ceclSuccess;
}
