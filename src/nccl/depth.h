/* How many nested groups of NCCL the calling thread has open. */
#ifndef CECL_NCCL_DEPTH_H
#define CECL_NCCL_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

int cecl_nccl_group_depth(void);

/* The number of the thread's outermost open group; if none is open, of its last group; 0: it had no group. */
uint64_t cecl_nccl_group_number(void);

/* Note that a group was opened, or was ended. cecl_nccl_group_ended returns whether it was the outermost
 * group. */
void cecl_nccl_group_opened(void);
bool cecl_nccl_group_ended(void);

#endif
