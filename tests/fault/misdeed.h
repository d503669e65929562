/* Makes the faulty rank commit its fault at its point. */
#ifndef CECL_TESTS_FAULT_MISDEED_H
#define CECL_TESTS_FAULT_MISDEED_H

#include "life.h"

/* Called at each point of an attempt at which a fault may come. On the faulty rank, at the case's point and
 * attempt, commits the fault. Returns if the rank continues with the attempt. */
void misdeed_at(struct life *life, enum when when);
/* Starts the thread that commits the fault after a random time, if the case has an AMID fault. */
void misdeed_prepare(struct life *life);
/* Commits a fault that comes after joining. The thread that joined has ended. */
void misdeed_forget(struct life *life);

#endif
