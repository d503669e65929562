/* Meetings: those ranks of a communicator that have this library and are on this host exchange data, without NCCL.
 *
 * Each of them opens an inbox before it calls NCCL: a Unix socket whose name the other ranks can compute. NCCL makes a
 * communicator only when all its ranks have called NCCL. So once the communicator is made, a rank that has no inbox and
 * has sent nothing will never come: it runs without this library, or on another host. Meetings send nothing through
 * NCCL, because a rank without this library would mistake it for a call of the program. */
#ifndef CECL_NCCL_MEETING_H
#define CECL_NCCL_MEETING_H

#include <stddef.h>
#include <stdint.h>

#include "nccl/life.h"
#include "util/error.h"

struct cecl_nccl_meeting;

/* Opens this rank's inbox. NULL: no host memory. If the inbox cannot be opened, this rank and the others do not meet.
 * key    equal on the ranks that meet, and different from all other keys
 * place  a number below `places` that no other rank has. It may differ from the rank, which NCCL tells later */
struct cecl_nccl_meeting *cecl_nccl_meeting_open(uint64_t key, int place, int places);
/* NULL is allowed. */
void cecl_nccl_meeting_close(struct cecl_nccl_meeting *meeting);
uint64_t cecl_nccl_meeting_key(const struct cecl_nccl_meeting *meeting);

/* Must be called after NCCL has made the communicator, before the first gather. `life` is that of the communicator's
 * entry: once it is no longer MAKING, gathers fail. */
void cecl_nccl_meeting_begin(struct cecl_nccl_meeting *meeting, int rank, int nranks,
                             const cecl_nccl_life *life);

/* Collective: gathers `bytes` bytes of each rank in `all`, in rank order. Waits for at most CECL_INIT_TIMEOUT_MS. After
 * a gather has failed, all later ones fail.
 * absent  [out] in the first gather the lowest rank that will not come, or -1; absent ranks' bytes stay as they are.
 *         In later gathers an absent rank is an error. */
ceclResult_t cecl_nccl_meeting_gather(struct cecl_nccl_meeting *meeting, const void *mine,
                                      void *all, size_t bytes, int *absent);

#endif
