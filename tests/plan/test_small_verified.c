/* Small calls: each has one exchange, and no barrier before it. Calls alternate between two halves of the
 * slots. Two halves are enough for sequences of small and other calls on one buffer; one half is not. Also:
 * the shape of these plans, and faults in them that the verifier must find. */
#include "plans.h"

#define SLOT 512
#define CALLS 6
#define RANKS_MAX 16

static const enum cecl_op_index ops[] = {CECL_OP_ALL_REDUCE, CECL_OP_REDUCE_SCATTER,
                                         CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                         CECL_OP_REDUCE_SCATTER_AS};
#define OPS (sizeof(ops) / sizeof(ops[0]))

/* A small call of `bytes` to each peer, through this half of the slots. */
static struct cecl_part small_of(enum cecl_op_index op, uint64_t n, bool in_place, uint64_t bytes,
                                 uint8_t half)
{
    struct cecl_part part = cecl_ops[op].family == CECL_FAMILY_REDUCTION
                                ? reduction_of(op, n, bytes, 1)
                                : part_of(op, false, CECL_PUSH, bytes);
    part.call.in_place = in_place && !cecl_ops[op].widens;
    part.way.small = true;
    part.means = (struct cecl_means){
        .staging_bytes = 8192, .slots_offset = 8192, .slot_bytes = SLOT, .half = half};
    return part;
}

/* Draws a small call or another one. */
static struct cecl_part draw(uint64_t *x, uint64_t n, bool small, uint8_t half)
{
    const enum cecl_op_index op = ops[next(x) % OPS];
    const bool in_place = next(x) % 2;
    const uint64_t bytes = 1 + next(x) % (SLOT / 8);
    struct cecl_part part = small_of(op, n, in_place, bytes, half);
    part.way.small = small;
    if (!small) {
        part.way.move.no_sm = next(x) % 2;
        part.way.reduce.read_at_peers = cecl_ops[op].family == CECL_FAMILY_REDUCTION && next(x) % 2;
        part.way.reduce.one_shot = next(x) % 2 ? SLOT : 0;
    }
    return part;
}

/* Draws the calls of a sequence. Small calls alternate between both halves, or always use one half. */
static void draw_all(uint64_t seed, uint64_t n, unsigned others, bool both,
                     struct cecl_part parts[CALLS])
{
    uint8_t half = 0;
    for (int c = 0; c < CALLS; c++) {
        const bool small = others == 0 || next(&seed) % others != 0;
        parts[c] = draw(&seed, n, small, half);
        if (small && both)
            half ^= 1;
    }
}

TEST(small_calls_follow_each_other)
{
    for (unsigned seed = 1; seed <= 150; seed++) {
        const int n = 2 + (int)(seed % 7);
        struct cecl_part parts[CALLS];
        draw_all(seed, (uint64_t)n, 0, true, parts);
        verify_calls(parts, CALLS, n);
    }
}

TEST(small_calls_and_others_follow_each_other)
{
    for (unsigned seed = 1; seed <= 300; seed++) {
        const int n = 2 + (int)(seed % 6);
        struct cecl_part parts[CALLS];
        draw_all(seed, (uint64_t)n, 2, true, parts);
        verify_calls(parts, CALLS, n);
    }
}

TEST(small_calls_of_many_ranks_are_right)
{
    for (int n = 9; n <= RANKS_MAX; n++) {
        struct cecl_part parts[CALLS];
        draw_all((uint64_t)n, (uint64_t)n, 3, true, parts);
        verify_calls(parts, CALLS, n);
    }
}

TEST(slots_of_one_half_alone_are_a_race)
{
    for (unsigned seed = 1; seed <= 50; seed++) {
        const int n = 2 + (int)(seed % 7);
        struct cecl_part parts[CALLS];
        draw_all(seed, (uint64_t)n, 0, false, parts);
        struct cecl_plan *plans = lower_all(parts, CALLS, n);
        assert_int_equal(cecl_verify(plans, CALLS, n), ceclInternalError);
        assert_non_null(strstr(cecl_message(), "race: staging"));
        free_plans(plans, CALLS * n);
    }
}

/* ---- the shape of a plan */

/* Whether a place is `sender`'s slot at `holder`. */
static bool is_slot(const struct cecl_part *part, const struct cecl_place *place, int holder,
                    int sender)
{
    const uint64_t n = (uint64_t)part->call.nranks, slot = part->means.half * n + (uint64_t)sender;
    return place->area == CECL_AREA_STAGING && place->rank == holder &&
           place->offset == part->means.slots_offset + slot * CECL_SLOT_FACTOR * SLOT;
}

/* Checks the order: signals, posts, waits; one of each for each peer, from the right neighbour on. */
static void each_peer_is_met_once(const struct cecl_plan *plan)
{
    static const enum cecl_step_kind kinds[] = {CECL_STEP_SIGNAL, CECL_STEP_POST, CECL_STEP_WAIT};
    const uint32_t n = (uint32_t)plan->part.call.nranks, peers = n - 1;
    assert_true(plan->nsteps > 3 * peers);
    for (uint32_t s = 0; s < 3 * peers; s++) {
        const struct cecl_step *step = &plan->steps[s];
        assert_int_equal(step->kind, kinds[s / peers]);
        assert_int_equal(step->lane, CECL_LANE_MAIN);
        assert_int_equal(step->peer, ((uint32_t)plan->part.call.rank + 1 + s % peers) % n);
        assert_int_equal(step->phase, 1);
        if (step->kind == CECL_STEP_WAIT)
            assert_int_equal(step->first, CECL_COUNTER_SLOTS); /* no rank waits for these signals */
    }
    assert_int_equal(plan->phases[CECL_LANE_MAIN], 1);
    assert_int_equal(plan->phases[CECL_LANE_SIDE], 0);
    assert_int_equal(plan->phases[CECL_COUNTER_SLOTS], 1);
}

/* Each post has one copy, from this rank's memory to its slot at the peer. */
static void each_peer_gets_one_post(const struct cecl_plan *plan)
{
    const int me = plan->part.call.rank, peers = plan->part.call.nranks - 1;
    for (int i = 0; i < peers; i++) {
        const struct cecl_step *post = &plan->steps[peers + i];
        const struct cecl_copy *copy = &plan->copies[post->first];
        assert_int_equal(post->first, i);
        assert_true(is_slot(&plan->part, &copy->dst, post->peer, me));
        assert_int_equal(copy->src.rank, me);
        assert_int_not_equal(copy->src.area, CECL_AREA_STAGING);
        assert_int_equal(copy->bytes, plan->part.call.bytes);
        assert_int_equal(copy->rows, 1);
    }
}

/* Counts the copies of the plan's COPY steps. */
static uint32_t copies_of(const struct cecl_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->nsteps; i++)
        count += plan->steps[i].kind == CECL_STEP_COPY ? plan->steps[i].count : 0;
    return count;
}

/* After the waits, one step takes the data out of the slots: a reduction in rank order, or one batch. */
static void one_step_takes_all_slots(const struct cecl_plan *plan)
{
    const struct cecl_call *call = &plan->part.call;
    const uint32_t n = (uint32_t)call->nranks, peers = n - 1;
    const struct cecl_step *last = &plan->steps[3 * peers];
    assert_int_equal(plan->nsteps, 3 * peers + 1);
    assert_int_equal(last->kind,
                     call->op->family == CECL_FAMILY_REDUCTION ? CECL_STEP_REDUCE : CECL_STEP_COPY);
    assert_int_equal(last->count,
                     call->op->family == CECL_FAMILY_REDUCTION ? 1 : n - call->in_place);
    assert_int_equal(plan->nreductions, call->op->family == CECL_FAMILY_REDUCTION);
    assert_int_equal(plan->ncopies,
                     peers + (call->op->family == CECL_FAMILY_REDUCTION ? 0 : last->count));
    assert_int_equal(copies_of(plan), call->op->family == CECL_FAMILY_REDUCTION ? 0 : last->count);
    uint32_t copy = last->first;
    for (int r = 0; r < call->nranks; r++)
        if (call->op->family == CECL_FAMILY_REDUCTION)
            assert_true(is_slot(&plan->part, &plan->sources[r], call->rank, r) ==
                        (r != call->rank));
        else if (r != call->rank || !call->in_place)
            assert_true(is_slot(&plan->part, &plan->copies[copy++].src, call->rank, r) ==
                        (r != call->rank));
}

TEST(a_small_plan_is_one_exchange_of_posts)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        for (unsigned i = 0; i < 4 * OPS; i++) {
            const struct cecl_part part =
                small_of(ops[i % OPS], (uint64_t)n, i / OPS % 2, 40, (uint8_t)(i / OPS / 2));
            struct cecl_plan *plans = lower_all(&part, 1, n);
            for (int r = 0; r < n; r++) {
                each_peer_is_met_once(&plans[r]);
                each_peer_gets_one_post(&plans[r]);
                one_step_takes_all_slots(&plans[r]);
                assert_string_equal(plans[r].path, "small, one exchange through slots");
            }
            free_plans(plans, n);
        }
}

/* ---- faults */

/* Words in the verifier's message for a fault; one of them must occur. */
struct words {
    const char *one, *other;
};

/* Breaks the steps between a rank and its `peer`-th peer (from 0). */
typedef void breaks(struct cecl_plan *plan, uint32_t peer);

static void remove_step(struct cecl_plan *plan, uint32_t at)
{
    memmove(&plan->steps[at], &plan->steps[at + 1],
            (plan->nsteps - at - 1) * sizeof(plan->steps[0]));
    plan->nsteps--;
}

static struct cecl_step *step_of(struct cecl_plan *plan, enum cecl_step_kind kind, uint32_t peer)
{
    for (uint32_t s = 0; s < plan->nsteps; s++)
        if (plan->steps[s].kind == kind && peer-- == 0)
            return &plan->steps[s];
    fail_msg("no such step");
    return NULL;
}

/* Checks that the verifier refuses a plan whose only fault is this one. */
static void is_found(const struct cecl_part *part, int n, int rank, uint32_t peer, breaks *fault,
                     struct words words)
{
    struct cecl_plan *plans = lower_all(part, 1, n);
    assert_int_equal(cecl_verify(plans, 1, n), ceclSuccess);
    fault(&plans[rank], peer);
    if (cecl_verify(plans, 1, n) != ceclInternalError)
        fail_msg("%s among %d ranks: the fault of rank %d at peer %u was not found",
                 part->call.op->noun, n, rank, peer);
    if (!strstr(cecl_message(), words.one) && !strstr(cecl_message(), words.other))
        fail_msg("\"%s\" says nothing of \"%s\"", cecl_message(), words.one);
    free_plans(plans, n);
}

/* Breaks every call, at every rank, for every peer. */
static void is_found_everywhere(int least, breaks *fault, struct words words)
{
    for (int n = least; n <= 5; n++)
        for (unsigned i = 0; i < 2 * OPS; i++) {
            const struct cecl_part part = small_of(ops[i % OPS], (uint64_t)n, i / OPS, 9, 1);
            for (int rank = 0; rank < n; rank++)
                for (int peer = 0; peer < n - 1; peer++)
                    is_found(&part, n, rank, (uint32_t)peer, fault, words);
        }
}

static void without_post(struct cecl_plan *plan, uint32_t peer)
{
    remove_step(plan, (uint32_t)(step_of(plan, CECL_STEP_POST, peer) - plan->steps));
}

TEST(a_missing_post_is_found)
{
    is_found_everywhere(2, without_post, (struct words){"deadlock", "deadlock"});
}

static void without_wait(struct cecl_plan *plan, uint32_t peer)
{
    remove_step(plan, (uint32_t)(step_of(plan, CECL_STEP_WAIT, peer) - plan->steps));
}

TEST(a_missing_wait_for_a_slot_is_a_race)
{
    is_found_everywhere(2, without_wait, (struct words){"race: staging", "race: staging"});
}

/* The flags that the watchdog reads do not order the data in slots. */
static void waiting_for_the_signal(struct cecl_plan *plan, uint32_t peer)
{
    step_of(plan, CECL_STEP_WAIT, peer)->first = CECL_LANE_MAIN;
}

TEST(a_wait_for_another_row_is_a_race)
{
    is_found_everywhere(2, waiting_for_the_signal,
                        (struct words){"race: staging", "race: staging"});
}

static struct cecl_copy *posted(struct cecl_plan *plan, uint32_t peer)
{
    return &plan->copies[step_of(plan, CECL_STEP_POST, peer)->first];
}

/* At the right rank, but in the slot of the next sender. */
static void in_the_slot_of_another_sender(struct cecl_plan *plan, uint32_t peer)
{
    const struct cecl_means *means = &plan->part.means;
    const uint64_t n = (uint64_t)plan->part.call.nranks, me = (uint64_t)plan->part.call.rank;
    posted(plan, peer)->dst.offset =
        means->slots_offset + (means->half * n + (me + 1) % n) * CECL_SLOT_FACTOR * SLOT;
}

/* Two ranks write that slot, or no rank reads it. */
TEST(a_post_in_the_slot_of_another_sender_is_found)
{
    is_found_everywhere(2, in_the_slot_of_another_sender,
                        (struct words){"race: staging", " is not "});
}

static void in_the_other_half(struct cecl_plan *plan, uint32_t peer)
{
    posted(plan, peer)->dst.offset -= (uint64_t)plan->part.call.nranks * CECL_SLOT_FACTOR * SLOT;
}

TEST(a_post_in_the_other_half_is_found)
{
    is_found_everywhere(2, in_the_other_half, (struct words){"output is not", "result is not"});
}

/* Sends the data to one peer, but its flag to another. */
static void at_another_rank(struct cecl_plan *plan, uint32_t peer)
{
    posted(plan, peer)->dst.rank = step_of(plan, CECL_STEP_POST, peer ? 0 : 1)->peer;
}

TEST(a_post_whose_data_go_to_another_rank_is_refused)
{
    is_found_everywhere(3, at_another_rank, (struct words){"a post to rank", "a post to rank"});
}

static void at_another_rank_with_its_flag(struct cecl_plan *plan, uint32_t peer)
{
    at_another_rank(plan, peer);
    step_of(plan, CECL_STEP_POST, peer)->peer = posted(plan, peer)->dst.rank;
}

TEST(a_second_post_to_one_rank_is_found)
{
    is_found_everywhere(3, at_another_rank_with_its_flag,
                        (struct words){"does not grow", "does not grow"});
}

/* Two calls of any kinds suffice for a fault; with alternating halves, both are right. */
TEST(one_half_twice_in_a_row_is_a_race)
{
    for (int n = 2; n <= 5; n++)
        for (unsigned i = 0; i < OPS * OPS; i++)
            for (uint8_t half = 0; half < 2; half++) {
                const struct cecl_part first = small_of(ops[i % OPS], (uint64_t)n, half, 9, 0);
                const struct cecl_part parts[2] = {
                    first, small_of(ops[i / OPS], (uint64_t)n, !half, 9, half)};
                struct cecl_plan *plans = lower_all(parts, 2, n);
                const ceclResult_t result = cecl_verify(plans, 2, n);
                assert_int_equal(result, half ? ceclSuccess : ceclInternalError);
                if (!half)
                    assert_non_null(strstr(cecl_message(), "race: staging"));
                free_plans(plans, 2 * n);
            }
}

/* ---- which calls are small */

static uint64_t small_most(int n)
{
    const struct cecl_tuning tuning = cecl_tuning_default(CECL_TUNING_CUDA, n);
    return cecl_tuning_largest_small(&tuning);
}

/* Only the call, the ranks and the caller's options decide whether a call is small. */
static bool goes_small(enum cecl_op_index op, int n, uint64_t bytes, ceclSmPolicy_t policy,
                       ceclDirection_t direction)
{
    struct cecl_part part = cecl_ops[op].family == CECL_FAMILY_REDUCTION
                                ? reduction_of(op, (uint64_t)n, bytes, 1)
                                : part_of(op, false, CECL_PUSH, bytes);
    part.call.nranks = n;
    part.call.options.sm_policy = (uint8_t)policy;
    part.call.options.direction = (uint8_t)direction;
    part.means.slot_bytes = small_most(n);
    choose(&part);
    return part.way.small;
}

TEST(tuning_knows_what_is_small)
{
    assert_true(goes_small(CECL_OP_ALL_REDUCE, 4, 4096, CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_REDUCE_SCATTER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_ALL_GATHER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_ALL_TO_ALL, 16, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    /* the caller was promised zero SMs */
    assert_false(goes_small(CECL_OP_ALL_GATHER, 4, 4096, CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_TO_ALL, 4, 4096, CECL_SM_NEVER, CECL_DIRECTION_AUTO));
    /* a caller that names a direction wants copies or reads */
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_PUSH));
    assert_false(goes_small(CECL_OP_ALL_GATHER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_PULL));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 1, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 17, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_ALL_REDUCE, 4, 256 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 4, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 3, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_ALL_REDUCE, 2, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 2, 1 << 20, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_int_equal(small_most(2), 1 << 20);
    assert_int_equal(small_most(3), 256 << 10);
    assert_true(goes_small(CECL_OP_ALL_TO_ALL, 2, 1 << 20, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(
        goes_small(CECL_OP_ALL_GATHER, 2, (1 << 20) + 4, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_REDUCE, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_BROADCAST, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_GATHER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_SCATTER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_TO_ALLV, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
}

/* A slot holds contiguous data only, up to the communicator's slot size. */
TEST(what_does_not_fit_a_slot_is_not_small)
{
    const uint64_t layout[2 * 4] = {9};
    struct cecl_part part = small_of(CECL_OP_ALL_GATHER, 4, false, 9, 0);
    part.call.nranks = 4;
    part.call.options.sm_policy = CECL_SM_ALLOW;
    for (int fault = 0; fault < 4; fault++) {
        struct cecl_part drawn = part;
        drawn.call.bytes = fault == 1 ? SLOT + 1 : 9;
        drawn.call.view.shape.width = fault == 2 ? 3 : 0;
        if (fault == 3)
            set_layout(&drawn, layout, 4);
        choose(&drawn);
        assert_int_equal(drawn.way.small, fault == 0);
    }
}
