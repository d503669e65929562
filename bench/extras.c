/* Host-side costs: enqueueing a call, a rendezvous, an allocation inside the pool. */
#include <stdio.h>
#include <stdlib.h>

#include "clock_wall.h"

#define ENQUEUES 2000
#define DRAIN_EVERY 16 /* so that a full queue is not what is measured */
#define ALLOCATIONS 2000

static void print_times(const struct run *run, const char *what, double *us, int count)
{
    qsort(us, (size_t)count, sizeof(*us), compare_doubles);
    if (run->rank == 0)
        printf("# %s: min %.2f, median %.2f, p99 %.2f us\n", what, us[0], us[count / 2],
               us[count * 99 / 100]);
}

bool extra_enqueue(const struct run *run, struct side *side)
{
    static double us[ENQUEUES];
    const size_t block = block_of(run, run->options.first);
    const bool in_place = run->options.in_place;
    const void *send = send_place(side, run, block, in_place);
    char what[96];
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < ENQUEUES; i++) {
        const double start = wall_us();
        if (!side->call(side, run, send, block))
            return false;
        us[i] = wall_us() - start;
        if (i % DRAIN_EVERY == DRAIN_EVERY - 1)
            BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    }
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    snprintf(what, sizeof(what), "host time to enqueue one call (%s, %zu bytes a rank, %s)",
             side->name, run->options.first, in_place ? "in place" : "out of place");
    print_times(run, what, us, ENQUEUES);
    return true;
}

static bool measure_rendezvous(const struct run *run, ceclComm_t comm, double *ms)
{
    struct run inner = *run;
    void *big = NULL;
    inner.comm = comm;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = wall_us();
    BENCH_TRY(&inner, ceclMemAlloc(comm, &big, run->options.alloc_bytes));
    *ms = (wall_us() - start) * 1e-3;
    BENCH_TRY(&inner, ceclMemFree(comm, big));
    return true;
}

bool extra_alloc(const struct run *run)
{
    static double us[ALLOCATIONS];
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    ceclComm_t comm;
    double mine = 0, slowest = 0;
    void *ptr = NULL;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    BENCH_TRY(run, ceclCommInitMpi(&comm, MPI_COMM_WORLD, &config));
    bool fine = measure_rendezvous(run, comm, &mine);
    for (int i = 0; i < ALLOCATIONS && fine; i++) {
        const double start = wall_us();
        fine = ceclMemAlloc(comm, &ptr, (size_t)(1 + i % 64) << 12) == ceclSuccess;
        us[i] = wall_us() - start;
        fine = fine && (i % 3 == 0 || ceclMemFree(comm, ptr) == ceclSuccess);
    }
    if (!fine)
        complain(run, "--alloc", ceclGetLastError(comm));
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (run->rank == 0 && fine)
        printf("# rendezvous: %zu bytes a rank in %.2f ms (slowest rank)\n",
               run->options.alloc_bytes, slowest);
    if (fine)
        print_times(run, "allocation inside the pool", us, ALLOCATIONS);
    return ceclCommDestroy(comm) == ceclSuccess && fine;
}
