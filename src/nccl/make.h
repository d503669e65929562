/* Makes a communicator of cecl's beside one of NCCL's, through NCCL's own communicator. */
#ifndef CECL_NCCL_MAKE_H
#define CECL_NCCL_MAKE_H

#include "nccl/comms.h"

struct cecl_nccl_made {
    ceclComm_t ours; /* NULL: calls are passed, for `reason` */
    enum cecl_nccl_reason reason;
    int nranks, rank;
    bool on_gpu;
    int ordinal; /* which GPU; -1: the host device */
    bool flags_on_host;
};

/* Collective over the ranks of the communicator. All ranks get one of cecl's, or none does, with
 * equal reasons. `together` is how many ranks the thread makes at once. Returns an error only if
 * ranks could not exchange what each of them can do.
 * Where NCCL makes `comm` in the background, `entry` is what stands beside it; otherwise NULL. Then
 * this first waits for NCCL. After entry->ends was set it uses `comm` no more, and ends with an error:
 * at once, or after CECL_INIT_TIMEOUT_MS if it waits for a peer by then. */
ncclResult_t cecl_nccl_make(ncclComm_t comm, struct cecl_nccl_comm *entry, int together,
                            struct cecl_nccl_made *made);

#endif
