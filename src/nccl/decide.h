/* Decides which library makes a call. A decision is a value (struct cecl_nccl_way). Deciding changes no communicator
 * and no option, except that learning notes the call (learn.c). */
#ifndef CECL_NCCL_DECIDE_H
#define CECL_NCCL_DECIDE_H

#include "nccl/group.h"
#include "nccl/process.h"

/* Decides which library makes a call: cecl, with a policy, or NCCL, for a reason. A captured call may still go to NCCL
 * later, if some rank cannot capture it (captured.h).
 * comm       the entry of the call's communicator; NULL: there is none
 * is_inside  the caller has entered that entry */
struct cecl_nccl_way cecl_nccl_decide(const struct cecl_nccl_process *process,
                                      const struct cecl_nccl_call *call,
                                      struct cecl_nccl_comm *comm, bool is_inside,
                                      struct cecl_nccl_group *group);

/* Whether the communicator has the call's root or peer. If not, NCCL refuses the call at once, even in a group. */
static inline bool cecl_nccl_has_rank(const struct cecl_nccl_call *call,
                                      const struct cecl_nccl_comm *comm)
{
    return call->root >= 0 && call->root < comm->nranks;
}

/* Whether a call on which a decision was made is refused. If so, the caller must return `*result`. Also counts the
 * call, if calls are counted. */
bool cecl_nccl_is_refused(const struct cecl_nccl_process *process,
                          const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                          ncclResult_t *result);

/* -- learn.c. Learns, while the program runs, which library is to make calls under CECL_NCCL=auto (CECL_NCCL_TRIALS=1).
 * Each communicator looks for a period in its collectives (nccl/trial_period.h), and lets NCCL and cecl carry out
 * periods in turn (nccl/trial.h). If there is no period, the table of gains.c decides. Decisions do not depend on
 * buffers, so all ranks take the same way at the same call.
 *
 * Trials ignore sends and receives, because not all ranks make them. -- */

/* Begins to learn on a communicator whose `ours` and `limits` are set. Errors: ceclSystemError. */
ceclResult_t cecl_nccl_learn_open(struct cecl_nccl_comm *entry);
void cecl_nccl_learn_close(struct cecl_nccl_comm *entry);

/* Notes the communicator's next collective that cecl could make, and decides which library makes it. A captured call is
 * not timed; a verdict decides on it or, if there is none, the table of gains.c. The caller is inside the communicator.
 * way  [in, out] the caller sets NO_REASON, the communicator's own policy, and whether the call is captured */
void cecl_nccl_learn(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                     const struct cecl_nccl_group *group, struct cecl_nccl_way *way);

/* gains.c, the table. Whether measurements say that cecl takes less time than NCCL for `call`, both in place and out of
 * place. The table does not distinguish the two, because a rank cannot know whether its peers are in place. */
bool cecl_nccl_gains(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                     const struct cecl_nccl_group *group);

#endif
