/* Graphs that hold captured calls: their calls' numbers and names, and the end of their waits after the communicator has
 * failed or ended. */
#ifndef CECL_COMM_REPLAYS_H
#define CECL_COMM_REPLAYS_H

#include "comm/comm.h"

/* Gives a launch of collectives that a graph captures its number. Ranks capture the same calls in the same order, so the
 * numbers are equal on all ranks. name: of its first call. */
uint32_t cecl_replays_number(ceclComm_t comm, const char *name);

/* The name of a captured call, also of a peer: the call with this number has the same name here. */
const char *cecl_replays_name(ceclComm_t comm, uint32_t number);

/* Ends the waits of graphs that run. Call it repeatedly. */
void cecl_replays_release(ceclComm_t comm);

/* Ends the waits of graphs that are launched after the communicator has ended, for as long as graphs hold its
 * calls. The communicator's memory stays. Threads: any. */
void cecl_replays_keep(ceclComm_t comm);

#endif
