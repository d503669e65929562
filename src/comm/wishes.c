/* Allocations of a group. The caller's thread serves the first communicator, and a thread each
 * serves the others: a pool that grows waits for all ranks, and all ranks may be in this one
 * thread. */
#include "comm/wishes.h"

#include <pthread.h>
#include <stdlib.h>

#include "comm/memory.h"

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
    pthread_t thread;
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
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

static void *serve(void *argument)
{
    struct job *job = argument;
    struct cecl_wish *list = job->wishes->list;
    for (uint32_t i = job->first; i < job->wishes->count && job->result == ceclSuccess; i++) {
        if (list[i].comm != list[job->first].comm)
            continue;
        job->result = cecl_memory_allocate(list[i].comm, &list[i].got, list[i].bytes);
        if (job->result != ceclSuccess) {
            cecl_keep_message(job->words);
            give_back(job, i);
        }
    }
    if (job->result == ceclSuccess)
        hand_out(job);
    return NULL;
}

/* Serves the first communicator on this thread, and the others at the same time on their own. */
static ceclResult_t serve_all(struct job *jobs, uint32_t njobs)
{
    uint32_t started = 1;
    ceclResult_t result = ceclSuccess;
    while (started < njobs &&
           pthread_create(&jobs[started].thread, NULL, serve, &jobs[started]) == 0)
        started++;
    if (started == njobs)
        serve(&jobs[0]);
    else /* the started ones end by their timeout, because a rank of theirs is missing */
        result = cecl_fail(ceclSystemError, "no thread for %u communicators of a group", njobs);
    for (uint32_t j = 1; j < started; j++)
        pthread_join(jobs[j].thread, NULL);
    for (uint32_t j = 0; j < started && result == ceclSuccess; j++)
        if (jobs[j].result != ceclSuccess)
            result = cecl_fail_with(jobs[j].result, jobs[j].words);
    return result;
}

ceclResult_t cecl_wishes_carry_out(struct cecl_wishes *wishes)
{
    uint32_t njobs = 0;
    if (wishes->count == 0)
        return ceclSuccess;
    struct job *jobs = calloc(wishes->count, sizeof(*jobs));
    if (!jobs)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u allocations",
                         wishes->count);
    for (uint32_t i = 0; i < wishes->count; i++)
        if (is_first(wishes, i))
            jobs[njobs++] = (struct job){.wishes = wishes, .first = i};
    const ceclResult_t result = serve_all(jobs, njobs);
    free(jobs);
    return result;
}
