/* Makes a call by cecl or by NCCL, as decide.c has decided. */
#ifndef CECL_NCCL_SERVE_H
#define CECL_NCCL_SERVE_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Makes `call` by cecl on `stream`, with call->way.policy. The caller is inside the communicator. */
ceclResult_t cecl_nccl_serve(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                             cudaStream_t stream);
/* Must be called after cecl_nccl_serve or, if the call is in a cecl group, after the end of that group. On the host
 * device it waits for the communicator's calls, unless `call` is captured. On GPUs it returns at once. */
ceclResult_t cecl_nccl_serve_complete(const struct cecl_nccl_call *call,
                                      const struct cecl_nccl_comm *comm);

/* Whether the call uses SMs, according to ceclGroupExplain. Used only if calls are counted. */
bool cecl_nccl_uses_sms(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm);

/* For the stand-in for NCCL, which works on memory of the host: the stream of the host device on which `ours` must make
 * a call that is captured on `stream`. NULL: `stream` does not capture. */
ceclStream_t cecl_nccl_host_stream(ceclComm_t ours, cudaStream_t stream);

ncclResult_t cecl_nccl_pass(const struct cecl_nccl_call *call);

/* Whether NCCL has finished enqueueing calls on `comm` in the background. `entry` is that of `comm`, or NULL. */
bool cecl_nccl_is_enqueued(ncclComm_t comm, struct cecl_nccl_comm *entry);

#endif
