/* Waits for signals of one-sided calls, as the watchdog sees them. */
#ifndef CECL_COMM_SIGNALLED_H
#define CECL_COMM_SIGNALLED_H

#include "comm/comm.h"

/* Checks the waits to which streams have come. Sets the asynchronous error when one of them takes too long, or when
 * the peer that should signal has left. Each wait has a time of its own, which begins when its stream comes to it,
 * and again with each signal. */
void cecl_signalled_look(ceclComm_t comm, int64_t now_ms);

#endif
