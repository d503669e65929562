/* See together.h. */
#include "comm/together.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "util/thread.h"

/* Threads wait at the gate until all of them exist. If one cannot be made, no task runs, because the other tasks would
 * wait for the missing one until their timeout. */
struct gate {
    pthread_mutex_t lock;
    bool is_open;
};

struct task {
    ceclResult_t (*run)(void *item);
    void *item;
    struct gate *gate;
    pthread_t thread;
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
};

static void run_task(struct task *task)
{
    task->result = task->run(task->item);
    if (task->result != ceclSuccess)
        cecl_keep_message(task->words);
}

static void *run_behind_gate(void *argument)
{
    struct task *task = argument;
    cecl_thread_name("cecl-together");
    pthread_mutex_lock(&task->gate->lock);
    const bool runs = task->gate->is_open;
    pthread_mutex_unlock(&task->gate->lock);
    if (runs)
        run_task(task);
    return NULL;
}

static ceclResult_t verdict(const struct task *tasks, uint32_t count)
{
    const struct task *consequence = NULL;
    for (uint32_t t = 0; t < count; t++) {
        const ceclResult_t result = tasks[t].result;
        const bool is_cause = result != ceclRemoteError && result != ceclTimeout;
        if (result != ceclSuccess && is_cause)
            return cecl_fail_with(result, tasks[t].words);
        if (result != ceclSuccess && !consequence)
            consequence = &tasks[t];
    }
    return consequence ? cecl_fail_with(consequence->result, consequence->words) : ceclSuccess;
}

static ceclResult_t run_all(struct task *tasks, uint32_t count)
{
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint32_t started = 1;
    int error = 0;
    pthread_mutex_lock(&gate.lock);
    while (started < count && error == 0) {
        tasks[started].gate = &gate;
        error = cecl_thread_start(&tasks[started].thread, run_behind_gate, &tasks[started]);
        started += error == 0;
    }
    gate.is_open = error == 0;
    pthread_mutex_unlock(&gate.lock);
    if (error == 0)
        run_task(&tasks[0]);
    for (uint32_t t = 1; t < started; t++)
        pthread_join(tasks[t].thread, NULL);
    pthread_mutex_destroy(&gate.lock);
    return error == 0
               ? verdict(tasks, count)
               : cecl_fail(ceclSystemError,
                           "pthread_create: error %d: no thread for each of %u communicators",
                           error, count);
}

ceclResult_t cecl_together(ceclResult_t (*run)(void *item), void *first, void *(*next)(void *item))
{
    uint32_t count = 0, t = 0;
    for (void *item = first; item; item = next(item))
        count++;
    if (count == 0)
        return ceclSuccess;
    struct task *tasks = calloc(count, sizeof(*tasks));
    if (!tasks)
        return cecl_fail(ceclOutOfMemory, "no host memory for threads of %u communicators", count);
    for (void *item = first; item; item = next(item))
        tasks[t++] = (struct task){.run = run, .item = item};
    const ceclResult_t result = run_all(tasks, count);
    free(tasks);
    return result;
}
