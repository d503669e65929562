/* The calling thread's group of NCCL calls. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

/* How many groups are open, one in another. */
int cecl_nccl_group_depth(void);

#endif
