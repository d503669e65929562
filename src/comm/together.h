/* Runs tasks that wait for peers. The peers may be ranks of the same thread, so each task gets a thread of its own, and
 * all tasks run at the same time. */
#ifndef CECL_COMM_TOGETHER_H
#define CECL_COMM_TOGETHER_H

#include "util/error.h"

/* Calls `run` for all items of a list at the same time, each on its own thread (the first item on the calling thread),
 * and waits for all. The other threads block all signals, so that handlers of the program run on the program's threads.
 * `run` records a message before it returns an error. If a thread cannot be made, `run` is not called, and the result
 * is ceclSystemError or ceclOutOfMemory. Returns the first error other than ceclRemoteError and ceclTimeout, which
 * another task's failure may cause; if there is none, the first error. next: returns the item that follows, or NULL */
ceclResult_t cecl_together(ceclResult_t (*run)(void *item), void *first, void *(*next)(void *item));

#endif
