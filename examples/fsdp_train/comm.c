/* Lanes, and communication by cecl. On a GPU all lanes share one stream, because calls of one
 * communicator run one after the other anyway, and events order them with compute. On the host each
 * lane has its own stream, so that the host can wait for one call without waiting for later calls.
 * cecl keeps the order of calls across streams. */
#include "comm.h"

#include <cecl/cecl_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SMs for a reduction that runs at the same time as matrix products. Up to 12 SMs, the reduction's
 * speed is proportional to their number; 12 SMs read from three peers as fast as the links of an
 * H200 allow. With 8 SMs the reduction takes longer, but compute hides that, and no SM waits for the
 * links; 94 % of 132 SMs are left to compute. 8 is an estimate: CECL_MAX_SMS overrides it. */
enum { HIDDEN_SMS = 8 };

/* ---- lanes */

bool complain(const struct comm *c, const char *what, const char *why)
{
    fprintf(stderr, "fsdp_train: rank %d: %s: %s\n", c->rank, what, why);
    return false;
}

bool all_agree(bool mine)
{
    int one = mine, all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}

bool comm_start(struct comm *c, int lane, struct transfer t)
{
    if (c->compute->stream_after_compute)
        c->compute->stream_after_compute(c->compute, c->stream(c, lane));
    if (!c->start(c, lane, &t))
        return false;
    if (c->compute->mark)
        c->compute->mark(c->compute, c->stream(c, lane), lane);
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

/* ---- cecl */

struct cecl {
    ceclComm_t comm;
    ceclStream_t *streams;
    int nstreams;
};

#define CECL_OR_FALSE(c, call) \
    do { \
        if ((call) != ceclSuccess) \
            return complain((c), #call, ceclGetLastError(((struct cecl *)(c)->state)->comm)); \
    } while (0)

static ceclStream_t stream(struct comm *c, int lane)
{
    const struct cecl *s = c->state;
    return s->streams[lane % s->nstreams];
}

static bool alloc(struct comm *c, void **memory, size_t bytes)
{
    CECL_OR_FALSE(c, ceclMemAlloc(((struct cecl *)c->state)->comm, memory, bytes));
    return true;
}

static bool start(struct comm *c, int lane, const struct transfer *t)
{
    const ceclComm_t comm = ((struct cecl *)c->state)->comm;
    const ceclDataType_t type = c->compute->type;
    const ceclStream_t s = stream(c, lane);
    void *own;
    if (t->kind == GATHER) {
        CECL_OR_FALSE(c, ceclShard(comm, t->to, t->count, type, &own));
        CECL_OR_FALSE(c, ceclAllGather(own, t->to, t->count, type, comm, s));
    } else {
        CECL_OR_FALSE(c, ceclReduceScatter(t->from, t->to, t->count, type, ceclSum, comm, s));
    }
    return true;
}

static bool wait_lane(struct comm *c, int lane)
{
    CECL_OR_FALSE(c, ceclStreamSynchronize(((struct cecl *)c->state)->comm, stream(c, lane)));
    return true;
}

static bool healthy(struct comm *c)
{
    ceclResult_t failure = ceclSuccess;
    CECL_OR_FALSE(c, ceclCommGetAsyncError(((struct cecl *)c->state)->comm, &failure));
    CECL_OR_FALSE(c, failure);
    return true;
}

static void close_cecl(struct comm *c)
{
    struct cecl *s = c->state;
    while (s->nstreams > 0)
        (void)!ceclStreamDestroy(s->comm, s->streams[--s->nstreams]);
    free(s->streams);
    if (s->comm)
        (void)!ceclCommDestroy(s->comm); /* also frees what alloc returned */
    free(s);
}

static bool open_cecl(struct comm *c, int lanes, bool hidden)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    struct cecl *s = calloc(1, sizeof(*s));
    if (!s)
        return complain(c, "memory", "none for a communicator");
    c->state = s;
    c->name = c->once ? "none after the first step" : "cecl";
    c->alloc = alloc;
    c->stream = stream;
    c->start = start;
    c->wait = wait_lane;
    c->healthy = healthy;
    c->close = close_cecl;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    if (hidden)
        config.maxSms = HIDDEN_SMS;
    CECL_OR_FALSE(c, ceclCommInitMpi(&s->comm, MPI_COMM_WORLD, &config));
    CECL_OR_FALSE(c, ceclCommCuDevice(s->comm, &c->device));
    const int wanted = c->device >= 0 ? 1 : lanes;
    s->streams = calloc((size_t)wanted, sizeof(ceclStream_t));
    for (; s->streams && s->nstreams < wanted; s->nstreams++)
        CECL_OR_FALSE(c, ceclStreamCreate(s->comm, &s->streams[s->nstreams]));
    return s->streams != NULL;
}

/* ---- cecl or NCCL */

bool comm_open(struct comm *c, const char *kind, int lanes, bool hidden)
{
    *c = (struct comm){.device = -1, .once = strcmp(kind, "none") == 0};
    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->nranks);
#if FSDP_NCCL
    if (strncmp(kind, "nccl", 4) == 0)
        return comm_nccl(c, strcmp(kind, "nccl-ce") == 0);
#endif
    return open_cecl(c, lanes, hidden);
}
