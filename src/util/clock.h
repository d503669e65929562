/* Monotonic time in ms, and deadlines. */
#ifndef CECL_UTIL_CLOCK_H
#define CECL_UTIL_CLOCK_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

#define CECL_NO_DEADLINE INT64_MAX

static inline int64_t cecl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t cecl_now_ms(void)
{
    return cecl_now_ns() / 1000000;
}

/* The time `timeout_ms` ms from now. There is no deadline if `timeout_ms` is 0 or less, or so large that
 * int64_t cannot hold the time; a peer may send such a timeout. */
static inline int64_t cecl_deadline(int64_t timeout_ms)
{
    const int64_t now = cecl_now_ms();
    return timeout_ms > 0 && timeout_ms < CECL_NO_DEADLINE - now ? now + timeout_ms
                                                                 : CECL_NO_DEADLINE;
}

/* Since when a wait has lasted without progress. */
struct cecl_clock {
    uint64_t mark; /* changes when the wait makes progress */
    int64_t since; /* ms; 0: nothing waits */
};

/* Since when `mark` has been the same, counted from the first call for the wait. */
static inline int64_t cecl_clock_since(struct cecl_clock *clock, uint64_t mark, int64_t now_ms)
{
    if (clock->since == 0 || clock->mark != mark)
        *clock = (struct cecl_clock){mark, now_ms};
    return clock->since;
}

/* Sleeps between two polls of a wait. A signal may end the sleep early. */
static inline void cecl_pause_us(long us)
{
    const struct timespec pause = {.tv_nsec = 1000 * us};
    nanosleep(&pause, NULL);
}

/* The monotonic time `ms` ms from now, in the form that pthread_cond_timedwait takes. */
static inline struct timespec cecl_time_in(int64_t ms)
{
    const int64_t then = cecl_now_ns() + ms * 1000000;
    return (struct timespec){.tv_sec = (time_t)(then / 1000000000), .tv_nsec = then % 1000000000};
}

/* Milliseconds until `deadline`, in poll()'s form: 0 if the deadline has passed, -1 for CECL_NO_DEADLINE. */
static inline int cecl_ms_left(int64_t deadline)
{
    if (deadline == CECL_NO_DEADLINE)
        return -1;
    int64_t left = deadline - cecl_now_ms();
    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

#endif
