/* Exchanges with other nodes: a transfer begins once both ranks have come to it. */
#include <stdlib.h>

#include "play.h"

/* GPUs that share a NIC have neighbouring local indices. The NIC has the number of the first of them. */
static int nic_of(const struct model_run *p, int rank)
{
    const int shared = (int)p->rates->per_nic, local = model_local(p, rank);
    return p->nodes ? cecl_node_rank(p->nodes, p->nodes->node[rank], local / shared * shared)
                    : rank / shared * shared;
}

static struct model_pair *pair_of(struct model_run *p, int rank, const struct cecl_transfer *t)
{
    const int from = t->sends ? rank : t->peer, to = t->sends ? t->peer : rank;
    return &p->pairs[(size_t)from * (size_t)p->nranks + (size_t)to];
}

static void wait_for_other(struct model_run *p, struct model_pair *pair, uint32_t lane_event,
                           bool sends)
{
    uint32_t slot = p->unused;
    if (slot > 0) {
        p->unused = p->waiting[slot - 1].next;
    } else {
        if (p->nwaiting == p->waiting_capacity) {
            const uint32_t capacity = p->waiting_capacity ? 2 * p->waiting_capacity : 1024;
            struct model_waiting *grown = realloc(p->waiting, capacity * sizeof(*grown));
            p->failed = p->failed || !grown;
            if (!grown)
                return;
            p->waiting = grown;
            p->waiting_capacity = capacity;
        }
        slot = ++p->nwaiting;
    }
    p->waiting[slot - 1] = (struct model_waiting){.lane_event = lane_event};
    if (pair->first == 0)
        pair->first = slot;
    else
        p->waiting[pair->last - 1].next = slot;
    pair->last = slot;
    pair->sends = sends;
}

static void meet(struct model_run *p, int rank, const struct cecl_transfer *t, double now)
{
    struct model_pair *pair = pair_of(p, rank, t);
    const uint32_t mine = model_lane_event(rank, CECL_LANE_NET);
    if (pair->first == 0 || pair->sends == t->sends) {
        wait_for_other(p, pair, mine, t->sends);
        return;
    }
    const uint32_t slot = pair->first;
    pair->first = p->waiting[slot - 1].next;
    p->waiting[slot - 1].next = p->unused;
    p->unused = slot;
    const int from = t->sends ? rank : t->peer, to = t->sends ? t->peer : rank;
    const uint32_t flow = model_flow_begin(&p->flows, now, (double)t->bytes, p->rates->nic * 1e3,
                                           model_link(p, MODEL_NIC_OUT, nic_of(p, from)),
                                           model_link(p, MODEL_NIC_IN, nic_of(p, to)));
    p->failed = p->failed || flow == MODEL_NO_LINK;
    if (p->failed)
        return;
    p->flows.flows[flow].owner[0] = mine;
    p->flows.flows[flow].owner[1] = p->waiting[slot - 1].lane_event;
}

void model_exchange_begins(struct model_run *p, int rank, double now)
{
    struct model_lane *me = &p->ranks[rank].lanes[CECL_LANE_NET];
    const struct cecl_step *step = model_step(p, rank, CECL_LANE_NET);
    me->doing = MODEL_EXCHANGING;
    me->left = step->count;
    for (uint32_t i = 0; i < step->count && !p->failed; i++)
        meet(p, rank, &p->plans[rank].transfers[step->first + i], now);
}

void model_transfer_ends(struct model_run *p, uint32_t lane_event, double now)
{
    const int rank = (int)lane_event / MODEL_LANES;
    struct model_lane *me = &p->ranks[rank].lanes[CECL_LANE_NET];
    if (--me->left == 0)
        model_pause(p, rank, CECL_LANE_NET, now + p->rates->message, me->at + 1);
}
