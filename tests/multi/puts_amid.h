/* One-sided calls between the calls of a burst, in which ranks may be killed, and beside bursts. */
#ifndef CECL_TEST_PUTS_AMID_H
#define CECL_TEST_PUTS_AMID_H

#include "bursts.h"

/* Draws a program of puts.h for one communicator, and shares the window. No rank is killed meanwhile. */
void puts_amid_prepare(uint64_t *x);
/* Returns the communicator if this rank belongs to it and the calls come before one of the calls [first,
 * end) of the burst; else NULL. */
const struct team *puts_amid_due(int first, int end);
ceclResult_t puts_amid_make(void);
/* Waits for the calls, and checks every byte unless a call failed. Returns NULL if no calls were made or
 * one has failed. */
const struct team *puts_amid_made(void);
ceclResult_t puts_amid_finish(void);
/* Frees the window if the communicator works. `failed` has a bit for each team. */
void puts_amid_end(uint32_t failed);

#endif
