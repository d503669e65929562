/* Tasks that wait for peers. One thread may have several ranks, so each task gets a thread of its own, and
 * all tasks run at the same time. */
#ifndef CECL_COMM_TOGETHER_H
#define CECL_COMM_TOGETHER_H

#include <pthread.h>
#include <stdint.h>

#include "util/error.h"

struct cecl_gate;

struct cecl_task {
    /* Set by the caller. An error's message is recorded before it is returned. */
    ceclResult_t (*run)(void *argument);
    void *argument;
    /* together.c's own */
    struct cecl_gate *gate;
    pthread_t thread;
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
};

/* Runs all tasks at the same time, the first one on the calling thread, and waits for all. The other threads
 * block all signals, so that handlers of the program run on the threads of the program. If a thread cannot be made
 * for one of them, no task runs and the result is ceclSystemError. If a task failed by itself,
 * returns the result of that task. If tasks failed only because of peers, returns the result of one of these
 * tasks. */
ceclResult_t cecl_together(struct cecl_task *tasks, uint32_t count);

#endif
