/* Lowering a group of messages to steps; pairs.h draws them. */
#include "ce/pairs.h"

#include <stdlib.h>

/* Steps for each message at most: SIGNAL, WAIT, COPIES, FORK and JOIN. */
#define STEPS_A_MESSAGE 5u

ceclResult_t cecl_pair_plan_reserve(struct cecl_pair_plan *plan, uint32_t count)
{
    if (count <= plan->room)
        return ceclSuccess;
    void *steps = realloc(plan->steps, STEPS_A_MESSAGE * (size_t)count * sizeof(*plan->steps));
    plan->steps = steps ? steps : plan->steps;
    void *order = realloc(plan->order, (size_t)count * sizeof(*plan->order));
    plan->order = order ? order : plan->order;
    if (!steps || !order)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u messages", count);
    plan->room = count;
    return ceclSuccess;
}

void cecl_pair_plan_free(struct cecl_pair_plan *plan)
{
    free(plan->steps);
    free(plan->order);
    *plan = (struct cecl_pair_plan){0};
}

static struct cecl_pair_step *add(struct cecl_pair_plan *plan, enum cecl_pair_step_kind kind,
                                  int lane)
{
    struct cecl_pair_step *step = &plan->steps[plan->nsteps++];
    *step = (struct cecl_pair_step){.kind = (uint8_t)kind, .lane = lane};
    return step;
}

static void add_signal(struct cecl_pair_plan *plan, enum cecl_pair_step_kind kind, int lane,
                       enum cecl_pair_signal signal, const struct cecl_message *message)
{
    struct cecl_pair_step *step = add(plan, kind, lane);
    step->signal = (uint8_t)signal;
    step->role = message->role;
    step->peer = message->peer;
    step->number = message->number;
}

/* Signals or waits for messages in which this rank came first. */
static void add_first(const struct cecl_message *messages, uint32_t count,
                      enum cecl_pair_step_kind kind, enum cecl_pair_signal signal,
                      struct cecl_pair_plan *plan)
{
    for (uint32_t i = 0; i < count; i++)
        if (!messages[i].second)
            add_signal(plan, kind, CECL_PAIR_MAIN, signal, &messages[i]);
}

/* Whether message `a` stands before message `b` on the lanes: by peer, then by the peer's group. The
 * order within a group is that of the caller. */
static bool is_before(const struct cecl_message *messages, uint32_t a, uint32_t b)
{
    const struct cecl_message *one = &messages[a], *two = &messages[b];
    if (one->peer != two->peer)
        return one->peer < two->peer;
    return one->group != two->group ? one->group < two->group : a < b;
}

/* One step of a heap sort, which allocates nothing. */
static void sift(const struct cecl_message *messages, uint32_t *order, uint32_t root,
                 uint32_t count)
{
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && is_before(messages, order[child], order[child + 1]))
            child++;
        if (!is_before(messages, order[root], order[child]))
            return;
        const uint32_t kept = order[root];
        order[root] = order[child];
        order[child] = kept;
    }
}

/* Puts the messages in which this rank came second in the order of the lanes. Returns how many there
 * are. */
static uint32_t sort_seconds(const struct cecl_message *messages, uint32_t count, uint32_t *order)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (messages[i].second)
            order[n++] = i;
    for (uint32_t i = n / 2; i > 0; i--)
        sift(messages, order, i - 1, n);
    for (uint32_t end = n; end > 1; end--) {
        const uint32_t kept = order[0];
        order[0] = order[end - 1];
        order[end - 1] = kept;
        sift(messages, order, 0, end - 1);
    }
    return n;
}

/* Messages [first, end) of the order are with one group of one peer: they wait together, and their
 * copies are one batch. */
static void add_moves(const struct cecl_message *messages, uint32_t first, uint32_t end, int lane,
                      struct cecl_pair_plan *plan)
{
    const uint32_t *order = plan->order;
    for (uint32_t i = first; i < end; i++)
        add_signal(plan, CECL_PAIR_STEP_WAIT, lane, CECL_PAIR_READY, &messages[order[i]]);
    struct cecl_pair_step *copies = add(plan, CECL_PAIR_STEP_COPIES, lane);
    copies->first = first;
    copies->count = end - first;
    for (uint32_t i = first; i < end; i++)
        add_signal(plan, CECL_PAIR_STEP_SIGNAL, lane, CECL_PAIR_DONE, &messages[order[i]]);
}

static uint32_t end_of_group(const struct cecl_message *messages, const uint32_t *order,
                             uint32_t first, uint32_t count)
{
    uint32_t end = first + 1;
    while (end < count && messages[order[end]].peer == messages[order[first]].peer &&
           messages[order[end]].group == messages[order[first]].group)
        end++;
    return end;
}

/* Whether all these messages are with one peer. Then the caller's stream is their lane. */
static bool is_one_peer(const struct cecl_message *messages, const uint32_t *order, uint32_t count)
{
    return count == 0 || messages[order[0]].peer == messages[order[count - 1]].peer;
}

static void add_lanes(const struct cecl_message *messages, uint32_t count,
                      struct cecl_pair_plan *plan)
{
    const uint32_t n = sort_seconds(messages, count, plan->order);
    const bool on_main = is_one_peer(messages, plan->order, n);
    int lane = CECL_PAIR_MAIN;
    for (uint32_t first = 0, end; first < n; first = end) {
        const bool is_new = first == 0 || messages[plan->order[first]].peer !=
                                              messages[plan->order[first - 1]].peer;
        if (is_new && !on_main) {
            lane = plan->nlanes++;
            add(plan, CECL_PAIR_STEP_FORK, lane);
        }
        end = end_of_group(messages, plan->order, first, n);
        add_moves(messages, first, end, lane, plan);
    }
}

void cecl_lower_pairs(const struct cecl_message *messages, uint32_t count,
                      struct cecl_pair_plan *plan)
{
    plan->nsteps = 0;
    plan->nlanes = 0;
    add_first(messages, count, CECL_PAIR_STEP_SIGNAL, CECL_PAIR_READY, plan);
    add_lanes(messages, count, plan);
    add_first(messages, count, CECL_PAIR_STEP_WAIT, CECL_PAIR_DONE, plan);
    for (int lane = 0; lane < plan->nlanes; lane++)
        add(plan, CECL_PAIR_STEP_JOIN, lane);
}
