/* One-sided calls between the calls of a burst in which ranks are killed. */
#ifndef CECL_TEST_HUNT_PUTS_AMID_H
#define CECL_TEST_HUNT_PUTS_AMID_H

#include "bursts.h"

/* Draws a program of puts.h on some communicator, and shares its window. Nobody dies meanwhile. */
void puts_amid_prepare(uint64_t *x);
/* The communicator, if this rank is in it and the calls come before the calls [first, end) of the burst; else NULL. */
const struct team *puts_amid_due(int first, int end);
ceclResult_t puts_amid_make(void);
/* Waits for the calls, and checks every byte if there is no error. NULL: none were made, or one of them has failed. */
const struct team *puts_amid_made(void);
ceclResult_t puts_amid_finish(void);
/* Ends the window, if the communicator works: `failed` has a bit for each team. */
void puts_amid_end(uint32_t failed);

#endif
