/* Exchanges of all ranks. */
#ifndef CECL_LAUNCH_EXCHANGE_H
#define CECL_LAUNCH_EXCHANGE_H

#include "comm/comm.h"
#include "plan/facts.h"

/* Allocates memory for what ranks send in an exchange, at least CECL_EXCHANGE_BYTES for each rank: a communicator makes one
 * exchange at a time. Returns NULL without memory. */
#define CECL_EXCHANGE_BYTES 512
void *cecl_exchange_room(int nranks);

/* The result of checking a rank's own arguments. All data that ranks exchange about a call begins with this
 * struct. */
struct cecl_verdict {
    int32_t status; /* ceclResult_t */
    int32_t
        has_failed; /* the communicator has failed on that rank, so it fails on the others, too */
    char text[180]; /* the message of an error */
};

/* Collective. Gathers `bytes` bytes of each rank: over the mesh, or, over several hosts, over the ranks' lines. A failure in
 * its midst fails the communicator. kind: as in cecl_mesh_allgather. */
ceclResult_t cecl_gather(ceclComm_t comm, const char *kind, const void *mine, void *all,
                         size_t bytes);

/* Collective. Gathers `bytes` bytes from each rank's `mine` into the launcher's `exchange`. First fills in *mine from `local`,
 * the result of this rank's own checks, whose message must be recorded. Returns this rank's own error if
 * there is one, because its message says most. Otherwise returns the error of the first peer that refused
 * its call.
 *
 * name  of the public call, for messages; kind: as in cecl_gather */
ceclResult_t cecl_exchange(ceclComm_t comm, const char *name, const char *kind,
                           struct cecl_verdict *mine, size_t bytes, ceclResult_t local);

/* -- check.c: ranks compare the calls that they are about to make. -- */

/* Collective. Compares a call with the peers' calls; if ranks have layouts of their own, also each sender's with each
 * receiver's. `local`: the result of checking this rank's own arguments; its message must be recorded. Either all ranks
 * go on, or all refuse. They refuse with ceclInvalidUsage and the values of two ranks that differ, or with the
 * message of a rank that refused. The description `call` may then be incomplete. */
ceclResult_t cecl_exchange_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local);
/* Writes the call's layout, in which it fills in where this rank's blocks belong at its peers: see the latest
 * cecl_exchange_call. layout: [out] [call->layout_words] */
void cecl_exchanged_places(ceclComm_t comm, const struct cecl_call *call, uint64_t *layout);
/* cecl_exchange_call under CECL_CHECK=1; otherwise returns `local`. */
ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local);

#endif
