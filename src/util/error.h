/* Results and their words. The message is recorded once, per thread, where the fact is known. */
#ifndef CECL_UTIL_ERROR_H
#define CECL_UTIL_ERROR_H

#include <cecl/cecl.h>

#define CECL_MESSAGE_BYTES 512

/* Records what went wrong and is `result`. Name the argument, its value and what was expected. A
 * macro, so that the compiler sees which
 * result it is, and that nothing was written on such a path. */
#define cecl_fail(result, ...) (cecl_record(__VA_ARGS__), cecl_as_result(result))
static inline ceclResult_t cecl_as_result(ceclResult_t result)
{
    return result;
}
void cecl_record(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The calling thread's last message; never NULL. */
const char *cecl_message(void);

/* Copies the last message, for what is done before it is returned. */
void cecl_keep_message(char words[CECL_MESSAGE_BYTES]);

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
