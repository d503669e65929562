/* Windows that ranks share for one-sided calls. Internal to src/api. */
#ifndef CECL_API_WINDOWS_H
#define CECL_API_WINDOWS_H

#include "launch/one_sided.h"

/* Returns an error if a rank shares a part of the allocation at `offset` of the pool. The result is equal on
 * all ranks. */
ceclResult_t cecl_windows_check_free(ceclComm_t comm, uint64_t offset);
/* Frees the windows of a communicator that ends. `drained`: no work is pending. If work is pending, the
 * memory that it may use stays open. */
void cecl_windows_end(ceclComm_t comm, bool drained);

#endif
