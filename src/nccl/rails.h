/* What a communicator over several nodes has besides cecl's: a split of NCCL's communicator, over which cecl
 * sends what leaves a node. NCCL warns of two communicators at work on one GPU. So exchanges over the split
 * and passed calls of the program's communicator follow each other, in the order in which the host makes them:
 * each waits for an event behind the one before. Captured calls are not ordered, because a graph may be
 * replayed at any time. */
#ifndef CECL_NCCL_RAILS_H
#define CECL_NCCL_RAILS_H

#include "nccl/comms.h"
#include "nccl/exchange.h"

/* What cecl needs to split NCCL's communicator of `exchange`, and to order exchanges. Sets
 * entry->rails.exist if it does split it. */
ceclNcclNet_t cecl_nccl_rails_lend(struct cecl_nccl_comm *entry,
                                   struct cecl_nccl_exchange *exchange);
/* cecl's communicator has ended, and with it the split. */
void cecl_nccl_rails_close(struct cecl_nccl_comm *entry);

/* An exchange, or a passed call, follows on `stream`, or lies before. */
ceclResult_t cecl_nccl_rails_before(struct cecl_nccl_rails *rails, cudaStream_t stream);
ceclResult_t cecl_nccl_rails_behind(struct cecl_nccl_rails *rails, cudaStream_t stream);

#endif
