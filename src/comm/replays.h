/* Graphs that hold captured calls, as the watchdog sees them: bounding their waits, naming who is
 * missing, and ending waits after the communicator has failed or ended. */
#ifndef CECL_COMM_REPLAYS_H
#define CECL_COMM_REPLAYS_H

#include "comm/comm.h"

/* Checks a captured call that is running: which peer keeps it waiting, and for how long. Sets the
 * asynchronous error when that is too long, or when the missing peer has left. For the watchdog. */
void cecl_replays_look(ceclComm_t comm, int64_t now);

/* Ends the waits of graphs that run. To be called again and again. */
void cecl_replays_release(ceclComm_t comm);

/* Ends the waits of graphs that are launched after the communicator has ended, as long as they hold its
 * calls. Its memory stays. Any thread. */
void cecl_replays_keep(ceclComm_t comm);

#endif
