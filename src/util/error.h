/* Results and their words. The message is recorded once, per thread, where the fact is known. */
#ifndef CECL_UTIL_ERROR_H
#define CECL_UTIL_ERROR_H

#include <cecl/cecl.h>

#define CECL_MESSAGE_BYTES 512

/* Records what went wrong and returns `result`. Name the argument, its value and what was expected. */
ceclResult_t cecl_fail(ceclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The calling thread's last message; never NULL. */
const char *cecl_message(void);

/* Copies a message of another thread or rank into this thread's slot and returns `result`. */
ceclResult_t cecl_fail_with(ceclResult_t result, const char *message);

/* Passes a failure on. Only where nothing is held: what was acquired must be released first. */
#define CECL_TRY(expr)                                                                             \
    do {                                                                                           \
        ceclResult_t cecl_try_result_ = (expr);                                                    \
        if (cecl_try_result_ != ceclSuccess)                                                       \
            return cecl_try_result_;                                                               \
    } while (0)

#endif
