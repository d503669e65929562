/* Messages between two ranks: ceclSend and ceclRecv.
 *
 * Only two ranks take part in a message, so messages differ from collectives: ranks do not compare the call
 * with all peers, and no epoch counts it. The messages of a group, or a lone message, are a launch with its
 * own steps:
 *
 *     check   Checks everything that can be refused. Waits only while a peer has no room for the messages,
 *             because it is hundreds of messages behind.
 *     post    Tells the peers where the buffers lie (alloc/posts.h). From here on peers rely on the
 *             messages. For each message it turns out which rank came second.
 *     meet    If a graph captures the messages: waits until their peers have posted, so that both ranks know all
 *             about them (messages_captured.c). The sender moves the bytes.
 *     bind    The rank that came second waits for memory of the peer that is still being imported. This rank's part
 *             is lowered (ce/lower_messages.c).
 *
 * The step `post` does not wait long. A group that sends and receives much data posts its receives, waits
 * some microseconds until the peers have done the same, and then posts its sends. If all ranks come in time,
 * each rank comes second to the messages that it sends, so the copy engines of both ranks share the work.
 *
 * If the rank that came first has private memory, that rank gives the peer a bounce buffer. Messages of a
 * rank to itself are copies within the rank, made in the same way as the copies for private memory
 * (carry.c). */
#ifndef CECL_LAUNCH_MESSAGES_H
#define CECL_LAUNCH_MESSAGES_H

#include "launch/launcher.h"

/* Opens the posts and the counters of messages. Used by cecl_launcher_open. */
ceclResult_t cecl_messenger_open(ceclComm_t comm);
/* Closes them. A zeroed messenger may be closed, too. No work may be pending. */
void cecl_messenger_close(ceclComm_t comm);

/* Refuses messages that this rank must not send or receive. */
ceclResult_t cecl_messages_check(struct cecl_launch *launch);
/* Posts messages that passed the check.
 *
 * may_wait  false: does not wait for peers, because the places of other launches of the group are not
 *           published yet, or because the host waits for late ranks at the group's collectives. */
ceclResult_t cecl_messages_post(struct cecl_launch *launch, bool may_wait);
/* Waits until the peers have posted these captured messages, for CECL_TIMEOUT_MS at most. */
ceclResult_t cecl_messages_meet(struct cecl_launch *launch);
/* Makes the program, once for this launch. Waits for memory of peers that is still being imported. *program: [out] NULL
 * if there are only messages to this rank itself, which are copies within it. */
ceclResult_t cecl_messages_bind(struct cecl_launch *launch, const struct cecl_bound **program);

/* Adds messages to the explanation of a group, and notes the copies between private memory and bounce
 * buffers. */
ceclResult_t cecl_messages_explain(struct cecl_launch *launch, ceclExplanation_t *explanation);

/* -- shared by the checks of messages and their posting -- */

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

/* Reads the peer's post of message `index`, and checks it. */
ceclResult_t cecl_messages_learn(struct cecl_launch *launch, uint32_t index,
                                 const struct cecl_post *theirs);
/* Gives the values of captured messages: messages_captured.c. */
void cecl_messages_capture(struct cecl_launch *launch);

/* Counts the messages of a launch, by role and peer. Refuses more messages with one peer than a ring holds, or than a
 * captured group may have. */
ceclResult_t cecl_check_counts(const struct cecl_launch *launch);
/* Requires that each message of a rank to itself is sent and received in one group, with equally many bytes. */
ceclResult_t cecl_check_own(const struct cecl_launch *launch);

/* The send and the receive of the next message from this rank to itself. The function returns false if
 * there is no further message. */
struct cecl_own_message {
    const struct cecl_call *from, *to;
    uint32_t sent, received; /* where the search for the next message goes on */
};
bool cecl_next_own_message(const struct cecl_launch *launch, struct cecl_own_message *own);

#endif
