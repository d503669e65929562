/* Waits for signals of one-sided calls, as the watchdog sees them. */
#ifndef CECL_COMM_SIGNALLED_H
#define CECL_COMM_SIGNALLED_H

#include "comm/comm.h"

/* Checks the waits that streams have reached. Sets the asynchronous error when a wait takes too long, or when
 * the peer that should signal has left. The time of a wait begins when its stream reaches it, and begins
 * again with each signal. */
void cecl_signalled_look(ceclComm_t comm, int64_t now_ms);

#endif
