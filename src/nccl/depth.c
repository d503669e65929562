/* See depth.h. Apart from group.c, because learning asks for it and group.c stands on the calls. */
#include "nccl/depth.h"

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
    groups.number += groups.depth++ == 0;
}

bool cecl_nccl_group_ended(void)
{
    return groups.depth > 0 && --groups.depth == 0;
}
