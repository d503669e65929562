/* Flows share each link evenly. A flow's rate is the least of its own limit and its shares of the two links. When a
 * flow begins or ends, all flows that share a link with it get new rates. */
#include "flows.h"

#include <stdlib.h>

static bool grow(struct model_flows *f)
{
    const uint32_t capacity = f->capacity ? 2 * f->capacity : 1024;
    struct model_flow *flows = realloc(f->flows, capacity * sizeof(*flows));
    if (flows)
        f->flows = flows;
    uint32_t *unused = realloc(f->unused, capacity * sizeof(*unused));
    if (unused)
        f->unused = unused;
    if (!flows || !unused || !model_heap_grow(f->heap, f->base + capacity))
        return false;
    f->capacity = capacity;
    return true;
}

static void enter(struct model_flows *f, uint32_t flow, int side)
{
    struct model_flow *me = &f->flows[flow];
    if (me->link[side] == MODEL_NO_LINK)
        return;
    struct model_link *link = &f->links[me->link[side]];
    me->before[side] = MODEL_NO_LINK;
    me->next[side] = link->first;
    if (link->first != MODEL_NO_LINK)
        f->flows[link->first].before[side] = flow;
    link->first = flow;
    link->flows++;
    link->most = link->flows > link->most ? link->flows : link->most;
}

static void leave(struct model_flows *f, uint32_t flow, int side)
{
    const struct model_flow *me = &f->flows[flow];
    if (me->link[side] == MODEL_NO_LINK)
        return;
    struct model_link *link = &f->links[me->link[side]];
    if (me->before[side] != MODEL_NO_LINK)
        f->flows[me->before[side]].next[side] = me->next[side];
    else
        link->first = me->next[side];
    if (me->next[side] != MODEL_NO_LINK)
        f->flows[me->next[side]].before[side] = me->before[side];
    link->flows--;
}

static void renew(struct model_flows *f, double now, uint32_t flow)
{
    struct model_flow *me = &f->flows[flow];
    double rate = me->most;
    for (int side = 0; side < 2; side++)
        if (me->link[side] != MODEL_NO_LINK) {
            const struct model_link *link = &f->links[me->link[side]];
            const double share = link->rate / link->flows;
            rate = share < rate ? share : rate;
        }
    me->left -= (now - me->since) * me->rate;
    me->left = me->left > 0 ? me->left : 0;
    me->since = now;
    me->rate = rate;
    model_heap_set(f->heap, f->base + flow, now + me->left / rate);
}

static void renew_others(struct model_flows *f, double now, const struct model_flow *gone)
{
    for (int side = 0; side < 2; side++)
        if (gone->link[side] != MODEL_NO_LINK)
            for (uint32_t i = f->links[gone->link[side]].first; i != MODEL_NO_LINK;
                 i = f->flows[i].next[side])
                renew(f, now, i);
}

uint32_t model_flow_begin(struct model_flows *f, double now, double bytes, double most,
                          uint32_t out, uint32_t in)
{
    if (f->nunused == 0 && f->count == f->capacity && !grow(f))
        return MODEL_NO_LINK;
    const uint32_t flow = f->nunused > 0 ? f->unused[--f->nunused] : f->count++;
    f->flows[flow] =
        (struct model_flow){.left = bytes, .most = most, .since = now, .link = {out, in}};
    for (int side = 0; side < 2; side++) {
        enter(f, flow, side);
        if (f->flows[flow].link[side] != MODEL_NO_LINK)
            f->links[f->flows[flow].link[side]].bytes += bytes;
    }
    if (out == MODEL_NO_LINK && in == MODEL_NO_LINK)
        renew(f, now, flow);
    renew_others(f, now, &f->flows[flow]);
    return flow;
}

void model_flow_end(struct model_flows *f, double now, uint32_t flow)
{
    const struct model_flow gone = f->flows[flow];
    for (int side = 0; side < 2; side++)
        leave(f, flow, side);
    f->unused[f->nunused++] = flow;
    renew_others(f, now, &gone);
}
