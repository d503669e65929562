/* Carries a call of NCCL's out by cecl. */
#ifndef CECL_NCCL_SERVE_H
#define CECL_NCCL_SERVE_H

#include "nccl/call.h"
#include "nccl/comms.h"

ceclResult_t cecl_nccl_serve(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

/* Whether the call uses SMs, as ceclGroupExplain tells. It is asked only where calls are counted. */
bool cecl_nccl_serve_uses_sms(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

#endif
