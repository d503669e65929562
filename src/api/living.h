/* The communicators of this process that are alive. When the process ends by itself (exit, or a
 * return from main), communicators without a pending call say goodbye, as ceclCommDestroy would.
 * Peers then go on until a call needs this rank. */
#ifndef CECL_COMM_LIVING_H
#define CECL_COMM_LIVING_H

#include "comm/comm.h"

void cecl_living_add(ceclComm_t comm);
/* To be called before any part of `comm` is freed. No effect on a communicator that was not
 * added. */
void cecl_living_remove(ceclComm_t comm);

#endif
