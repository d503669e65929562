/* Starts threads of the library's own. */
#ifndef CECL_UTIL_THREAD_H
#define CECL_UTIL_THREAD_H

#include <pthread.h>
#include <signal.h>

/* pthread_create with all signals blocked in the new thread, so that the program's handlers run on
 * the program's threads. Returns 0 or an errno. */
static inline int cecl_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
