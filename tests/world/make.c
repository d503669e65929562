/* Makes calls of model.h. */
#include "../try.h"
#include "model.h"

/* The arguments of collectives with variable counts, and places of tiles. */
struct sizes {
    size_t sends[RANKS], from[RANKS], receives[RANKS], to[RANKS], at_peers[RANKS];
    size_t tiles[RANKS * RANDOM_TILES];
};

static void set_sizes(const struct random_call *c, struct sizes *s)
{
    const int me = c->rank;
    for (int p = 0; p < c->nranks; p++) {
        s->sends[p] = c->counts[me][p];
        s->from[p] = c->sent_at[me][p];
        s->receives[p] = c->counts[p][me];
        s->to[p] = c->wanted_at[p][me];
        s->at_peers[p] = c->wanted_at[me][p];
    }
}

/* Tiles side by side need neither a pitch nor places. */
static ceclTiles_t tiles_of(const struct random_call *c, struct sizes *sizes)
{
    const ceclStrided_t *s = &c->strided;
    const size_t all = (size_t)c->nranks * c->tiles;
    bool given = c->seed % 2 || s->sendPitch != all * s->width;
    for (size_t i = 0; i < all; i++) {
        sizes->tiles[i] = random_tile_at(c, c->rank, i);
        given = given || sizes->tiles[i] != i * s->width;
    }
    return (ceclTiles_t){.count = c->tiles,
                         .width = s->width,
                         .rows = s->rows,
                         .pitch = given ? c->send_pitch : 0,
                         .begins = given ? sizes->tiles : NULL};
}

static ceclResult_t by_splits(ceclComm_t comm, const struct random_call *c)
{
    const ceclExperts_t one = {.experts = 1, .align = 1};
    const uint64_t *splits = (const void *)random_words_at(c, c->in, c->send_rows);
    uint64_t *told = (void *)random_words_at(c, c->out, c->recv_rows);
    if (c->splits_have_gaps)
        return ceclCombine(c->in, c->send_rows, splits, c->out, c->recv_rows, told, &one,
                           c->row_count, c->type, comm, c->stream);
    if (c->exchange)
        return ceclDispatch(c->in, c->send_rows, splits, c->out, c->recv_rows, told, &one,
                            c->row_count, c->type, comm, c->stream);
    return ceclAlltoAllvDevice(c->in, c->send_rows, splits, c->out, c->recv_rows, told,
                               c->row_count, c->type, comm, c->stream);
}

/* Does what this rank has to do for a message: sends, receives, or both. */
static ceclResult_t message_ends(ceclComm_t comm, const struct random_call *c)
{
    ceclResult_t result = ceclSuccess;
    if (c->root == c->rank)
        result = ceclSend(c->in, c->count, c->type, c->peer, comm, c->stream);
    if (c->peer == c->rank && result == ceclSuccess)
        result = ceclRecv(c->out, c->as_bytes ? c->count * c->size : c->count,
                          c->as_bytes ? ceclUint8 : c->type, c->root, comm, c->stream);
    return result;
}

/* A rank's message to itself must be in a group, which may be inside another one. */
static ceclResult_t message(ceclComm_t comm, const struct random_call *c)
{
    if (c->root != c->rank || c->peer != c->rank)
        return message_ends(comm, c);
    TRY(ceclGroupStart());
    const ceclResult_t result = message_ends(comm, c);
    return first_of(result, ceclGroupEnd());
}

ceclResult_t random_call(ceclComm_t comm, const struct random_call *c, bool grouped)
{
    const ceclDataType_t type = c->type;
    const ceclStream_t stream = c->stream;
    const size_t count = c->count;
    struct sizes s;
    const size_t *const from = c->dense ? NULL : s.from, *const to = c->dense ? NULL : s.to;
    if (c->kind == BY_SPLITS && !grouped)
        return by_splits(comm, c);
    set_sizes(c, &s);
    switch (c->kind) {
    case BARRIER: return ceclBarrier(comm, stream);
    case MESSAGE: return message(comm, c);
    case ALL_GATHER: return ceclAllGather(c->in, c->out, count, type, comm, stream);
    case ALL_TO_ALL: return ceclAlltoAll(c->in, c->out, count, type, comm, stream);
    case BROADCAST: return ceclBroadcast(c->in, c->out, count, type, c->root, comm, stream);
    case GATHER: return ceclGather(c->in, c->out, count, type, c->root, comm, stream);
    case SCATTER: return ceclScatter(c->in, c->out, count, type, c->root, comm, stream);
    case ALL_GATHER_STRIDED:
        return ceclAllGatherStrided(c->in, c->out, &c->strided, type, comm, stream);
    case ALL_TO_ALL_STRIDED:
        return ceclAlltoAllStrided(c->in, c->out, &c->strided, type, comm, stream);
    case ALL_REDUCE: return ceclAllReduce(c->in, c->out, count, type, c->op, comm, stream);
    case REDUCE_SCATTER: return ceclReduceScatter(c->in, c->out, count, type, c->op, comm, stream);
    case REDUCE_SCATTER_TILES: {
        const ceclTiles_t tiles = tiles_of(c, &s);
        return ceclReduceScatterTiles(c->in, c->out, &tiles, type, c->op, comm, stream);
    }
    case REDUCE_SCATTER_AS:
        return ceclReduceScatterAs(c->in, c->out, count, type, ceclFloat32, c->op, comm, stream);
    case REDUCE: return ceclReduce(c->in, c->out, count, type, c->op, c->root, comm, stream);
    case ALL_GATHERV:
        return ceclAllGatherv(c->in, s.receives[c->rank], c->out, s.receives, to, type, comm,
                              stream);
    default:
        return c->exchange && !grouped
                   ? ceclAlltoAllv(c->in, s.sends, from, c->out, s.receives, to, type, comm, stream)
                   : ceclAlltoAllvAt(c->in, s.sends, from, c->out, s.receives, to, s.at_peers, type,
                                     comm, stream);
    }
}
