/* A communicator over several nodes also has a split of NCCL's communicator, through which cecl sends
 * between nodes. NCCL warns against two communicators that run on one GPU at the same time. So exchanges
 * over the split and passed calls of the program's communicator run one after the other, in the order in
 * which the host makes them: each waits for an event that was recorded after the previous one. Captured
 * calls are not ordered, because a graph may be replayed at any time. */
#ifndef CECL_NCCL_RAILS_H
#define CECL_NCCL_RAILS_H

#include "nccl/comms.h"
#include "nccl/exchange.h"

/* What cecl needs to split the NCCL communicator of `exchange`, and to order exchanges. If cecl splits it,
 * entry->rails.exist is set. */
ceclNcclNet_t cecl_nccl_rails_lend(struct cecl_nccl_comm *entry,
                                   struct cecl_nccl_exchange *exchange);
/* Must be called after cecl's communicator, and with it the split, has ended. */
void cecl_nccl_rails_close(struct cecl_nccl_comm *entry);

/* Must be called before and after an exchange or a passed call is enqueued on `stream`. */
ceclResult_t cecl_nccl_rails_before(struct cecl_nccl_rails *rails, cudaStream_t stream);
ceclResult_t cecl_nccl_rails_behind(struct cecl_nccl_rails *rails, cudaStream_t stream);

#endif
