/* cecl_tune --against nccl: times both libraries in turn, by operation, type and size, and writes in which
 * sizes cecl is faster. CECL_NCCL=auto cannot tell whether a program's buffers are in place, so
 * cecl must be faster both in place and out of place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "against.h"
#include "call/layout.h"
#include "clock_wall.h"

#define MOST_CALLS 50 /* calls in a round */

enum { NCCL, CECL };

/* What is timed: a call of one size and placement, by both libraries. */
struct pair {
    const struct nccl *nccl;
    const struct contest *contest;
    unsigned char *send, *recv;
    size_t block;
    bool in_place;
    int calls; /* in a round */
};

static const struct {
    int place;
    enum cecl_nccl_op op;
} ops[] = {{OP_ALL_GATHER, CECL_NCCL_OP_ncclAllGather},
           {OP_ALL_REDUCE, CECL_NCCL_OP_ncclAllReduce},
           {OP_REDUCE_SCATTER, CECL_NCCL_OP_ncclReduceScatter},
           {OP_ALL_TO_ALL, CECL_NCCL_OP_ncclAlltoAll}};
#define OPS ((int)(sizeof(ops) / sizeof(ops[0])))

/* ---- sizes, in bytes as the call names its count */

/* The size of point `i`; 0: `i` is past the last point. */
static uint64_t size_of_point(const struct tuner *tuner, int i)
{
    const uint64_t most = tuner->run.cuda ? UINT64_C(256) << 20 : UINT64_C(1) << 20;
    uint64_t bytes = 256;
    while (i-- > 0 && bytes <= most)
        bytes *= tuner->quick ? 4 : 2;
    return bytes <= most ? bytes : 0;
}

static uint64_t largest_size(const struct tuner *tuner)
{
    uint64_t largest = 0;
    for (int i = 0; i < MAX_POINTS && size_of_point(tuner, i) > 0; i++)
        largest = size_of_point(tuner, i);
    return largest;
}

/* ---- calls */

static const void *input_of(const struct run *run, const struct pair *pair)
{
    const bool is_gather = pair->contest->op->block_of_each && !pair->contest->op->block_per_rank;
    if (!pair->in_place)
        return pair->send;
    return is_gather ? pair->recv + (size_t)run->rank * pair->block : pair->recv;
}

static bool call_round(const struct run *run, void *context, int way)
{
    const struct pair *pair = context;
    const struct op *op = pair->contest->op;
    const struct type *type = pair->contest->type;
    const void *send = input_of(run, pair);
    for (int i = 0; i < pair->calls; i++) {
        const size_t count = pair->block / type->bytes;
        if (way == CECL)
            BENCH_TRY(run, op->call(send, pair->recv, count, type->id, run->comm, run->stream));
        else if (!nccl_call(run, pair->nccl, op, send, pair->recv, count, type->id))
            return false;
    }
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    return true;
}

/* Chooses how many calls make a round of about the wanted time; equal on all ranks. */
static bool choose_calls(const struct tuner *tuner, struct pair *pair)
{
    const double wanted = tuner->quick ? 2000 : 5000; /* us */
    double mine = 0, slowest = 0;
    pair->calls = 1;
    for (int turn = 0; turn < 2; turn++) { /* the first makes plans */
        const double start = wall_us();
        if (!call_round(&tuner->run, pair, NCCL) || !call_round(&tuner->run, pair, CECL))
            return false;
        mine = (wall_us() - start) / 2;
    }
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    const double calls = wanted / (slowest > 1 ? slowest : 1);
    pair->calls = calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
    return true;
}

/* Keeps the placement in which cecl gains less. */
static bool measure_placement(const struct tuner *tuner, struct pair *pair, struct point *point)
{
    double us[2];
    if (!choose_calls(tuner, pair) || !turn_medians(&tuner->run, call_round, pair, 1, us))
        return false;
    if (point->us[NCCL] > 0 && us[CECL] * point->us[NCCL] <= us[NCCL] * point->us[CECL])
        return true;
    point->us[NCCL] = us[NCCL] / pair->calls;
    point->us[CECL] = us[CECL] / pair->calls;
    return true;
}

/* ---- one operation */

/* Whether the time for measuring is over, by rank 0's clock. */
static bool is_late(const struct tuner *tuner)
{
    int late = wall_us() - tuner->began > tuner->seconds * 1e6;
    MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return late;
}

static void tell(const struct tuner *tuner, const struct contest *contest,
                 const struct point *point)
{
    if (tuner->run.rank == 0)
        fprintf(stderr, "%-14s %-10s %10llu bytes  NCCL %9.1f us  cecl %9.1f us  %.2f x\n",
                contest->op->name, contest->type->name, (unsigned long long)point->bytes,
                point->us[NCCL], point->us[CECL], point->us[NCCL] / point->us[CECL]);
}

static bool measure_contest(const struct tuner *tuner, struct pair *pair, struct contest *contest)
{
    uint64_t bytes;
    pair->contest = contest;
    for (int i = 0; i < MAX_POINTS && (bytes = size_of_point(tuner, i)) > 0; i++) {
        struct point *point = &contest->points[contest->npoints];
        contest->is_late = is_late(tuner);
        if (contest->is_late)
            return true;
        *point = (struct point){.bytes = bytes};
        pair->block = (size_t)bytes;
        for (int in_place = 0; in_place <= contest->op->in_place_too; in_place++) {
            pair->in_place = in_place;
            if (!measure_placement(tuner, pair, point))
                return false;
        }
        contest->npoints++;
        tell(tuner, contest, point);
    }
    return true;
}

/* ---- all operations */

/* Calls that only move bytes take equally long in any type. */
static int list_contests(const struct tuner *tuner, struct contest *contests)
{
    int count = 0;
    for (int i = 0; i < OPS; i++) {
        const struct op *op = &collectives[ops[i].place];
        if (tuner->op && strcmp(tuner->op, op->name) != 0)
            continue;
        for (int t = 0; t < (op->reduces ? tuner->ntypes : 1); t++)
            contests[count++] = (struct contest){.op = op,
                                                 .type = tuner->types[t],
                                                 .nccl_op = ops[i].op,
                                                 .row_type = op->reduces ? (int)tuner->types[t]->id
                                                                         : CECL_NCCL_ANY_TYPE};
    }
    return count;
}

static bool find_setup(const struct run *run, const struct nccl *nccl,
                       struct cecl_nccl_setup *setup)
{
    char gpu[sizeof(setup->gpu)] = "unknown";
    int nodes[CECL_MAX_RANKS];
    BENCH_TRY(run, ceclCommNodes(run->comm, nodes));
    if (nccl->gpu.ordinal >= 0)
        cecl_nccl_gpu_name(nccl->gpu.ordinal, gpu, sizeof(gpu));
    *setup = cecl_nccl_setup_make(nccl->gpu.ordinal >= 0 ? gpu : NULL, run->nranks, nodes,
                                  nccl->real.version);
    return true;
}

static bool measure_all(struct tuner *tuner, const struct nccl *nccl)
{
    struct contest contests[OPS * CECL_NUM_TYPES];
    const int count = list_contests(tuner, contests);
    const size_t bytes = (size_t)largest_size(tuner) * (size_t)tuner->run.nranks;
    struct pair pair = {.nccl = nccl};
    BENCH_TRY(&tuner->run, ceclMemAlloc(tuner->run.comm, (void **)&pair.send, bytes));
    BENCH_TRY(&tuner->run, ceclMemAlloc(tuner->run.comm, (void **)&pair.recv, bytes));
    for (int i = 0; i < count; i++)
        if (!measure_contest(tuner, &pair, &contests[i]))
            return false;
    struct cecl_nccl_setup setup;
    return find_setup(&tuner->run, nccl, &setup) && table_write(tuner, &setup, contests, count);
}

/* Makes a communicator like the one beside NCCL's under CECL_NCCL=auto. */
static bool join(struct run *run, int *device)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    config.smPolicy = CECL_SM_ALLOW;
    BENCH_TRY(run, ceclCommInitMpi(&run->comm, MPI_COMM_WORLD, &config));
    BENCH_TRY(run, ceclCommCuDevice(run->comm, device));
    BENCH_TRY(run, ceclStreamCreate(run->comm, &run->stream));
    run->cuda = *device >= 0;
    return true;
}

int against_nccl(struct tuner *tuner)
{
    struct nccl nccl;
    int device = -1;
    if (!join(&tuner->run, &device))
        return END_BROKEN;
    tuner->began = wall_us();
    if (!nccl_open(&tuner->run, device, &nccl) || !measure_all(tuner, &nccl) ||
        !nccl_close(&tuner->run, &nccl))
        return END_BROKEN;
    return run_leave(&tuner->run, END_FINE) ? END_FINE : END_BROKEN;
}
