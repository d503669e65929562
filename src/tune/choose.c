/* The choices. */
#include "tune/choose.h"

#include "sm/reduce.h"

#define SHARE_ALIGN 256u /* shares of much data begin where wide loads can */

/* ---- calls by copies */

#define ENGINE_BYTES (2u << 20)
#define LOCAL_COPY_MIN (4u << 20)
#define SIDE_COPY_WORTH (256u << 10)
#define PIECE_WORTH (256u << 10)
static const struct {
    int min_ranks;
    uint64_t min_bytes, round_bytes, max_rounds;
} spread = {3, 1 << 20, 16 << 20, 8};

/* The caller's direction, or push, which is faster alone and needs no symmetric sendbuff. What peers
 * return was pushed to them. */
static enum cecl_direction direction_of(const struct cecl_call *call, bool returns_own_block)
{
    if (call->options.direction != CECL_DIRECTION_PULL || returns_own_block)
        return CECL_PUSH;
    return CECL_PULL;
}

/* Whether local copies are allowed and, at this size, faster; or run by a copy engine that brings the
 * block home sooner than peers do. */
static void choose_local_copies(const struct cecl_call *call, const struct cecl_means *means,
                                uint64_t faster_from, uint64_t engine_most, struct cecl_way *way)
{
    const bool allowed = call->options.sm_policy == CECL_SM_ALLOW && call->bytes >= faster_from;
    const bool by_engine = means->engine_copies_locally && call->bytes <= engine_most;
    way->move.no_sm = !allowed && !by_engine;
    way->move.beside = !way->move.no_sm && call->bytes >= SIDE_COPY_WORTH;
    way->move.piece_worth = PIECE_WORTH;
}

static uint64_t spread_of(const struct cecl_call *call, enum cecl_direction direction)
{
    if (call->nranks < spread.min_ranks || direction != CECL_PUSH ||
        call->bytes < spread.min_bytes || cecl_only_contributor(call) < 0)
        return 0;
    const uint64_t rounds = call->bytes / spread.round_bytes + 1;
    return rounds < spread.max_rounds ? rounds : spread.max_rounds;
}

void cecl_choose_gathered(const struct cecl_call *call, const struct cecl_means *means,
                          struct cecl_way *way)
{
    choose_local_copies(call, means, LOCAL_COPY_MIN + 1, 0, way);
    const bool returned = way->move.no_sm && !call->in_place && call->nranks > 1;
    way->move.direction = direction_of(call, returned);
    way->move.spread = spread_of(call, way->move.direction);
    if (way->move.spread == 0) /* peers that pass pieces on need no exchange more for the root's */
        choose_local_copies(call, means, LOCAL_COPY_MIN + 1, ENGINE_BYTES, way);
}

void cecl_choose_exchanged(const struct cecl_call *call, const struct cecl_means *means,
                           struct cecl_way *way)
{
    choose_local_copies(call, means, 0, 0, way);
    way->move.direction = direction_of(call, way->move.no_sm && call->nranks > 1);
    choose_local_copies(call, means, 0, call->in_place ? 0 : ENGINE_BYTES, way);
}

/* Nobody but its owner knows of an own block, and all ranks must choose alike; only the sender knows
 * where its blocks are. */
void cecl_choose_per_rank(const struct cecl_call *call, const struct cecl_means *means,
                          struct cecl_way *way)
{
    (void)means;
    way->move.no_sm = call->options.sm_policy != CECL_SM_ALLOW;
    way->move.piece_worth = PIECE_WORTH;
    way->move.direction = CECL_PUSH;
}

/* ---- reductions */

static const struct {
    uint64_t one_shot;
    uint64_t sms_send;
    uint64_t sms_end;
    uint64_t least, largest;
    uint64_t urgent;
    uint32_t reading_sms, sending_sms, staged_sms;
} reductions = {
    .one_shot = 256 << 10,
    .sms_send = 32 << 20,
    .sms_end = 3 << 19,
    .least = 1 << 20,
    .largest = 64 << 20,
    .urgent = 2 << 20,
    .reading_sms = 8,
    .sending_sms = 16,
    .staged_sms = 16,
};

static const struct chunking {
    uint64_t chunks;
    uint64_t halved;
    uint64_t staged;
    uint64_t worth;
} to_all = {2, 0, 32 << 20, 16 << 20}, others = {8, 8 << 20, 192 << 20, 24 << 20};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* What each rank reduces for all: whole elements. */
static uint64_t share_of(const struct cecl_call *call)
{
    const uint64_t nranks = (uint64_t)call->nranks;
    const uint64_t least = (call->bytes / call->element + nranks - 1) / nranks * call->element;
    if (call->op->each)
        return call->bytes;
    return least < SHARE_ALIGN ? least : round_up(least, SHARE_ALIGN);
}

static uint64_t chunk_of(uint64_t share, const struct chunking *by)
{
    const uint64_t chunk = round_up(share / by->chunks, CECL_CHUNK_ALIGN);
    return chunk < reductions.least     ? reductions.least
           : chunk > reductions.largest ? reductions.largest
                                        : chunk;
}

/* Whether inputs go to staging though SMs could read them. */
static bool goes_staged(const struct cecl_call *call, const struct cecl_means *means,
                        const struct cecl_way *way, const struct chunking *by)
{
    const uint64_t peers = (uint64_t)call->nranks - 1;
    return peers > 0 && way->reduce.share >= by->staged && way->reduce.chunk >= by->worth &&
           means->staging_bytes / CECL_CHUNKS_IN_FLIGHT / peers >= by->worth;
}

/* SMs can read an input at the peers where it is symmetric. A reduce's result is the root's alone, and
 * goes by staging. */
static bool reads_at_peers(const struct cecl_call *call, const struct cecl_means *means,
                           const struct cecl_way *way, const struct chunking *by)
{
    const struct cecl_buffer input = call->in_place ? call->recv : call->send;
    if (input.window != CECL_WINDOW_POOL || call->op->rooted ||
        call->options.direction == CECL_DIRECTION_PUSH)
        return false;
    return call->options.direction == CECL_DIRECTION_PULL || !goes_staged(call, means, way, by);
}

void cecl_choose_reduction(const struct cecl_call *call, const struct cecl_means *means,
                           struct cecl_way *way)
{
    const bool all = !call->op->each && !call->op->rooted;
    const struct chunking *const by = all ? &to_all : &others;
    const uint64_t peers = (uint64_t)call->nranks - 1;
    way->reduce.share = share_of(call);
    way->reduce.chunk = chunk_of(way->reduce.share, by);
    way->reduce.halved = by->halved;
    way->reduce.one_shot = reductions.one_shot;
    way->reduce.read_at_peers = reads_at_peers(call, means, way, by);
    const bool writes =
        way->reduce.read_at_peers && all && peers > 0 && peers <= CECL_REDUCE_ALSO_MAX;
    way->reduce.sms_send = writes && call->bytes <= reductions.sms_send;
    way->reduce.sms_end = writes && !way->reduce.sms_send ? reductions.sms_end / peers : 0;
    way->reduce.urgent = way->reduce.share >= reductions.urgent;
    way->reduce.max_sms = call->options.max_sms       ? call->options.max_sms
                          : way->reduce.sms_send      ? reductions.sending_sms
                          : way->reduce.read_at_peers ? reductions.reading_sms
                                                      : reductions.staged_sms;
}

/* ---- small calls */

static const struct {
    bool reduces, each;
    uint64_t max_bytes, of_two;
} smalls[] = {
    {true, false, 256 << 10, 512 << 10},
    {true, true, 256 << 10, 512 << 10},
    {false, false, 256 << 10, 1 << 20},
    {false, true, 256 << 10, 1 << 20},
};

static uint64_t small_most(int nranks, size_t i)
{
    return nranks == 2 ? smalls[i].of_two : smalls[i].max_bytes;
}

uint64_t cecl_small_most(int nranks)
{
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof(smalls) / sizeof(smalls[0]); i++)
        if (small_most(nranks, i) > most)
            most = small_most(nranks, i);
    return most;
}

/* Whether slots serve such a call at all, and the caller allows it. */
static bool may_be_small(const struct cecl_call *call, const struct cecl_means *means)
{
    const struct cecl_op *op = call->op;
    return call->nranks >= 2 && call->nranks <= CECL_SMALL_RANKS && call->bytes > 0 &&
           call->bytes <= means->slot_bytes && call->layout_words == 0 &&
           call->view.shape.width == 0 && !op->rooted && !op->per_rank &&
           call->options.direction == CECL_DIRECTION_AUTO &&
           (call->options.sm_policy == CECL_SM_ALLOW || op->reduces);
}

static bool is_small(const struct cecl_call *call, const struct cecl_means *means)
{
    if (!may_be_small(call, means))
        return false;
    for (size_t i = 0; i < sizeof(smalls) / sizeof(smalls[0]); i++)
        if (smalls[i].reduces == call->op->reduces && smalls[i].each == call->op->each)
            return call->bytes <= small_most(call->nranks, i);
    return false;
}

void cecl_choose(const struct cecl_call *call, const struct cecl_means *means, struct cecl_way *way)
{
    *way = (struct cecl_way){.small = is_small(call, means)};
    if (call->op->choose)
        call->op->choose(call, means, way);
}
