/* Messages between two ranks: ceclSend and ceclRecv.
 *
 * Only two ranks take part in a message. So, unlike a collective, it is not compared with the calls of all peers, and
 * it advances no epoch. A lone message, or the messages of a group, are a launch with steps of their own:
 *
 *     check   Makes all checks that may refuse a message. Waits only while a peer has no room for the
 *             messages, because its ring of posts is full.
 *     post    Tells the peers where the buffers lie (alloc/posts.h), and finds out for each message which
 *             rank came second. From here on peers rely on the messages.
 *     meet    Only if a graph captures the messages: waits until the peers have posted, so that both ranks
 *             know both buffers (messages_captured.c). The sender moves the bytes.
 *     bind    If this rank came second to a message, waits until the peer's buffer is imported. Lowers this
 *             rank's part (ce/lower_messages.c).
 *
 * The step `post` does not wait long. A rank that sends and receives much data in a group posts its receives, waits
 * some microseconds for those of its peers, and then posts its sends. If all ranks come in time, each rank comes second
 * to the messages that it sends, so the copy engines of both ranks share the work.
 *
 * If the rank that came first has private memory, it gives the peer a bounce buffer. A message of a rank to itself is a
 * copy within the rank, like the copies between private memory and bounce buffers (carry.c). */
#ifndef CECL_LAUNCH_MESSAGES_H
#define CECL_LAUNCH_MESSAGES_H

#include "launch/launcher.h"

/* Opens the posts and the counters of messages. For cecl_launcher_open. */
ceclResult_t cecl_messenger_open(ceclComm_t comm);
/* Closes them, also if they were never opened. No work may be pending. */
void cecl_messenger_close(ceclComm_t comm);

/* The step `check` (see above). */
ceclResult_t cecl_messages_check(struct cecl_launch *launch);
/* The step `post`.
 *
 * may_wait  whether to wait for the peers' receives. Not if the group has other launches: their places may not be
 *           published yet, and the host waits for late ranks at the group's collectives anyway. */
ceclResult_t cecl_messages_post(struct cecl_launch *launch, bool may_wait);
/* The step `meet`. Waits for CECL_TIMEOUT_MS at most. */
ceclResult_t cecl_messages_meet(struct cecl_launch *launch);
/* The step `bind`. *program: [out] NULL if this rank has only messages to itself. */
ceclResult_t cecl_messages_bind(struct cecl_launch *launch, const struct cecl_bound **program);

/* Adds the messages to the explanation of a group. Lists in launch->leases.before the copies of messages to this rank
 * itself. */
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
/* Fills in the cells' values of captured messages (messages_captured.c). */
void cecl_messages_capture(struct cecl_launch *launch);

/* Counts the messages of a launch, by role and peer. Refuses more messages with one peer than its ring of posts holds;
 * if they are captured, also more than CECL_HANDED. */
ceclResult_t cecl_check_counts(const struct cecl_launch *launch);
/* Requires that each message of this rank to itself is sent and received in the same group, with equally many bytes. */
ceclResult_t cecl_check_own(const struct cecl_launch *launch);

/* The send and the receive of a message from this rank to itself. cecl_next_own_message finds the next one, or returns
 * false. */
struct cecl_own_message {
    const struct cecl_call *from, *to;
    uint32_t sent, received; /* indices of the calls where the search goes on */
};
bool cecl_next_own_message(const struct cecl_launch *launch, struct cecl_own_message *own);

#endif
