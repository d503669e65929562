/* Finds the steps around a reduction that the reduction's kernel can carry out. A kernel signals to all peers
 * at once and waits for all of them. If the tuning table says so, it also writes its result to the peers:
 *
 *     signal all, wait for all | reduce | copies of the result | signal all | wait for all
 *
 * Any of these steps may be missing, except the reduction. If no signal comes just before a wait, the wait may be long;
 * then the stream waits instead of the kernel, because a kernel that waits slows down copies that run at the same
 * time. */
#include "ce/bound.h"

bool cecl_is_for_all(const struct cecl_plan *plan, uint32_t at)
{
    const int peers = plan->part.call.nranks - 1;
    if (peers == 0 || at >= plan->nsteps || plan->nsteps - at < (uint32_t)peers)
        return false;
    const struct cecl_step *steps = &plan->steps[at];
    for (int i = 0; i < peers; i++)
        if (steps[i].kind != steps->kind || steps[i].lane != steps->lane ||
            steps[i].counter != steps->counter || steps[i].phase != steps->phase ||
            steps[i].peer != cecl_part_peer(&plan->part, i + 1))
            return false;
    return true;
}

static bool is_for_all(const struct cecl_plan *plan, uint32_t at, enum cecl_step_kind kind,
                       uint8_t lane)
{
    return cecl_is_for_all(plan, at) && plan->steps[at].kind == kind &&
           plan->steps[at].lane == lane && plan->steps[at].counter == lane;
}

static bool is_barrier(const struct cecl_plan *plan, uint32_t at, uint8_t lane)
{
    const uint32_t peers = (uint32_t)plan->part.call.nranks - 1;
    return is_for_all(plan, at, CECL_STEP_SIGNAL, lane) &&
           is_for_all(plan, at + peers, CECL_STEP_WAIT, lane) &&
           plan->steps[at].phase == plan->steps[at + peers].phase;
}

/* Whether a step is a single reduction, so that its kernel may carry out steps around it. */
static bool is_reduction(const struct cecl_plan *plan, uint32_t at, uint8_t lane)
{
    return at < plan->nsteps && plan->steps[at].kind == CECL_STEP_REDUCE &&
           plan->steps[at].lane == lane && plan->steps[at].count == 1;
}

static bool is_place(const struct cecl_place *a, const struct cecl_place *b)
{
    return a->area == b->area && a->rank == b->rank && a->offset == b->offset;
}

/* Whether a step copies all that the previous step has reduced. */
static bool sends_result(const struct cecl_plan *plan, uint32_t at, uint8_t lane)
{
    if (at >= plan->nsteps || plan->steps[at].kind != CECL_STEP_COPY ||
        plan->steps[at].lane != lane || plan->steps[at].count > CECL_REDUCE_ALSO_MAX)
        return false;
    const struct cecl_reduce *reduce = &plan->reductions[plan->steps[at - 1].first];
    if (!cecl_way_kernels_send(&cecl_plan_part(plan, reduce->part)->way))
        return false;
    for (uint32_t i = 0; i < plan->steps[at].count; i++) {
        const struct cecl_copy *copy = &plan->copies[plan->steps[at].first + i];
        if (!is_place(&copy->src, &reduce->dst) || copy->rows != 1 || copy->bytes != reduce->bytes)
            return false;
    }
    return true;
}

/* Whether kernels before step `at` have written to peers since this lane signalled or waited last. If so, the stream
 * must signal, because a kernel's signal is ordered only after writes of that same kernel. */
static bool follows_writes(const struct cecl_plan *plan, uint32_t at, uint8_t lane)
{
    for (; at >= 2 && plan->steps[at - 1].kind >= CECL_STEP_COPY &&
           plan->steps[at - 1].kind <= CECL_STEP_REDUCE;
         at--)
        if (is_reduction(plan, at - 2, lane) && sends_result(plan, at - 1, lane))
            return true;
    return false;
}

bool cecl_fuse(const struct cecl_plan *plan, uint32_t at, struct cecl_fused *fused)
{
    const uint32_t peers = (uint32_t)plan->part.call.nranks - 1;
    const uint8_t lane = plan->steps[at].lane;
    uint32_t end = at;
    *fused = (struct cecl_fused){0};
    if (plan->steps[at].kind == CECL_STEP_SIGNAL && is_barrier(plan, at, lane) &&
        !follows_writes(plan, at, lane)) {
        fused->does = CECL_MEET_SIGNAL_FIRST | CECL_MEET_WAIT_FIRST;
        fused->first = plan->steps[at].phase;
        end += 2 * peers;
    }
    if (!is_reduction(plan, end, lane))
        return false;
    fused->at = end - at;
    end++;
    fused->sends = sends_result(plan, end, lane);
    end += fused->sends;
    if (is_for_all(plan, end, CECL_STEP_SIGNAL, lane) &&
        !follows_writes(plan, at + fused->at, lane)) {
        const bool waits = is_barrier(plan, end, lane);
        fused->does |= CECL_MEET_SIGNAL_LAST | (waits ? CECL_MEET_WAIT_LAST : 0);
        fused->last = plan->steps[end].phase;
        end += waits ? 2 * peers : peers;
    }
    fused->count = end - at;
    return fused->does != 0 || fused->sends;
}

/* Whether the plans of all ranks have the same form: each rank has a share to reduce, by a kernel that can count
 * captured calls. */
static bool are_alike(const struct cecl_part *part)
{
    const uint64_t last = (uint64_t)(part->call.nranks - 1) * part->way.reduce.share;
    return part->call.op && /* NULL: messages */
           part->call.op->to != CECL_TO_ROOT &&
           cecl_reduction_counts((ceclDataType_t)part->call.type, (ceclRedOp_t)part->call.red_op) &&
           last < part->call.bytes * cecl_call_input_blocks(&part->call);
}

bool cecl_fuses_all(const struct cecl_plan *plan)
{
    struct cecl_fused fused;
    const uint32_t all =
        CECL_MEET_SIGNAL_FIRST | CECL_MEET_WAIT_FIRST | CECL_MEET_SIGNAL_LAST | CECL_MEET_WAIT_LAST;
    return !plan->parts && plan->nsteps > 0 && are_alike(&plan->part) &&
           cecl_fuse(plan, 0, &fused) && fused.count == plan->nsteps && fused.does == all &&
           fused.first == 1 && fused.last == 2;
}
