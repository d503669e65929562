/* See group.h. */
#include "nccl/group.h"

#include <stdlib.h>

#include "util/thread.h"

static _Thread_local struct cecl_nccl_group mine;

struct cecl_nccl_group *cecl_nccl_group(void)
{
    return &mine;
}

void cecl_nccl_group_forget_calls(struct cecl_nccl_group *group)
{
    free(group->kept);
    group->kept = NULL;
    group->count = group->room = 0;
    group->passed = NULL;
    group->refusal = ceclSuccess;
}

void cecl_nccl_group_forget_wishes(struct cecl_nccl_group *group)
{
    free(group->wishes);
    group->wishes = NULL;
    group->nwishes = group->wish_room = 0;
}

void cecl_nccl_wishes_drop(const struct cecl_nccl_wish *wishes, int count)
{
    for (int i = 0; i < count; i++)
        cecl_nccl_meeting_close(wishes[i].meeting);
}

static void forget_window(struct cecl_nccl_comm *entry)
{
    uint64_t number = mine.number;
    atomic_compare_exchange_strong(&entry->windows, &number, 0);
}

/* If a thread ends with an open group, drops its calls and wishes, and forgets windows that were registered in it. */
static void forget_all(void)
{
    cecl_nccl_wishes_drop(mine.wishes, mine.nwishes);
    cecl_nccl_group_forget_wishes(&mine);
    if (mine.depth > 0)
        cecl_nccl_comms_each(forget_window);
    cecl_nccl_group_forget_calls(&mine);
    mine.has_end = false;
}

void cecl_nccl_group_opened(struct cecl_nccl_group *group)
{
    /* shared by all threads, because several threads may make groups with calls on the same communicator */
    static _Atomic uint64_t numbers;
    static struct cecl_thread_end end = CECL_THREAD_END_NONE;
    if (group->depth++ > 0)
        return;
    group->number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
    if (!group->has_end)
        (void)cecl_thread_at_end(&end, forget_all);
    group->has_end = true;
}

bool cecl_nccl_group_ended(struct cecl_nccl_group *group)
{
    return group->depth > 0 && --group->depth == 0;
}
