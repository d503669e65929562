/* A build without CUDA measures with the host's clock. */
#include "clock_wall.h"

double clock_time(struct side *side, const struct run *run, const void *send, size_t block,
                  int iterations)
{
    return wall_time(side, run, send, block, iterations);
}

bool clock_mark(const struct run *run, struct clock_mark *mark)
{
    (void)run;
    *mark = (struct clock_mark){NULL, wall_us()};
    return true;
}

double clock_between(const struct run *run, struct clock_mark *from, struct clock_mark *to)
{
    (void)run;
    (void)to;
    return wall_us() - from->us;
}

bool clock_passed(const struct run *run, const struct clock_mark *mark)
{
    (void)run;
    (void)mark;
    return false;
}

bool clock_urgent_stream(const struct run *run, ceclStream_t *stream)
{
    return ceclStreamCreate(run->comm, stream) == ceclSuccess;
}

void clock_free_stream(const struct run *run, ceclStream_t stream)
{
    (void)!ceclStreamDestroy(run->comm, stream);
}
