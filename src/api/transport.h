/* The transport of a communicator over several nodes. Internal to src/api. */
#ifndef CECL_API_TRANSPORT_H
#define CECL_API_TRANSPORT_H

#include "comm/comm.h"

/* Bytes of the transport's memory that all ranks of the host share. */
size_t cecl_transport_shared_bytes(ceclComm_t comm);

/* Collective. Chooses and opens the transport for the communicator's device and hosts. On GPUs a rank's host
 * thread may wait for a peer's host thread, so each rank needs a process of its own. */
ceclResult_t cecl_transport_open(ceclComm_t comm);

#endif
