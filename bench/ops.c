/* The collectives, messages and element types that can be measured, and how sizes are computed. A new collective is
 * a line here, and a line in the table of each other library (side_nccl.c). */
#include <string.h>

#include "bench.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct type types[] = {
    {"int8", ceclInt8, 1},
    {"uint8", ceclUint8, 1},
    {"int32", ceclInt32, 4},
    {"uint32", ceclUint32, 4},
    {"int64", ceclInt64, 8},
    {"uint64", ceclUint64, 8},
    {"float16", ceclFloat16, 2},
    {"float32", ceclFloat32, 4},
    {"float64", ceclFloat64, 8},
    {"bfloat16", ceclBfloat16, 2},
    {"float8e4m3", ceclFloat8e4m3, 1},
    {"float8e5m2", ceclFloat8e5m2, 1},
};
_Static_assert(LENGTH(types) == CECL_NUM_TYPES, "every type of cecl.h has a name here");

#define CECL_PERF_RANKS 16 /* the most ranks that ceclAlltoAllvDevice takes */

static ceclResult_t sum_and_scatter(const void *send, void *recv, size_t count, ceclDataType_t type,
                                    ceclComm_t comm, ceclStream_t stream)
{
    return ceclReduceScatter(send, recv, count, type, ceclSum, comm, stream);
}

static ceclResult_t sum_as_fp32(const void *send, void *recv, size_t count, ceclDataType_t type,
                                ceclComm_t comm, ceclStream_t stream)
{
    return ceclReduceScatterAs(send, recv, count, type, ceclFloat32, ceclSum, comm, stream);
}

/* One tile for each rank. Rows of a tile follow each other without gaps, so a tile is like the block of a
 * reduce-scatter. */
static ceclResult_t sum_tiles(const void *send, void *recv, size_t count, ceclDataType_t type,
                              ceclComm_t comm, ceclStream_t stream)
{
    enum { RANKS = 64, WIDTH = 256 };
    size_t begins[RANKS];
    int nranks = 0;
    const ceclResult_t result = ceclCommCount(comm, &nranks);
    for (int r = 0; r < nranks && r < RANKS; r++)
        begins[r] = (size_t)r * count;
    const size_t width = count % WIDTH ? count : WIDTH;
    const ceclTiles_t tiles = {.count = 1,
                               .width = width,
                               .rows = width ? count / width : 0,
                               .pitch = width,
                               .begins = begins};
    return result != ceclSuccess ? result
           : nranks > RANKS
               ? ceclInvalidUsage
               : ceclReduceScatterTiles(send, recv, &tiles, type, ceclSum, comm, stream);
}

static ceclResult_t sum_to_all(const void *send, void *recv, size_t count, ceclDataType_t type,
                               ceclComm_t comm, ceclStream_t stream)
{
    return ceclAllReduce(send, recv, count, type, ceclSum, comm, stream);
}

struct neighbors neighbors_of(const struct op *op, int rank, int nranks)
{
    const int next = (rank + 1) % nranks, last = (rank + nranks - 1) % nranks;
    if (!op->one_way)
        return (struct neighbors){next, last};
    return rank % 2 ? (struct neighbors){-1, last}
                    : (struct neighbors){next > rank ? next : -1, -1};
}

static ceclResult_t pass(const struct op *op, const void *send, void *recv, size_t count,
                         ceclDataType_t type, ceclComm_t comm, ceclStream_t stream)
{
    int rank = 0, nranks = 1;
    ceclResult_t result = ceclCommUserRank(comm, &rank);
    if (result == ceclSuccess)
        result = ceclCommCount(comm, &nranks);
    if (result == ceclSuccess)
        result = ceclGroupStart();
    if (result != ceclSuccess)
        return result;
    const struct neighbors peers = neighbors_of(op, rank, nranks);
    if (peers.to >= 0)
        result = ceclSend(send, count, type, peers.to, comm, stream);
    if (result == ceclSuccess && peers.from >= 0)
        result = ceclRecv(recv, count, type, peers.from, comm, stream);
    const ceclResult_t end = ceclGroupEnd();
    return result == ceclSuccess ? end : result;
}

/* Each rank sends to the next rank and receives from the previous one, as in nccl-tests' sendrecv. */
static ceclResult_t pass_on(const void *send, void *recv, size_t count, ceclDataType_t type,
                            ceclComm_t comm, ceclStream_t stream)
{
    return pass(&collectives[OP_SEND_RECV], send, recv, count, type, comm, stream);
}

static ceclResult_t pass_one_way(const void *send, void *recv, size_t count, ceclDataType_t type,
                                 ceclComm_t comm, ceclStream_t stream)
{
    return pass(&collectives[OP_SEND], send, recv, count, type, comm, stream);
}

/* The recvbuffs into which ranks put. A side shares them as windows when it opens: a captured call could not. */
static struct shared {
    ceclComm_t comm;
    const void *recv;
    ceclWindow_t window;
} all_shared[2 * MAX_SIDES];

static struct shared *shared_of(ceclComm_t comm, const void *recv)
{
    size_t i = 0;
    while (i < LENGTH(all_shared) - 1 && (all_shared[i].comm != comm || all_shared[i].recv != recv))
        i++;
    return &all_shared[i];
}

static ceclResult_t share(ceclComm_t comm, void *recv, size_t bytes)
{
    struct shared *s = shared_of(NULL, NULL);
    *s = (struct shared){.comm = comm, .recv = recv};
    return ceclWindowShare(comm, recv, bytes, &s->window);
}

static void unshare(ceclComm_t comm, const void *recv)
{
    struct shared *s = shared_of(comm, recv);
    (void)!ceclWindowFree(comm, s->window);
    *s = (struct shared){0};
}

/* sendrecv by one-sided calls: each rank puts into the next rank's memory, once that is free, and waits for the put
 * of the previous rank. */
static ceclResult_t put_on(const void *send, void *recv, size_t count, ceclDataType_t type,
                           ceclComm_t comm, ceclStream_t stream)
{
    enum { FULL, FREE };
    int rank = 0, nranks = 1;
    const ceclWindow_t window = shared_of(comm, recv)->window;
    ceclResult_t result = ceclCommUserRank(comm, &rank);
    if (result == ceclSuccess)
        result = ceclCommCount(comm, &nranks);
    const struct neighbors peers = neighbors_of(&collectives[OP_PUT], rank, nranks);
    const ceclSignalWait_t is_free = {peers.to, FREE, 1}, is_full = {peers.from, FULL, 1};
    if (result == ceclSuccess)
        result = ceclSignal(peers.from, FREE, comm, stream);
    if (result == ceclSuccess)
        result = ceclWaitSignal(1, &is_free, comm, stream);
    if (result == ceclSuccess)
        result = ceclPutSignal(send, count, type, peers.to, window, 0, FULL, comm, stream);
    return result == ceclSuccess ? ceclWaitSignal(1, &is_full, comm, stream) : result;
}

/* Puts splits into device memory, once: one row for each rank, and where the rows begin. */
static ceclResult_t find_splits(ceclComm_t comm, uint64_t **splits, size_t *nranks)
{
    static uint64_t *memory, words[2 * CECL_PERF_RANKS];
    int count = 1;
    ceclResult_t result = ceclCommCount(comm, &count);
    *nranks = (size_t)count < CECL_PERF_RANKS ? (size_t)count : CECL_PERF_RANKS;
    if (result == ceclSuccess && !memory) {
        for (size_t r = 0; r < *nranks; r++) {
            words[r] = 1;
            words[*nranks + r] = r;
        }
        result = ceclMemAlloc(comm, (void **)&memory, 2 * sizeof(words));
        if (result == ceclSuccess)
            result = ceclMemcpyAsync(comm, memory, words, sizeof(words), NULL);
        if (result == ceclSuccess)
            result = ceclStreamSynchronize(comm, NULL);
    }
    *splits = memory;
    return result;
}

static ceclResult_t exchange_by_splits(const void *send, void *recv, size_t count,
                                       ceclDataType_t type, ceclComm_t comm, ceclStream_t stream)
{
    uint64_t *splits = NULL;
    size_t n;
    const ceclResult_t result = find_splits(comm, &splits, &n);
    return result == ceclSuccess
               ? ceclAlltoAllvDevice(send, n, splits, recv, n, splits + 2 * CECL_PERF_RANKS, count,
                                     type, comm, stream)
               : result;
}

/* Each rank has one expert. */
static const ceclExperts_t one_expert = {.experts = 1, .align = 1};

static ceclResult_t dispatch(const void *send, void *recv, size_t count, ceclDataType_t type,
                             ceclComm_t comm, ceclStream_t stream)
{
    uint64_t *splits = NULL;
    size_t n;
    const ceclResult_t result = find_splits(comm, &splits, &n);
    return result == ceclSuccess
               ? ceclDispatch(send, n, splits, recv, n, splits + 2 * CECL_PERF_RANKS, &one_expert,
                              count, type, comm, stream)
               : result;
}

static ceclResult_t combine(const void *send, void *recv, size_t count, ceclDataType_t type,
                            ceclComm_t comm, ceclStream_t stream)
{
    uint64_t *splits = NULL;
    size_t n;
    const ceclResult_t result = find_splits(comm, &splits, &n);
    return result == ceclSuccess
               ? ceclCombine(send, n, splits, recv, n, splits + 2 * CECL_PERF_RANKS, &one_expert,
                             count, type, comm, stream)
               : result;
}

const struct op collectives[OP_COUNT] = {
    [OP_ALL_GATHER] = {.name = "all_gather",
                       .block_of_each = true,
                       .in_place_too = true,
                       .bus = 1,
                       .call = ceclAllGather},
    /* By default an all-to-all is not measured in place: cecl stages it, and NCCL has none. */
    [OP_ALL_TO_ALL] = {.name = "alltoall",
                       .block_per_rank = true,
                       .block_of_each = true,
                       .size_of_all = true,
                       .bus = 1,
                       .call = ceclAlltoAll},
    /* Measured with equal blocks, because NCCL's all-to-all has only those. */
    [OP_ALL_TO_ALLV_DEVICE] = {.name = "alltoallv_device",
                               .block_per_rank = true,
                               .block_of_each = true,
                               .size_of_all = true,
                               .bus = 1,
                               .call = exchange_by_splits},
    [OP_DISPATCH] = {.name = "dispatch",
                     .block_per_rank = true,
                     .block_of_each = true,
                     .size_of_all = true,
                     .bus = 1,
                     .call = dispatch},
    [OP_COMBINE] = {.name = "combine",
                    .block_per_rank = true,
                    .block_of_each = true,
                    .size_of_all = true,
                    .bus = 1,
                    .call = combine},
    [OP_REDUCE_SCATTER] = {.name = "reduce_scatter",
                           .block_per_rank = true,
                           .reduces = true,
                           .bus = 1,
                           .call = sum_and_scatter},
    [OP_REDUCE_SCATTER_AS] = {.name = "reduce_scatter_as",
                              .block_per_rank = true,
                              .reduces = true,
                              .widens = true,
                              .bus = 1,
                              .call = sum_as_fp32},
    [OP_REDUCE_SCATTER_TILES] = {.name = "reduce_scatter_tiles",
                                 .block_per_rank = true,
                                 .reduces = true,
                                 .bus = 1,
                                 .call = sum_tiles},
    [OP_ALL_REDUCE] =
        {.name = "all_reduce", .reduces = true, .in_place_too = true, .bus = 2, .call = sum_to_all},
    [OP_SEND_RECV] = {.name = "sendrecv", .passes_on = true, .bus = 1, .call = pass_on},
    [OP_SEND] =
        {.name = "send", .passes_on = true, .one_way = true, .bus = 1, .call = pass_one_way},
    [OP_PUT] = {.name = "put",
                .passes_on = true,
                .bus = 1,
                .call = put_on,
                .open = share,
                .close = unshare},
};

const struct op *op_named(const char *name)
{
    for (size_t i = 0; i < OP_COUNT; i++)
        if (strcmp(collectives[i].name, name) == 0)
            return &collectives[i];
    return NULL;
}

int op_place(const struct op *op)
{
    return (int)(op - collectives);
}

const struct type *type_named(const char *name)
{
    for (size_t i = 0; i < LENGTH(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const struct type *result_type(const struct options *o)
{
    return o->op->widens ? type_named("float32") : o->type;
}

size_t block_of(const struct options *o, int nranks, size_t bytes)
{
    if (o->op->size_of_all)
        bytes /= (size_t)nranks;
    return bytes / o->type->bytes * o->type->bytes;
}

size_t send_bytes_of(const struct run *run, size_t block)
{
    return run->options.op->block_per_rank ? block * (size_t)run->nranks : block;
}

size_t recv_bytes_of(const struct run *run, size_t block)
{
    const struct options *o = &run->options;
    return o->op->block_of_each ? block * (size_t)run->nranks
                                : block / o->type->bytes * result_type(o)->bytes;
}

size_t size_of(const struct run *run, size_t block)
{
    return run->options.op->size_of_all ? block * (size_t)run->nranks : block;
}

size_t size_at(const struct options *o, int index)
{
    double size = (double)o->first;
    while (index-- > 0 && size <= (double)o->last)
        size *= o->factor;
    return size <= (double)o->last ? (size_t)size : 0;
}

const void *send_place(const struct side *side, const struct run *run, size_t block, bool in_place)
{
    const struct op *op = run->options.op;
    if (!in_place || op->passes_on) /* if it passed on in place, a rank would overwrite its input */
        return side->send;
    return op->block_per_rank || op->reduces ? side->recv
                                             : (char *)side->recv + (size_t)run->rank * block;
}
