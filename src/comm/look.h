/* One look at everything for which streams of this rank wait. */
#ifndef CECL_COMM_LOOK_H
#define CECL_COMM_LOOK_H

#include "comm/comm.h"

/* Finds the ranks that keep a stream waiting, publishes them (comm/waits.h), and sets the asynchronous error when a wait has
 * taken too long, or when a rank has left for which a stream waits. The time of a wait begins when its stream reaches it,
 * and begins again when it makes progress. Only for the watchdog. now: ms. */
void cecl_look(ceclComm_t comm, int64_t now);

#endif
