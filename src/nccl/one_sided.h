/* ncclPutSignal, ncclSignal and ncclWaitSignal (NCCL 2.29). windows.h says for which communicators they
 * are served. Calls of a group are made when the group ends: first puts and signals, then waits, because
 * with NCCL a wait does not hold up other calls of its group. */
#ifndef CECL_NCCL_ONE_SIDED_H
#define CECL_NCCL_ONE_SIDED_H

#include "nccl/call.h"
#include "nccl/comms.h"

struct cecl_nccl_one_sided {
    enum cecl_nccl_op op;
    const void *caller;
    ncclComm_t comm;
    cudaStream_t stream;
    /* -- puts and signals -- */
    const void *local;
    size_t count;
    ncclDataType_t datatype;
    int peer;
    ncclWindow_t window;
    size_t offset;
    int signal, context;
    unsigned flags;
    /* -- waits -- */
    const ncclWaitSignalDesc_t *waits; /* [nwaits] */
    int nwaits;
};

/* Serves a call, or keeps it until the thread's outermost group ends. The caller is inside `comm`. */
ncclResult_t cecl_nccl_one_sided_serve(const struct cecl_nccl_one_sided *call,
                                       struct cecl_nccl_comm *comm);
bool cecl_nccl_one_sided_uses_sms(const struct cecl_nccl_one_sided *call,
                                  const struct cecl_nccl_comm *comm);

/* Carries out the calls that the thread's outermost group has kept. */
ncclResult_t cecl_nccl_one_sided_end_group(void);
void cecl_nccl_one_sided_forget(void);

#endif
