/* What the faulty rank does, when its time has come. */
#ifndef CECL_TESTS_FAULT_MISDEED_H
#define CECL_TESTS_FAULT_MISDEED_H

#include "life.h"

/* Called at each point of an attempt where a fault may come. If this is the rank, the point and the
 * attempt, it does what the case says. Returns if the rank goes on with the attempt. */
void misdeed_at(struct life *life, enum when when);
/* Starts the thread that does it after a random time, if the case says so. */
void misdeed_prepare(struct life *life);
/* For faults that come after joining, with the thread joined: nothing of it is left. */
void misdeed_forget(struct life *life);

#endif
