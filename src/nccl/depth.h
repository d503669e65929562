/* How many groups of NCCL the calling thread has open, one in another. */
#ifndef CECL_NCCL_DEPTH_H
#define CECL_NCCL_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

int cecl_nccl_group_depth(void);

/* The number of the thread's outermost group that is open, or was open last; 0: none was. */
uint64_t cecl_nccl_group_number(void);

/* Notes that a group was opened, or that one was ended. The second returns whether that was the
 * outermost one. */
void cecl_nccl_group_opened(void);
bool cecl_nccl_group_ended(void);

#endif
