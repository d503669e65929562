/* Random calls over several hosts. Expected results come from plain loops over what each rank sends. */
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

enum kind {
    ALL_GATHER,
    ALL_GATHERV,
    BROADCAST,
    ALL_TO_ALL,
    ALL_TO_ALLV,
    ALL_TO_ALLV_AT,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    ALL_REDUCE,
    REDUCE,
    BARRIER,
    KINDS
};

/* A call, as all ranks draw it. */
struct drawn {
    enum kind kind;
    uint64_t seed;
    size_t count; /* elements of a block */
    int root;
    bool in_place;
    ceclDataType_t type;
    ceclRedOp_t op;
    size_t size;                           /* of an element */
    size_t counts[RANKS_MOST][RANKS_MOST]; /* [from][to] */
    unsigned char *send, *recv, expected[ROOM];
    size_t sent, received; /* bytes of both buffers that the call may use on this rank */
};

static uint64_t next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void draw(struct drawn *d, int nranks, uint64_t seed)
{
    static const ceclDataType_t types[] = {ceclInt8, ceclUint8, ceclInt32, ceclUint32, ceclInt64};
    static const size_t sizes[] = {1, 1, 4, 4, 8};
    uint64_t state = seed;
    const size_t which = next(&state) % 5;
    d->seed = seed;
    d->kind = (enum kind)(next(&state) % KINDS);
    d->type = types[which];
    d->size = sizes[which];
    d->count = next(&state) % 8 == 0 ? 0 : next(&state) % 900;
    d->root = (int)(next(&state) % (uint64_t)nranks);
    d->in_place = next(&state) % 3 == 0 && d->kind != ALL_TO_ALL && d->kind != ALL_TO_ALLV &&
                  d->kind != ALL_TO_ALLV_AT && d->kind != ALL_GATHERV;
    d->op = (ceclRedOp_t)(next(&state) % 4);
    for (int from = 0; from < nranks; from++)
        for (int to = 0; to < nranks; to++)
            d->counts[from][to] = next(&state) % 4 == 0 ? 0 : next(&state) % 300;
}

/* ---- what a call must give */

static size_t sum_to(const struct drawn *d, int rank, int behind, bool sent)
{
    size_t sum = 0;
    for (int r = 0; r < behind; r++)
        sum += sent ? d->counts[rank][r] : d->counts[r][rank];
    return sum;
}

static void expect_block(struct drawn *d, size_t at, int from, size_t index, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        d->expected[at + i] = rank_byte(d->seed, from, index + i);
}

#define COMBINE(a, b, op)                                                                          \
    ((op) == ceclSum    ? (a) + (b)                                                                \
     : (op) == ceclProd ? (a) * (b)                                                                \
     : (op) == ceclMax  ? ((a) > (b) ? (a) : (b))                                                  \
                        : ((a) < (b) ? (a) : (b)))

/* An element, sign-extended as its type is. */
static int64_t element(const struct drawn *d, int rank, size_t index)
{
    uint64_t value = 0;
    for (size_t b = 0; b < d->size; b++)
        value |= (uint64_t)rank_byte(d->seed, rank, index * d->size + b) << 8 * b;
    return d->type == ceclInt8    ? (int8_t)value
           : d->type == ceclInt32 ? (int32_t)value
                                  : (int64_t)value;
}

static void expect_sum(struct drawn *d, int nranks, size_t at, size_t first)
{
    for (size_t i = 0; i < d->count; i++) {
        int64_t all = element(d, 0, first + i);
        for (int r = 1; r < nranks; r++) {
            const int64_t one = element(d, r, first + i);
            all = (int64_t)(d->op < ceclMax ? (uint64_t)COMBINE((uint64_t)all, (uint64_t)one, d->op)
                                            : (uint64_t)COMBINE(all, one, d->op));
            if (d->size < 8) /* wraps around in its own type */
                all = d->type == ceclInt8    ? (int8_t)all
                      : d->type == ceclUint8 ? (uint8_t)all
                      : d->type == ceclInt32 ? (int32_t)all
                                             : (int64_t)(uint32_t)all;
        }
        for (size_t b = 0; b < d->size; b++)
            d->expected[at + i * d->size + b] = (unsigned char)((uint64_t)all >> 8 * b);
    }
}

/* Fills in what recvbuff holds after the call; `expected` has its bytes before. */
static void expect(struct drawn *d, int me, int n)
{
    const size_t block = d->count * d->size, ranks = (size_t)n;
    size_t at = 0;
    switch (d->kind) {
    case ALL_GATHER:
        for (int r = 0; r < n; r++)
            expect_block(d, (size_t)r * block, r, 0, block);
        d->sent = block, d->received = ranks * block;
        break;
    case GATHER:
        for (int r = 0; r < n && me == d->root; r++)
            expect_block(d, (size_t)r * block, r, 0, block);
        d->sent = block, d->received = ranks * block;
        break;
    case ALL_GATHERV:
        for (int r = 0; r < n; at += d->counts[r++][0] * d->size)
            expect_block(d, at, r, 0, d->counts[r][0] * d->size);
        d->sent = d->counts[me][0] * d->size, d->received = at;
        break;
    case BROADCAST:
        expect_block(d, 0, d->root, 0, block);
        d->sent = d->received = block;
        break;
    case SCATTER:
        expect_block(d, 0, d->root, (size_t)me * block, block);
        d->sent = ranks * block, d->received = block;
        break;
    case ALL_TO_ALL:
        for (int r = 0; r < n; r++)
            expect_block(d, (size_t)r * block, r, (size_t)me * block, block);
        d->sent = d->received = ranks * block;
        break;
    case ALL_TO_ALLV:
    case ALL_TO_ALLV_AT:
        for (int r = 0; r < n; at += d->counts[r++][me] * d->size)
            expect_block(d, at, r, sum_to(d, r, me, true) * d->size, d->counts[r][me] * d->size);
        d->sent = sum_to(d, me, n, true) * d->size, d->received = at;
        break;
    case REDUCE_SCATTER:
        expect_sum(d, n, 0, (size_t)me * d->count);
        d->sent = ranks * block, d->received = block;
        break;
    case ALL_REDUCE:
    case REDUCE:
        if (d->kind == ALL_REDUCE || me == d->root)
            expect_sum(d, n, 0, 0);
        d->sent = d->received = block;
        break;
    default: break;
    }
}

/* ---- making it */

/* Where sendbuff is, relative to recvbuff, if the call is in place. */
static size_t place_of(const struct drawn *d, int me)
{
    const size_t block = d->count * d->size;
    return d->kind == ALL_GATHER || d->kind == GATHER ? (size_t)me * block : 0;
}

static ceclResult_t make_variable(struct rank *r, const struct drawn *d)
{
    size_t sends[RANKS_MOST], sdispls[RANKS_MOST], recvs[RANKS_MOST], rdispls[RANKS_MOST],
        theirs[RANKS_MOST];
    for (int q = 0; q < r->nranks; q++) {
        sends[q] = d->counts[r->rank][q];
        recvs[q] = d->kind == ALL_GATHERV ? d->counts[q][0] : d->counts[q][r->rank];
        sdispls[q] = sum_to(d, r->rank, q, true);
        rdispls[q] = sum_to(d, r->rank, q, false);
        theirs[q] = sum_to(d, q, r->rank, false);
    }
    if (d->kind == ALL_GATHERV)
        return ceclAllGatherv(d->send, d->counts[r->rank][0], d->recv, recvs, NULL, d->type,
                              r->comm, r->stream);
    return d->kind == ALL_TO_ALLV ? ceclAlltoAllv(d->send, sends, sdispls, d->recv, recvs, rdispls,
                                                  d->type, r->comm, r->stream)
                                  : ceclAlltoAllvAt(d->send, sends, sdispls, d->recv, recvs,
                                                    rdispls, theirs, d->type, r->comm, r->stream);
}

static ceclResult_t make(struct rank *r, const struct drawn *d)
{
    const void *send = d->send;
    void *recv = d->recv;
    switch (d->kind) {
    case ALL_GATHER: return ceclAllGather(send, recv, d->count, d->type, r->comm, r->stream);
    case BROADCAST:
        return ceclBroadcast(send, recv, d->count, d->type, d->root, r->comm, r->stream);
    case ALL_TO_ALL: return ceclAlltoAll(send, recv, d->count, d->type, r->comm, r->stream);
    case GATHER: return ceclGather(send, recv, d->count, d->type, d->root, r->comm, r->stream);
    case SCATTER: return ceclScatter(send, recv, d->count, d->type, d->root, r->comm, r->stream);
    case REDUCE_SCATTER:
        return ceclReduceScatter(send, recv, d->count, d->type, d->op, r->comm, r->stream);
    case ALL_REDUCE: return ceclAllReduce(send, recv, d->count, d->type, d->op, r->comm, r->stream);
    case REDUCE:
        return ceclReduce(send, recv, d->count, d->type, d->op, d->root, r->comm, r->stream);
    case BARRIER: return ceclBarrier(r->comm, r->stream);
    default: return make_variable(r, d);
    }
}

/* Fills sendbuff with this rank's bytes, and recvbuff with others. In place only on ranks that have their own block
 * there. */
static bool fill(struct rank *r, struct drawn *d, size_t offset, size_t room)
{
    bool in_place = d->in_place;
    if (d->kind == GATHER || d->kind == SCATTER)
        in_place = false;
    d->send = r->send + offset;
    d->recv = r->recv + offset;
    for (size_t i = 0; i < room; i++)
        d->expected[i] = (unsigned char)(i * 7 + 3);
    if (in_place && d->kind == REDUCE_SCATTER) {
        d->recv = d->send + (size_t)r->rank * d->count * d->size;
        return true;
    }
    if (!rank_put(r, r->recv + offset, d->expected, room))
        return false;
    for (size_t i = 0; i < room; i++)
        r->host[i] = rank_byte(d->seed, r->rank, i);
    if (!in_place)
        return rank_put(r, d->send, r->host, room);
    d->send = d->recv + place_of(d, r->rank);
    const size_t bytes = d->count * d->size;
    for (size_t i = 0; i < bytes; i++)
        d->expected[(size_t)(d->send - d->recv) + i] = r->host[i];
    return rank_put(r, d->send, r->host, bytes);
}

/* A reduce-scatter in place: sendbuff holds the result, and its other blocks stay. */
static bool fill_reduce_scatter(struct rank *r, const struct drawn *d, size_t room)
{
    for (size_t i = 0; i < room; i++)
        r->host[i] = rank_byte(d->seed, r->rank, i);
    return rank_put(r, d->send, r->host, room);
}

static bool is_right(struct rank *r, const struct drawn *d, size_t offset, size_t room)
{
    const bool scattered = d->in_place && d->kind == REDUCE_SCATTER;
    const size_t bytes = scattered ? d->received : room;
    return rank_get(r, r->host, scattered ? d->recv : r->recv + offset, bytes) &&
           memcmp(r->host, d->expected, bytes) == 0;
}

#define CALLS_MOST 4

static ceclResult_t make_all(struct rank *r, const struct drawn *all, int count)
{
    ceclResult_t result = count > 1 ? ceclGroupStart() : ceclSuccess;
    for (int c = 0; c < count && result == ceclSuccess; c++)
        result = make(r, &all[c]);
    return count > 1 && result == ceclSuccess ? ceclGroupEnd() : result;
}

/* Launched twice, because a graph is replayed. */
static ceclResult_t make_captured(struct rank *r, const struct drawn *all, int count)
{
    ceclGraph_t graph;
    ceclResult_t result = ceclStreamBeginCapture(r->comm, r->stream);
    if (result == ceclSuccess)
        result = make_all(r, all, count);
    if (result == ceclSuccess)
        result = ceclStreamEndCapture(r->comm, r->stream, &graph);
    for (int i = 0; i < 2 && result == ceclSuccess; i++)
        result = ceclGraphLaunch(graph, r->stream);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(r->comm, r->stream);
    return result == ceclSuccess ? ceclGraphDestroy(graph) : result;
}

static void make_calls(struct rank *r, uint64_t seed, int count, bool is_captured)
{
    static struct drawn all[CALLS_MOST];
    const size_t room = ROOM / (size_t)count / 256 * 256; /* aligned to every element */
    for (int c = 0; c < count; c++) {
        uint64_t each = seed * CALLS_MOST + (uint64_t)c;
        do /* an all-to-all whose ranks tell each other places is in no group */
            draw(&all[c], r->nranks, each += UINT64_C(1) << 40);
        while (((count > 1 || is_captured) && all[c].kind == ALL_TO_ALLV) ||
               (is_captured && all[c].in_place) || /* a second launch would have other input */
               all[c].count * all[c].size * (size_t)r->nranks > room ||
               300 * all[c].size * (size_t)r->nranks > room);
        CHECK(fill(r, &all[c], (size_t)c * room, room));
        if (all[c].in_place && all[c].kind == REDUCE_SCATTER)
            CHECK(fill_reduce_scatter(r, &all[c], room));
        expect(&all[c], r->rank, r->nranks);
    }
    OK(is_captured ? make_captured(r, all, count) : make_all(r, all, count));
    OK(ceclStreamSynchronize(r->comm, r->stream));
    for (int c = 0; c < count; c++)
        CHECK(is_right(r, &all[c], (size_t)c * room, room));
}

void call_random(struct rank *r, uint64_t seed)
{
    make_calls(r, seed, 1, false);
}

void call_random_group(struct rank *r, uint64_t seed)
{
    make_calls(r, seed, 2 + (int)(seed % (CALLS_MOST - 1)), false);
}

void call_random_captured(struct rank *r, uint64_t seed)
{
    make_calls(r, seed, 1 + (int)(seed % 3), true);
}
