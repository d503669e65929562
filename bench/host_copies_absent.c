/* Without CUDA there are no copies to and from the host. */
#include "host_copies.h"

bool side_host_copies_make(struct side *side)
{
    (void)side;
    return false;
}
