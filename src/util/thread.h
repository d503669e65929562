/* Threads of the library's own, and what they wait by. */
#ifndef CECL_UTIL_THREAD_H
#define CECL_UTIL_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <time.h>

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

/* A condition whose waits end by the monotonic clock, so that they do not grow when somebody sets the
 * clock. */
static inline void cecl_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

#endif
