/* Lets the linker replace syscall(), by which the library sleeps, wakes sleepers and watches processes. */
#ifndef CECL_TESTS_WRAPPED_SYSCALL_H
#define CECL_TESTS_WRAPPED_SYSCALL_H

#include <stdarg.h>

#include "wrapped.h"

/* `refuses`: an expression, evaluated at each call of syscall(number, ...). True: the call returns -1. */
#define WRAPPED_SYSCALL(refuses) \
    WRAPPED(long, syscall, (long number, ...)) \
    { \
        long a[6]; \
        va_list arguments; \
        va_start(arguments, number); \
        for (int i = 0; i < 6; i++) /* callers may pass fewer arguments; the rest is not read */ \
            a[i] = va_arg(arguments, long); \
        va_end(arguments); \
        return (refuses) ? -1 : __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]); \
    }

#endif
