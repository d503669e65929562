/* The table of what became of calls. A process that counts prints it to stderr when it ends. */
#ifndef CECL_NCCL_STATS_H
#define CECL_NCCL_STATS_H

#include "nccl/call.h"

/* `mark` says of a call that was served whether it used SMs, and of another one whether it was refused
 * instead of passed. */
void cecl_nccl_stats_count(const struct cecl_nccl_call *call, enum cecl_nccl_reason reason,
                           bool mark);

/* In a child of fork: the calls so far were its parent's. */
void cecl_nccl_stats_forget(void);

/* Prints the table to stderr, if a call was counted. It is one write, so that tables of ranks that
 * share a terminal do not mix. */
void cecl_nccl_stats_print(void);

#endif
