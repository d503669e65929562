/* --beside: how long small calls take while another communicator of the same library makes large (bulk) calls. Each
 * small call is timed by itself, so that a single one that waits for a bulk copy shows. On GPUs small calls count only
 * if they begin while the bulk calls run on all ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "host_copies.h"

#define BURSTS 40
#define BULK 4   /* bulk calls that are in flight in a burst */
#define SMALL 96 /* small calls in a burst, one after the other */
#define SAMPLES (BURSTS * SMALL)

/* One library: its small calls, and its bulk calls on a communicator and a stream of their own. */
struct pair {
    struct side *small;
    struct side bulk;
    struct run small_run, bulk_run;
    size_t bulk_block;
};

/* The measurements of all bursts, with small calls of one size. */
struct burst_times {
    double small[SAMPLES]; /* us, of the slowest rank */
    /* 1: on some rank the bulk calls had ended when this small call began */
    double alone[SAMPLES];
    double bulk[BURSTS]; /* us of all bulk calls of a burst, on the slowest rank */
};

/* ---- opening */

static bool open_bulk_comm(const struct run *run, ceclComm_t *comm)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    return run->team->comm_init(comm, &config) == ceclSuccess ||
           complain(run, "a communicator for bulk calls", ceclGetLastError(NULL));
}

/* Bulk all-gathers are in place, as FSDP makes them. The end of `bulk_comm` frees the bulk calls' stream and cecl's
 * memory for them. */
static bool open_pair(const struct run *run, struct side *small, ceclComm_t bulk_comm,
                      struct pair *pair)
{
    *pair = (struct pair){.small = small, .small_run = *run, .bulk_run = *run};
    struct run *bulk = &pair->bulk_run;
    bulk->comm = bulk_comm;
    bulk->options.op = run->options.bulk ? run->options.bulk : &collectives[OP_ALL_GATHER];
    pair->bulk_block = block_of(&bulk->options, bulk->nranks, run->options.beside);
    BENCH_TRY(bulk, ceclStreamCreate(bulk->comm, &bulk->stream));
    if (!clock_urgent_stream(run, &pair->small_run.stream))
        return complain(run, "--beside", "no stream");
    if (!run->options.bulk) {
        if (!run->cuda || !side_host_copies_make(&pair->bulk))
            return complain(run, "--bulk copies", "GPUs are needed");
    } else if (small->state == run->comm)
        pair->bulk = side_cecl_make(small->name, bulk_comm, small->memory);
    else if (!side_nccl_make(&pair->bulk, small->name[4] != '\0'))
        return complain(run, "--beside", "no host memory");
    return pair->bulk.open(&pair->bulk, bulk, send_bytes_of(bulk, pair->bulk_block),
                           recv_bytes_of(bulk, pair->bulk_block));
}

/* ---- measuring */

static bool call_bulk(struct pair *pair)
{
    const struct run *run = &pair->bulk_run;
    const bool in_place = run->options.bulk == &collectives[OP_ALL_GATHER];
    const void *send = send_place(&pair->bulk, run, pair->bulk_block, in_place);
    for (int i = 0; i < BULK; i++)
        if (!pair->bulk.call(&pair->bulk, run, send, pair->bulk_block))
            return false;
    return true;
}

/* Makes bulk calls if `with_bulk`. Then, if `with_small`, makes small calls while the bulk calls run. */
static bool run_burst(struct pair *pair, size_t block, bool with_bulk, bool with_small,
                      double small_us[SMALL], double alone[SMALL], double *bulk_us)
{
    const struct run *run = &pair->small_run, *bulk = &pair->bulk_run;
    const void *send = send_place(pair->small, run, block, run->options.in_place);
    struct clock_mark begin, end;
    run->team->barrier();
    if (!clock_mark(bulk, &begin) || (with_bulk && !call_bulk(pair)) || !clock_mark(bulk, &end))
        return false;
    for (int i = 0; i < SMALL && with_small; i++) {
        alone[i] = with_bulk && clock_passed(bulk, &end);
        small_us[i] = clock_time(pair->small, run, send, block, 1);
        if (small_us[i] < 0)
            return complain(run, pair->small->name, ceclGetLastError(run->comm));
    }
    BENCH_TRY(bulk, ceclStreamSynchronize(bulk->comm, bulk->stream));
    *bulk_us = clock_between(bulk, &begin, &end);
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    return *bulk_us >= 0 || complain(run, "--beside", "no time");
}

static bool run_bursts(struct pair *pair, size_t block, bool with_bulk, bool with_small,
                       struct burst_times *times)
{
    double unused[SMALL], alone[SMALL], most;
    if (!run_burst(pair, block, with_bulk, with_small, unused, alone, &most)) /* warms up */
        return false;
    for (int i = 0; i < BURSTS; i++)
        if (!run_burst(pair, block, with_bulk, with_small, &times->small[(size_t)i * SMALL],
                       &times->alone[(size_t)i * SMALL], &times->bulk[i]))
            return false;
    const struct team *const team = pair->small_run.team;
    team->max(times->small, SAMPLES);
    team->max(times->alone, SAMPLES);
    team->max(times->bulk, BURSTS);
    return true;
}

static void print_small(const char *what, struct burst_times *times)
{
    double *us = times->small;
    size_t n = 0;
    for (size_t i = 0; i < SAMPLES; i++)
        if (times->alone[i] < 1)
            us[n++] = us[i];
    qsort(us, n, sizeof(*us), compare_doubles);
    if (n > 0)
        printf(" %s %.1f / %.1f / %.1f / %.1f (%zu calls),", what, us[n / 2], us[n * 90 / 100],
               us[n * 99 / 100], us[n - 1], n);
}

static bool measure_size(struct pair *pair, size_t size)
{
    static struct burst_times alone, bulk, both;
    const struct run *run = &pair->small_run;
    const size_t block = block_of(&run->options, run->nranks, size);
    if (!run_bursts(pair, block, false, true, &alone) ||
        !run_bursts(pair, block, true, false, &bulk) || !run_bursts(pair, block, true, true, &both))
        return false;
    const double before = median_of(bulk.bulk, BURSTS), meanwhile = median_of(both.bulk, BURSTS);
    if (run->rank == 0) {
        printf("# %s, %s of %zu bytes a rank, us median / p90 / p99 / most:", pair->small->name,
               run->options.op->name, size);
        print_small("alone", &alone);
        print_small("beside", &both);
        printf(" %d bulk %s of %zu bytes a rank: alone %.0f us, beside %.0f\n", BULK,
               run->options.bulk ? run->options.bulk->name : "copies each way", run->options.beside,
               before, meanwhile);
    }
    return true;
}

/* Measures all sizes. The side's buffers have room for the largest one. */
static bool measure_pair(struct pair *pair)
{
    size_t size;
    for (int i = 0; i < MAX_SIZES && (size = size_at(&pair->small_run.options, i)) != 0; i++)
        if (!measure_size(pair, size))
            return false;
    return true;
}

bool extra_beside(const struct run *run, struct side *small)
{
    struct pair pair;
    ceclComm_t bulk_comm;
    if (small->supports && !small->supports(small, run, run->options.in_place))
        return true;
    if (!open_bulk_comm(run, &bulk_comm) || !open_pair(run, small, bulk_comm, &pair) ||
        !measure_pair(&pair))
        return false;
    pair.bulk.close(&pair.bulk);
    clock_free_stream(run, pair.small_run.stream);
    BENCH_TRY(run, ceclCommDestroy(bulk_comm));
    return true;
}
