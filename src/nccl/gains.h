/* For which calls cecl is faster than NCCL: the table by which CECL_NCCL=auto decides without a trial. */
#ifndef CECL_NCCL_GAINS_H
#define CECL_NCCL_GAINS_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Whether cecl takes less time than NCCL for `call`, according to measurements, both in place and out of
 * place. The two cases are not distinguished, because a rank sees only its own buffers. */
bool cecl_nccl_gains(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

#endif
