/* Tasks that wait for peers. One thread may have several ranks, so each task gets a thread of its own, and
 * all tasks run at the same time. */
#ifndef CECL_COMM_TOGETHER_H
#define CECL_COMM_TOGETHER_H

#include "util/error.h"

/* Calls `run` for all items of a list at the same time, for the first one on the calling thread, and waits for all. The
 * other threads block all signals, so that handlers of the program run on the threads of the program. An error's message
 * is recorded before `run` returns it. If a thread cannot be made, `run` is not called, and the result is ceclSystemError,
 * or ceclOutOfMemory. If a task failed by itself, returns the result of that task. If tasks failed only because of peers,
 * returns the result of one of these tasks.
 *
 * next  the item that follows; NULL: none */
ceclResult_t cecl_together(ceclResult_t (*run)(void *item), void *first, void *(*next)(void *item));

#endif
