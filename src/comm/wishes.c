/* Allocations of a group. Each communicator gets its own in a task of its own: a pool that grows
 * waits for all ranks, and all ranks may be in this one thread. */
#include "comm/wishes.h"

#include <stdlib.h>

#include "comm/memory.h"
#include "comm/together.h"

ceclResult_t cecl_wishes_add(struct cecl_wishes *wishes, ceclComm_t comm, void **ptr, size_t bytes)
{
    CECL_TRY(cecl_comm_check(comm));
    if (!ptr)
        return cecl_fail(ceclInvalidArgument, "ptr: NULL");
    if (wishes->count == wishes->room) {
        const uint32_t room = wishes->room ? 2 * wishes->room : 16;
        struct cecl_wish *list = realloc(wishes->list, room * sizeof(*list));
        if (!list)
            return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u allocations",
                             wishes->count + 1);
        wishes->list = list;
        wishes->room = room;
    }
    wishes->list[wishes->count++] = (struct cecl_wish){.comm = comm, .ptr = ptr, .bytes = bytes};
    return ceclSuccess;
}

void cecl_wishes_forget(struct cecl_wishes *wishes, ceclComm_t comm)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < wishes->count; i++)
        if (wishes->list[i].comm != comm)
            wishes->list[kept++] = wishes->list[i];
    wishes->count = kept;
}

static bool is_first(const struct cecl_wishes *wishes, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (wishes->list[i].comm == wishes->list[index].comm)
            return false;
    return true;
}

/* What one communicator wants, from its first wish on. */
struct job {
    struct cecl_wishes *wishes;
    uint32_t first;
};

/* Frees what was allocated before wish `end`. All ranks do so, because they all fail alike. */
static void give_back(struct job *job, uint32_t end)
{
    struct cecl_wish *list = job->wishes->list;
    for (uint32_t i = job->first; i < end; i++)
        if (list[i].comm == list[job->first].comm && list[i].got)
            (void)!cecl_memory_free(list[i].comm, list[i].got);
}

/* Writes the pointers of a communicator, once all of its allocations exist. */
static void hand_out(const struct job *job)
{
    const struct cecl_wish *list = job->wishes->list;
    for (uint32_t i = job->first; i < job->wishes->count; i++)
        if (list[i].comm == list[job->first].comm)
            *list[i].ptr = list[i].got;
}

static ceclResult_t serve(void *argument)
{
    struct job *job = argument;
    struct cecl_wish *list = job->wishes->list;
    for (uint32_t i = job->first; i < job->wishes->count; i++) {
        if (list[i].comm != list[job->first].comm)
            continue;
        const ceclResult_t result = cecl_memory_allocate(list[i].comm, &list[i].got, list[i].bytes);
        if (result != ceclSuccess) {
            char words[CECL_MESSAGE_BYTES];
            cecl_keep_message(words);
            give_back(job, i);
            return cecl_fail_with(result, words);
        }
    }
    hand_out(job);
    return ceclSuccess;
}

ceclResult_t cecl_wishes_carry_out(struct cecl_wishes *wishes)
{
    uint32_t count = 0;
    if (wishes->count == 0)
        return ceclSuccess;
    struct job *jobs = calloc(wishes->count, sizeof(*jobs));
    struct cecl_task *tasks = calloc(wishes->count, sizeof(*tasks));
    ceclResult_t result =
        jobs && tasks ? ceclSuccess
                      : cecl_fail(ceclOutOfMemory, "no host memory for a group of %u allocations",
                                  wishes->count);
    for (uint32_t i = 0; i < wishes->count && result == ceclSuccess; i++)
        if (is_first(wishes, i)) {
            jobs[count] = (struct job){.wishes = wishes, .first = i};
            tasks[count] = (struct cecl_task){.run = serve, .argument = &jobs[count]};
            count++;
        }
    if (result == ceclSuccess)
        result = cecl_together(tasks, count);
    free(tasks);
    free(jobs);
    return result;
}
