/* A communicator on the host device whose ranks all belong to this process: comms[r] is the handle of rank r. A test
 * defines RANKS before it includes this file. */
#ifndef CECL_TESTS_UNIT_COMMS_H
#define CECL_TESTS_UNIT_COMMS_H

#include <stdlib.h>

#include <cecl/cecl.h>

static ceclComm_t comms[RANKS];

#define OK(expr) assert_int_equal((expr), ceclSuccess)
/* `expr`, a call of rank r, for all ranks */
#define OK_EACH(expr) \
    for (int r = 0; r < RANKS; r++) \
    OK(expr)

/* Fails the test unless the call returned `expected` and this thread's last message contains `words`. */
static inline void must_say(ceclResult_t result, ceclResult_t expected, const char *words)
{
    if (result != expected || !strstr(ceclGetLastError(NULL), words))
        fail_msg("%d, said: %s", (int)result, ceclGetLastError(NULL));
}

#define bad_argument(result, words) must_say(result, ceclInvalidArgument, words)
#define bad_usage(result, words) must_say(result, ceclInvalidUsage, words)

static int open_all(void **state)
{
    OK(ceclCommInitAll(comms, RANKS, NULL));
    return 0;
}

static inline int close_all(void **state) /* inline: some tests do not use it */
{
    OK_EACH(ceclCommDestroy(comms[r]));
    return 0;
}

static inline int abort_all(void **state)
{
    OK_EACH(ceclCommAbort(comms[r]));
    return 0;
}

/* Allocates symmetric memory of `bytes` on each rank. `memory` is an array of RANKS pointers. */
static inline void allocate_all(void *memory, size_t bytes)
{
    OK(ceclGroupStart());
    OK_EACH(ceclMemAlloc(comms[r], (void **)memory + r, bytes));
    OK(ceclGroupEnd());
}

/* Synchronizes each rank's stream; NULL: the default streams. */
static inline void finish_all(const ceclStream_t streams[RANKS])
{
    OK_EACH(ceclStreamSynchronize(comms[r], streams ? streams[r] : NULL));
}

#endif
