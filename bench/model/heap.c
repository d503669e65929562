/* A binary heap that knows where each event is, so events can be moved. */
#include "heap.h"

#include <stdlib.h>

static bool is_before(const struct model_heap *h, uint32_t a, uint32_t b)
{
    return h->at[a] < h->at[b] || (h->at[a] <= h->at[b] && h->order[a] < h->order[b]);
}

static void put(struct model_heap *h, uint32_t index, uint32_t what)
{
    h->heap[index] = what;
    h->place[what] = index + 1;
}

static void rise(struct model_heap *h, uint32_t index)
{
    const uint32_t what = h->heap[index];
    while (index > 0 && is_before(h, what, h->heap[(index - 1) / 2])) {
        put(h, index, h->heap[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    put(h, index, what);
}

static void sink(struct model_heap *h, uint32_t index)
{
    const uint32_t what = h->heap[index];
    for (uint32_t child = 2 * index + 1; child < h->count; child = 2 * index + 1) {
        if (child + 1 < h->count && is_before(h, h->heap[child + 1], h->heap[child]))
            child++;
        if (!is_before(h, h->heap[child], what))
            break;
        put(h, index, h->heap[child]);
        index = child;
    }
    put(h, index, what);
}

static bool grow(void *array, uint32_t capacity, size_t bytes)
{
    void **at = array, *grown = realloc(*at, capacity * bytes);
    if (grown)
        *at = grown;
    return grown;
}

bool model_heap_grow(struct model_heap *h, uint32_t capacity)
{
    if (capacity <= h->capacity)
        return true;
    if (!grow(&h->at, capacity, sizeof(*h->at)) || !grow(&h->order, capacity, sizeof(*h->order)) ||
        !grow(&h->place, capacity, sizeof(*h->place)) ||
        !grow(&h->heap, capacity, sizeof(*h->heap)))
        return false;
    for (uint32_t i = h->capacity; i < capacity; i++)
        h->place[i] = 0;
    h->capacity = capacity;
    return true;
}

void model_heap_free(struct model_heap *h)
{
    free(h->at);
    free(h->order);
    free(h->place);
    free(h->heap);
    *h = (struct model_heap){0};
}

void model_heap_set(struct model_heap *h, uint32_t what, double at)
{
    h->at[what] = at;
    h->order[what] = h->orders++;
    if (h->place[what] == 0) {
        put(h, h->count++, what);
        rise(h, h->count - 1);
        return;
    }
    rise(h, h->place[what] - 1);
    sink(h, h->place[what] - 1);
}

bool model_heap_take(struct model_heap *h, uint32_t *what, double *at)
{
    if (h->count == 0)
        return false;
    *what = h->heap[0];
    *at = h->at[*what];
    h->place[*what] = 0;
    const uint32_t last = h->heap[--h->count];
    if (h->count > 0) {
        put(h, 0, last);
        sink(h, 0);
    }
    return true;
}
