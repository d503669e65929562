/* What all kinds of communication share: lanes, and waiting for them. */
#include "comm.h"

#include <mpi.h>
#include <string.h>

static bool is_by_nccl(const char *kind)
{
    return strncmp(kind, "nccl", 4) == 0;
}

const char *comm_missing(const char *kind)
{
    if (!is_by_nccl(kind) || comm_nccl_built)
        return NULL;
    return "this build has no NCCL (it needs CUDA and NCCL): cecl or none expected";
}

bool comm_open(struct comm *c, const char *kind, bool hidden)
{
    *c = (struct comm){.device = -1, .hidden = hidden};
    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->nranks);
    c->once = strcmp(kind, "none") == 0;
    const bool fine = is_by_nccl(kind) ? comm_nccl(c, strcmp(kind, "nccl-ce") == 0) : comm_cecl(c);
    if (c->once)
        c->name = "none after the first step";
    return fine;
}

/* The lane's next call waits for the compute that is enqueued so far. */
static void lane_begin(struct comm *c, int lane)
{
    if (c->compute->stream_after_compute)
        c->compute->stream_after_compute(c->compute, c->stream(c, lane), lane);
}

static void lane_end(struct comm *c, int lane)
{
    if (c->compute->mark)
        c->compute->mark(c->compute, c->stream(c, lane), lane);
}

bool comm_gather(struct comm *c, int lane, void *buffer, size_t count)
{
    lane_begin(c, lane);
    if (!c->gather(c, lane, buffer, count))
        return false;
    lane_end(c, lane);
    return true;
}

bool comm_reduce_scatter(struct comm *c, int lane, const void *gradients, void *shard, size_t count)
{
    lane_begin(c, lane);
    if (!c->reduce_scatter(c, lane, gradients, shard, count))
        return false;
    lane_end(c, lane);
    return true;
}

bool comm_mean(struct comm *c, int lane, double *values, size_t count)
{
    lane_begin(c, lane);
    if (!c->mean(c, lane, values, count))
        return false;
    lane_end(c, lane);
    return true;
}

bool comm_await(struct comm *c, int lane)
{
    bool fine = true;
    c->compute->tick(c->compute);
    if (c->compute->compute_after_mark)
        c->compute->compute_after_mark(c->compute, lane);
    else
        fine = c->wait(c, lane);
    c->compute->tick(c->compute);
    return fine;
}

bool all_agree(bool mine)
{
    int one = mine, all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}
