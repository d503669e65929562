/* Times two variants in turn: A B A B. */
#include "bench.h"

#include "clock_wall.h"

/* *us: the slowest rank's time for one repeat. */
static bool time_way(const struct run *run, turn_call call, void *context, int way, int repeats,
                     double *us)
{
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    run->team->barrier();
    const double start = wall_us();
    for (int i = 0; i < repeats; i++)
        if (!call(run, context, way))
            return false;
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    *us = (wall_us() - start) / repeats;
    run->team->max(us, 1);
    return true;
}

bool turn_medians(const struct run *run, turn_call call, void *context, int repeats,
                  double medians[2])
{
    double us[2][MAX_ROUNDS];
    for (int round = -1; round < run->options.rounds; round++) /* round -1 warms up */
        for (int way = 0; way < 2; way++)
            if (!time_way(run, call, context, way, repeats, &us[way][round < 0 ? 0 : round]))
                return false;
    for (int way = 0; way < 2; way++)
        medians[way] = median_of(us[way], run->options.rounds);
    return true;
}
