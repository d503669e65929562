/* The calls of a case, with all their results. */
#ifndef CECL_TESTS_FAULT_ATTEMPT_H
#define CECL_TESTS_FAULT_ATTEMPT_H

#include "life.h"

#define INTS 40000 /* of each buffer */

/* Makes the call of life->op once, on new inputs, and waits for its end. A success is looked into:
 * the process ends where a byte is wrong, or where the faulty rank did not make the call. */
ceclResult_t attempt_make(struct life *life);
/* Closes memory that a failed attempt kept open. The communicator has ended. */
void attempt_clean(struct life *life);

/* What a rank sends, by its number in the first communicator. */
int attempt_value(int rank, int attempt, int index);

#endif
