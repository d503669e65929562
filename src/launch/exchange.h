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

/* Converts a peer's refusal, `status` with its message, to the result on this rank. */
ceclResult_t cecl_exchange_refused(int rank, int32_t status, const char *words);

#endif
