/* A build without NCCL has no baselines. */
#include "bench.h"

const bool side_nccl_built = false;

bool side_nccl_make(struct side *side, bool copy_engine)
{
    (void)side;
    (void)copy_engine;
    return false;
}
