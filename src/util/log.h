/* Lines on stderr, by level. Calls on the hot path do not use it. */
#ifndef CECL_UTIL_LOG_H
#define CECL_UTIL_LOG_H

#include <stdbool.h>

enum cecl_log_level {
    CECL_LOG_NONE,
    CECL_LOG_WARN,
    CECL_LOG_INFO,
    CECL_LOG_PLAN
}; /* in the order of CECL_DEBUG's choices */

/* Whether lines of `level` are written. Reads CECL_DEBUG once. A bad value counts as warn;
 * cecl_setting_read reports it when a communicator is made. */
bool cecl_log_on(enum cecl_log_level level);

/* Writes one line, "cecl: rank R: ...", or "cecl: ..." if `rank` < 0. */
void cecl_log(enum cecl_log_level level, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
