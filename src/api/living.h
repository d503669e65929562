/* The communicators of this process that have not ended. When the process ends normally (by exit, or a return
 * from main), communicators without a pending call say goodbye to their peers, as ceclCommDestroy would. The
 * peers then go on until a call needs this rank. */
#ifndef CECL_COMM_LIVING_H
#define CECL_COMM_LIVING_H

#include "comm/comm.h"

void cecl_living_add(ceclComm_t comm);
/* Call it before any part of `comm` is freed. It has no effect on a communicator that was not added. */
void cecl_living_remove(ceclComm_t comm);

#endif
