/* CECL_CHECK: ranks compare what they are about to do. */
#ifndef CECL_COMM_CHECK_H
#define CECL_COMM_CHECK_H

#include "comm/comm.h"

/* Room for what the ranks tell, made when the communicator is; NULL without memory. */
void *cecl_check_room(int nranks);

/* Collective under CECL_CHECK=1, otherwise no more than `local`: this rank's verdict on its own
 * arguments, its message recorded. All ranks go on, or all refuse: ceclInvalidUsage with both
 * ranks' values, or the words of the rank that refused. `call` may be described in part. */
ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local);

/* What a peer's refusal, `status` with its words, is on this rank. */
ceclResult_t cecl_check_refused(int rank, int32_t status, const char *words);

#endif
