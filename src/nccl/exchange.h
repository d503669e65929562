/* Exchanges of bytes between the ranks of a communicator of NCCL's, by NCCL's own all-gather. So
 * ranks meet without a port or a file of cecl's. */
#ifndef CECL_NCCL_EXCHANGE_H
#define CECL_NCCL_EXCHANGE_H

#include "nccl/comms.h"
#include "nccl/gpu.h"

struct cecl_nccl_exchange {
    ncclComm_t comm;
    struct cecl_nccl_comm *entry; /* beside `comm`; NULL: no other thread can end `comm` */
    int rank, nranks;
    bool on_gpu; /* NCCL takes memory of the GPU `gpu`; otherwise that of the host */
    struct cecl_nccl_gpu gpu;
    ceclResult_t result; /* the first failure: no later exchange can be right */
};

/* Begins to exchange over `comm`, and makes its GPU the calling thread's. On failure nothing is left
 * to close. With an entry it first waits until NCCL has made `comm`. Another thread may then end
 * `comm`: each use of it is between cecl_nccl_comm_enter and _leave, and none is long. */
ceclResult_t cecl_nccl_exchange_open(struct cecl_nccl_exchange *exchange, ncclComm_t comm,
                                     struct cecl_nccl_comm *entry);
void cecl_nccl_exchange_close(struct cecl_nccl_exchange *exchange);

/* Whether another thread has ended the communicator, or is about to. */
bool cecl_nccl_exchange_is_ended(const struct cecl_nccl_exchange *exchange);

/* Collective: `bytes` of each rank, in rank order. It waits for CECL_INIT_TIMEOUT_MS at most. */
ceclResult_t cecl_nccl_exchange(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                                size_t bytes);

#endif
