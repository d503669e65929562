/* Chooses how a call is carried out. The numbers that decide are in plan/thresholds.h and below. */
#include "plan/way.h"

#include "plan/call.h"
#include "plan/tuning.h"
#include "sm/reduce.h"
#include "util/grow.h"

#define SHARE_ALIGN 256u /* large shares begin at a multiple of this, for wide loads */

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

/* Sizes that were calculated, and that no tuning file replaces. */
/* a local copy of fewer bytes goes into the batch of pushes, not on the side lane */
#define SIDE_COPY_MIN (256 * KIB)
/* one more peer returns a piece for every so many bytes of the own block */
#define BYTES_PER_PEER (256 * KIB)
/* the most bytes of a round, if ROUNDS_MOST rounds are enough: 43 us over a link, far longer than flags take */
#define BYTES_PER_ROUND (16 * MIB)
#define ROUNDS_MOST 8 /* the root is idle only while peers pass on the last eighth of the block */
/* one shot saves an exchange, 7 us, but sends ranks / 2 times the bytes: 1 us longer at this size on 4 ranks */
#define ONE_SHOT_MOST (256 * KIB)
/* the flags of a chunk take 14 us, longer than sending 1 MiB to each of 3 peers (8 us) */
#define CHUNK_LEAST (1 * MIB)
/* Kernels read sources of this size or more by bulk copies, with which 12 SMs read from three peers at the speed of
 * NVLink. For fewer bytes, wide loads on a few SMs are fast enough. */
#define BULK_LEAST (1 * MIB)

/* The value of threshold CECL_TUNE_... for a call with these means. */
#define GET(means, which) cecl_tuning_get((means)->tuning, CECL_TUNE_##which)

/* ---- calls by copies */

/* Push is about 5 % faster than pull (389.6 and 371 GB/s to one peer, H200), and allows a private sendbuff. If peers
 * return the own block, the call must push, because peers can only return a block that was pushed to them. */
static enum cecl_direction direction_of(const struct cecl_call *call,
                                        const struct cecl_means *means, bool returns_own_block)
{
    /* Gathered blocks may be pulled: peers pull a block out of its owner's recvbuff, which all peers reach. In a late
     * call each pair of ranks has its own direction: see route.c. */
    const bool readable = means->inputs_readable || call->op->family == CECL_FAMILY_GATHERED;
    const bool pull = call->options.direction == CECL_DIRECTION_PULL && !returns_own_block &&
                      readable && !means->late;
    return pull ? CECL_PULL : CECL_PUSH;
}

/* Peers return an own block of at most `returned_most` bytes, because that is faster than a copy on SMs. */
static void choose_local_copies(const struct cecl_call *call, const struct cecl_means *means,
                                uint64_t returned_most, struct cecl_way *way)
{
    way->move.no_sm = call->options.sm_policy != CECL_SM_ALLOW || call->bytes <= returned_most;
    /* in a graph a batch's copies run at the same time anyway: see cuda_graph.c */
    way->move.beside =
        !way->move.no_sm && !means->late && !call->captured && call->bytes >= SIDE_COPY_MIN;
    way->move.piece_worth = BYTES_PER_PEER;
}

/* The number of rounds in which the only block of a call is sent in pieces; 0: it is sent whole. In pieces,
 * the block crosses its root's link once instead of N-1 times, but the call needs one more exchange of
 * flags. */
static uint64_t spread_of(const struct cecl_call *call, const struct cecl_means *means,
                          enum cecl_direction direction)
{
    if (direction != CECL_PUSH || call->bytes < GET(means, BROADCAST_SPREAD_MIN_BYTES) ||
        cecl_only_contributor(call) < 0)
        return 0;
    const uint64_t rounds = call->bytes / BYTES_PER_ROUND + 1;
    return rounds < ROUNDS_MOST ? rounds : ROUNDS_MOST;
}

void cecl_choose_gathered(const struct cecl_call *call, const struct cecl_means *means,
                          struct cecl_way *way)
{
    choose_local_copies(call, means, GET(means, ALL_GATHER_RETURNED_MAX_BYTES), way);
    const bool returned =
        way->move.no_sm && call->nranks > 1 && (means->some_outside || cecl_call_is_outside(call));
    way->move.direction = direction_of(call, means, returned);
    way->move.spread = spread_of(call, means, way->move.direction);
}

void cecl_choose_exchanged(const struct cecl_call *call, const struct cecl_means *means,
                           struct cecl_way *way)
{
    choose_local_copies(call, means, call->in_place ? 0 : GET(means, ALL_TO_ALL_RETURNED_MAX_BYTES),
                        way);
    way->move.direction = direction_of(call, means, way->move.no_sm && call->nranks > 1);
}

/* All ranks must choose alike. Only the owner knows the size of its own block, and only the sender knows where its
 * blocks lie, so the choice uses neither. */
void cecl_choose_per_rank(const struct cecl_call *call, const struct cecl_means *means,
                          struct cecl_way *way)
{
    (void)means;
    way->move.no_sm = call->options.sm_policy != CECL_SM_ALLOW;
    way->move.piece_worth = BYTES_PER_PEER;
    way->move.direction = CECL_PUSH;
}

/* No other rank takes part in the call, so the choice may use facts that only this rank knows. */
void cecl_choose_carry(const struct cecl_call *call, const struct cecl_means *means,
                       struct cecl_way *way)
{
    (void)means;
    way->move.no_sm = call->options.sm_policy != CECL_SM_ALLOW;
}

/* ---- reductions */

/* How a reduction is divided into chunks. An all-reduce has fewer chunks than other reductions, because it pushes
 * results during its last reduction. */
struct chunking {
    uint64_t chunks; /* the least number of chunks */
    /* the last chunk is halved into chunks of at least this many bytes; 0: it is not halved */
    uint64_t halved;
    uint64_t staged; /* shares of at least this many bytes go through staging */
    uint64_t worth;  /* but only if their chunks have at least this many bytes */
};

static struct chunking chunking_of(const struct cecl_call *call, const struct cecl_means *means)
{
    if (call->op->to == CECL_TO_ALL)
        return (struct chunking){
            GET(means, ALL_REDUCE_CHUNKS), 0, /* results are pushed during the last reduction */
            GET(means, ALL_REDUCE_STAGED_MIN_BYTES), GET(means, ALL_REDUCE_STAGED_CHUNK_MIN_BYTES)};
    return (struct chunking){GET(means, REDUCE_SCATTER_CHUNKS),
                             GET(means, REDUCE_SCATTER_HALVED_MIN_BYTES),
                             GET(means, REDUCE_SCATTER_STAGED_MIN_BYTES),
                             GET(means, REDUCE_SCATTER_STAGED_CHUNK_MIN_BYTES)};
}

/* The bytes that each rank reduces, in whole elements. */
static uint64_t share_of(const struct cecl_call *call)
{
    const uint64_t nranks = (uint64_t)call->nranks;
    const uint64_t least = (call->bytes / call->element + nranks - 1) / nranks * call->element;
    if (call->op->to == CECL_TO_EACH)
        return call->bytes;
    return least < SHARE_ALIGN ? least : cecl_round_up(least, SHARE_ALIGN);
}

static uint64_t chunk_of(uint64_t share, const struct cecl_means *means, const struct chunking *by)
{
    /* rounded up, because rounding down could add a chunk */
    const uint64_t chunk = cecl_round_up(share / by->chunks, CECL_CHUNK_ALIGN),
                   largest = GET(means, REDUCTION_CHUNK_MAX_BYTES);
    return chunk < CHUNK_LEAST ? CHUNK_LEAST : chunk > largest ? largest : chunk;
}

/* Whether inputs go through staging even if SMs could read them. */
static bool goes_staged(const struct cecl_call *call, const struct cecl_means *means,
                        const struct cecl_way *way, const struct chunking *by)
{
    const uint64_t peers = (uint64_t)call->nranks - 1;
    return peers > 0 && way->reduce.share >= by->staged && way->reduce.chunk >= by->worth &&
           means->staging_bytes / CECL_CHUNKS_IN_FLIGHT / peers >= by->worth;
}

/* Whether SMs read the inputs in the peers' memory. For that all ranks must know where the inputs lie, and must reach
 * them. A ceclReduce always goes through staging. So do tiles, because kernels read only contiguous blocks. Calls that
 * widen are faster at all sizes if SMs read at the peers (256 MiB on 2 GPUs: 847 us, through staging 1074). */
static bool reads_at_peers(const struct cecl_call *call, const struct cecl_means *means,
                           const struct cecl_way *way, const struct chunking *by)
{
    if (!means->inputs_readable || means->late || call->op->to == CECL_TO_ROOT ||
        call->options.direction == CECL_DIRECTION_PUSH || call->op->has_tiles)
        return false;
    return call->options.direction == CECL_DIRECTION_PULL || call->op->widens ||
           !goes_staged(call, means, way, by);
}

/* If SMs read at the peers, a call that widens gets twice the SMs, because it writes twice the bytes. */
static uint64_t sms_of(const struct cecl_call *call, const struct cecl_means *means,
                       const struct cecl_way *way)
{
    return call->options.max_sms  ? call->options.max_sms
           : way->reduce.sms_send ? GET(means, REDUCTION_WRITING_SMS)
           : way->reduce.read_at_peers
               ? GET(means, REDUCTION_READING_SMS) * (call->op->widens ? 2 : 1)
               : GET(means, REDUCTION_STAGED_SMS);
}

void cecl_choose_reduction(const struct cecl_call *call, const struct cecl_means *means,
                           struct cecl_way *way)
{
    const struct chunking by = chunking_of(call, means);
    const uint64_t peers = (uint64_t)call->nranks - 1;
    way->reduce.share = share_of(call);
    way->reduce.chunk = chunk_of(way->reduce.share, means, &by);
    way->reduce.halved = by.halved;
    way->reduce.one_shot = ONE_SHOT_MOST;
    way->reduce.read_at_peers = reads_at_peers(call, means, way, &by);
    way->reduce.meet_first = means->late && call->op->to != CECL_TO_EACH;
    const bool writes = way->reduce.read_at_peers && call->op->to == CECL_TO_ALL && peers > 0 &&
                        peers <= CECL_REDUCE_ALSO_MAX;
    way->reduce.sms_send = writes && call->bytes <= GET(means, ALL_REDUCE_SMS_WRITE_MAX_BYTES);
    way->reduce.sms_end =
        writes && !way->reduce.sms_send ? GET(means, ALL_REDUCE_SMS_END_BYTES) / peers : 0;
    way->reduce.urgent = way->reduce.share >= GET(means, REDUCTION_URGENT_MIN_BYTES);
    way->reduce.max_sms = (uint32_t)sms_of(call, means, way);
    way->reduce.bulk_min = BULK_LEAST;
}

/* ---- small calls: they have so few bytes for each peer that one exchange through slots takes less time than copies
 * and their exchanges of flags */

static uint64_t small_most(const struct cecl_call *call, const struct cecl_means *means)
{
    switch (call->op->small_kind) {
    case CECL_SMALL_ALL_REDUCE: return GET(means, SMALL_ALL_REDUCE_MAX_BYTES);
    case CECL_SMALL_REDUCE_SCATTER: return GET(means, SMALL_REDUCE_SCATTER_MAX_BYTES);
    case CECL_SMALL_ALL_GATHER: return GET(means, SMALL_ALL_GATHER_MAX_BYTES);
    case CECL_SMALL_ALL_TO_ALL: return GET(means, SMALL_ALL_TO_ALL_MAX_BYTES);
    }
    return 0;
}

/* Whether the call's kernel can count its own runs, as the kernel of a captured small call must. */
static bool can_count(const struct cecl_call *call)
{
    return call->op->family != CECL_FAMILY_REDUCTION ||
           cecl_reduction_counts((ceclDataType_t)call->type, (ceclRedOp_t)call->red_op);
}

static bool fits_slots(const struct cecl_call *call, const struct cecl_means *means)
{
    return call->op->may_be_small && call->nranks >= 2 && call->nranks <= CECL_SMALL_RANKS &&
           call->bytes > 0 && call->bytes <= means->slot_bytes && call->layout_words == 0 &&
           call->view.shape.width == 0 && (!call->captured || can_count(call));
}

static bool is_small(const struct cecl_call *call, const struct cecl_means *means)
{
    return fits_slots(call, means) && call->bytes <= small_most(call, means) &&
           call->options.direction == CECL_DIRECTION_AUTO &&
           (call->options.sm_policy == CECL_SM_ALLOW || call->op->family == CECL_FAMILY_REDUCTION);
}

/* ---- urgent calls */

/* Whether a call goes through memory of the host. A captured call does not, because every launch of the graph
 * would use the same half of that memory. */
static bool is_by_host(const struct cecl_call *call, const struct cecl_means *means)
{
    const enum cecl_family family = call->op->family;
    const uint64_t half = means->host_bytes, urgent = GET(means, URGENT_MAX_BYTES),
                   most = half < urgent ? half : urgent;
    return most > 0 && !call->captured && call->bytes > 0 && call->nranks >= 2 &&
           (family == CECL_FAMILY_GATHERED || family == CECL_FAMILY_EXCHANGED ||
            family == CECL_FAMILY_AT_ROOT) &&
           call->bytes <= most / cecl_call_input_blocks(call) && call->view.shape.width == 0 &&
           call->options.direction == CECL_DIRECTION_AUTO;
}

bool cecl_chooses_own_buffers(const struct cecl_call *call, const struct cecl_means *means)
{
    if (call->op->family == CECL_FAMILY_SPLITS) /* its kernels tell each other where buffers lie */
        return true;
    return !call->captured && (is_small(call, means) || is_by_host(call, means));
}

/* ---- calls by splits on the device */

void cecl_choose_splits(const struct cecl_call *call, const struct cecl_means *means,
                        struct cecl_way *way)
{
    const uint32_t most = (uint32_t)GET(means, SPLITS_SMS), wanted = call->options.max_sms;
    way->splits_sms = wanted > 0 ? wanted : most;
}

void cecl_choose(const struct cecl_call *call, const struct cecl_means *means, struct cecl_way *way)
{
    const uint32_t sms = (uint32_t)GET(means, SMALL_SMS), wanted = call->options.max_sms;
    *way = (struct cecl_way){.small = is_small(call, means),
                             .small_sms = wanted > 0 && wanted < sms ? wanted : sms};
    way->by_host = !way->small && is_by_host(call, means);
    if (cecl_lowerings[call->op->family].choose)
        cecl_lowerings[call->op->family].choose(call, means, way);
}
