/* Shared by the checks of messages and their posting. Internal to src/launch. */
#ifndef CECL_LAUNCH_MESSENGER_H
#define CECL_LAUNCH_MESSENGER_H

#include "launch/launcher.h"
#include "launch/messages.h"

static inline enum cecl_role cecl_role_of(const struct cecl_call *call)
{
    return call->op->to == CECL_TO_PEER ? CECL_SENDER : CECL_RECEIVER;
}

static inline bool cecl_is_own(const struct cecl_call *call)
{
    return call->root == call->rank;
}

static inline uint32_t *cecl_count_with(ceclComm_t comm, enum cecl_role role, int peer)
{
    return &comm->launcher->messenger.counts[(int)role * comm->nranks + peer];
}

/* Whether this rank sends itself messages. */
static inline bool cecl_has_own(const struct cecl_launch *launch)
{
    return *cecl_count_with(launch->comm, CECL_SENDER, launch->comm->rank) > 0;
}

/* Reads the peer's post of message `index`, and checks it. */
ceclResult_t cecl_messages_learn(struct cecl_launch *launch, uint32_t index,
                                 const struct cecl_post *theirs);
/* Adds a captured launch to its graph: messages_captured.c. */
ceclResult_t cecl_messages_capture(struct cecl_launch *launch);
/* Makes the program of a launch in the messenger's memory. */
ceclResult_t cecl_messages_bind(const struct cecl_launch *launch);

/* Counts the messages of a launch, by role and peer. */
void cecl_count_messages(const struct cecl_launch *launch);
/* Both functions use these counts. The first one refuses more messages with a peer than a ring holds, or than
 * a captured group may have; the second one refuses messages of a rank to itself that are not sent and received
 * in one group. */
ceclResult_t cecl_check_counts(const struct cecl_launch *launch);
ceclResult_t cecl_check_own(const struct cecl_launch *launch);

/* The send and the receive of the next message from this rank to itself. The function returns false if
 * there is no further message. */
struct cecl_own_message {
    const struct cecl_call *from, *to;
    uint32_t sent, received; /* where the search for the next message goes on */
};
bool cecl_next_own_message(const struct cecl_launch *launch, struct cecl_own_message *own);
/* Requires that both parts of such a message have equally many bytes. */
ceclResult_t cecl_check_own_bytes(const struct cecl_own_message *own);

#endif
