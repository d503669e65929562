/* cecl_perf: times a collective over sizes, beside rivals in the same run, and checks every byte.
 * */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#define MAX_RESULTS 128

bool complain(const struct run *run, const char *what, const char *why)
{
    fprintf(stderr, "cecl_perf: rank %d: %s: %s\n", run->rank, what, why);
    return false;
}

int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One round of one side: the slowest rank's time for a call. */
static bool time_round(struct side *side, const struct run *run, const void *send, size_t block,
                       int iterations, double *us)
{
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    MPI_Barrier(MPI_COMM_WORLD);
    double mine = clock_time(side, run, send, block, iterations), slowest = 0;
    if (mine < 0)
        return complain(run, side->name, ceclGetLastError(run->comm));
    mine /= iterations;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    *us = slowest;
    return true;
}

/* Wrong bytes on all ranks. */
static bool check_all(struct side *sides, const struct result *r, const struct run *run,
                      const bool *on, uint64_t seed, long long *errors)
{
    for (int s = 0; s < r->nsides; s++) {
        long long mine = on[s]
                             ? check_side(&sides[s], run, r->bytes, r->in_place, seed + (uint64_t)s)
                             : 0,
                  all = 0;
        if (mine < 0)
            return false;
        MPI_Allreduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        *errors += all;
    }
    return true;
}

static bool measure(struct side *sides, const struct run *run, struct result *r)
{
    static double us[MAX_SIDES][MAX_ROUNDS];
    const size_t block = block_of(run, r->bytes);
    const struct options *o = &run->options;
    const void *send[MAX_SIDES];
    bool on[MAX_SIDES];

    r->errors = o->check ? 0 : -1;
    for (int s = 0; s < r->nsides; s++) {
        r->names[s] = sides[s].name;
        on[s] = !sides[s].supports || sides[s].supports(run, r->in_place);
        send[s] = send_place(&sides[s], run, block, r->in_place);
    }
    if (o->check && !check_all(sides, r, run, on, r->bytes + 1, &r->errors))
        return false;
    for (int s = 0; s < r->nsides; s++)
        if (on[s] && o->warmup > 0 &&
            !time_round(&sides[s], run, send[s], block, o->warmup, &us[s][0]))
            return false;
    for (int round = 0; round < o->rounds; round++)
        for (int s = 0; s < r->nsides; s++)
            if (on[s] && !time_round(&sides[s], run, send[s], block, o->iterations, &us[s][round]))
                return false;
    for (int s = 0; s < r->nsides; s++) {
        qsort(us[s], (size_t)o->rounds, sizeof(double), compare_doubles);
        r->us[s] = on[s] ? us[s][o->rounds / 2] : 0;
    }
    /* Once more after the timing: what only a busy machine gets wrong shows here. */
    return !o->check || check_all(sides, r, run, on, r->bytes + 1000003, &r->errors);
}

/* All sizes and placements. Returns the number of results, or -1. */
static int measure_all(struct side *sides, int nsides, const struct run *run,
                       struct result *results, bool *wrong)
{
    const struct options *o = &run->options;
    int count = 0;
    report_head(run, sides, nsides);
    for (double size = (double)o->first; size <= (double)o->last && count + 2 <= MAX_RESULTS;
         size *= o->factor)
        for (int in_place = 0; in_place < 2; in_place++) {
            if (!(in_place ? o->in_place : o->out_of_place) || block_of(run, (size_t)size) == 0)
                continue;
            struct result *r = &results[count++];
            *r = (struct result){.bytes = (size_t)size, .in_place = in_place, .nsides = nsides};
            if (!measure(sides, run, r))
                return -1;
            report_row(run, r);
            *wrong = *wrong || r->errors > 0;
        }
    return count;
}

static bool join(struct run *run)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    int device = -1;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    BENCH_TRY(run, ceclCommInitMpi(&run->comm, MPI_COMM_WORLD, &config));
    BENCH_TRY(run, ceclCommCuDevice(run->comm, &device));
    BENCH_TRY(run, ceclStreamCreate(run->comm, &run->stream));
    run->cuda = device >= 0;
    return true;
}

static int perform(struct run *run)
{
    static struct result results[MAX_RESULTS];
    struct side sides[MAX_SIDES];
    bool wrong = false, fine = true;

    if (!join(run))
        return 1;
    const int nsides = sides_make(run, sides);
    const size_t last = run->options.last, recv_bytes = run->options.op == ceclOpAllGather
                                                            ? last * (size_t)run->nranks
                                                            : last;
    if (nsides < 0)
        return 1;
    for (int s = 0; s < nsides; s++)
        if (!sides[s].open(&sides[s], run, last, recv_bytes))
            return 1;
    const int count = measure_all(sides, nsides, run, results, &wrong);
    fine = count >= 0 && report_json(run, results, count);
    for (int s = 0; s < nsides && run->options.enqueue && fine; s++)
        fine = extra_enqueue(run, &sides[s]);
    for (int s = nsides - 1; s >= 0; s--)
        sides[s].close(&sides[s]);
    fine = (!run->options.alloc || extra_alloc(run)) && fine;
    fine = ceclStreamDestroy(run->comm, run->stream) == ceclSuccess && fine;
    fine = ceclCommDestroy(run->comm) == ceclSuccess && fine;
    if (run->rank == 0 && fine)
        printf("# %s\n", wrong                ? "WRONG BYTES"
                         : run->options.check ? "every byte right"
                                              : "not checked");
    return fine && !wrong ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct run run = {0};
    int code;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.nranks);
    if (options_parse(&run.options, argc, argv, run.rank != 0, &code))
        code = perform(&run);
    if (code == 1) /* others may wait for this rank inside MPI */
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return code;
}
