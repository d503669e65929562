/* Communicators and memory that ranks make between the calls of a burst, while ranks are killed. */
#ifndef CECL_TEST_HUNT_BESIDE_H
#define CECL_TEST_HUNT_BESIDE_H

#include "bursts.h"

/* Draws what is made in the next burst, and between which calls. */
void beside_draw(uint64_t *x);
/* Whether it comes before the calls [first, end). */
bool beside_is_due(int first, int end);
/* Makes it. Returns whether a communicator was made. */
bool beside_make(void);

/* Calls on a new communicator, whose results must be right if they are called good. */
void beside_try(ceclComm_t comm);

#endif
