/* Windows that ranks share for one-sided calls. Internal to src/api. */
#ifndef CECL_API_WINDOWS_H
#define CECL_API_WINDOWS_H

#include "launch/one_sided.h"

/* Refuses to free the allocation of the pool at `offset`, if some rank shares a part of it. All ranks find that
 * alike. */
ceclResult_t cecl_windows_check_free(ceclComm_t comm, uint64_t offset);
/* The communicator ends: frees its windows. `drained`: no work is pending; otherwise what it may use stays. */
void cecl_windows_end(ceclComm_t comm, bool drained);

#endif
