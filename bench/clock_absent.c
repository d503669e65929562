/* A build without CUDA measures with the host's clock. */
#include "clock_wall.h"

double clock_time(struct side *side, const struct run *run, const void *send, size_t block,
                  int iterations)
{
    return wall_time(side, run, send, block, iterations);
}
