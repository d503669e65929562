/* The kept calls of the calling thread's NCCL group; for group.c and turns.c. */
#ifndef CECL_NCCL_KEPT_H
#define CECL_NCCL_KEPT_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Turns: served collectives have those from 0 on. */
#define CECL_NCCL_FIRST_MESSAGE_TURN (1 << 24)
#define CECL_NCCL_PASSED_MESSAGES (CECL_NCCL_FIRST_MESSAGE_TURN - 1)
#define CECL_NCCL_PASSED_COLLECTIVES (CECL_NCCL_PASSED_MESSAGES - 1)
static inline bool cecl_nccl_turn_is_passed(int turn)
{
    return turn == CECL_NCCL_PASSED_MESSAGES || turn == CECL_NCCL_PASSED_COLLECTIVES;
}

struct cecl_nccl_kept {
    struct cecl_nccl_call call;
    int number; /* how many calls were kept before */
    int turn;
    bool is_open; /* see cecl_nccl_group_keep_open */
    /* how many earlier calls of the turn are on the same communicator; for a message, how many are between
     * the same ranks in the same direction */
    int nth;
    /* -- while its turn is carried out -- */
    struct cecl_nccl_comm *comm; /* NULL: it was aborted, so the call is dropped */
};

struct cecl_nccl_group {
    struct cecl_nccl_kept *kept;
    int count, room;
    int last_turn; /* the last turn of the kept calls */
    int served;    /* how many kept calls are not passed */
    bool unsorted; /* a call was kept after a call of a later turn */
    bool has_open; /* a kept call is open */
    /* communicator of the last call that went into NCCL's group; NULL: there was none */
    ncclComm_t passed;
    ncclResult_t refusal; /* the result of the first refused call */
};

/* -- group.c. For turns.c -- */

struct cecl_nccl_group *cecl_nccl_group_mine(void);
/* Puts the first `count` calls into NCCL's open group. */
ncclResult_t cecl_nccl_group_pass_calls(const struct cecl_nccl_kept *kept, int count);

#endif
