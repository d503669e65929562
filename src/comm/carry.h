/* Private memory in calls. Peers cannot reach it, so they use a bounce buffer in its place:
 * registered memory of the communicator's own. Before and after a call this rank carries the bytes
 * between the two (ce/lower_carry.c). Other ranks take no part, and see a call on registered memory.
 *
 *     recvbuff is private   the call goes to a bounce buffer. In place, the input is carried there
 *                           before the call. The output is carried home behind it.
 *     sendbuff is private   this rank pushes out of it. Where another rank comes later and has to
 *                           fetch the blocks, they are carried to a bounce buffer before the call. */
#ifndef CECL_COMM_CARRY_H
#define CECL_COMM_CARRY_H

#include "call/describe.h"

struct cecl_bounce;

/* Copies between buffers of this rank that belong to the calls that are being made. */
struct cecl_carried {
    struct cecl_call *calls; /* [count] of the op CECL_OP_CARRY */
    uint32_t count, room;
};

struct cecl_carrier {
    struct cecl_bounce *memory; /* a list; the first is in use */
    uint64_t used;              /* bytes of the first that calls have taken */
    struct cecl_carried before, after;
};

void cecl_carrier_close(ceclComm_t comm);

/* If recvbuff is private and peers write to it, replaces both buffers in `args` by bounce buffers, as
 * far as they are private and in one, and notes what is to be carried. *replaced: describe the call
 * again. */
ceclResult_t cecl_carry_replace(ceclComm_t comm, const struct cecl_call *call,
                                struct cecl_args *args, bool *replaced);
/* A bounce buffer for a private sendbuff, which peers may have to fetch from; else call->send. */
ceclResult_t cecl_carry_lend(ceclComm_t comm, const struct cecl_call *call,
                             struct cecl_buffer *lent);
/* Peers do have to: notes that sendbuff is carried there before the call. */
ceclResult_t cecl_carry_sent(ceclComm_t comm, const struct cecl_call *call,
                             struct cecl_buffer lent);
/* Takes a bounce buffer of so many bytes for the calls that are being made. */
ceclResult_t cecl_carry_take(ceclComm_t comm, uint64_t bytes, struct cecl_buffer *bounce);
/* Notes that this rank copies bytes between two of its buffers, with the options of `call`. */
ceclResult_t cecl_carry_note(struct cecl_carried *carried, const struct cecl_call *call,
                             struct cecl_buffer src, struct cecl_buffer dst);
/* The calls that were being made are enqueued, or refused. */
void cecl_carry_reset(ceclComm_t comm);

#endif
