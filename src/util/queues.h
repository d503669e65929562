/* Hardware queues, which all streams of this process share. A stream that waits for a word holds a
 * queue. */
#ifndef CECL_UTIL_QUEUES_H
#define CECL_UTIL_QUEUES_H

#include <stdbool.h>

#define CECL_QUEUES_DEFAULT 8

/* The number of queues: CUDA_DEVICE_MAX_CONNECTIONS, or CUDA's default. */
int cecl_queues(void);

/* Whether there are fewer queues than CUDA's default, so that waiting streams soon hold all of them. */
static inline bool cecl_queues_are_few(void)
{
    return cecl_queues() < CECL_QUEUES_DEFAULT;
}

#endif
