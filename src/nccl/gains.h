/* Where cecl is faster than NCCL: what CECL_NCCL=auto goes by. */
#ifndef CECL_NCCL_GAINS_H
#define CECL_NCCL_GAINS_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Whether measurements say that cecl carries `call` out in less time than NCCL, in place and out of
 * place: the two are not told apart, because a rank sees only its own buffers. */
bool cecl_nccl_gains(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

#endif
