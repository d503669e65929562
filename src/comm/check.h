/* CECL_CHECK: ranks compare the calls that they are about to make. */
#ifndef CECL_COMM_CHECK_H
#define CECL_COMM_CHECK_H

#include "comm/comm.h"

/* Allocates memory for what the ranks send, when the communicator is made. Other exchanges may use
 * it too. Returns NULL without memory. */
#define CECL_CHECK_ROOM_BYTES 64 /* of each rank, at least */
void *cecl_check_room(int nranks);

/* Collective under CECL_CHECK=1; otherwise returns `local`. `local` is this rank's verdict on its
 * own arguments, with its message recorded. All ranks go on, or all refuse: with ceclInvalidUsage
 * and both ranks' values, or with the message of the rank that refused. The description `call` may
 * be incomplete. */
ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local);

/* The calls of a group on one communicator. */
struct cecl_check_part {
    ceclComm_t comm;
    const struct cecl_call *calls;
    uint32_t count;
    /* check.c's own */
    ceclResult_t local;
    const char *words;
    bool is_told;
};

/* cecl_check_calls for several communicators at the same time. So ranks may use the communicators
 * in any order, in one group or in calls one after the other, and this thread may have several
 * ranks of one. */
ceclResult_t cecl_check_parts(struct cecl_check_part *parts, uint32_t count, ceclResult_t local);

/* Converts a peer's refusal, `status` with its message, to the result on this rank. */
ceclResult_t cecl_check_refused(int rank, int32_t status, const char *words);

#endif
