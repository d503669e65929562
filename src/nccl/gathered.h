/* Exchanges what ranks of several nodes publish for trials (learn/trial.h). Ranks of different nodes share no
 * memory, so an all-gather of NCCL exchanges the data. It runs during the program's next period. The result is
 * read one period later, when the host waits until the GPU has finished the all-gather. */
#ifndef CECL_NCCL_GATHERED_H
#define CECL_NCCL_GATHERED_H

#include "learn/trial.h"
#include "nccl/comms.h"
#include "nccl/gpu.h"

struct cecl_nccl_gathered {
    struct cecl_trial_shared *shared; /* what this rank publishes; NULL: not open */
    unsigned char *room;              /* this rank's part, then those of all ranks */
    struct cecl_nccl_gpu gpu;         /* its memory has the size of `room` */
    bool is_pending;
    /* nothing is exchanged any more, because the communicator has failed or ends */
    bool has_failed;
};

/* `entry` has `ours` and rails, and stays open until cecl_nccl_gathered_close. aborts: the program's
 * streams may wait forever. */
ceclResult_t cecl_nccl_gathered_open(struct cecl_nccl_gathered *gathered,
                                     const struct cecl_nccl_comm *entry);
void cecl_nccl_gathered_close(struct cecl_nccl_gathered *gathered, bool aborts);

/* The `exchange` of struct cecl_trial_host. */
void cecl_nccl_gathered_exchange(struct cecl_nccl_gathered *gathered, struct cecl_nccl_comm *entry,
                                 const struct cecl_trial_rank *mine, struct cecl_trial_rank *all);

#endif
