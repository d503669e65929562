/* Makes launches, from the arguments of public calls to the stream. A lone call is a group of one. */
#ifndef CECL_LAUNCH_MAKE_H
#define CECL_LAUNCH_MAKE_H

#include "launch/launch.h"

/* Launches that are made together. All of them go through one step before any goes through the next, because one
 * thread may have several ranks of a communicator. */
struct cecl_launches {
    /* a list: for each communicator first the launch with its collectives, then the launch with its
     * messages */
    struct cecl_launch *first;
    const struct cecl_op *op; /* the public function: the lone call's own, or ceclGroupEnd */
    uint64_t pending_ns;      /* how much longer to wait for late peers while calls are pending */
    ceclResult_t failed;      /* the result of the first failure */
    ceclComm_t failed_on;     /* its communicator, or NULL */
    char words[CECL_MESSAGE_BYTES]; /* its message */
};

/* -- state.c -- */

/* Empties the list, and forgets the failure. */
void cecl_launches_begin(struct cecl_launches *all, const struct cecl_op *op);
/* Notes `result`, unless it is success or there was a failure before. The message must be recorded. It may have rank
 * numbers of `comm`. Returns `result`. */
ceclResult_t cecl_launches_note(struct cecl_launches *all, ceclComm_t comm, ceclResult_t result);
/* The failure, with a message for the ranks of `comm`. A message may have rank numbers, which are valid only on the
 * communicator of the failed call. So other communicators get a message which says that it failed elsewhere. */
ceclResult_t cecl_launches_failure(const struct cecl_launches *all, ceclComm_t comm);
/* The first launch of `comm` in a list; NULL: there is none. */
struct cecl_launch *cecl_launches_of(struct cecl_launch *first, const struct ceclComm *comm);
/* -- check.c -- */

/* Compares this group with the peers' groups, on every communicator whose ranks compare calls. If this rank
 * refuses the group, the peers on those communicators are notified, because they wait for this rank.
 * If ranks agree on communicator A but not on communicator B, this rank does not make the calls on A
 * either. The peers on A rely on these calls, so A fails. There is one exception: if all ranks of A compare
 * calls on B, too, none of them makes the calls on A, so A does not fail. */
void cecl_launches_compare(struct cecl_launches *all);
/* -- make.c -- */

/* Carries out the launches, or gives them up. If there was a failure already, only notifies the peers. */
ceclResult_t cecl_launches_make(struct cecl_launches *all);

/* Refuses a launch that this rank must not make. Local; peers learn of a refusal through cecl_launches_compare. */
ceclResult_t cecl_launch_check(struct cecl_launch *launch);
/* Refuses calls whose buffers do not lie where they must. */
ceclResult_t cecl_launch_check_buffers(struct cecl_launch *launch);

/* Explains how launches of one communicator would be carried out. Enqueues and exchanges nothing. */
ceclResult_t cecl_launches_explain(struct cecl_launch *list, ceclExplanation_t *explanation);

/* -- collective.c -- */

/* Makes a public call from its arguments: carries it out, or keeps it for the end of the group. Under
 * CECL_CHECK peers learn of a refusal. */
ceclResult_t cecl_collective(enum cecl_op_index op, const struct cecl_args *args, ceclComm_t comm,
                             ceclStream_t stream);

/* Explains how a call would be carried out by itself. Enqueues and exchanges nothing. */
ceclResult_t cecl_collective_explain(enum cecl_op_index op, const struct cecl_args *args,
                                     ceclComm_t comm, ceclExplanation_t *explanation);

#endif
