/* Messages between two ranks: ceclSend and ceclRecv.
 *
 * Only the two ranks of a message take part, so messages differ from collectives: ranks do not
 * compare the call with all peers, and other ranks count no epoch for it. The messages of a group,
 * or the one message of a call outside of groups, are a launch, with steps of their own:
 *
 *     check   Everything that can be refused is checked here. A rank waits at most until each peer
 *             has room for the messages, which it has unless it is hundreds of messages behind.
 *     post    Tells the peers where the buffers lie (alloc/posts.h). From here on peers rely on the
 *             messages. Each message finds out which of its ranks came second.
 *     reach   The rank that came second waits for memory of the peer that is still being imported.
 *     run     Enqueues this rank's part (ce/lower_messages.c).
 *
 * No rank waits long for another one when it posts. A group that exchanges much posts its receives,
 * waits some microseconds for the peers to do the same, and then posts its sends. If all ranks come
 * in time, each comes second to the messages that it sends, so the copy engines of both ranks share
 * the work.
 *
 * If the rank that came first has private memory, it gives the peer a bounce buffer. What a rank
 * sends to itself is carried as private memory is (carry.h). */
#ifndef CECL_LAUNCH_MESSAGES_H
#define CECL_LAUNCH_MESSAGES_H

#include "launch/launch.h"

/* Opens the posts and the counters of messages. Used by cecl_launcher_open. */
ceclResult_t cecl_messenger_open(ceclComm_t comm);
/* A zeroed messenger may be closed. No work may be pending. */
void cecl_messenger_close(ceclComm_t comm);

/* Refuses messages that this rank must not send or receive. */
ceclResult_t cecl_messages_check(struct cecl_launch *launch);
/* Posts messages that passed the check.
 *
 * may_wait  false: does not wait for peers, because other launches of the group have not told
 * theirs
 *           yet, or because the host waits for late ranks at the group's collectives. */
ceclResult_t cecl_messages_post(struct cecl_launch *launch, bool may_wait);
/* Finds the addresses of the bytes that this rank moves, and waits for memory of peers that is
 * still being imported. To be called just before the launch is enqueued: what it finds stays open
 * until the communicator's next launch is enqueued. */
ceclResult_t cecl_messages_reach(struct cecl_launch *launch);
/* Enqueues what is bound, without the copies that are carried. */
ceclResult_t cecl_messages_run(struct cecl_launch *launch);

/* Adds messages to the explanation of a group, and notes the copies that are carried. */
ceclResult_t cecl_messages_explain(struct cecl_launch *launch, ceclExplanation_t *explanation);

#endif
