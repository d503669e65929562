/* Communicators over several hosts, which NCCL carries (src/net). Internal to src/api. */
#ifndef CECL_API_BY_NCCL_H
#define CECL_API_BY_NCCL_H

#include "api/introduce.h"
#include "boot/oob.h"
#include "comm/comm.h"

/* Makes one, once the ranks have introduced themselves. Collective. Such a communicator has a device, and memory of
 * this rank alone: its mesh, pool and registry have one rank.
 *
 * host  [nranks] the number of each rank's host; `nhosts` is 2 or more */
ceclResult_t cecl_comm_by_nccl(ceclComm_t comm, struct cecl_oob *oob, const struct cecl_hello *all,
                               const uint16_t *host, int nhosts);

#endif
