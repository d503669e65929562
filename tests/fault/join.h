/* How the ranks of a case come together. */
#ifndef CECL_TESTS_FAULT_JOIN_H
#define CECL_TESTS_FAULT_JOIN_H

#include "life.h"

/* Sets the time limit of joining for all later joins of this process. */
void join_set_limits(int init_timeout_ms);
ceclConfig_t join_config(const struct fault_case *c, int timeout_ms);
/* Joins by the id with this number. Id 0 is made by the rank that the case names, any other id by rank 0 of
 * its communicator. */
ceclResult_t join_by_id(struct life *life, int which, int nranks, int rank,
                        const ceclConfig_t *config, ceclComm_t *comm);
/* Makes the case's first communicator. */
ceclResult_t join_first(struct life *life);

#endif
