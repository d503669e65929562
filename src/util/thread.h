/* Threads of the library, and the condition variables by which they wait. */
#ifndef CECL_UTIL_THREAD_H
#define CECL_UTIL_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>

#include "util/clock.h"

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

/* The first statement of a thread of the library. `name` is for debuggers and profilers: "cecl-" and at most 10
 * letters. A thread names only itself: to name another thread, glibc opens a file of /proc, which makes the kernel take
 * many times as long to end several processes at once. */
static inline void cecl_thread_name(const char *name)
{
    (void)prctl(PR_SET_NAME, name);
}

/* The first statement of a function that the program calls and that may lock or wait. A thread that the program cancels
 * (pthread_cancel) ends only when the function has returned, so it leaves nothing locked or half done. */
#define CECL_UNCANCELLED \
    __attribute__((cleanup(cecl_cancel_restore), unused)) const int cecl_cancel_before_ = \
        cecl_cancel_disable()
static inline int cecl_cancel_disable(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}
static inline void cecl_cancel_restore(const int *before)
{
    pthread_setcancelstate(*before, NULL);
}

/* Takes a lock until the end of the block. */
#define CECL_LOCKED(mutex) \
    __attribute__((cleanup(cecl_unlock), unused)) pthread_mutex_t *const cecl_locked_ = \
        cecl_lock(mutex)
static inline pthread_mutex_t *cecl_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}
static inline void cecl_unlock(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}

/* Takes a lock, or returns false if the lock is still taken at `deadline` (util/clock.h). */
static inline bool cecl_lock_until(pthread_mutex_t *lock, int64_t deadline)
{
    while (pthread_mutex_trylock(lock) != 0) {
        if (cecl_ms_left(deadline) == 0)
            return false;
        cecl_pause_us(200);
    }
    return true;
}

/* A condition variable whose timed waits use the monotonic clock, so that setting the system's
 * clock does not change them. */
static inline void cecl_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Calls a function when a thread ends. Initialise it with CECL_THREAD_END_NONE. */
struct cecl_thread_end {
    pthread_mutex_t lock;
    pthread_key_t key;
    void (*run)(void);
};
#define CECL_THREAD_END_NONE \
    { \
        .lock = PTHREAD_MUTEX_INITIALIZER \
    }

static inline void cecl_thread_ended(void *end)
{
    ((struct cecl_thread_end *)end)->run();
}

/* When the calling thread ends, `run` is called. All calls with one `end` must give the same `run`. Returns false, and
 * `run` is not called, if the system has no key left or no memory. */
static inline bool cecl_thread_at_end(struct cecl_thread_end *end, void (*run)(void))
{
    pthread_mutex_lock(&end->lock);
    if (!end->run && pthread_key_create(&end->key, cecl_thread_ended) == 0)
        end->run = run;
    const bool has_key = end->run;
    pthread_mutex_unlock(&end->lock);
    return has_key && pthread_setspecific(end->key, end) == 0;
}

#endif
