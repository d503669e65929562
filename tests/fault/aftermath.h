/* What a case checks after the fault: errors, the survivors' new communicator, and released resources. */
#ifndef CECL_TESTS_FAULT_AFTERMATH_H
#define CECL_TESTS_FAULT_AFTERMATH_H

#include "../prompt.h"
#include "life.h"

/* The time limit of communicators in which a rank keeps others waiting. Each further try of a case doubles
 * it. Ranks that share a GPU take longer to join. */
#define TIMEOUT_MS (life_on_gpus() ? 2000 : 600)
#define LONG_TIMEOUT_MS 60000 /* of other communicators: no timeout may replace evidence */

/* Fails if all ranks must know of the fault by now. */
void aftermath_check_time(struct life *life);
/* Checks the error of a call that has failed with `result`: the code, the time and the message. */
void aftermath_check_error(struct life *life, ceclResult_t result);
/* Called after the call, while no rank waits: the ranks learn of the fault, or have no reason to. */
void aftermath_watch_idle(struct life *life);

/* How a life ends, by the rank's role. */
_Noreturn void aftermath_of_survivors(struct life *life);
_Noreturn void
aftermath_of_the_late(struct life *life);               /* for a rank that stayed away from calls */
_Noreturn void aftermath_of_leaving(struct life *life); /* for a rank that aborts or destroys */

#endif
