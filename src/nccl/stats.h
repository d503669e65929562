/* The table of calls: which were served, passed or refused, and why. A process with CECL_NCCL_STATS=1
 * prints the table to stderr when it ends. */
#ifndef CECL_NCCL_STATS_H
#define CECL_NCCL_STATS_H

#include "nccl/call.h"
#include "nccl/symbol.h"

/* Counts a call. mark: for a served call, whether it used SMs; for any other call, whether it was refused
 * (otherwise it was passed). */
void cecl_nccl_stats_count(const struct cecl_nccl_call *call, enum cecl_nccl_reason reason,
                           bool mark);
/* Called before `comm` ends, because NCCL may then give its handle to another communicator. */
void cecl_nccl_stats_forget(ncclComm_t comm);
/* Counts a call of a function whose arguments are not known. */
void cecl_nccl_stats_count_symbol(struct cecl_nccl_symbol *symbol, bool refused);

#endif
