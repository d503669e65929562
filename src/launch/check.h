/* CECL_CHECK: ranks compare the calls that they are about to make. */
#ifndef CECL_LAUNCH_CHECK_H
#define CECL_LAUNCH_CHECK_H

#include "call/call.h"
#include "comm/comm.h"

/* The names of a call's `in_place` values, for messages. */
extern const char *const cecl_placements[2];
/* The name of a datatype, for messages. A peer may have sent `type`, so it may be any number. */
const char *cecl_type_name(uint64_t type);

/* Allocates memory for what all ranks send, when the communicator is made. Other exchanges use it, too.
 * Returns NULL without memory. */
#define CECL_CHECK_ROOM_BYTES 64 /* at least this many bytes for each rank */
void *cecl_check_room(int nranks);

/* Compares a call with the peers' calls. Collective under CECL_CHECK=1; otherwise returns `local`, the result
 * of checking this rank's own arguments, whose message is recorded. Either all ranks go on, or all refuse:
 * with ceclInvalidUsage and both ranks' values, or with the message of the rank that refused. The description
 * `call` may be incomplete. */
ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local);

/* Like cecl_check_call, for calls that are carried out as one. If senders say where their blocks belong,
 * these places are compared, too. */
ceclResult_t cecl_check_calls(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              ceclResult_t local);

/* The calls of a group on one communicator. */
struct cecl_check_part {
    ceclComm_t comm;
    const struct cecl_call *calls;
    uint32_t count;
    ceclResult_t result; /* [out] the result, on which all ranks of the communicator agree */
    const char *words;   /* why this rank refuses the group; NULL: the last message says why */
    /* check.c's own */
    ceclResult_t local;
    bool is_told;
};

/* cecl_check_calls for several communicators at the same time, so that ranks may use the communicators in any
 * order, in one group or in successive calls. This thread may have several ranks of one communicator. */
ceclResult_t cecl_check_parts(struct cecl_check_part *parts, uint32_t count, ceclResult_t local);

#endif
