/* The number of hardware queues. CUDA reads it from the environment, and has no call that returns
 * it. */
#include "util/queues.h"

#include <errno.h>
#include <stdlib.h>

#define MOST_QUEUES 32

int cecl_queues(void)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    char *end = NULL;
    errno = 0;
    const long queues = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end != '\0' || errno != 0 || queues < 1)
        return CECL_QUEUES_DEFAULT;
    return queues < MOST_QUEUES ? (int)queues : MOST_QUEUES;
}
