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

/* A gather or reduction that is made once and started often (comm.requests). */
struct kept {
    const void *from, *to;
    size_t count;
    ceclRequest_t request;
};

struct cecl {
    ceclComm_t comm;
    ceclStream_t *streams;
    int nstreams;
    struct kept *kept;
    int nkept;
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

/* *out: the entry for a call with these buffers, whose request is NULL if the call is new; NULL
 * without comm.requests. All ranks make their calls, and therefore their requests, in the same order. */
static bool find_kept(struct comm *c, const void *from, const void *to, size_t count,
                      struct kept **out)
{
    struct cecl *s = c->state;
    int i = 0;
    *out = NULL;
    if (!c->requests)
        return true;
    while (i < s->nkept &&
           (s->kept[i].from != from || s->kept[i].to != to || s->kept[i].count != count))
        i++;
    if (i == s->nkept) {
        struct kept *more = realloc(s->kept, ((size_t)i + 1) * sizeof(*more));
        if (!more)
            return false;
        s->kept = more;
        s->kept[s->nkept++] = (struct kept){.from = from, .to = to, .count = count};
    }
    *out = &s->kept[i];
    return true;
}

static bool gather(struct comm *c, int lane, void *buffer, size_t count)
{
    struct cecl *s = c->state;
    const ceclDataType_t type = c->compute->type;
    const ceclStream_t stream = lane_stream(c, lane);
    struct kept *k;
    void *own;
    CECL_OR_FALSE(c, ceclShard(s->comm, buffer, count, type, &own));
    if (!find_kept(c, own, buffer, count, &k))
        return false;
    if (k && !k->request)
        CECL_OR_FALSE(c, ceclAllGatherInit(own, buffer, count, type, s->comm, &k->request));
    if (k)
        CECL_OR_FALSE(c, ceclStart(k->request, stream));
    else
        CECL_OR_FALSE(c, ceclAllGather(own, buffer, count, type, s->comm, stream));
    return true;
}

static bool reduce_scatter(struct comm *c, int lane, const void *gradients, void *shard,
                           size_t count)
{
    struct cecl *s = c->state;
    const ceclDataType_t type = c->compute->type;
    const ceclStream_t stream = lane_stream(c, lane);
    struct kept *k;
    if (!find_kept(c, gradients, shard, count, &k))
        return false;
    if (k && !k->request)
        CECL_OR_FALSE(
            c, ceclReduceScatterInit(gradients, shard, count, type, ceclSum, s->comm, &k->request));
    if (k)
        CECL_OR_FALSE(c, ceclStart(k->request, stream));
    else
        CECL_OR_FALSE(c,
                      ceclReduceScatter(gradients, shard, count, type, ceclSum, s->comm, stream));
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
    for (int i = 0; i < s->nkept; i++)
        if (s->kept[i].request)
            (void)!ceclRequestFree(s->kept[i].request);
    free(s->kept);
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
    c->name = c->requests ? "cecl, by requests" : "cecl";
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
