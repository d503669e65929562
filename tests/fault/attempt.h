/* The calls of a case, and checks of all their results. */
#ifndef CECL_TESTS_FAULT_ATTEMPT_H
#define CECL_TESTS_FAULT_ATTEMPT_H

#include "life.h"

/* Makes the call of life->op once, on new inputs, and waits for its end. Checks a success: the process ends
 * if a byte is wrong, or if the faulty rank did not make the call. */
ceclResult_t attempt_make(struct life *life);
/* Closes the memory that a failed attempt kept open. Called once the communicator has ended. */
void attempt_clean(struct life *life);

#endif
