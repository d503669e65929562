/* See depth.h. This file is separate from group.c, because group.c depends on learning, and learning
 * needs the depth. */
#include "nccl/depth.h"

#include <stdatomic.h>

static _Thread_local struct {
    int depth;
    uint64_t number;
} groups;

int cecl_nccl_group_depth(void)
{
    return groups.depth;
}

uint64_t cecl_nccl_group_number(void)
{
    return groups.number;
}

void cecl_nccl_group_opened(void)
{
    /* shared by all threads, because several may make groups of one communicator */
    static _Atomic uint64_t numbers;
    if (groups.depth++ == 0)
        groups.number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
}

bool cecl_nccl_group_ended(void)
{
    return groups.depth > 0 && --groups.depth == 0;
}
