/* Carries out an NCCL call through cecl. */
#ifndef CECL_NCCL_SERVE_H
#define CECL_NCCL_SERVE_H

#include "nccl/call.h"
#include "nccl/comms.h"

ceclResult_t cecl_nccl_serve(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

/* cecl_nccl_serve in two steps, for groups. The first enqueues the call. On the host device the second
 * waits for the communicator's calls; on GPUs it returns at once. */
ceclResult_t cecl_nccl_serve_enqueue(const struct cecl_nccl_call *call,
                                     const struct cecl_nccl_comm *comm, cudaStream_t stream);
ceclResult_t cecl_nccl_serve_complete(const struct cecl_nccl_comm *comm);

/* Whether the call uses SMs, according to ceclGroupExplain. Used only if calls are counted. */
bool cecl_nccl_serve_uses_sms(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

#endif
