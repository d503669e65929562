/* Costs on the host: enqueueing a call, a rendezvous, an allocation inside the pool. */
#include <stdio.h>
#include <stdlib.h>

#include "clock_wall.h"

#define ENQUEUES 2000
/* the host waits after so many calls: in a full queue, the next call would take longer */
#define DRAIN_EVERY 16
#define PAIRS 2000
#define LIVE 32 /* blocks that stay allocated, with holes between them, during the timed calls */

static void print_times(const struct run *run, const char *what, double *us, int count)
{
    const double median = median_of(us, count);
    if (run->rank == 0)
        printf("# %s: min %.2f, median %.2f, p99 %.2f us\n", what, us[0], median,
               us[count * 99 / 100]);
}

bool extra_enqueue(const struct run *whole, struct side *side)
{
    const struct run *run = side_run(side, whole);
    static double us[ENQUEUES];
    const size_t block = block_of(&run->options, run->nranks, run->options.first);
    const bool in_place = run->options.in_place;
    const void *send = send_place(side, run, block, in_place);
    char what[128];
    if (side->supports && !side->supports(side, run, in_place))
        return true;
    run->team->barrier();
    /* The first calls only warm up, because calls of other sizes came before. */
    for (int i = -DRAIN_EVERY; i < ENQUEUES; i++) {
        const double start = wall_us();
        if (!side->call(side, run, send, block))
            return false;
        if (i >= 0)
            us[i] = wall_us() - start;
        if ((i + DRAIN_EVERY) % DRAIN_EVERY == DRAIN_EVERY - 1)
            BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    }
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    char of[48] = "enqueue one call";
    if (side->calls > 0)
        snprintf(of, sizeof(of), "launch a graph of %d call%s", side->calls,
                 side->calls > 1 ? "s" : "");
    snprintf(what, sizeof(what), "host time to %s (%s, %zu bytes a rank, %s, rank 0)", of,
             side->name, size_of(run, block), in_place ? "in place" : "out of place");
    print_times(run, what, us, ENQUEUES);
    return true;
}

static bool segments(const struct run *run, uint64_t *count)
{
    ceclPoolStats_t stats;
    BENCH_TRY(run, ceclPoolStats(run->comm, &stats));
    *count = stats.segments;
    return true;
}

/* Times one allocation for which the pool must grow. Sets *grew to whether it did. */
static bool time_rendezvous(const struct run *run, double *ms, bool *grew)
{
    uint64_t before = 0, after = 0;
    void *big = NULL;
    if (!segments(run, &before))
        return false;
    run->team->barrier();
    const double start = wall_us();
    BENCH_TRY(run, ceclMemAlloc(run->comm, &big, run->options.alloc_bytes));
    *ms = (wall_us() - start) * 1e-3;
    if (!segments(run, &after))
        return false;
    *grew = after > before;
    BENCH_TRY(run, ceclMemFree(run->comm, big));
    return true;
}

/* Times an allocation and its free while other blocks live and the pool does not grow. */
static bool time_pairs(const struct run *run, double us[PAIRS])
{
    void *live[LIVE], *ptr = NULL;
    uint64_t before = 0, after = 0;
    for (size_t i = 0; i < LIVE; i++)
        BENCH_TRY(run, ceclMemAlloc(run->comm, &live[i], (1 + i % 2) << 12));
    for (int i = 0; i < LIVE; i += 2)
        BENCH_TRY(run, ceclMemFree(run->comm, live[i]));
    if (!segments(run, &before))
        return false;
    for (size_t i = 0; i < PAIRS; i++) {
        const double start = wall_us();
        BENCH_TRY(run, ceclMemAlloc(run->comm, &ptr, (1 + i % 16) << 12));
        BENCH_TRY(run, ceclMemFree(run->comm, ptr));
        us[i] = wall_us() - start;
    }
    if (!segments(run, &after))
        return false;
    for (int i = 1; i < LIVE; i += 2)
        BENCH_TRY(run, ceclMemFree(run->comm, live[i]));
    return after == before || complain(run, "--alloc", "the pool grew amid allocations inside it");
}

/* Does --alloc. The pool grows alike on all ranks, so they end with the same code. */
static int measure_alloc(const struct run *run)
{
    static double us[PAIRS];
    double slowest = 0;
    bool grew = false;
    if (!time_rendezvous(run, &slowest, &grew))
        return END_BROKEN;
    if (!grew) {
        if (run->rank == 0)
            fprintf(stderr,
                    "cecl_perf: --alloc-bytes %zu: fits into a new communicator's pool; a larger "
                    "size is expected, so that the pool must grow\n",
                    run->options.alloc_bytes);
        return END_USAGE;
    }
    run->team->max(&slowest, 1);
    if (run->rank == 0)
        printf("# rendezvous: %zu bytes a rank in %.2f ms (slowest rank)\n",
               run->options.alloc_bytes, slowest);
    if (!time_pairs(run, us))
        return END_BROKEN;
    print_times(run, "allocation and free inside the pool (rank 0)", us, PAIRS);
    return END_FINE;
}

int extra_alloc(const struct run *run)
{
    struct run fresh = *run;
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    if (run->team->comm_init(&fresh.comm, &config) != ceclSuccess) {
        complain(run, "a new communicator", ceclGetLastError(NULL));
        return END_BROKEN;
    }
    const int end = measure_alloc(&fresh);
    if (ceclCommDestroy(fresh.comm) != ceclSuccess) {
        complain(run, "ceclCommDestroy", ceclGetLastError(NULL));
        return END_BROKEN;
    }
    return end;
}
