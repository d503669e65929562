/* Ranks exchange their layouts over the mesh. */
#ifndef CECL_LAUNCH_EXCHANGE_H
#define CECL_LAUNCH_EXCHANGE_H

#include "call/call.h"
#include "comm/comm.h"

/* Allocates memory for what ranks exchange. Returns NULL without memory. */
void *cecl_exchange_room(int nranks);

/* Collective. Ranks exchange where their blocks belong.
 *
 * layout  [out] [call->layout_words] the call's layout, with the places of this rank's blocks at
 *         its peers
 * local   this rank's verdict on its own arguments, with its message recorded
 *
 * All ranks go on, or all refuse. Where two ranks differ, the message has both ranks and both
 * values. */
ceclResult_t cecl_exchange_places(ceclComm_t comm, const struct cecl_call *call, uint64_t *layout,
                                  ceclResult_t local);
/* Collective. Compares the places of blocks that the caller gave with the places that peers
 * expect. */
ceclResult_t cecl_exchange_compare(ceclComm_t comm, const struct cecl_call *call);

/* A rank's verdict on its own arguments, with which everything begins that ranks exchange of a call. */
struct cecl_verdict {
    int32_t status;     /* ceclResult_t */
    int32_t has_failed; /* the communicator has failed on that rank: it fails on the others, too */
    char text[180];     /* the message if it is an error */
};

/* Collective. Gathers `bytes` of each rank, from `mine` into `all`. Fills in mine's verdict: `local`,
 * with its message recorded. Returns this rank's own error, because its message says more than what
 * a peer was told; or the error of the first peer that refused its call.
 *
 * name  of the public call; what: is exchanged, for messages */
ceclResult_t cecl_exchange(ceclComm_t comm, const char *name, const char *what,
                           struct cecl_verdict *mine, void *all, size_t bytes, ceclResult_t local);

#endif
