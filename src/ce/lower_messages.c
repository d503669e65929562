/* Lowers a group of messages (ceclSend and ceclRecv).
 *
 * Two ranks take part in a message. They meet in host memory (alloc/posts.h), where one of them comes second and knows
 * both buffers. That rank moves the bytes: the sender pushes them, or the receiver pulls them. flags/awaited.h
 * describes the counters. When a group begins, the stream tells this rank's host which messages have begun.
 *
 *     the first    signal ready                              wait for moved
 *     the second                 wait for ready, copy, signal moved
 *
 * The lanes of a group in which this rank came second in messages with peers a and b:
 *
 *     main        signal ready of all messages            wait for moved of all messages
 *                 in which this rank came first   \       in which this rank came first
 *                                                  \ _________________________________/
 *     lane of a   wait for ready, copies, signal moved  |
 *     lane of b   wait for ready, copies, signal moved  |
 *
 * There is no deadlock: a message ends once the sender's group and the receiver's group have begun, whatever other
 * messages do (docs/models/pairs.pml). A group begins when its stream reaches it. In NCCL a message ends by the same
 * rule, so every program that ends with NCCL ends here. The rule holds here because a lane has only the messages of one
 * peer, in the order of that peer's groups. With a single lane for all peers, a copy for peer a would wait behind a
 * copy for peer b, although b itself may wait for a.
 *
 * A captured group has the main lane only, and the sender always counts as second. The group needs no lane for each
 * peer, because groups are coordinated when they are captured: a group takes a ticket (a number), tells its peers its
 * messages, and waits until they have told theirs. The main lane sends in the order of the tickets of the peers'
 * groups, so each group waits only for groups with smaller tickets. There is no deadlock if all ranks launch their
 * graphs in the order in which they captured them. (But a group takes its ticket before the barriers of its
 * collectives. If the groups of two ranks have messages for each other and different collectives, these ranks may wait
 * for each other.)
 *
 * The streams of these lanes belong to the communicator and outlive plans. A GPU may run several streams through one
 * hardware queue, in the order of issue, so a lane could wait behind a caller's stream. To avoid this, lanes have
 * streams of the highest priority, which a caller's stream rarely has. The waits for peers in the caller's stream are
 * issued after the work of all lanes, so no lane of the group waits behind them. */
#include "ce/messages.h"
#include "flags/turns.h"

/* The word that a captured message sets and resets instead of READY or MOVED. */
static uint32_t word_for(uint32_t counter)
{
    return counter == CECL_COUNTER_READY ? CECL_COUNTER_TAKEN : CECL_COUNTER_HANDED;
}

static void signal_peer(struct cecl_plan *plan, const struct cecl_message *m, uint32_t counter)
{
    if (m->captured)
        cecl_plan_raise(plan, m->peer, word_for(counter), m->first_given + 5);
    else
        cecl_plan_raise(plan, m->peer, counter + m->role, (uint32_t)m->number);
}

static void await_peer(struct cecl_plan *plan, const struct cecl_message *m, uint32_t counter)
{
    const int me = plan->part.call.rank;
    if (m->captured) {
        cecl_plan_raise(plan, me, CECL_COUNTER_WAITS, m->first_given + 1);
        cecl_plan_await(plan, m->peer, word_for(counter), m->first_given + 5);
        cecl_plan_raise(plan, me, CECL_COUNTER_WAITS, m->first_given + 3);
        return;
    }
    const enum cecl_role theirs = cecl_role_other((enum cecl_role)m->role);
    cecl_plan_await(plan, m->peer, counter + theirs, (uint32_t)m->number);
}

/* Whether message `a` comes before message `b` on the lanes. Messages are sorted by peer, then by the peer's group;
 * captured messages only by the peer's group. Messages of one peer's group keep the caller's order. */
static bool is_before(const struct cecl_message *messages, uint32_t a, uint32_t b)
{
    const struct cecl_message *one = &messages[a], *two = &messages[b];
    if (one->peer != two->peer && !one->captured)
        return one->peer < two->peer;
    return one->group != two->group ? one->group < two->group : a < b;
}

/* Sorts the messages in which this rank came second, so that each lane's messages lie together. A Shell
 * sort allocates nothing. Returns how many such messages there are. */
static uint32_t sort_seconds(const struct cecl_message *messages, uint32_t count, uint32_t *order)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (messages[i].second)
            order[n++] = i;
    for (uint32_t gap = n / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < n; i++) {
            const uint32_t now = order[i];
            uint32_t at = i;
            for (; at >= gap && is_before(messages, now, order[at - gap]); at -= gap)
                order[at] = order[at - gap];
            order[at] = now;
        }
    return n;
}

static void add_copy(struct cecl_plan *plan, const struct cecl_message *m, uint32_t part)
{
    const uint16_t me = (uint16_t)plan->part.call.rank, peer = (uint16_t)m->peer;
    const bool pushes = m->role == CECL_SENDER;
    const struct cecl_place from = {.area = cecl_area_of(CECL_AREA_SEND, part),
                                    .rank = pushes ? me : peer},
                            to = {.area = cecl_area_of(CECL_AREA_RECV, part),
                                  .rank = pushes ? peer : me};
    if (m->bytes > 0)
        cecl_plan_copy(plan, to, from, m->bytes);
}

/* Adds the copies that this rank makes, on a lane for each peer, or on the main lane if there is a single peer or a
 * graph captures the group. The messages from or to one group of a peer share one batch of copies, behind all their
 * waits. Returns the number after the last lane that was taken. */
static int add_lanes(struct cecl_plan *plan, const struct cecl_message *messages, uint32_t n,
                     const uint32_t *order)
{
    int lanes = CECL_LANES;
    for (uint32_t first = 0, end; first < n; first = end) {
        const struct cecl_message *m = &messages[order[first]];
        if (!m->captured && (first == 0 || m->peer != messages[order[first - 1]].peer) &&
            messages[order[0]].peer != messages[order[n - 1]].peer) {
            cecl_plan_on(plan, lanes++);
            cecl_plan_after(plan, CECL_LANE_MAIN);
        }
        for (end = first; end < n && messages[order[end]].peer == m->peer &&
                          messages[order[end]].group == m->group;
             end++)
            await_peer(plan, &messages[order[end]], CECL_COUNTER_READY);
        for (uint32_t i = first; i < end; i++)
            add_copy(plan, &messages[order[i]], order[i]);
        for (uint32_t i = first; i < end; i++)
            signal_peer(plan, &messages[order[i]], CECL_COUNTER_MOVED);
    }
    cecl_plan_on(plan, CECL_LANE_MAIN);
    return lanes;
}

ceclResult_t cecl_lower_messages(const struct cecl_message *messages, uint32_t count,
                                 uint32_t *order, struct cecl_plan *plan)
{
    const struct cecl_message *const last = messages + count;
    const int me = plan->part.call.rank;
    const bool captured = count > 0 && messages[0].captured;
    cecl_plan_reset(plan);
    if (captured)
        cecl_plan_raise(plan, me, CECL_COUNTER_REPLAY, CECL_REPLAY_BEGUN);
    else
        cecl_plan_raise(plan, me, CECL_COUNTER_BEGUN, 1);
    for (const struct cecl_message *m = messages; m < last; m++)
        if (!m->second)
            signal_peer(plan, m, CECL_COUNTER_READY);
    const int lanes = add_lanes(plan, messages, sort_seconds(messages, count, order), order);
    for (const struct cecl_message *m = messages; m < last; m++)
        if (!m->second)
            await_peer(plan, m, CECL_COUNTER_MOVED);
    for (int lane = CECL_LANES; lane < lanes; lane++)
        cecl_plan_after(plan, lane);
    if (captured)
        cecl_plan_raise(plan, me, CECL_COUNTER_REPLAY, CECL_REPLAY_ENDED);
    return cecl_plan_finish(plan);
}
