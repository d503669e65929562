/* Communication by cecl. On a GPU all lanes share one stream, because calls of one communicator run
 * one after the other anyway, and events order them with compute. On the host each lane has its own
 * stream, so that the host can wait for one call without waiting for those enqueued after it. cecl
 * keeps the order of calls across streams. */
#include <cecl/cecl_mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm.h"

/* SMs for a reduction that runs at the same time as matrix products. With fewer than a dozen SMs,
 * the reduction's speed is proportional to their number. (12 SMs read from three peers as fast as
 * the links of an H200 allow.) With fewer SMs the reduction takes longer, but compute hides that,
 * and no SM only waits for the links. 8 of 132 SMs leave 94 % to compute. The number is an
 * estimate: CECL_MAX_SMS overrides it. */
enum { HIDDEN_SMS = 8 };

struct cecl {
    ceclComm_t comm;
    ceclStream_t *streams;
    int nstreams;
};

#define CECL_OR_FALSE(c, call)                                                                     \
    do {                                                                                           \
        if ((call) != ceclSuccess) {                                                               \
            fprintf(stderr, "fsdp_train: rank %d: %s: %s\n", (c)->rank, #call,                     \
                    ceclGetLastError(((struct cecl *)(c)->state)->comm));                          \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static ceclStream_t lane_stream(struct comm *c, int lane)
{
    const struct cecl *s = c->state;
    return s->streams[lane % s->nstreams];
}

static bool alloc(struct comm *c, void **memory, size_t bytes)
{
    struct cecl *s = c->state;
    CECL_OR_FALSE(c, ceclMemAlloc(s->comm, memory, bytes));
    return true;
}

static bool prepare(struct comm *c, int lanes)
{
    struct cecl *s = c->state;
    const int wanted = c->device >= 0 ? 1 : lanes;
    s->streams = calloc((size_t)wanted, sizeof(*s->streams));
    for (; s->streams && s->nstreams < wanted; s->nstreams++)
        CECL_OR_FALSE(c, ceclStreamCreate(s->comm, &s->streams[s->nstreams]));
    return s->streams != NULL;
}

static bool gather(struct comm *c, int lane, void *buffer, size_t count)
{
    struct cecl *s = c->state;
    void *own;
    CECL_OR_FALSE(c, ceclShard(s->comm, buffer, count, c->compute->type, &own));
    CECL_OR_FALSE(
        c, ceclAllGather(own, buffer, count, c->compute->type, s->comm, lane_stream(c, lane)));
    return true;
}

static bool reduce_scatter(struct comm *c, int lane, const void *gradients, void *shard,
                           size_t count)
{
    struct cecl *s = c->state;
    CECL_OR_FALSE(c, ceclReduceScatter(gradients, shard, count, c->compute->type, ceclSum, s->comm,
                                       lane_stream(c, lane)));
    return true;
}

static bool mean(struct comm *c, int lane, double *values, size_t count)
{
    struct cecl *s = c->state;
    CECL_OR_FALSE(c, ceclAllReduce(values, values, count, ceclFloat64, ceclAvg, s->comm,
                                   lane_stream(c, lane)));
    return true;
}

static bool wait_lane(struct comm *c, int lane)
{
    struct cecl *s = c->state;
    CECL_OR_FALSE(c, ceclStreamSynchronize(s->comm, lane_stream(c, lane)));
    return true;
}

static bool healthy(struct comm *c)
{
    struct cecl *s = c->state;
    ceclResult_t failure = ceclSuccess;
    CECL_OR_FALSE(c, ceclCommGetAsyncError(s->comm, &failure));
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
    c->state = NULL;
}

bool comm_cecl(struct comm *c)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    struct cecl *s = calloc(1, sizeof(*s));
    c->name = "cecl";
    c->state = s;
    c->close = close_cecl;
    if (!s)
        return false;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    if (c->hidden)
        config.maxSms = HIDDEN_SMS;
    CECL_OR_FALSE(c, ceclCommInitMpi(&s->comm, MPI_COMM_WORLD, &config));
    CECL_OR_FALSE(c, ceclCommCuDevice(s->comm, &c->device));
    c->prepare = prepare;
    c->alloc = alloc;
    c->stream = lane_stream;
    c->gather = gather;
    c->reduce_scatter = reduce_scatter;
    c->mean = mean;
    c->wait = wait_lane;
    c->healthy = healthy;
    return true;
}
