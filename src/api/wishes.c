/* Allocations of a group. Each communicator makes its allocations in a task of its own, because a pool that
 * grows waits for all ranks, and all of these may be ranks of this thread. */
#include "api/waiting.h"

#include <stdlib.h>

#include "api/life.h"
#include "comm/together.h"

static bool is_first(const struct cecl_wishes *wishes, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (wishes->list[i].comm == wishes->list[index].comm)
            return false;
    return true;
}

/* The allocations of one communicator. `first`: the index of its first wish. */
struct job {
    struct cecl_wishes *wishes;
    uint32_t first;
    bool entered; /* this job has entered the communicator */
};

static ceclComm_t comm_of(const struct job *job)
{
    return job->wishes->list[job->first].comm;
}

/* Frees what was allocated before wish `end`. All ranks do the same, because an allocation fails on all ranks
 * or on none. */
static void give_back(struct job *job, uint32_t end)
{
    struct cecl_wish *list = job->wishes->list;
    for (uint32_t i = job->first; i < end; i++)
        if (list[i].comm == comm_of(job) && list[i].got)
            (void)!cecl_memory_free(list[i].comm, list[i].got);
}

/* Writes the pointers of a communicator, once all of its allocations exist. */
static void hand_out(const struct job *job)
{
    const struct cecl_wish *list = job->wishes->list;
    for (uint32_t i = job->first; i < job->wishes->count; i++)
        if (list[i].comm == comm_of(job))
            *list[i].ptr = list[i].got;
}

static ceclResult_t serve(void *argument)
{
    struct job *job = argument;
    struct cecl_wish *list = job->wishes->list;
    for (uint32_t i = job->first; i < job->wishes->count; i++) {
        if (list[i].comm != comm_of(job))
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

/* All jobs enter their communicators before the first job begins. Otherwise peers would wait for a job that
 * could not enter. */
static ceclResult_t enter(struct job *jobs, uint32_t count, const struct cecl_group *group)
{
    for (uint32_t i = 0; i < count; i++) {
        if (cecl_launches_of(group->all.first, comm_of(&jobs[i])))
            continue;
        CECL_TRY(cecl_comm_enter(comm_of(&jobs[i]), cecl_ops[CECL_OP_MEM_ALLOC].name));
        jobs[i].entered = true;
    }
    return ceclSuccess;
}

static void leave(const struct job *jobs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (jobs[i].entered)
            cecl_comm_leave(comm_of(&jobs[i]));
}

ceclResult_t cecl_wishes_carry_out(struct cecl_wishes *wishes, const struct cecl_group *group)
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
        result = enter(jobs, count, group);
    if (result == ceclSuccess)
        result = cecl_together(tasks, count);
    if (jobs)
        leave(jobs, count);
    free(tasks);
    free(jobs);
    return result;
}
