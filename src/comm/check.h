/* CECL_CHECK: ranks compare what they are about to do. */
#ifndef CECL_COMM_CHECK_H
#define CECL_COMM_CHECK_H

#include "comm/comm.h"

/* One rank's arguments of a collective, as far as ranks must agree. */
struct cecl_signature {
    uint64_t op, count, type, in_place;
    uint64_t offset;      /* of recvbuff in the pool */
    uint64_t send_offset; /* of sendbuff, where peers read it; otherwise 0 */
    int32_t status;       /* ceclResult_t: whether this rank's own checks passed */
    char text[180];       /* why not */
};

/* Room for the ranks' signatures, made when the communicator is; NULL without memory. */
void *cecl_check_room(int nranks);

/* Collective under CECL_CHECK=1. `local`: this rank's verdict on its own arguments, its message
 * recorded. All ranks go on,
 * or all refuse: ceclInvalidUsage with both ranks' values, or the words of the rank that refused.
 * */
ceclResult_t cecl_check_call(ceclComm_t comm, struct cecl_signature *mine, ceclResult_t local);

#endif
