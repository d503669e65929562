/* Where the ranks of a communicator that have this library meet, on this host and beside NCCL.
 *
 * Each such rank opens an inbox before it calls NCCL: a Unix socket whose name the other ranks can compute. NCCL
 * makes a communicator only when all its ranks have called it. So once it is made, a rank whose inbox is not there,
 * and which has sent nothing, will never come: it runs without this library, or on another host. Nothing goes
 * through NCCL, whose ranks would take it for a call of the program. */
#ifndef CECL_NCCL_MEETING_H
#define CECL_NCCL_MEETING_H

#include <stddef.h>
#include <stdint.h>

#include "nccl/life.h"
#include "util/error.h"

struct cecl_nccl_meeting;

/* Opens this rank's inbox. NULL: no host memory. If the inbox cannot be opened, this rank and the others do not meet.
 * key    equal on the ranks that meet, and different from all other keys
 * place  this rank's number among `places` numbers, before NCCL tells it its rank */
struct cecl_nccl_meeting *cecl_nccl_meeting_open(uint64_t key, int place, int places);
/* Takes NULL, too. */
void cecl_nccl_meeting_close(struct cecl_nccl_meeting *meeting);
uint64_t cecl_nccl_meeting_key(const struct cecl_nccl_meeting *meeting);

/* Must be called once NCCL has made the communicator, before the first gather.
 * life  the meeting's gathers end if this is no longer MAKING */
void cecl_nccl_meeting_begin(struct cecl_nccl_meeting *meeting, int rank, int nranks,
                             const cecl_nccl_life *life);

/* Collective: gathers `bytes` bytes of each rank in `all`, in rank order. Waits for at most CECL_INIT_TIMEOUT_MS. After
 * the first failure all fail.
 * absent  [out] at the first gather the lowest rank that will not come, whose bytes are zero, or -1. At later ones
 *         a rank that does not come any more is an error. */
ceclResult_t cecl_nccl_meeting_gather(struct cecl_nccl_meeting *meeting, const void *mine,
                                      void *all, size_t bytes, int *absent);

#endif
