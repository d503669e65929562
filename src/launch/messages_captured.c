/* Messages that graphs capture. Both ranks capture each message, and wait for each other during the capture. */
#include <sched.h>

#include "flags/awaited.h"
#include "launch/messages.h"

/* ---- meeting */

/* The error of a wait for a peer that has not posted its end of a message. */
static ceclResult_t say_missing(ceclComm_t comm, const struct cecl_message *m, bool has_left)
{
    const bool sends = m->role == CECL_SENDER;
    const char *mine = cecl_ops[sends ? CECL_OP_SEND : CECL_OP_RECV].name,
               *theirs = cecl_ops[sends ? CECL_OP_RECV : CECL_OP_SEND].name;
    /* whether the peer has captured its end of a later message with this rank, in the other direction */
    const bool waits = cecl_posts_came(&comm->launcher->messenger.posts,
                                       cecl_role_other((enum cecl_role)m->role), m->peer, 1);
    CECL_TRY(cecl_comm_async(comm));
    if (has_left)
        return cecl_comm_break(comm, cecl_fail(ceclRemoteError,
                                               CECL_COMM_HAS_LEFT("a captured %s waits for its %s"),
                                               m->peer, mine, theirs));
    return cecl_comm_break(
        comm,
        cecl_fail(ceclTimeout,
                  "a captured %s has waited %d ms (CECL_TIMEOUT_MS) for rank %d: that rank has not "
                  "captured its %s%s; put messages that wait for each other into one group "
                  "(ceclGroupStart, ceclGroupEnd)",
                  mine, comm->config.timeout_ms, m->peer, theirs,
                  waits ? ", but waits for another message with this rank" : ""));
}

/* Asks first whether the peer has left, then looks for its post: a peer that posts and then leaves has come. */
static ceclResult_t meet_one(struct cecl_launch *launch, uint32_t index)
{
    ceclComm_t comm = launch->comm;
    const struct cecl_message *m = &launch->messages[index];
    struct cecl_post theirs;
    for (;;) {
        const bool goes_on = cecl_launch_goes_on(comm),
                   has_left = cecl_mesh_left(comm->mesh, m->peer);
        if (cecl_posts_met(&comm->launcher->messenger.posts, (enum cecl_role)m->role, m->peer,
                           m->number, &theirs))
            return cecl_messages_learn(launch, index, &theirs);
        if (!goes_on || has_left)
            return say_missing(comm, m, has_left);
        sched_yield();
    }
}

ceclResult_t cecl_messages_meet(struct cecl_launch *launch)
{
    const struct cecl_posts *posts = &launch->comm->launcher->messenger.posts;
    for (uint32_t i = 0; i < launch->nmessages; i++)
        CECL_TRY(meet_one(launch, i));
    for (uint32_t i = 0; i < launch->nmessages; i++)
        cecl_posts_finish(posts, (enum cecl_role)launch->messages[i].role,
                          launch->messages[i].peer);
    return ceclSuccess;
}

/* ---- capturing */

/* Fills in the values of a message's three pairs of cells: see struct cecl_message. */
static void give_values(ceclComm_t comm, struct cecl_message *m, uint32_t first)
{
    const int word = (int)(m->number % CECL_HANDED);
    const uint64_t slot = cecl_awaited_at(
        &comm->engine.flags, word + (m->role == CECL_SENDER ? CECL_ROW_TAKEN : CECL_ROW_HANDED),
        m->peer);
    const uint32_t value = cecl_handed_value(m->number);
    const uint64_t given[CECL_MESSAGE_GIVEN] = {
        slot, cecl_handed_begun(value), slot, CECL_REPLAY_ENDED, (uint64_t)word, value};
    m->first_given = first;
    for (uint32_t i = 0; i < CECL_MESSAGE_GIVEN; i++)
        comm->launcher->once.given[first + i] = given[i];
}

void cecl_messages_capture(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    for (uint32_t i = 0; i < launch->nmessages; i++)
        give_values(comm, &launch->messages[i], i * CECL_MESSAGE_GIVEN);
    atomic_store(&comm->engine.flags.awaited.is_captured, true);
}
