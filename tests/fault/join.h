/* How the ranks of a case come together. */
#ifndef CECL_TESTS_FAULT_JOIN_H
#define CECL_TESTS_FAULT_JOIN_H

#include "life.h"

/* The time limit of joining, from now on in this process. */
void join_set_limits(int init_timeout_ms);
ceclConfig_t join_config(const struct fault_case *c, int timeout_ms);
/* Joins by the id with this number. The first one's maker makes it; that of any other is made by its
 * rank 0. */
ceclResult_t join_by_id(struct life *life, int which, int nranks, int rank,
                        const ceclConfig_t *config, ceclComm_t *comm);
/* The first communicator of the case. */
ceclResult_t join_first(struct life *life);

#endif
