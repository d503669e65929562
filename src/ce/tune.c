/* The tuning table: choices that measurements decide, in one place. Rows are tried in order; the
 * first that fits wins. */
#include "ce/lowering.h"
#include "plan/layout.h"
#include "sm/reduce.h"

enum placement { ANY_PLACE, IN_PLACE, OUT_OF_PLACE };

struct row {
    ceclOp_t op;
    enum placement placement;
    int max_ranks;      /* rows hold for up to so many ranks */
    uint64_t max_bytes; /* and blocks of up to so many bytes */
    enum cecl_direction direction;
    bool local_copies; /* where the policy allows both: what is faster */
    /* Own blocks of no more bytes are copied locally under any policy, where a copy engine does it. */
    uint64_t engine_bytes;
};

/* Reckoned, not measured, since no driver that was tried runs a local copy on a copy engine: where one
 * does, it is reported to move 87 GB/s (NVIDIA/nccl#2177). What peers return costs, on 4 GPUs, one
 * exchange of flags and one batch more, 13 us, and of an all-gather the block once more over the link,
 * of an all-to-all twice, at 390 GB/s. So a local copy that hides behind nothing is faster up to
 * 1.5 MB (13 us + b / 390 GB/s = b / 87 GB/s) and 2.1 MB; the part that is beside what is pushed
 * comes on top. With more ranks an exchange costs more, and pushes hide more. In place an all-to-all
 * would copy N - 1 blocks so: by its peers' staging they move at the rate of the link. */
#define ENGINE_BYTES (2u << 20)

/* Push is about 5 % faster alone (hardware facts: 389.6 against 371 GB/s to one peer), and needs no
 * symmetric sendbuff. Local copies: docs/measurements.md, "A rank's own block". */
static const struct row table[] = {
    {ceclOpAllGather, ANY_PLACE, CECL_MAX_RANKS, 4 << 20, CECL_PUSH, false, ENGINE_BYTES},
    {ceclOpAllGather, ANY_PLACE, CECL_MAX_RANKS, UINT64_MAX, CECL_PUSH, true, ENGINE_BYTES},
    {ceclOpAlltoAll, IN_PLACE, CECL_MAX_RANKS, UINT64_MAX, CECL_PUSH, true, 0},
    {ceclOpAlltoAll, OUT_OF_PLACE, CECL_MAX_RANKS, UINT64_MAX, CECL_PUSH, true, ENGINE_BYTES},
};

/* A block of so many bytes that a kernel copies goes beside those that copy engines push; in one batch
 * with them it would be one more behind them. */
#define SIDE_COPY_WORTH (256u << 10)

/* Of an own block, bytes for which one more peer is asked to return a piece. */
#define PIECE_WORTH (256u << 10)

/* When the only block of an all-gather, a broadcast's, goes in pieces: it then passes its root's link
 * once and not N-1 times, for one exchange of flags more; and in one round for each so many bytes, for
 * what a round costs. Reckoned from the rates of links and flags. */
static const struct {
    int min_ranks;
    uint64_t min_bytes, round_bytes, max_rounds;
} spread = {3, 1 << 20, 16 << 20, 8};

static uint64_t spread_of(const struct cecl_call *call)
{
    if (call->nranks < spread.min_ranks || call->direction != CECL_PUSH ||
        call->bytes < spread.min_bytes || cecl_only_contributor(call) < 0)
        return 0;
    const uint64_t rounds = call->bytes / spread.round_bytes + 1;
    return rounds < spread.max_rounds ? rounds : spread.max_rounds;
}

/* Whether a copy engine of a rank's own GPU brings its block home sooner than peers do. Peers that pass
 * pieces on anyway need no exchange more for it. Of a variable all-to-all the block that stays is known
 * to its owner alone, and all ranks must choose alike. */
static bool engine_is_worth_it(const struct cecl_call *call, const struct row *row)
{
    return call->engine_copies_locally && call->bytes <= row->engine_bytes && call->spread == 0 &&
           !cecl_is_variable(call);
}

static const struct row *row_of(const struct cecl_call *call)
{
    const size_t count = sizeof(table) / sizeof(table[0]);
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &table[i];
        const bool fits =
            row->placement == ANY_PLACE || (row->placement == IN_PLACE) == call->in_place;
        if (row->op == call->op && fits && call->nranks <= row->max_ranks &&
            call->bytes <= row->max_bytes)
            return row;
    }
    return &table[count - 1];
}

/* How reductions go. SMs read at the peers at 325 GB/s, from 8 on. Copy engines send to staging at 387,
 * but each chunk costs an exchange of flags, and a reduce-scatter's last one is reduced when nothing is
 * sent: so that is for large blocks in few chunks, and where sendbuff is not symmetric. An all-reduce's
 * results are written by the same SMs where an exchange more costs more than their slower writes.
 * Measured: docs/measurements.md, "Reductions". */
static const struct {
    /* An all-reduce of no more bytes, whose inputs cannot be read: everyone reduces all. */
    uint64_t one_shot;
    uint64_t sms_send;       /* one of no more bytes: who reduces a block writes it to all; */
    uint64_t sms_end;        /* of a larger one each block's last bytes, so many to all */
    uint64_t least, largest; /* chunks are of bytes in this range; */
    uint64_t urgent;         /* kernels of so long blocks come first */
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

/* Of an all-reduce the pushes of results hide the last reduction, so it goes in fewer chunks. */
static const struct chunking {
    uint64_t chunks; /* in so many, at least; */
    uint64_t halved; /* the last one is halved into parts of so many bytes; 0: it is not */
    uint64_t staged; /* blocks of so many bytes go by staging, */
    uint64_t worth;  /* if chunks have so many */
} all_reduces = {2, 0, 32 << 20, 16 << 20}, others = {8, 8 << 20, 192 << 20, 24 << 20};

/* Whether it is sent to staging though it could be read. */
static bool goes_staged(const struct cecl_call *call, const struct chunking *by)
{
    const uint64_t peers = (uint64_t)call->nranks - 1;
    return peers > 0 && call->bytes >= by->staged && call->chunk >= by->worth &&
           call->staging_bytes / CECL_CHUNKS_UNDER_WAY / peers >= by->worth;
}

static void tune_reduction(struct cecl_call *call, struct cecl_choice choice)
{
    const struct chunking *const by = call->op == ceclOpAllReduce ? &all_reduces : &others;
    /* Rounded up, or there would be one more. */
    const uint64_t chunk =
        (call->bytes / by->chunks + CECL_PIECE_ALIGN - 1) / CECL_PIECE_ALIGN * CECL_PIECE_ALIGN;
    call->chunk = chunk < reductions.least     ? reductions.least
                  : chunk > reductions.largest ? reductions.largest
                                               : chunk;
    call->halved = by->halved;
    call->one_shot = reductions.one_shot;
    if (call->op == ceclOpReduce || choice.direction == CECL_DIRECTION_PUSH ||
        (choice.direction == CECL_DIRECTION_AUTO && goes_staged(call, by)))
        call->peers_read = false;
    const bool writes = call->peers_read && call->op == ceclOpAllReduce && call->nranks > 1 &&
                        call->nranks - 1 <= CECL_REDUCE_ALSO_MAX;
    call->sms_send = writes && call->total <= reductions.sms_send;
    call->sms_end =
        writes && !call->sms_send ? reductions.sms_end / ((uint64_t)call->nranks - 1) : 0;
    call->urgent = call->bytes >= reductions.urgent;
    call->max_sms = choice.max_sms     ? choice.max_sms
                    : call->sms_send   ? reductions.sending_sms
                    : call->peers_read ? reductions.reading_sms
                                       : reductions.staged_sms;
}

/* Calls of so few bytes to each peer that one kernel which writes to peers' slots takes less time than
 * an exchange of flags around copies: docs/measurements.md, "Small calls by one kernel". */
static const struct {
    ceclOp_t op;
    uint64_t max_bytes, of_two; /* of two ranks: one peer gets what else goes to several */
} smalls[] = {
    {ceclOpAllReduce, 256 << 10, 512 << 10}, /* 1 MiB would gain 5 %, for twice the SMs */
    {ceclOpReduceScatter, 256 << 10, 512 << 10},
    {ceclOpAllGather, 256 << 10, 1 << 20},
    {ceclOpAlltoAll, 256 << 10, 1 << 20},
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

static bool is_small(const struct cecl_call *call, struct cecl_choice choice)
{
    if (call->nranks < 2 || call->nranks > CECL_SMALL_RANKS || call->layout || call->shape.width ||
        cecl_small_bytes(call) > call->slot_bytes || choice.direction != CECL_DIRECTION_AUTO ||
        (choice.sm_policy != CECL_SM_ALLOW && !cecl_op_reduces(call->op)))
        return false;
    for (size_t i = 0; i < sizeof(smalls) / sizeof(smalls[0]); i++)
        if (smalls[i].op == call->op)
            return cecl_small_bytes(call) <= small_most(call->nranks, i);
    return false;
}

void cecl_tune(struct cecl_call *call, struct cecl_choice choice)
{
    call->small = is_small(call, choice);
    if (cecl_op_reduces(call->op)) {
        tune_reduction(call, choice);
        return;
    }
    const struct row *row = row_of(call);
    const bool has_own_block = call->op == ceclOpAlltoAll || !call->in_place;
    call->no_sm = choice.sm_policy != CECL_SM_ALLOW || !row->local_copies;
    call->piece_worth = PIECE_WORTH;
    if (choice.direction == CECL_DIRECTION_AUTO)
        call->direction = row->direction;
    else
        call->direction = choice.direction == CECL_DIRECTION_PUSH ? CECL_PUSH : CECL_PULL;
    if (call->nranks > 1 && call->no_sm && has_own_block)
        call->direction = CECL_PUSH; /* what peers return was pushed to them */
    if (cecl_is_variable(call))
        call->direction = CECL_PUSH; /* only the sender knows where its blocks are */
    call->spread = spread_of(call);
    if (engine_is_worth_it(call, row))
        call->no_sm = false;
    call->side_copy = !call->no_sm && call->bytes >= SIDE_COPY_WORTH;
}
