/* The transport of a communicator over several nodes. Internal to src/api. */
#ifndef CECL_API_TRANSPORT_H
#define CECL_API_TRANSPORT_H

#include "comm/comm.h"

/* Bytes of memory that all ranks of the host share for it. */
size_t cecl_transport_shared_bytes(ceclComm_t comm);

/* Collective. Chooses and opens it, for the communicator's device and hosts. On GPUs a rank may wait on its host
 * for a peer's, so each rank needs a process of its own there. */
ceclResult_t cecl_transport_open(ceclComm_t comm);

#endif
