/* Messages between two ranks: ceclSend and ceclRecv.
 *
 * Only the two ranks of a message take part, so nothing of a collective applies: no rank compares
 * the call with its peers, and other ranks count no epoch for it. The messages of a group, or the
 * one message of a call outside of groups, are a launch, with steps of their own:
 *
 *     check   Everything that can be refused is checked here. A rank waits at most until each peer has
 *             room for the messages, which it has unless it is hundreds of messages behind.
 *     post    Tells the peers where the buffers lie (alloc/posts.h). From here on they rely on it.
 *             Each message finds out which of its ranks came second. No rank waits long for another
 *             one: a group that exchanges much posts what it receives, waits some microseconds for
 *             the peers to do the same, and then posts what it sends. If all come in time, each rank
 *             comes second to what it sends, and the copy engines of all move a part.
 *     reach   The rank that came second waits for memory of the peer's that is still being imported.
 *     run     Enqueues what this rank does (ce/lower_messages.c).
 *
 * Private memory of the rank that came first has a bounce buffer, because the other rank moves the
 * bytes. What a rank sends to itself is carried as private memory is (carry.h). */
#ifndef CECL_LAUNCH_MESSAGES_H
#define CECL_LAUNCH_MESSAGES_H

#include "launch/launch.h"

/* Opens the posts and the counters of messages. For cecl_launcher_open. */
ceclResult_t cecl_messenger_open(ceclComm_t comm);
/* A zeroed messenger may be closed. No work may be pending. */
void cecl_messenger_close(ceclComm_t comm);

/* Refuses messages that this rank must not send or receive. */
ceclResult_t cecl_messages_check(struct cecl_launch *launch);
/* Posts messages that passed the check.
 *
 * may_wait  false: nothing waits for peers, because other launches of the group have not told theirs
 *           yet, or because the host is to wait for late ranks at the group's collectives. */
ceclResult_t cecl_messages_post(struct cecl_launch *launch, bool may_wait);
/* Finds where the bytes lie that this rank moves, and waits for memory of peers that is still being
 * imported. To be called just before the launch is enqueued: what it finds stays open until the
 * communicator's next launch is. */
ceclResult_t cecl_messages_reach(struct cecl_launch *launch);
/* Enqueues what is bound, without what is carried. */
ceclResult_t cecl_messages_run(struct cecl_launch *launch);

/* Adds messages to the explanation of a group's collectives, or of nothing, and notes what is
 * carried. */
ceclResult_t cecl_messages_explain(struct cecl_launch *launch, ceclExplanation_t *explanation);

#endif
