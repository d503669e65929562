/* Bounce buffers: registered memory of the communicator, which peers use instead of private memory. A
 * launch leases a part of a bounce buffer, until the launch is enqueued or given up. */
#ifndef CECL_LAUNCH_BOUNCE_H
#define CECL_LAUNCH_BOUNCE_H

#include "launch/launch.h"

struct cecl_bounce;

struct cecl_bounces {
    struct cecl_bounce *memory; /* a list of bounce buffers; all leases are in the first one */
    uint64_t used;              /* how many bytes of the first buffer are leased */
    uint32_t leases;            /* how many launches have a lease */
};

/* Leases `bytes` bytes for a launch. */
ceclResult_t cecl_bounce_lease(struct cecl_launch *launch, uint64_t bytes,
                               struct cecl_buffer *bounce);
/* Ends the leases of a launch. */
void cecl_bounce_end(struct cecl_launch *launch);
/* Frees all bounce buffers. No work may be pending. */
void cecl_bounces_close(ceclComm_t comm);

#endif
