/* The calling thread's group of NCCL calls: how deep it is, and the served calls that wait for its
 * end. Calls that are passed go to NCCL's own group at once. Calls of a group have no order among
 * themselves, so the two parts may be carried out one after the other. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

#include "nccl/call.h"

/* How many groups are open, one in another. */
int cecl_nccl_group_depth(void);

/* A group was opened; one was ended. The latter returns whether it was the outermost one. */
void cecl_nccl_group_opened(void);
bool cecl_nccl_group_ended(void);

/* Keeps a call for the end of the outermost group. */
ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call);

/* Carries out the calls that were kept, or none of them. No call is kept afterwards. */
ncclResult_t cecl_nccl_group_serve(void);
void cecl_nccl_group_forget(void);

#endif
