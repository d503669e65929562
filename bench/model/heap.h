/* Events in the order of their times. Each has a number, and is in the heap at most once. */
#ifndef CECL_MODEL_HEAP_H
#define CECL_MODEL_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct model_heap {
    double *at;      /* [capacity] when each happens */
    uint64_t *order; /* of events at the same time, the one that was set first comes first */
    uint32_t *place; /* an event's index + 1 in `heap`; 0: the event is not in the heap */
    uint32_t *heap;  /* [count] numbers, the earliest first */
    uint32_t count, capacity;
    uint64_t orders;
};

bool model_heap_grow(struct model_heap *heap, uint32_t capacity);
void model_heap_free(struct model_heap *heap);
void model_heap_set(struct model_heap *heap, uint32_t what, double at);
/* Removes the earliest event. False: there is none. */
bool model_heap_take(struct model_heap *heap, uint32_t *what, double *at);

#endif
