/* A communicator whose ranks all belong to this process, on the host device: comms[r] is the handle of rank
 * r. A test defines RANKS before it includes this file. */
#ifndef CECL_TESTS_UNIT_COMMS_H
#define CECL_TESTS_UNIT_COMMS_H

#include <stdlib.h>

#include <cecl/cecl.h>

static ceclComm_t comms[RANKS];

#define OK(expr) assert_int_equal((expr), ceclSuccess)

static int open_all(void **state)
{
    setenv("CECL_DEVICE", "host", 1);
    OK(ceclCommInitAll(comms, RANKS, NULL));
    return 0;
}

static inline int close_all(void **state) /* not used by each test */
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommDestroy(comms[r]));
    return 0;
}

#endif
