/* Exchanges of bytes between the ranks of an NCCL communicator, by NCCL's own all-gather. So cecl needs no
 * port and no file to connect ranks. */
#ifndef CECL_NCCL_EXCHANGE_H
#define CECL_NCCL_EXCHANGE_H

#include "nccl/comms.h"
#include "nccl/gpu.h"

struct cecl_nccl_exchange {
    ncclComm_t comm;
    struct cecl_nccl_comm *entry; /* the entry of `comm`; NULL: no other thread can end `comm` */
    int rank, nranks;
    bool on_gpu; /* NCCL takes memory of the GPU `gpu`; otherwise memory of the host */
    struct cecl_nccl_gpu gpu;
    ceclResult_t result; /* the first failure, after which no exchange can succeed */
};

/* Prepares exchanges over `comm`, and makes its GPU the calling thread's current one. On failure
 * nothing is left to close. If `entry` is given, first waits until NCCL has made `comm`. Another thread
 * may then end `comm` at any time, so each use of it is short, and is between cecl_nccl_comm_enter and
 * _leave. */
ceclResult_t cecl_nccl_exchange_open(struct cecl_nccl_exchange *exchange, ncclComm_t comm,
                                     struct cecl_nccl_comm *entry);
void cecl_nccl_exchange_close(struct cecl_nccl_exchange *exchange);

/* Whether another thread has ended the communicator, or is about to. */
bool cecl_nccl_exchange_is_ended(const struct cecl_nccl_exchange *exchange);

/* Collective: gathers `bytes` bytes of each rank, in rank order. Waits for at most CECL_INIT_TIMEOUT_MS. */
ceclResult_t cecl_nccl_exchange(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                                size_t bytes);

/* Collective: splits the communicator, with this rank's number as the key. Has the same time limit. */
ceclResult_t cecl_nccl_exchange_split(struct cecl_nccl_exchange *exchange, void *config,
                                      ncclComm_t *split);

#endif
