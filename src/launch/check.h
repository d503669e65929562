/* CECL_CHECK: ranks compare the calls that they are about to make. */
#ifndef CECL_LAUNCH_CHECK_H
#define CECL_LAUNCH_CHECK_H

#include "comm/comm.h"
#include "plan/facts.h"

/* Compares a call with the peers' calls. Collective under CECL_CHECK=1; otherwise returns `local`. `local`:
 * the result of checking this rank's own arguments; its message must be recorded. Either all ranks go on,
 * or all refuse. They refuse with ceclInvalidUsage and the values of two ranks that differ, or with the
 * message of a rank that refused. The description `call` may be incomplete. */
ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local);

/* The calls of a group on one communicator. */
struct cecl_check_part {
    ceclComm_t comm;
    const struct cecl_call *calls;
    uint32_t count;
    ceclResult_t result; /* [out] the result, on which all ranks of the communicator agree */
    /* why this rank refuses the group; NULL: the thread's last recorded message says why */
    const char *words;
    /* used only by check.c */
    ceclResult_t local;
    bool is_told;
};

/* Like cecl_check_call, but for calls that are carried out as one, on several communicators at the same time. So
 * ranks may use the communicators in any order, in one group or in successive calls. This thread may have several
 * ranks of one communicator. */
ceclResult_t cecl_check_parts(struct cecl_check_part *parts, uint32_t count, ceclResult_t local);

#endif
