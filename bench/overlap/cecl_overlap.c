/* cecl_overlap measures what a collective beside a GEMM costs, for cecl and for NCCL in the same run. */
#include <cecl/cecl_mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "overlap.h"

/* What belongs to the whole run. */
struct bench {
    struct run run;
    struct settings settings;
    struct gpu *gpu;
    struct copies *copies; /* NULL without --hostcopies */
    struct contenders contenders;
    struct trial *trials; /* [MAX_SIZES] */
    int ntrials;
    uint64_t checks;
    long long wrong; /* wrong bytes */
};

/* The run as check_side needs it: with the communicator that reports this contender's failures. */
static struct run run_of(const struct bench *b, const struct contender *c)
{
    struct run run = b->run;
    run.comm = c->comm;
    return run;
}

/* The state of a side whose call runs beside the GEMM. */
struct beside {
    struct gpu *gpu;
    struct side *side;
};

static bool call_beside(struct side *side, const struct run *run, const void *send, size_t block)
{
    const struct beside *b = side->state;
    const struct load load = {.gemm = true, .side = b->side, .send = send, .block = block};
    return gpu_start(b->gpu, run, &load);
}

/* Checks the call alone, and only then beside the GEMM: a first call may allocate memory and load kernels, which could
 * wait for streams that wait for the common start. */
static bool check(struct bench *b, struct contender *c, size_t block)
{
    const struct run run = run_of(b, c);
    struct beside state = {b->gpu, c->side};
    struct side beside = *c->side, *const sides[2] = {c->side, &beside};
    beside.state = &state;
    beside.call = call_beside;
    for (int i = 0; i < 2; i++) {
        long long mine, all = 0;
        limit(&run, c->name);
        mine = check_side(sides[i], &run, block, c->in_place, b->checks++);
        if (mine < 0)
            return false;
        MPI_Allreduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        c->errors += all;
        b->wrong += all;
    }
    return true;
}

static bool check_all(struct bench *b, struct trial *t)
{
    for (int i = 0; i < t->ncontenders; i++)
        if (t->contenders[i].on && !check(b, &t->contenders[i], t->block))
            return false;
    return true;
}

/* Times `load`. Sets *ms on rank 0, to the slowest rank's time. */
static bool time_load(struct bench *b, const struct load *load, const char *name, double *ms)
{
    double mine = 0;
    limit(&b->run, name);
    if (!copies_fine(b->copies, &b->run) || !gpu_time(b->gpu, &b->run, load, &mine))
        return false;
    MPI_Reduce(&mine, ms, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return true;
}

static bool time_loads(struct bench *b, struct contender *c, size_t block, int round)
{
    struct load load = {.gemm = true,
                        .side = c->side,
                        .send = send_place(c->side, &b->run, block, c->in_place),
                        .block = block};
    if (!time_load(b, &load, c->name, &c->with[round]))
        return false;
    load.after = true;
    if (b->settings.sequential && !time_load(b, &load, c->name, &c->sequential[round]))
        return false;
    load.after = load.gemm = false;
    return time_load(b, &load, c->name, &c->alone[round]);
}

static bool time_contender(struct bench *b, struct contender *c, size_t block, int round)
{
    ceclResult_t failure = ceclSuccess;
    ceclCallStats_t before, after;
    BENCH_TRY(&b->run, ceclCallStats(c->comm, &before));
    if (!time_loads(b, c, block, round))
        return false;
    BENCH_TRY(&b->run, ceclCallStats(c->comm, &after));
    c->told += after.told - before.told;
    c->late += after.late - before.late;
    BENCH_TRY(&b->run, ceclCommGetAsyncError(c->comm, &failure));
    return failure == ceclSuccess || complain(&b->run, c->name, ceclGetLastError(c->comm));
}

/* Times the GEMM, then all contenders from `first` on, and stores the times as those of `round`. */
static bool time_round(struct bench *b, struct trial *t, int first, int round)
{
    const struct load gemm = {.gemm = true};
    if (!time_load(b, &gemm, "GEMM", &t->gemm[round]))
        return false;
    for (int i = 0; i < t->ncontenders; i++) {
        struct contender *c = &t->contenders[(first + i) % t->ncontenders];
        if (c->on && !time_contender(b, c, t->block, round))
            return false;
    }
    return true;
}

static bool time_rounds(struct bench *b, struct trial *t)
{
    const struct options *o = &b->run.options;
    /* The warm-up stores its times in round 0, which the first real round overwrites. */
    for (int i = 0; i < o->warmup; i++)
        if (!time_round(b, t, i % t->ncontenders, 0))
            return false;
    for (int i = 0; i < o->rounds; i++)
        if (!time_round(b, t, i % t->ncontenders, i))
            return false;
    return true;
}

/* Checks before and after the timed rounds. Host copies run only during the rounds, because a check's own copies
 * would wait long for them. */
static bool measure(struct bench *b, struct trial *t)
{
    const bool copies = b->settings.host_copies;
    if (!check_all(b, t))
        return false;
    if (copies && !(b->copies = copies_start(&b->run)))
        return false;
    if (!time_rounds(b, t) || !copies_fine(b->copies, &b->run))
        return false; /* the process ends, and with it the copies */
    const double rate = copies_stop(b->copies);
    b->copies = NULL;
    if (copies && b->run.rank == 0)
        printf("\n# host copies: %.1f GB/s each way, on rank 0, over these rounds", rate);
    return check_all(b, t);
}

static bool measure_sizes(struct bench *b)
{
    const struct options *o = &b->run.options;
    size_t size;
    table_head(&b->run, &b->settings);
    for (int i = 0; i < MAX_SIZES && (size = size_at(o, i)) != 0; i++) {
        struct trial *t = &b->trials[b->ntrials++];
        t->block = block_of(o, b->run.nranks, size);
        t->ncontenders = b->contenders.count;
        for (int c = 0; c < t->ncontenders; c++)
            t->contenders[c] = b->contenders.list[c];
        if (!measure(b, t))
            return false;
        table_size(&b->run, &b->settings, t);
    }
    return true;
}

static int perform_joined(struct bench *b)
{
    if (!b->run.cuda) {
        if (b->run.rank == 0)
            fprintf(stderr, "cecl_overlap: a GPU for each rank expected: ranks are on the host "
                            "(CECL_DEVICE, or fewer GPUs than ranks)\n");
        return END_NO_GPU;
    }
    limit(&b->run, "opening");
    if (!(b->gpu = gpu_open(&b->run, b->settings.gemm)) ||
        (b->settings.urgent && !gpu_make_urgent(&b->run)) ||
        !contenders_open(&b->contenders, &b->run) || !measure_sizes(b) ||
        !table_json(&b->run, &b->settings, b->trials, b->ntrials) ||
        !contenders_close(&b->contenders, &b->run))
        return END_BROKEN;
    gpu_close(b->gpu);
    if (b->run.rank == 0) {
        if (b->wrong)
            printf("# WRONG BYTES: %lld\n", b->wrong);
        else
            puts("# every byte right");
    }
    return b->wrong ? END_WRONG : END_FINE;
}

/* The first rank whose `mine` is false, or nranks if there is none. The same on all ranks. */
static int first_without(const struct run *run, bool mine)
{
    int first = mine ? run->nranks : run->rank;
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return first;
}

/* END_FINE, or the exit code if nothing can be measured. The same on all ranks. */
static int preconditions(const struct run *run)
{
    char why[200];
    const char *policy = getenv("CECL_SM_POLICY");
    int first = first_without(run, gpu_present(why, sizeof(why)));
    if (first == run->rank)
        complain(run, "a GPU for each rank expected", why);
    if (first < run->nranks)
        return END_NO_GPU;
    first = first_without(run, !policy || !*policy);
    if (first == run->rank)
        complain(run, "CECL_SM_POLICY", "expected to be unset, because two sides differ in it");
    if (first < run->nranks)
        return END_USAGE;
    return output_opens(run, "--json", run->options.json) ? END_FINE : END_USAGE;
}

static int perform(struct bench *b)
{
    int end;
    limit(&b->run, "joining");
    end = preconditions(&b->run);
    if (end != END_FINE)
        return end;
    if (!(b->trials = calloc(MAX_SIZES, sizeof(*b->trials)))) {
        complain(&b->run, "starting", "no host memory");
        return END_BROKEN;
    }
    end = run_join(&b->run) ? perform_joined(b) : END_BROKEN;
    if (end != END_BROKEN && !run_leave(&b->run, end))
        end = END_BROKEN;
    free(b->trials);
    return end;
}

int main(int argc, char **argv)
{
    static struct bench b = {.run.program = "cecl_overlap"};
    int end, threads;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* --help says why */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    b.run.team = team_mpi_join(&argc, &argv, &b.run.rank, &b.run.nranks);
    if (overlap_options(&b.run.options, &b.settings, argc, argv, &b.run, &end))
        end = perform(&b);
    if (end == END_BROKEN) /* other ranks may wait for this one inside MPI */
        MPI_Abort(MPI_COMM_WORLD, END_BROKEN);
    MPI_Finalize();
    return end;
}
