/* Memory that a C block frees at its end, lists that grow, and sizes that are rounded up to whole units. */
#ifndef CECL_UTIL_GROW_H
#define CECL_UTIL_GROW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Put before a pointer's declaration: frees the pointer's memory at the end of the block. */
#define CECL_OWNED __attribute__((cleanup(cecl_free_owned)))
static inline void cecl_free_owned(void *pointer)
{
    void *memory;
    memcpy(&memory, pointer, sizeof(memory));
    free(memory);
}

/* Reallocates the list whose pointer is stored at `at`. False: no host memory; the list is unchanged. */
static inline bool cecl_list_grow(void *at, size_t bytes)
{
    void *list;
    memcpy(&list, at, sizeof(list));
    void *larger = realloc(list, bytes);
    if (!larger)
        return false;
    memcpy(at, &larger, sizeof(larger));
    return true;
}

/* Makes room in a list for one more than `count` elements: reallocates it if it is full, which changes `list` and
 * `room`. False: no host memory. */
#define CECL_HAS_ROOM(list, count, room) \
    ((count) < (room) || (cecl_list_grow(&(list), (2 * (size_t)(room) + 8) * sizeof(*(list))) && \
                          ((room) = 2 * (room) + 8) > 0))

static inline uint64_t cecl_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

#endif
