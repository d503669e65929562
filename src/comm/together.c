#include "comm/together.h"

#include <stdbool.h>
#include <stddef.h>

#include "util/thread.h"

/* Locked until all threads exist. If a thread cannot be made, no task runs, because the other tasks would wait for the
 * missing thread's task until their timeout. */
struct cecl_gate {
    pthread_mutex_t lock;
    bool is_open;
};

static void run(struct cecl_task *task)
{
    task->result = task->run(task->argument);
    if (task->result != ceclSuccess)
        cecl_keep_message(task->words);
}

static void *run_behind_gate(void *argument)
{
    struct cecl_task *task = argument;
    pthread_mutex_lock(&task->gate->lock);
    const bool runs = task->gate->is_open;
    pthread_mutex_unlock(&task->gate->lock);
    if (runs)
        run(task);
    return NULL;
}

static ceclResult_t verdict(const struct cecl_task *tasks, uint32_t count)
{
    const struct cecl_task *consequence = NULL;
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

ceclResult_t cecl_together(struct cecl_task *tasks, uint32_t count)
{
    struct cecl_gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint32_t started = 1;
    int error = 0;
    if (count == 0)
        return ceclSuccess;
    pthread_mutex_lock(&gate.lock);
    while (started < count && error == 0) {
        tasks[started].gate = &gate;
        error = cecl_thread_start(&tasks[started].thread, "cecl-together", run_behind_gate,
                                  &tasks[started]);
        started += error == 0;
    }
    gate.is_open = error == 0;
    pthread_mutex_unlock(&gate.lock);
    if (error == 0)
        run(&tasks[0]);
    for (uint32_t t = 1; t < started; t++)
        pthread_join(tasks[t].thread, NULL);
    pthread_mutex_destroy(&gate.lock);
    return error == 0
               ? verdict(tasks, count)
               : cecl_fail(ceclSystemError,
                           "pthread_create: error %d: no thread for each of %u communicators",
                           error, count);
}
