/* Exchanges of all ranks. */
#ifndef CECL_LAUNCH_EXCHANGE_H
#define CECL_LAUNCH_EXCHANGE_H

#include "comm/comm.h"
#include "plan/facts.h"

/* Allocates memory for what all ranks send in one exchange, at least CECL_EXCHANGE_BYTES for each rank. A communicator
 * makes one exchange at a time. Returns NULL without host memory. */
#define CECL_EXCHANGE_BYTES 512
void *cecl_exchange_room(int nranks);

/* The result of checking a rank's own arguments. All data that ranks exchange about a call begins with this
 * struct. */
struct cecl_verdict {
    int32_t status;     /* ceclResult_t */
    int32_t has_failed; /* the communicator has failed on that rank, so it must fail on all ranks */
    char text[180];     /* the message of an error */
};

/* Collective. Gathers `bytes` bytes of each rank: over the mesh, or, with several hosts, over the connections to the
 * root (boot/oob.h). If the exchange is cut off midway, the communicator fails. kind: as in cecl_mesh_allgather. */
ceclResult_t cecl_gather(ceclComm_t comm, const char *kind, const void *mine, void *all,
                         size_t bytes);

/* Collective. Gathers `bytes` bytes from each rank's `mine` into the launcher's `exchange`. First fills in *mine from
 * `local`, the result of this rank's own checks; if it is an error, its message must be recorded. Returns `local` if it
 * is an error, because its message says more. Otherwise returns the error of the first rank that has refused.
 *
 * name  the public call, for messages; kind: as in cecl_gather */
ceclResult_t cecl_exchange(ceclComm_t comm, const char *name, const char *kind,
                           struct cecl_verdict *mine, size_t bytes, ceclResult_t local);

/* -- check.c: ranks compare the calls that they are about to make. -- */

/* Collective. Compares a call with the peers' calls. If the layout differs between ranks, also compares what each rank
 * sends with what its receivers expect. `local`: as in cecl_exchange; if it is an error, `call` may be incomplete.
 * Either all ranks go on, or all refuse: with ceclInvalidUsage and the values in which two ranks differ, or with the
 * message of a rank that has refused. */
ceclResult_t cecl_exchange_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local);
/* Copies the call's layout to `layout` [call->layout_words], and fills in where this rank's blocks belong at the peers,
 * as the peers said in the latest cecl_exchange_call. */
void cecl_exchanged_places(ceclComm_t comm, const struct cecl_call *call, uint64_t *layout);
/* cecl_exchange_call under CECL_CHECK=1; otherwise returns `local`. */
ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local);

#endif
