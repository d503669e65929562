/* A build without NCCL has no baselines. */
#include "bench.h"

const char *side_nccl_version(void)
{
    return NULL;
}

bool side_nccl_make(struct side *side, bool copy_engine)
{
    (void)side;
    (void)copy_engine;
    return false;
}
