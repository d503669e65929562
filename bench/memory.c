/* Memory of several kinds: taking it, and what first use and lateness cost. */
#include "memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock_wall.h"

#define REPEATS 15

bool memory_take(const struct run *run, ceclComm_t comm, int kind, size_t bytes, void **ptr)
{
    const struct memory_failure failure = memory_of(run, kind)->take(comm, bytes, ptr);
    return !failure.call || complain(run, failure.call, failure.why);
}

int memory_named(const char *name, size_t length)
{
    for (int i = MEMORY_NAMED; i < MEMORY_KINDS; i++)
        if (strlen(memory_on_host[i].name) == length &&
            memcmp(memory_on_host[i].name, name, length) == 0)
            return i;
    return -1;
}

/* ---- what first use costs */

static bool gather_in_place(const struct run *run, char *recv, size_t block, double *us)
{
    const size_t count = block / run->options.type->bytes;
    const double start = wall_us();
    BENCH_TRY(run, ceclAllGather(recv + (size_t)run->rank * block, recv, count,
                                 run->options.type->id, run->comm, run->stream));
    *us = wall_us() - start;
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    return true;
}

/* Times calls on new memory, which is kept. Sets us[0] to the first call's time, us[1] to the median of later calls. */
static bool time_first_use(const struct run *run, int kind, void **recv, double us[2])
{
    const size_t block = block_of(&run->options, run->nranks, run->options.last),
                 bytes = block * (size_t)run->nranks;
    double later[REPEATS];
    if (!memory_take(run, run->comm, kind, bytes, recv))
        return false;
    run->team->barrier();
    if (!gather_in_place(run, *recv, block, &us[0]))
        return false;
    for (int i = 0; i < REPEATS; i++) {
        run->team->barrier();
        if (!gather_in_place(run, *recv, block, &later[i]))
            return false;
    }
    us[1] = median_of(later, REPEATS);
    return true;
}

bool extra_first_use(const struct run *run)
{
    const size_t whole =
        block_of(&run->options, run->nranks, run->options.last) * (size_t)run->nranks;
    for (int kind = MEMORY_NAMED; kind < MEMORY_KINDS; kind++) {
        double first[REPEATS], later[REPEATS];
        void *memory[REPEATS];
        for (int i = 0; i < REPEATS; i++) {
            double us[2];
            if (!time_first_use(run, kind, &memory[i], us))
                return false;
            run->team->max(us, 2);
            first[i] = us[0];
            later[i] = us[1];
        }
        for (int i = 0; i < REPEATS; i++)
            memory_of(run, kind)->give(run->comm, whole, memory[i]);
        const double typical = median_of(first, REPEATS), after = median_of(later, REPEATS);
        if (run->rank == 0)
            printf("# first use of %zu bytes of %s memory: host %.0f us (most %.0f); later calls "
                   "%.1f us (slowest rank)\n",
                   whole, memory_of(run, kind)->name, typical, first[REPEATS - 1], after);
    }
    return true;
}

/* ---- what a late rank costs */

/* Times a call to which the last rank comes `late_us` after the others. Sets us[0] to the host's time for the call, us[1]
 * to the time from the last rank's call to the end of the work. */
static bool time_late(const struct run *run, struct side *side, size_t block, int late_us,
                      double us[2])
{
    const bool last = run->rank == run->nranks - 1;
    const void *send = send_place(side, run, block, run->options.in_place);
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    run->team->barrier();
    if (last && late_us > 0)
        usleep((unsigned)late_us);
    const double start = wall_us();
    if (!side->call(side, run, send, block))
        return false;
    us[0] = wall_us() - start;
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    us[1] = wall_us() - start;
    return true;
}

static bool late_row(const struct run *run, struct side *side, size_t size, int late_us)
{
    double host[REPEATS], whole[REPEATS];
    const size_t block = block_of(&run->options, run->nranks, size);
    for (int i = 0; i < REPEATS; i++) {
        double us[2];
        if (!time_late(run, side, block, late_us, us))
            return false;
        host[i] = run->rank == run->nranks - 1 ? 0 : us[0];
        run->team->max(&host[i], 1);
        run->team->bcast(&us[1], sizeof(us[1]), run->nranks - 1);
        whole[i] = us[1];
    }
    const double typical = median_of(host, REPEATS), end = median_of(whole, REPEATS);
    if (run->rank == 0)
        printf("# %s, %zu bytes a rank, %s, last rank late by %d us: its peers' host time %.1f us "
               "(most %.1f); from its call to the end %.1f us\n",
               side->name, size, run->options.in_place ? "in place" : "out of place", late_us,
               typical, host[REPEATS - 1], end);
    return true;
}

bool extra_late(const struct run *run)
{
    struct side side = side_cecl_make("cecl", run->comm, MEMORY_POOL);
    const size_t largest = block_of(&run->options, run->nranks, run->options.last);
    if (!side.open(&side, run, send_bytes_of(run, largest), recv_bytes_of(run, largest)))
        return false;
    for (int i = 0, more = 1; more; i++) {
        const size_t size = size_at(&run->options, i);
        more = size != 0 && i < MAX_SIZES;
        if (more &&
            (!late_row(run, &side, size, 0) || !late_row(run, &side, size, run->options.late_us)))
            return false;
    }
    side.close(&side);
    return true;
}
