/* Writes lines to stderr, by level. */
#include "util/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "util/file.h"
#include "util/settings.h"

bool cecl_log_on(enum cecl_log_level level)
{
    static _Atomic int chosen = -1;
    int now = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (now < 0) {
        int64_t value = CECL_LOG_WARN;
        if (cecl_setting_read(CECL_SET_DEBUG, &value) != ceclSuccess)
            value = CECL_LOG_WARN;
        now = (int)value;
        atomic_store_explicit(&chosen, now, memory_order_relaxed);
    }
    return level != CECL_LOG_NONE && (int)level <= now;
}

void cecl_log(enum cecl_log_level level, int rank, const char *format, ...)
{
    if (!cecl_log_on(level))
        return;
    /* Writes the whole line at once, so that lines of ranks that share a terminal do not mix. */
    char line[1024];
    int used = rank < 0 ? snprintf(line, sizeof(line), "cecl: ")
                        : snprintf(line, sizeof(line), "cecl: rank %d: ", rank);
    struct cecl_writing writing;
    va_list args;
    cecl_writing_begin(&writing);
    va_start(args, format);
    vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", line);
    cecl_writing_end(&writing);
}
