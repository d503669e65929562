/* A build without CUDA computes on the host. */
#include "compute.h"

const struct compute *compute_cuda(void)
{
    return NULL;
}
