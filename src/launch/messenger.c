/* The state of a communicator for messages, and the checks of messages; see messages.h. */
#include "launch/messages.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "boot/rank_list.h"
#include "util/grow.h"

/* ---- life */

ceclResult_t cecl_messenger_open(ceclComm_t comm)
{
    struct cecl_messenger *messenger = &comm->launcher->messenger;
    messenger->counts = calloc(CECL_ROLES * (size_t)comm->nranks, sizeof(*messenger->counts));
    messenger->lanes = calloc((size_t)comm->nranks, sizeof(ceclStream_t));
    if (!messenger->counts || !messenger->lanes)
        return cecl_fail(ceclOutOfMemory, "no host memory for messages of %d ranks", comm->nranks);
    return cecl_posts_open(&messenger->posts, cecl_shared_at(&comm->shared, CECL_SHARED_POSTS),
                           comm->rank, comm->nranks, 0);
}

void cecl_messenger_close(ceclComm_t comm)
{
    struct cecl_messenger *messenger = &comm->launcher->messenger;
    while (messenger->nlanes > 0)
        (void)!comm->dev->ops->stream_destroy(comm->dev, messenger->lanes[--messenger->nlanes]);
    cecl_posts_close(&messenger->posts);
    free(messenger->counts);
    free(messenger->lanes);
    *messenger = (struct cecl_messenger){0};
}

/* ---- checking */

/* Refuses a launch with more messages with a peer than a ring has slots: if the peer takes none of them before all are
 * posted, this rank would never find room. Each captured message of a group needs one of the CECL_HANDED words. */
ceclResult_t cecl_check_counts(const struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    const uint32_t slots = comm->launcher->messenger.posts.nslots,
                   most = launch->is_captured && slots > CECL_HANDED ? CECL_HANDED : slots;
    memset(comm->launcher->messenger.counts, 0,
           CECL_ROLES * (size_t)comm->nranks * sizeof(uint32_t));
    for (uint32_t i = 0; i < launch->ncalls; i++)
        ++*cecl_count_with(comm, cecl_role_of(&launch->calls[i]), launch->calls[i].root);
    for (int peer = 0; peer < comm->nranks; peer++)
        for (int role = 0; role < CECL_ROLES && peer != comm->rank; role++) {
            const uint32_t count = *cecl_count_with(comm, (enum cecl_role)role, peer);
            if (count > 0 && most == 0)
                return cecl_fail(ceclInvalidUsage,
                                 "ceclSend and ceclRecv in a communicator of %d ranks: at most %d "
                                 "ranks expected",
                                 comm->nranks, CECL_POSTS_RANKS);
            if (count > most)
                return cecl_fail(ceclInvalidUsage,
                                 "a %sgroup of %u messages %s rank %d: at most %u expected",
                                 launch->is_captured ? "captured " : "", count,
                                 role == CECL_SENDER ? "to" : "from", peer, most);
        }
    return ceclSuccess;
}

/* The next call, from index *at on, that sends to this rank itself or receives from it; NULL: there is none. */
static const struct cecl_call *next_own(const struct cecl_launch *launch, enum cecl_role role,
                                        uint32_t *at)
{
    while (*at < launch->ncalls) {
        const struct cecl_call *call = &launch->calls[(*at)++];
        if (cecl_is_own(call) && cecl_role_of(call) == role)
            return call;
    }
    return NULL;
}

bool cecl_next_own_message(const struct cecl_launch *launch, struct cecl_own_message *own)
{
    own->from = next_own(launch, CECL_SENDER, &own->sent);
    own->to = next_own(launch, CECL_RECEIVER, &own->received);
    return own->from && own->to;
}

/* Requires that messages of this rank to itself are sent and received in the same group: outside a group the stream
 * would wait for its own later call. */
ceclResult_t cecl_check_own(const struct cecl_launch *launch)
{
    struct cecl_own_message own = {0};
    while (cecl_next_own_message(launch, &own)) {
        if (own.from->bytes != own.to->bytes)
            return cecl_fail(ceclInvalidUsage,
                             "rank %d sends itself %" PRIu64 " bytes and receives %" PRIu64,
                             own.from->rank, own.from->bytes, own.to->bytes);
        if (own.from->nranks == 1 && own.from->bytes > 0 &&
            own.from->options.sm_policy == CECL_SM_NEVER)
            return cecl_fail(ceclInvalidUsage, "CECL_SM_NEVER: a message of a rank to itself "
                                               "needs an SM for its copy within one GPU");
    }
    return !own.from && !own.to
               ? ceclSuccess
               : cecl_fail(
                     ceclInvalidUsage,
                     "peer %d is the rank itself: a group must have as many ceclSend to it as "
                     "ceclRecv from it; this group has more %s",
                     launch->comm->rank, own.from ? "ceclSend" : "ceclRecv");
}

/* Makes room for the launch's messages. */
static ceclResult_t reserve_messages(struct cecl_launch *launch)
{
    const uint32_t count = launch->ncalls, twice = 2 * launch->messages_room,
                   room = count > twice ? count : twice;
    if (count > launch->messages_room) {
        if (!cecl_list_grow(&launch->messages, room * sizeof(*launch->messages)) ||
            !cecl_list_grow(&launch->places_of, room * sizeof(*launch->places_of)) ||
            !cecl_list_grow(&launch->ends, room * sizeof(*launch->ends)) ||
            !cecl_list_grow(&launch->order, room * sizeof(*launch->order)))
            return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u messages", count);
        launch->messages_room = room;
    }
    return launch->is_captured
               ? cecl_once_reserve(&launch->comm->launcher->once, count * CECL_MESSAGE_GIVEN)
               : ceclSuccess;
}

static ceclResult_t make_lanes(ceclComm_t comm)
{
    struct cecl_messenger *messenger = &comm->launcher->messenger;
    int peers = 0;
    for (int peer = 0; peer < comm->nranks; peer++)
        peers += peer != comm->rank && *cecl_count_with(comm, CECL_SENDER, peer) +
                                               *cecl_count_with(comm, CECL_RECEIVER, peer) >
                                           0;
    const int lanes = peers > 1 ? peers : 0;
    while (messenger->nlanes < lanes) {
        CECL_TRY(
            comm->dev->ops->stream_create(comm->dev, true, &messenger->lanes[messenger->nlanes]));
        messenger->nlanes++;
    }
    return ceclSuccess;
}

/* Lists in `full` the peers whose rings have no room for the messages. Returns true if there is no such peer. */
static bool have_room(ceclComm_t comm, struct cecl_rank_list *full)
{
    full->count = 0;
    for (int peer = 0; peer < comm->nranks; peer++) {
        bool room = true;
        for (int role = 0; role < CECL_ROLES && peer != comm->rank; role++) {
            const uint32_t count = *cecl_count_with(comm, (enum cecl_role)role, peer);
            room = room && (count == 0 || cecl_posts_room(&comm->launcher->messenger.posts,
                                                          (enum cecl_role)role, peer, count));
        }
        if (!room)
            cecl_rank_list_add(full, peer);
    }
    return full->count == 0;
}

/* Waits while a peer has no room for the messages: it has not made its own calls for this rank's earlier messages. */
static ceclResult_t wait_for_room(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    struct cecl_rank_list full;
    cecl_launch_bound_waits(launch);
    while (!have_room(comm, &full)) {
        if (!cecl_launch_goes_on(comm)) {
            CECL_TRY(cecl_comm_async(comm));
            return cecl_comm_break(
                comm,
                cecl_fail(ceclTimeout,
                          "%s did not make the ceclSend or ceclRecv of rank %d's last %u messages "
                          "within %d ms (CECL_TIMEOUT_MS)",
                          cecl_rank_list_words(&full), comm->rank,
                          comm->launcher->messenger.posts.nslots, comm->config.timeout_ms));
        }
        sched_yield();
    }
    return ceclSuccess;
}

ceclResult_t cecl_messages_check(struct cecl_launch *launch)
{
    CECL_TRY(cecl_check_counts(launch));
    CECL_TRY(cecl_check_own(launch));
    CECL_TRY(reserve_messages(launch));
    if (!launch->is_captured) /* a captured group has one lane */
        CECL_TRY(make_lanes(launch->comm));
    return wait_for_room(launch);
}
