/* Graphs that hold captured calls: the watchdog limits their waits, names the missing ranks, and ends waits
 * after the communicator has failed or ended. */
#ifndef CECL_COMM_REPLAYS_H
#define CECL_COMM_REPLAYS_H

#include "comm/comm.h"

/* Gives a launch of collectives that a graph captures its number. Ranks capture the same calls in the same order, so the
 * numbers are equal on all ranks. name: of its first call. */
uint32_t cecl_replays_number(ceclComm_t comm, const char *name);

/* Checks a captured call that is running, or that waits to begin: which peer keeps it waiting, and for how long. Sets the
 * asynchronous error when that is too long, or when the missing peer has left. Called by the watchdog. */
void cecl_replays_look(ceclComm_t comm, int64_t now);

/* Ends the waits of graphs that run. Call it repeatedly. */
void cecl_replays_release(ceclComm_t comm);

/* Ends the waits of graphs that are launched after the communicator has ended, for as long as graphs hold its
 * calls. The communicator's memory stays. Threads: any. */
void cecl_replays_keep(ceclComm_t comm);

#endif
