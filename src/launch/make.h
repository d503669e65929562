/* Makes launches: from the arguments of public calls to commands on the stream. A lone call is a group of one. */
#ifndef CECL_LAUNCH_MAKE_H
#define CECL_LAUNCH_MAKE_H

#include "launch/launch.h"

/* Launches that are made together. All of them take a step before any of them takes the next, because one thread may
 * make the calls of several ranks, and ranks wait for each other. */
struct cecl_launches {
    /* a list; each communicator has first a launch with collectives, then one with messages */
    struct cecl_launch *first;
    const struct cecl_op *op; /* the public function: that of the lone call, or ceclGroupEnd */
    uint64_t pending_ns;      /* ns that are left to wait for late peers while the GPU has work */
    ceclResult_t failed;      /* the result of the first failure */
    ceclComm_t failed_on;     /* the communicator of that failure, or NULL */
    char words[CECL_MESSAGE_BYTES]; /* the failure's message */
};

/* -- state.c -- */

/* Empties the list, and forgets the failure. */
void cecl_launches_begin(struct cecl_launches *all, const struct cecl_op *op);
/* If `result` is the first failure, notes it with the recorded message, which may name ranks of `comm` by their
 * numbers. Returns `result`. */
ceclResult_t cecl_launches_note(struct cecl_launches *all, ceclComm_t comm, ceclResult_t result);
/* The failure, with a message for `comm`. The numbers of ranks in a message belong to the communicator of the failed
 * call. So for another communicator the message says that the group failed on another one. */
ceclResult_t cecl_launches_failure(const struct cecl_launches *all, ceclComm_t comm);
/* The first launch of `comm` in a list; NULL: there is none. */
struct cecl_launch *cecl_launches_of(struct cecl_launch *first, const struct ceclComm *comm);
/* -- check.c -- */

/* Compares this group with the peers' groups, on every communicator whose ranks compare calls. If this rank has refused
 * the group, tells the peers on those communicators, because they wait for this rank. If ranks agree on communicator A
 * but not on communicator B, this rank makes no calls on A. Peers on A rely on this rank's calls, so A fails.
 * Exception: if all ranks of A also compare calls on B, none of them makes the calls on A, and A does not fail. */
void cecl_launches_compare(struct cecl_launches *all);
/* -- make.c -- */

/* Carries out the launches, or gives them up. If all->failed is an error already, only tells the peers of that. */
ceclResult_t cecl_launches_make(struct cecl_launches *all);

/* Refuses a launch that this rank must not make. cecl_launches_compare tells the peers of a refusal. */
ceclResult_t cecl_launch_check(struct cecl_launch *launch);
/* Refuses calls whose buffers lie in the wrong places, for example outside windows. */
ceclResult_t cecl_launch_check_buffers(struct cecl_launch *launch);

/* Explains how launches of one communicator would be carried out. Enqueues and exchanges nothing. */
ceclResult_t cecl_launches_explain(struct cecl_launch *list, ceclExplanation_t *explanation);

/* -- collective.c -- */

/* Makes a call from the arguments of its public function: carries it out, or keeps it for the end of the group. */
ceclResult_t cecl_collective(enum cecl_op_index op, const struct cecl_args *args, ceclComm_t comm,
                             ceclStream_t stream);

/* Explains how a call would be carried out outside a group. Enqueues and exchanges nothing. */
ceclResult_t cecl_collective_explain(enum cecl_op_index op, const struct cecl_args *args,
                                     ceclComm_t comm, ceclExplanation_t *explanation);

#endif
