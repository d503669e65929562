/* Handles whose memory is never freed. A freed handle that is used is recognized, because its memory is zeros. */
#ifndef CECL_UTIL_HANDLES_H
#define CECL_UTIL_HANDLES_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The first member of each struct to which a handle points. */
struct cecl_handle {
    struct cecl_handle *next; /* in the list of freed handles */
};

/* Freed handles of one kind, the oldest first. While the list has more than `least` handles, a new handle takes the
 * memory of the oldest one. */
struct cecl_handles {
    pthread_mutex_t lock;
    struct cecl_handle *first, *last;
    uint32_t count, least;
};
#define CECL_HANDLES(least_) \
    { \
        .lock = PTHREAD_MUTEX_INITIALIZER, .least = (least_) \
    }

/* Returns `bytes` bytes of zeros; NULL: the host has no memory. All handles of one kind have the same size. */
static inline void *cecl_handle_new(struct cecl_handles *handles, size_t bytes)
{
    pthread_mutex_lock(&handles->lock);
    struct cecl_handle *handle = handles->count > handles->least ? handles->first : NULL;
    if (handle) {
        handles->first = handle->next;
        handles->count--;
        handle->next = NULL;
    }
    pthread_mutex_unlock(&handles->lock);
    return handle ? handle : calloc(1, bytes);
}

static inline void cecl_handle_free(struct cecl_handles *handles, void *freed, size_t bytes)
{
    struct cecl_handle *handle = memset(freed, 0, bytes);
    pthread_mutex_lock(&handles->lock);
    *(handles->count > 0 ? &handles->last->next : &handles->first) = handle;
    handles->last = handle;
    handles->count++;
    pthread_mutex_unlock(&handles->lock);
}

#endif
