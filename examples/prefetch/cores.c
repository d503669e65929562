/* Whether this machine has enough idle cores to compute and move data at the same time. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "prefetch.h"

struct cores cores_now(void)
{
    struct cores cores = {0};
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        cores.here = CPU_COUNT(&set);
    if (getloadavg(&cores.load, 1) != 1)
        cores.load = 0;
    return cores;
}

bool cores_suffice(const struct cores *cores, int nranks)
{
    return cores->here - lround(cores->load) >= 2 * nranks;
}

void cores_refuse(const struct cores *cores, int nranks)
{
    printf(
        "\nTimes are not measured: they would depend on which thread gets a core. %d ranks and the "
        "%d threads\nthat move their data need %d idle cores; there are %d, with a load of %.1f "
        "(--measure measures in any\ncase). On GPUs copy engines move the data, and times are "
        "measured.\n",
        nranks, nranks, 2 * nranks, cores->here, cores->load);
}
