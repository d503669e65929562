/* Results and messages. A message is recorded once, in the calling thread, where the error is found. */
#ifndef CECL_UTIL_ERROR_H
#define CECL_UTIL_ERROR_H

#include <stdbool.h>

#include <cecl/cecl.h>

#ifndef __CUDACC_RTC__ /* NVRTC, which compiles the wheel's kernels, has no pthread.h */
#include "util/thread.h"
#endif

#define CECL_MESSAGE_BYTES 512

/* Records a message, and evaluates to `result`. The message names the argument, its value and what was expected. This
 * is a macro so that the compiler sees that the result is an error, and does not warn of outputs that are not set. */
#define cecl_fail(result, ...) (cecl_record(__VA_ARGS__), cecl_as_result(result))
static inline ceclResult_t cecl_as_result(ceclResult_t result)
{
    return result;
}
void cecl_record(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The first statement of a public function. If the function fails, the message begins with the function's name, unless
 * the message came by cecl_relay. If one public function calls another, messages name only the outer one. If the
 * program cancels the thread, the thread ends only when the function has returned. */
#define CECL_PUBLIC \
    CECL_UNCANCELLED; \
    __attribute__((cleanup(cecl_function_left), unused)) const bool cecl_is_outermost_ = \
        cecl_function_entered(__func__)
bool cecl_function_entered(const char *name);
void cecl_function_left(const bool *is_outermost);
/* The public function that this thread is inside; "" on cecl's own threads. */
const char *cecl_function(void);

/* Refuses an argument of a public function that is NULL. */
ceclResult_t cecl_check_given(const char *name, const void *argument);

/* The calling thread's last message; never NULL. */
const char *cecl_message(void);

/* Copies the last message, for code that must do more before it returns an error. */
void cecl_keep_message(char words[CECL_MESSAGE_BYTES]);

/* Copies a message of any length. If it does not fit, it is cut and ends in "...". `room` is at least 4. */
void cecl_shorten(char *out, size_t room, const char *words);

/* Makes another thread's or rank's message this thread's last one, and returns `result`. */
ceclResult_t cecl_fail_with(ceclResult_t result, const char *message);
/* Like cecl_fail_with, for a message that already says what failed, such as a failed communicator's message: no public
 * function puts its name before such a message. */
ceclResult_t cecl_relay(ceclResult_t result, const char *message);

/* Returns a failure to the caller. Use it only if nothing must be released first. */
#define CECL_TRY(expr) \
    do { \
        ceclResult_t cecl_try_result_ = (expr); \
        if (cecl_try_result_ != ceclSuccess) \
            return cecl_try_result_; \
    } while (0)

#endif
