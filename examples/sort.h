/* Sorts numbers, so that an example can take their median. */
#ifndef CECL_EXAMPLES_SORT_H
#define CECL_EXAMPLES_SORT_H

#include <stdlib.h>

static inline int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void sort_numbers(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
}

#endif
