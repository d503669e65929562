/* Monotonic time and deadlines. */
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

/* The moment `timeout_ms` from now; 0 or less means never. */
static inline int64_t cecl_deadline(int64_t timeout_ms)
{
    return timeout_ms > 0 ? cecl_now_ms() + timeout_ms : CECL_NO_DEADLINE;
}

/* Milliseconds left, for poll(): 0 when past, -1 for no deadline. */
static inline int cecl_ms_left(int64_t deadline)
{
    if (deadline == CECL_NO_DEADLINE)
        return -1;
    int64_t left = deadline - cecl_now_ms();
    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

#endif
