/* What the calling thread's open group of NCCL holds until the outermost group ends. group_state.c only keeps this
 * state; group.c decides on the calls, and follow.c makes the communicators. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

#include "nccl/call.h"
#include "nccl/comms.h"

struct cecl_nccl_kept {
    struct cecl_nccl_call call;
    int number; /* how many calls were kept before this one */
    int stage;  /* calls with the same stage are carried out together, see group.c */
    /* how many earlier calls of the stage are on the same communicator; for a message, how many earlier messages are
     * between the same ranks in the same direction */
    int nth;
    /* -- set while the call's stage is carried out, or while ranks agree on captured calls -- */
    struct cecl_nccl_comm *comm; /* NULL: it was aborted, so the call is dropped */
};

struct cecl_nccl_group {
    int depth; /* how many nested groups are open */
    /* the number of the outermost open group or, if none is open, of the last group; 0: there was
     * none. No two groups of the process have the same number */
    uint64_t number;
    struct cecl_nccl_kept *kept;
    int count, room;
    /* communicator of the last call that went to NCCL; NULL: no call did */
    ncclComm_t passed;
    ncclResult_t refusal;          /* the result of the first refused call */
    struct cecl_nccl_wish *wishes; /* the communicators to make at the group's end */
    int nwishes, wish_room;
    /* what the driver has answered last: whether a graph captures `stream` */
    struct {
        uint64_t group;
        const struct cecl_nccl_comm *comm;
        cudaStream_t stream;
        bool is_captured;
    } asked;
    bool has_end; /* forget_all() will run when the thread ends */
};

/* -- group_state.c -- */

/* The calling thread's group. */
struct cecl_nccl_group *cecl_nccl_group(void);

/* Called when the program opens or ends a group. cecl_nccl_group_ended returns whether the group was the outermost. */
void cecl_nccl_group_opened(struct cecl_nccl_group *group);
bool cecl_nccl_group_ended(struct cecl_nccl_group *group);

void cecl_nccl_group_forget_calls(struct cecl_nccl_group *group);
void cecl_nccl_group_forget_wishes(struct cecl_nccl_group *group);
/* Closes the meetings of communicators that cecl will not make. */
void cecl_nccl_wishes_drop(const struct cecl_nccl_wish *wishes, int count);

/* -- group.c. The calls of a group, which are kept until the outermost group ends. Collectives come before messages, as
 * in NCCL, because a peer may reach its side of a message only after them, in a later group or outside groups -- */

/* Does what cecl_nccl_take says (call.h), for a call in a group. If a call is refused, the group's end returns the
 * first refusal, and carries out no kept call. */
bool cecl_nccl_group_take(struct cecl_nccl_group *group, const struct cecl_nccl_call *call,
                          struct cecl_nccl_comm *comm, ncclResult_t *result);

/* Called before NCCL's outermost group ends, unless the end is only simulated. Decides on the calls that were left
 * open. It does so only now, because learning must not note the calls of a group that only this rank simulates or
 * refuses. If cecl makes no call of the group, puts all kept calls into NCCL's group. Returns the first error. */
ncclResult_t cecl_nccl_group_decide(struct cecl_nccl_group *group);

/* Puts the `count` calls from `kept` on into NCCL's open group. Returns NCCL's first error. */
ncclResult_t cecl_nccl_group_pass(struct cecl_nccl_group *group, const struct cecl_nccl_kept *kept,
                                  int count);

/* If calls were kept, waits until NCCL has enqueued its part of the group in the background. If ranks enqueued NCCL's
 * part and cecl's part in different orders, they would wait for each other. */
void cecl_nccl_group_await_passed(const struct cecl_nccl_group *group);

/* Numbers of stages. cecl's collectives have stages from 0 on, cecl's messages from this number on. */
#define CECL_NCCL_FIRST_MESSAGE_STAGE (1 << 24)
#define CECL_NCCL_PASSED_MESSAGES (CECL_NCCL_FIRST_MESSAGE_STAGE - 1)
#define CECL_NCCL_PASSED_COLLECTIVES (CECL_NCCL_PASSED_MESSAGES - 1)

/* stages.c. Carries out the kept calls, stage by stage. If a stage fails, drops the later ones. */
ncclResult_t cecl_nccl_group_serve(struct cecl_nccl_group *group);

#endif
