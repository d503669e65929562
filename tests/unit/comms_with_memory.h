/* comms.h, with a stream and memory on each rank for an in-place all-gather. A test defines RANKS and COUNT first. */
#ifndef CECL_TESTS_UNIT_COMMS_WITH_MEMORY_H
#define CECL_TESTS_UNIT_COMMS_WITH_MEMORY_H

#include "comms.h"

static ceclStream_t streams[RANKS];
static uint32_t *recv[RANKS];

static int open_with_memory(void **state)
{
    assert_int_equal(open_all(state), 0);
    allocate_all(recv, RANKS * COUNT * sizeof(**recv));
    OK_EACH(ceclStreamCreate(comms[r], &streams[r]));
    return 0;
}

static ceclResult_t gather(int r)
{
    return ceclAllGather(recv[r] + r * COUNT, recv[r], COUNT, ceclUint32, comms[r], streams[r]);
}

#endif
