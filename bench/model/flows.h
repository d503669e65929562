/* Links, and the flows over them. */
#ifndef CECL_MODEL_FLOWS_H
#define CECL_MODEL_FLOWS_H

#include "heap.h"

#define MODEL_NO_LINK UINT32_MAX

struct model_link {
    double rate;  /* bytes per us */
    double bytes; /* bytes that have passed */
    uint32_t first;
    int flows, most;
};
struct model_flow {
    /* bytes left; bytes per us, now and at most; the time at which `left` was true */
    double left, rate, most, since;
    uint32_t link[2], next[2], before[2];
    uint32_t owner; /* the event of the engine that began it */
};
struct model_flows {
    struct model_heap *heap; /* the end of flow f is event base + f */
    uint32_t base;
    struct model_link *links;
    struct model_flow *flows;
    uint32_t *unused;
    uint32_t nunused, count, capacity;
};

/* Begins a flow of `bytes` over two links, at most `most` bytes per us, and returns its number; MODEL_NO_LINK: no
 * memory. Its end is an event. */
uint32_t model_flow_begin(struct model_flows *flows, double now, double bytes, double most,
                          uint32_t out, uint32_t in);
void model_flow_end(struct model_flows *flows, double now, uint32_t flow);

#endif
