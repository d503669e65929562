/* See process.h. */
#include "nccl/process.h"

#include <pthread.h>
#include <stdio.h>

#include "nccl/abi.h"
#include "util/log.h"
#include "util/settings.h"

/* The first NCCL that has ncclMemAlloc and ncclCommRegister. */
#define OLDEST CECL_NCCL_VERSION(2, 19)

static struct cecl_nccl_process process;

static void mark_forked(void)
{
    process.is_forked = true;
}

static ceclResult_t read_settings(void)
{
    int64_t policy, counts, tries, timeout_ms = 0;
    CECL_TRY(cecl_setting_read(CECL_SET_NCCL, &policy));
    CECL_TRY(cecl_setting_read(CECL_SET_NCCL_STATS, &counts));
    CECL_TRY(cecl_setting_read(CECL_SET_NCCL_TRIALS, &tries));
    CECL_TRY(cecl_setting_read(CECL_SET_TIMEOUT_MS, &timeout_ms));
    process.timeout_ms = (int)timeout_ms;
    process.policy = (enum cecl_nccl_policy)policy;
    process.counts = counts != 0;
    const char *file = cecl_setting_text(CECL_SET_NCCL_STATS_FILE);
    snprintf(process.stats_file, sizeof(process.stats_file), "%s", file ? file : "");
    process.tries = tries != 0 && process.policy == CECL_NCCL_AUTO;
    return ceclSuccess;
}

static void warn_of_others(void)
{
    char other[PATH_MAX];
    if (cecl_nccl_real_other(&process.real, other))
        cecl_log(CECL_LOG_WARN, -1,
                 "this process has two NCCL libraries: calls are passed to %s, not to %s",
                 process.real.path, other);
}

static void warn_of_age(void)
{
    const int version = process.real.version;
    process.is_old = version < OLDEST;
    if (process.is_old)
        cecl_log(CECL_LOG_WARN, -1,
                 "%s has version number %d, and cecl needs %d (NCCL 2.19): all calls "
                 "are passed to it",
                 process.real.path, version, OLDEST);
}

static ceclResult_t open_real(void)
{
    CECL_TRY(read_settings());
    CECL_TRY(cecl_nccl_real_open(&process.real));
    cecl_log(CECL_LOG_INFO, -1, "calls of NCCL are passed to %s", process.real.path);
    warn_of_others();
    warn_of_age();
    return ceclSuccess;
}

static void begin_process(void)
{
    process.result = open_real();
    if (process.result != ceclSuccess) {
        cecl_keep_message(process.why);
        cecl_log(CECL_LOG_WARN, -1, "%s", process.why);
    }
    pthread_atfork(NULL, NULL, mark_forked);
}

const struct cecl_nccl_process *cecl_nccl_process(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin_process);
    return &process;
}
