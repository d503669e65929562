/* What programs that measure times have in common. */
#ifndef CECL_TESTS_NCCL_TIMES_H
#define CECL_TESTS_NCCL_TIMES_H

#include <stdlib.h>
#include <time.h>

static inline double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts the values. */
static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return count > 0 ? values[count / 2] : 0;
}

#endif
