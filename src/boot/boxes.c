/* See boxes.h. A box has two halves, which rounds use in turn. A rank writes its part of round n +
 * 2 only when it has all parts of round n + 1. A peer writes its part of round n + 1 only after it
 * has read all parts of round n. So no unread part is overwritten. */
#include "boot/boxes.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "boot/rank_list.h"
#include "boot/shared.h"
#include "util/clock.h"

#define WORDS (CECL_BOXES_PART_BYTES / sizeof(uint64_t))
#define ROUND_BITS 8 /* bits of a stamp for the round; the rest is the token */
/* kept for each rank: a member may read one after the rank gave up later uses */
#define REASONS 4

struct half {
    _Atomic uint64_t stamp; /* token and round of the part that this half holds */
    _Atomic uint64_t words[WORDS];
};

_Static_assert(CECL_MESSAGE_BYTES <= CECL_BOXES_PART_BYTES, "a half holds a message");

struct box {
    struct half halves[2];
    /* why this rank gave up its last uses, stamped with their tokens. Ranks have the parent's
     * numbers */
    struct half reasons[REASONS];
    /* [nranks of the parent] entry r: the token of the last oob that this rank closed and that had
     * rank r as a member. It stays as long as rank r may look for it, because until then the two
     * ranks share no later oob. */
    _Atomic uint64_t closed[];
};

static size_t box_bytes(int nranks)
{
    return sizeof(struct box) + (size_t)nranks * sizeof(_Atomic uint64_t);
}

size_t cecl_boxes_bytes(int nranks)
{
    return (size_t)nranks * box_bytes(nranks);
}

static int old_rank(const struct cecl_boxes_plan *plan, int member)
{
    return plan->ranks ? plan->ranks[member] : member;
}

static struct box *box_of(const struct cecl_boxes_plan *plan, int member)
{
    return (void *)((char *)plan->memory +
                    (size_t)old_rank(plan, member) * box_bytes(plan->old_nranks));
}

static struct half *reason_of(struct box *box, uint64_t token)
{
    return &box->reasons[token / 2 % REASONS]; /* consecutive tokens may all be odd */
}

static void write_part(struct half *half, uint64_t stamp, const void *part, size_t bytes)
{
    uint64_t words[WORDS] = {0};
    memcpy(words, part, bytes);
    /* Marks the half as empty first, so that no reader takes words of two parts for one part. */
    atomic_store_explicit(&half->stamp, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < WORDS; i++)
        atomic_store_explicit(&half->words[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&half->stamp, stamp, memory_order_release);
}

/* Copies the part with this stamp, if the half holds it. */
static bool read_part(struct half *half, uint64_t stamp, void *part, size_t bytes)
{
    uint64_t words[WORDS];
    if (atomic_load_explicit(&half->stamp, memory_order_acquire) != stamp)
        return false;
    for (size_t i = 0; i < WORDS; i++)
        words[i] = atomic_load_explicit(&half->words[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&half->stamp, memory_order_relaxed) != stamp)
        return false;
    memcpy(part, words, bytes);
    return true;
}

/* How messages go on after a rank's number. */
static const char *of(const struct cecl_boxes_plan *plan)
{
    return plan->mesh ? CECL_OF_PARENT : "";
}

/* The error for a member that has left this oob: the member's reason, if it is still in the box. */
static ceclResult_t left_error(const struct cecl_boxes_plan *plan, int member)
{
    char reason[CECL_MESSAGE_BYTES], words[CECL_MESSAGE_BYTES];
    if (!read_part(reason_of(box_of(plan, member), plan->token), plan->token << ROUND_BITS, reason,
                   sizeof(reason)))
        return cecl_fail(ceclRemoteError, "rank %d%s gave up the new communicator",
                         old_rank(plan, member), of(plan));
    cecl_words_for_child(reason, words);
    return cecl_fail_with(ceclRemoteError, plan->mesh ? words : reason);
}

/* Fails if a member has died, or has left this oob or the parent. */
static ceclResult_t check_member(const struct cecl_boxes_plan *plan, int member)
{
    if (atomic_load(&box_of(plan, member)->closed[old_rank(plan, plan->rank)]) == plan->token)
        return left_error(plan, member);
    return plan->mesh ? cecl_mesh_check_peer(plan->mesh, old_rank(plan, member), CECL_OF_PARENT)
                      : ceclSuccess;
}

/* Waits for the part of one member. */
static ceclResult_t await_part(const struct cecl_boxes_plan *plan, int member, uint64_t round,
                               void *part, size_t bytes)
{
    const uint64_t stamp = plan->token << ROUND_BITS | round;
    struct half *half = &box_of(plan, member)->halves[round % 2];
    int64_t nap = 0;

    while (!read_part(half, stamp, part, bytes)) {
        /* Looks for the member's end before its part: a part that was written before the end is
         * good. */
        const ceclResult_t there = check_member(plan, member);
        if (read_part(half, stamp, part, bytes))
            return ceclSuccess;
        if (there != ceclSuccess)
            return there;
        if (cecl_ms_left(plan->deadline) == 0)
            return cecl_fail(ceclTimeout,
                             "rank %d%s did not come within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
                             old_rank(plan, member), of(plan), plan->timeout_ms);
        cecl_shared_nap(&nap);
    }
    return ceclSuccess;
}

/* Tells members alone, because other ranks may still look for an earlier token. */
static void leave_members(const struct cecl_boxes_plan *plan)
{
    for (int m = 0; m < plan->nranks; m++)
        atomic_store(&box_of(plan, plan->rank)->closed[old_rank(plan, m)], plan->token);
}

/* Tells members the last message, or the message of the rank that gave up first. */
static void give_up(const struct cecl_boxes_plan *plan)
{
    char reason[CECL_MESSAGE_BYTES];
    const char *beginning = cecl_words_who_began(cecl_message());
    if (beginning)
        snprintf(reason, sizeof(reason), "%s", beginning);
    else
        snprintf(reason, sizeof(reason), "rank %d gave up: %.400s", old_rank(plan, plan->rank),
                 cecl_message());
    write_part(reason_of(box_of(plan, plan->rank), plan->token), plan->token << ROUND_BITS, reason,
               sizeof(reason));
    leave_members(plan);
}

void cecl_boxes_leave(void *memory, int nranks, int rank, uint64_t token)
{
    give_up(&(struct cecl_boxes_plan){
        .memory = memory, .old_nranks = nranks, .nranks = nranks, .rank = rank, .token = token});
}

static ceclResult_t boxes_allgather(struct cecl_oob *oob, const void *send, void *recv,
                                    size_t bytes)
{
    const struct cecl_boxes_plan *plan = oob->context;
    const uint64_t round = oob->round++;
    struct half *mine = &box_of(plan, plan->rank)->halves[round % 2];
    ceclResult_t result = ceclSuccess;

    if (bytes > CECL_BOXES_PART_BYTES || round >= 1u << ROUND_BITS)
        return cecl_fail(ceclInternalError,
                         "bootstrap exchange %" PRIu64 " of %zu bytes: at most "
                         "%u expected",
                         round, bytes, CECL_BOXES_PART_BYTES);
    write_part(mine, plan->token << ROUND_BITS | round, send, bytes);
    for (int m = 0; m < plan->nranks && result == ceclSuccess; m++)
        result = await_part(plan, m, round, (char *)recv + (size_t)m * bytes, bytes);
    if (result != ceclSuccess && !plan->mesh) {
        atomic_store(&mine->stamp, 0); /* this rank's part is no longer valid */
        give_up(plan);
    }
    return result;
}

void cecl_boxes_give_up(struct cecl_oob *oob)
{
    if (oob->context)
        give_up(oob->context);
}

static ceclResult_t boxes_check(struct cecl_oob *oob)
{
    const struct cecl_boxes_plan *plan = oob->context;
    for (int m = 0; m < plan->nranks; m++)
        CECL_TRY(check_member(plan, m));
    return ceclSuccess;
}

static void boxes_close(struct cecl_oob *oob)
{
    leave_members(oob->context);
}

void cecl_oob_from_boxes(struct cecl_oob *oob, const struct cecl_boxes_plan *plan)
{
    *oob = (struct cecl_oob){.nranks = plan->nranks,
                             .rank = plan->rank,
                             .timeout_ms = plan->timeout_ms,
                             .context = (void *)(uintptr_t)plan,
                             .allgather = boxes_allgather,
                             .check = boxes_check,
                             .close = boxes_close};
}
