/* Makes communicators and windows between the calls of a burst in which ranks are killed. */
#ifndef CECL_TEST_HUNT_BESIDE_H
#define CECL_TEST_HUNT_BESIDE_H

#include "bursts.h"

/* Draws what the next burst makes, and between which calls. */
void beside_draw(uint64_t *x);
/* Whether the additional call comes before one of the calls [first, end). */
bool beside_is_due(int first, int end);
/* Makes the drawn object. Returns whether a communicator was made. */
bool beside_make(void);

/* Makes calls on the new communicator. Results of successful calls must be right. */
void beside_try(ceclComm_t comm);

#endif
