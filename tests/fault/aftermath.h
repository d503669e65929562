/* What is looked at once the fault has come: errors, those who are left, and what is given back. */
#ifndef CECL_TESTS_FAULT_AFTERMATH_H
#define CECL_TESTS_FAULT_AFTERMATH_H

#include "life.h"

/* How soon a fault is known to all, in seconds, beside the time limit where there is no evidence. */
#define PROMPT 10.0
/* Of communicators whose rank keeps others waiting; doubled in each further try of a case. Ranks that share a
 * GPU take their time to join. */
#define TIMEOUT_MS (life_on_gpus() ? 2000 : 600)
#define LONG_TIMEOUT_MS 20000 /* of others: no time limit may stand in for evidence */

/* Fails if the fault should be known by now. */
void aftermath_check_time(struct life *life);
/* A call has failed with `result`: is it the right error, in time, with the right words? */
void aftermath_check_error(struct life *life, ceclResult_t result);
/* The call is over and nobody waits: the ranks hear of the fault, or have no reason to. */
void aftermath_watch_idle(struct life *life);

/* The ends of a life. */
_Noreturn void aftermath_of_survivors(struct life *life);
_Noreturn void aftermath_of_the_late(struct life *life); /* it stayed away from calls */
_Noreturn void aftermath_of_leaving(struct life *life);  /* it aborts or destroys */

#endif
