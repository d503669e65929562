/* Random changes to right plans of every lowering and of mixed sequences. Each change below is a fault wherever it is
 * made, so the verifier must find every one. Changes that may be harmless are left out: a later signal may replace a
 * missing one, so only the very last signals are dropped; a wait may be for more than necessary; the signal "staging is
 * free" of an in-place all-to-all is true anyway while no rank has used staging. */
#include "plans.h"

#define CALLS 3
#define MAX_RANKS 5
#define SLOT 64

enum harm {
    DROP_COPY,
    DOUBLE_COPY,
    SHIFT_SOURCE,
    SHIFT_TARGET,
    WRONG_SOURCE_RANK,
    WRONG_TARGET_RANK,
    WRONG_TARGET_AREA,
    SHORTEN_COPY,
    LENGTHEN_COPY,
    SHIFT_RESULT,
    DROP_WAIT,
    WAIT_FOR_LESS,
    DROP_LAST_SIGNAL,
    SIGNAL_AGAIN,
    WAIT_BEFORE_SIGNAL,
    ONE_PHASE_MORE
};

static uint64_t state_of_chance;

static uint32_t chance(uint32_t below)
{
    state_of_chance = state_of_chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state_of_chance >> 33) % below);
}

/* A random step of this kind with a phase of at least `phase`, or NULL. A post counts as a batch of one copy. */
static struct cecl_step *any_step(struct cecl_plan *plan, enum cecl_step_kind kind, uint32_t phase)
{
    uint32_t found = 0;
    struct cecl_step *step = NULL;
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const bool is_post = plan->steps[i].kind == CECL_STEP_POST && kind == CECL_STEP_COPY;
        if ((plan->steps[i].kind == kind || is_post) && plan->steps[i].phase >= phase &&
            chance(++found) == 0)
            step = &plan->steps[i];
    }
    return step;
}

static uint32_t copies_of(const struct cecl_step *batch)
{
    return batch->kind == CECL_STEP_POST ? 1 : batch->count;
}

static struct cecl_step *find(struct cecl_plan *plan, enum cecl_step_kind kind, uint32_t peer,
                              uint32_t phase)
{
    for (uint32_t i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == kind && plan->steps[i].peer == peer &&
            plan->steps[i].phase == phase)
            return &plan->steps[i];
    return NULL;
}

/* Removes copy `at` from the batch, and the batch if it becomes empty. */
static void drop_copy(struct cecl_plan *plan, struct cecl_step *batch, uint32_t at)
{
    plan->copies[at] = plan->copies[batch->first + copies_of(batch) - 1];
    if (copies_of(batch) == 1 || --batch->count == 0)
        drop_step(plan, (uint32_t)(batch - plan->steps));
}

static bool double_copy(struct cecl_plan *plan, const struct cecl_step *batch, uint32_t at)
{
    if (copies_of(batch) == 1)
        return false; /* no other copy to overwrite */
    const uint32_t next = batch->first + (at - batch->first + 1) % batch->count;
    plan->copies[next] = plan->copies[at];
    return true;
}

static uint64_t shifted(uint64_t offset)
{
    return offset > 0 && chance(2) ? offset - 1 : offset + 1;
}

static bool shift_result(struct cecl_plan *plan)
{
    if (plan->nreductions == 0)
        return false;
    struct cecl_place *dst = &plan->reductions[chance(plan->nreductions)].dst;
    dst->offset = shifted(dst->offset);
    return true;
}

static bool harm_copy(enum harm harm, struct cecl_plan *plan, int nranks)
{
    struct cecl_step *batch = any_step(plan, CECL_STEP_COPY, 0);
    if (!batch)
        return false; /* in a call with a root, a rank may have nothing to copy */
    const uint32_t at = batch->first + chance(copies_of(batch));
    struct cecl_copy *copy = &plan->copies[at];
    const uint16_t other = (uint16_t)(1 + chance((uint32_t)nranks - 1));
    switch (harm) {
    case DROP_COPY: drop_copy(plan, batch, at); return true;
    case DOUBLE_COPY: return double_copy(plan, batch, at);
    case SHIFT_SOURCE: copy->src.offset = shifted(copy->src.offset); break;
    case SHIFT_TARGET: copy->dst.offset = shifted(copy->dst.offset); break;
    case WRONG_SOURCE_RANK: copy->src.rank = (uint16_t)((copy->src.rank + other) % nranks); break;
    case WRONG_TARGET_RANK: copy->dst.rank = (uint16_t)((copy->dst.rank + other) % nranks); break;
    case WRONG_TARGET_AREA:
        copy->dst.area =
            (uint16_t)((copy->dst.area + 1 + chance(CECL_AREA_COUNT - 1)) % CECL_AREA_COUNT);
        break;
    case SHORTEN_COPY: copy->bytes--; break;
    case LENGTHEN_COPY:
        if (copy->dst.area == CECL_AREA_STAGING)
            return false; /* the copy may end in staging that no rank uses */
        copy->bytes++;
        break;
    default: fail_msg("no harm to copies: %d", (int)harm);
    }
    return true;
}

/* Harms one of the plans in this way. Returns false if the plan has nothing to harm. */
static bool do_harm(enum harm harm, struct cecl_plan *plans, int nranks)
{
    const int call = harm == DROP_LAST_SIGNAL ? CALLS - 1 : (int)chance(CALLS);
    const int rank = (int)chance((uint32_t)nranks);
    struct cecl_plan *plan = &plans[call * nranks + rank];
    const bool through_staging = plan->part.call.op == &cecl_ops[CECL_OP_ALL_TO_ALL] &&
                                 plan->part.call.in_place && !plan->part.way.small;
    struct cecl_step *step;

    switch (harm) {
    case SHIFT_RESULT: return shift_result(plan);
    case DROP_WAIT:
        step = any_step(plan, CECL_STEP_WAIT, through_staging ? 2 : 1);
        drop_step(plan, (uint32_t)(step - plan->steps));
        return true;
    case WAIT_FOR_LESS: any_step(plan, CECL_STEP_WAIT, 2)->phase--; return true;
    case DROP_LAST_SIGNAL:
        step = any_step(plan, CECL_STEP_SIGNAL, plan->phases[CECL_LANE_MAIN]);
        drop_step(plan, (uint32_t)(step - plan->steps));
        return true;
    case SIGNAL_AGAIN: any_step(plan, CECL_STEP_SIGNAL, 2)->phase--; return true;
    case WAIT_BEFORE_SIGNAL: {
        const uint32_t peer =
            ((uint32_t)rank + 1 + chance((uint32_t)nranks - 1)) % (uint32_t)nranks;
        const uint32_t phase = 1 + chance(plan->phases[CECL_LANE_MAIN]);
        struct cecl_plan *theirs = &plans[call * nranks + (int)peer];
        for (int i = 0; i < 2; i++) { /* on both ranks, because on one it is harmless */
            struct cecl_plan *here = i ? theirs : plan;
            const uint32_t there = i ? (uint32_t)rank : peer;
            struct cecl_step *signal = find(here, CECL_STEP_SIGNAL, there, phase);
            struct cecl_step *wait = find(here, CECL_STEP_WAIT, there, phase);
            const struct cecl_step held = *signal;
            *signal = *wait;
            *wait = held;
        }
        return true;
    }
    case ONE_PHASE_MORE: plan->phases[CECL_LANE_MAIN]++; return true;
    default: return harm_copy(harm, plan, nranks);
    }
}

/* Draws a call with a root. In these only copies are harmed, because many of their waits are for more than necessary.
 * In a broadcast another rank may have the same bytes, so a wrong source is no fault. */
static struct cecl_part random_rooted(enum harm harm, int nranks)
{
    static const enum cecl_op_index ops[] = {CECL_OP_GATHER, CECL_OP_SCATTER, CECL_OP_BROADCAST};
    const enum cecl_op_index op = ops[chance(harm == WRONG_SOURCE_RANK ? 2 : 3)];
    struct cecl_part part =
        part_of(op, op == CECL_OP_BROADCAST && chance(2), CECL_PUSH, 1 + chance(9));
    part.call.root = (int32_t)chance((uint32_t)nranks);
    part.way.move.no_sm = chance(2);
    part.way.move.piece_worth = 1 + chance(9);
    part.way.move.spread = chance(3);
    part.means.staging_bytes = 2 + chance(20);
    return part;
}

static struct cecl_part random_reduction(int nranks)
{
    static const enum cecl_op_index ops[] = {CECL_OP_REDUCE_SCATTER, CECL_OP_ALL_REDUCE,
                                             CECL_OP_REDUCE};
    struct cecl_part part = reduction_of(ops[chance(3)], (uint64_t)nranks, 1 + chance(30), 1);
    part.call.in_place = chance(2);
    part.call.root = (int32_t)chance((uint32_t)nranks);
    part.way.reduce.chunk = 1 + chance(6);
    return part;
}

static struct cecl_part random_small(int nranks, uint8_t *half)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_REDUCE, CECL_OP_REDUCE_SCATTER,
                                             CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL};
    const enum cecl_op_index op = ops[chance(4)];
    struct cecl_part part = op <= CECL_OP_ALL_TO_ALL
                                ? part_of(op, chance(2), CECL_PUSH, 1 + chance(9))
                                : reduction_of(op, (uint64_t)nranks, 1 + chance(9), 1);
    part.way.small = true;
    part.means = (struct cecl_means){
        .staging_bytes = 8192, .slots_offset = 8192, .slot_bytes = SLOT, .half = *half ^= 1};
    return part;
}

static void random_calls(enum harm harm, struct cecl_part *parts, int nranks)
{
    const bool harms_copies = harm < DROP_WAIT;
    uint8_t half = 0;
    for (int c = 0; c < CALLS; c++) {
        parts[c] = part_of(chance(2) ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL, chance(2),
                           chance(2) ? CECL_PULL : CECL_PUSH, 1 + chance(9));
        parts[c].means.staging_bytes = (uint64_t)nranks - 1 + chance(30);
        const uint32_t other = chance(harms_copies ? 6 : harm == DROP_WAIT ? 2 : 1);
        if (other == 1)
            parts[c] = random_small(nranks, &half);
        else if (other > 1)
            parts[c] = other == 2 ? random_reduction(nranks) : random_rooted(harm, nranks);
    }
}

/* Whether the verifier's message has one of the words, which '|' separates. */
static bool says_one_of(const char *words)
{
    char list[160], *rest = list;
    snprintf(list, sizeof(list), "%s", words);
    for (const char *word = strsep(&rest, "|"); word; word = strsep(&rest, "|"))
        if (strstr(cecl_message(), word))
            return true;
    return false;
}

static void harm_again_and_again(enum harm harm, const char *words)
{
    state_of_chance = 20261121u + (uint64_t)harm;
    print_message("seed %llu\n", (unsigned long long)state_of_chance);
    for (int done = 0; done < 400;) {
        const int nranks = 2 + (int)chance(MAX_RANKS - 1);
        struct cecl_part parts[CALLS];
        random_calls(harm, parts, nranks);
        const uint64_t before = state_of_chance;
        struct cecl_plan *plans = lower_all(parts, CALLS, nranks);
        if (cecl_verify(plans, CALLS, nranks) != ceclSuccess)
            fail_msg("state %llu, %d ranks: right plans refused: %s", (unsigned long long)before,
                     nranks, cecl_message());
        if (do_harm(harm, plans, nranks)) {
            if (cecl_verify(plans, CALLS, nranks) != ceclInternalError)
                fail_msg("state %llu, %d ranks: harm %d was not caught", (unsigned long long)before,
                         nranks, (int)harm);
            if (!says_one_of(words))
                fail_msg("harm %d: \"%s\" has none of \"%s\"", (int)harm, cecl_message(), words);
            done++;
        }
        free_plans(plans, CALLS * nranks);
    }
}

#define WRONG_TARGET \
    "race|is not|was written|out of its area|own part|in sendbuff|to the sendbuff|a post to rank"
#define HARM_TEST(name, harm, words) \
    TEST(name) \
    { \
        harm_again_and_again(harm, words); \
    }
HARM_TEST(a_dropped_copy_is_always_caught, DROP_COPY, "is not|was written 0 times|deadlock")
HARM_TEST(a_doubled_copy_is_always_caught, DOUBLE_COPY, "race")
HARM_TEST(a_shifted_source_is_always_caught, SHIFT_SOURCE, "race|is not|out of its area")
HARM_TEST(a_shifted_target_is_always_caught, SHIFT_TARGET, WRONG_TARGET)
HARM_TEST(a_wrong_source_rank_is_always_caught, WRONG_SOURCE_RANK, "race|is not|out of its area")
HARM_TEST(a_wrong_target_rank_is_always_caught, WRONG_TARGET_RANK, WRONG_TARGET)
HARM_TEST(a_wrong_target_area_is_always_caught, WRONG_TARGET_AREA, WRONG_TARGET)
HARM_TEST(a_shorter_copy_is_always_caught, SHORTEN_COPY,
          "is not|was written 0 times|out of its area")
HARM_TEST(a_longer_copy_is_always_caught, LENGTHEN_COPY, WRONG_TARGET)
HARM_TEST(a_shifted_result_is_always_caught, SHIFT_RESULT, WRONG_TARGET)
HARM_TEST(a_dropped_wait_is_always_caught, DROP_WAIT, "race")
HARM_TEST(a_wait_for_less_is_always_caught, WAIT_FOR_LESS, "race")
HARM_TEST(a_dropped_last_signal_is_always_caught, DROP_LAST_SIGNAL, "deadlock")
HARM_TEST(a_signal_that_repeats_is_always_caught, SIGNAL_AGAIN, "does not grow")
HARM_TEST(a_wait_before_its_signal_is_always_caught, WAIT_BEFORE_SIGNAL, "deadlock")
HARM_TEST(a_rank_with_a_phase_more_is_always_caught, ONE_PHASE_MORE, "different phases")
