/* Which way a call takes: choices that measurements decide. The numbers stand in tune/thresholds.h. */
#include "ce/lowering.h"
#include "plan/layout.h"
#include "sm/reduce.h"
#include "tune/table.h"

/* CECL_TUNE_... in `tuning`. */
#define GET(tuning, which) cecl_tuning_get((tuning), CECL_TUNE_##which)

/* When the only block of an all-gather, a broadcast's, goes in pieces: it then passes its root's link
 * once and not N-1 times, for one exchange of flags more. */
static uint64_t spread_of(const struct cecl_call *call, const struct cecl_tuning *tuning)
{
    if (call->direction != CECL_PUSH || call->bytes < GET(tuning, BROADCAST_SPREAD_MIN_BYTES) ||
        cecl_only_contributor(call) < 0)
        return 0;
    const uint64_t rounds = call->bytes / GET(tuning, BROADCAST_BYTES_PER_ROUND) + 1,
                   most = GET(tuning, BROADCAST_MAX_ROUNDS);
    return rounds < most ? rounds : most;
}

/* Sizes that decide how an own block comes home. */
static enum cecl_threshold returned_max(const struct cecl_call *call)
{
    return call->op == ceclOpAllGather ? CECL_TUNE_ALL_GATHER_RETURNED_MAX_BYTES
           : call->in_place            ? CECL_TUNE_ALL_TO_ALL_IN_PLACE_RETURNED_MAX_BYTES
                                       : CECL_TUNE_ALL_TO_ALL_RETURNED_MAX_BYTES;
}
static enum cecl_threshold engine_copy_max(const struct cecl_call *call)
{
    return call->op == ceclOpAllGather ? CECL_TUNE_ALL_GATHER_ENGINE_COPY_MAX_BYTES
           : call->in_place            ? CECL_TUNE_ALL_TO_ALL_IN_PLACE_ENGINE_COPY_MAX_BYTES
                                       : CECL_TUNE_ALL_TO_ALL_ENGINE_COPY_MAX_BYTES;
}

/* Whether a copy engine of a rank's own GPU brings its block home sooner than peers do. Peers that pass
 * pieces on anyway need no exchange more for it. Of a variable all-to-all the block that stays is known
 * to its owner alone, and all ranks must choose alike. */
static bool engine_is_worth_it(const struct cecl_call *call, const struct cecl_tuning *tuning)
{
    return call->engine_copies_locally &&
           call->bytes <= cecl_tuning_get(tuning, engine_copy_max(call)) && call->spread == 0 &&
           !cecl_is_variable(call);
}

/* Whether a local copy on SMs is faster than what peers return. A variable all-to-all has no one size. */
static bool local_copies_are_faster(const struct cecl_call *call, const struct cecl_tuning *tuning)
{
    return cecl_is_variable(call) || call->bytes > cecl_tuning_get(tuning, returned_max(call));
}

/* An all-reduce's pushes of results hide the last reduction, so it goes in fewer chunks than others. */
struct chunking {
    uint64_t chunks; /* in so many, at least; */
    uint64_t halved; /* the last one is halved into parts of so many bytes; 0: it is not */
    uint64_t staged; /* blocks of so many bytes go by staging, */
    uint64_t worth;  /* if chunks have so many */
};

static struct chunking chunking_of(const struct cecl_call *call, const struct cecl_tuning *tuning)
{
    if (call->op == ceclOpAllReduce)
        return (struct chunking){GET(tuning, ALL_REDUCE_CHUNKS),
                                 GET(tuning, ALL_REDUCE_HALVED_MIN_BYTES),
                                 GET(tuning, ALL_REDUCE_STAGED_MIN_BYTES),
                                 GET(tuning, ALL_REDUCE_STAGED_CHUNK_MIN_BYTES)};
    return (struct chunking){GET(tuning, REDUCE_SCATTER_CHUNKS),
                             GET(tuning, REDUCE_SCATTER_HALVED_MIN_BYTES),
                             GET(tuning, REDUCE_SCATTER_STAGED_MIN_BYTES),
                             GET(tuning, REDUCE_SCATTER_STAGED_CHUNK_MIN_BYTES)};
}

/* Whether it is sent to staging though it could be read. */
static bool goes_staged(const struct cecl_call *call, const struct chunking *by)
{
    const uint64_t peers = (uint64_t)call->nranks - 1;
    return peers > 0 && call->bytes >= by->staged && call->chunk >= by->worth &&
           call->staging_bytes / CECL_CHUNKS_UNDER_WAY / peers >= by->worth;
}

static uint32_t reduction_sms(const struct cecl_call *call, const struct cecl_tuning *tuning)
{
    return (uint32_t)(call->sms_send     ? GET(tuning, REDUCTION_WRITING_SMS)
                      : call->peers_read ? GET(tuning, REDUCTION_READING_SMS)
                                         : GET(tuning, REDUCTION_STAGED_SMS));
}

static void tune_reduction(struct cecl_call *call, struct cecl_choice choice,
                           const struct cecl_tuning *tuning)
{
    const struct chunking by = chunking_of(call, tuning);
    const uint64_t least = GET(tuning, REDUCTION_CHUNK_MIN_BYTES),
                   largest = GET(tuning, REDUCTION_CHUNK_MAX_BYTES);
    /* Rounded up, or there would be one more. */
    const uint64_t chunk =
        (call->bytes / by.chunks + CECL_PIECE_ALIGN - 1) / CECL_PIECE_ALIGN * CECL_PIECE_ALIGN;
    call->chunk = chunk < least ? least : chunk > largest ? largest : chunk;
    call->halved = by.halved;
    call->one_shot = GET(tuning, ALL_REDUCE_ONE_SHOT_MAX_BYTES);
    if (call->op == ceclOpReduce || choice.direction == CECL_DIRECTION_PUSH ||
        (choice.direction == CECL_DIRECTION_AUTO && goes_staged(call, &by)))
        call->peers_read = false;
    const bool writes = call->peers_read && call->op == ceclOpAllReduce && call->nranks > 1 &&
                        call->nranks - 1 <= CECL_REDUCE_ALSO_MAX;
    call->sms_send = writes && call->total <= GET(tuning, ALL_REDUCE_SMS_WRITE_MAX_BYTES);
    call->sms_end = writes && !call->sms_send
                        ? GET(tuning, ALL_REDUCE_SMS_END_BYTES) / ((uint64_t)call->nranks - 1)
                        : 0;
    call->bulk_min = GET(tuning, REDUCTION_BULK_MIN_BYTES);
    call->urgent = call->bytes >= GET(tuning, REDUCTION_URGENT_MIN_BYTES);
    call->max_sms = choice.max_sms ? choice.max_sms : reduction_sms(call, tuning);
}

/* Calls of so few bytes to each peer that one exchange through slots takes less time than an exchange of
 * flags around copies. */
static const struct {
    ceclOp_t op;
    enum cecl_threshold max_bytes;
} smalls[] = {
    {ceclOpAllReduce, CECL_TUNE_SMALL_ALL_REDUCE_MAX_BYTES},
    {ceclOpReduceScatter, CECL_TUNE_SMALL_REDUCE_SCATTER_MAX_BYTES},
    {ceclOpAllGather, CECL_TUNE_SMALL_ALL_GATHER_MAX_BYTES},
    {ceclOpAlltoAll, CECL_TUNE_SMALL_ALL_TO_ALL_MAX_BYTES},
};

static bool is_small(const struct cecl_call *call, struct cecl_choice choice,
                     const struct cecl_tuning *tuning)
{
    if (call->nranks < 2 || call->nranks > CECL_SMALL_RANKS || call->layout || call->shape.width ||
        cecl_small_bytes(call) > call->slot_bytes || choice.direction != CECL_DIRECTION_AUTO ||
        (choice.sm_policy != CECL_SM_ALLOW && !cecl_op_reduces(call->op)))
        return false;
    for (size_t i = 0; i < sizeof(smalls) / sizeof(smalls[0]); i++)
        if (smalls[i].op == call->op)
            return cecl_small_bytes(call) <= cecl_tuning_get(tuning, smalls[i].max_bytes);
    return false;
}

static uint32_t small_sms(struct cecl_choice choice, const struct cecl_tuning *tuning)
{
    const uint32_t most = (uint32_t)GET(tuning, SMALL_SMS);
    return choice.max_sms > 0 && choice.max_sms < most ? choice.max_sms : most;
}

/* A call that only moves data. */
static void tune_copies(struct cecl_call *call, struct cecl_choice choice,
                        const struct cecl_tuning *tuning)
{
    const bool has_own_block = call->op == ceclOpAlltoAll || !call->in_place;
    call->no_sm = choice.sm_policy != CECL_SM_ALLOW || !local_copies_are_faster(call, tuning);
    call->piece_worth = GET(tuning, OWN_BLOCK_BYTES_PER_PEER);
    /* Push is about 5 % faster alone (hardware facts: 389.6 against 371 GB/s to one peer), and needs no
     * symmetric sendbuff. */
    call->direction = choice.direction == CECL_DIRECTION_PULL ? CECL_PULL : CECL_PUSH;
    if (call->nranks > 1 && call->no_sm && has_own_block)
        call->direction = CECL_PUSH; /* what peers return was pushed to them */
    if (cecl_is_variable(call))
        call->direction = CECL_PUSH; /* only the sender knows where its blocks are */
    call->spread = spread_of(call, tuning);
    if (engine_is_worth_it(call, tuning))
        call->no_sm = false;
    call->side_copy = !call->no_sm && call->bytes >= GET(tuning, OWN_BLOCK_SIDE_COPY_MIN_BYTES);
}

void cecl_tune(struct cecl_call *call, struct cecl_choice choice, const struct cecl_tuning *tuning)
{
    call->small = is_small(call, choice, tuning);
    if (cecl_op_reduces(call->op))
        tune_reduction(call, choice, tuning);
    else
        tune_copies(call, choice, tuning);
    if (call->small)
        call->max_sms = small_sms(choice, tuning);
}
