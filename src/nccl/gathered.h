/* What ranks of several nodes publish for trials (learn/trial.h). They need not share memory, so it is exchanged
 * by an all-gather of NCCL's, which the program's next period runs beside, and read one period later: the host
 * waits there until its GPU has come as far. */
#ifndef CECL_NCCL_GATHERED_H
#define CECL_NCCL_GATHERED_H

#include "learn/trial.h"
#include "nccl/comms.h"
#include "nccl/gpu.h"

struct cecl_nccl_gathered {
    struct cecl_trial_shared *shared; /* this rank's own. NULL: not open */
    unsigned char *room;              /* this rank's part, then those of all ranks */
    struct cecl_nccl_gpu gpu;         /* has the same room */
    bool is_pending;
    bool has_failed; /* nothing is exchanged any more; the communicator has failed, or ends */
};

/* `entry` has `ours` and rails, and is open until cecl_nccl_gathered_close. `aborts`: the program's streams may wait
 * forever. */
ceclResult_t cecl_nccl_gathered_open(struct cecl_nccl_gathered *gathered,
                                     const struct cecl_nccl_comm *entry);
void cecl_nccl_gathered_close(struct cecl_nccl_gathered *gathered, bool aborts);

/* As cecl_trial_host's. */
void cecl_nccl_gathered_exchange(struct cecl_nccl_gathered *gathered, struct cecl_nccl_comm *entry,
                                 const struct cecl_trial_rank *mine, struct cecl_trial_rank *all);

#endif
