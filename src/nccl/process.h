/* At its first call of NCCL a process reads the settings and opens the real NCCL. It does so no earlier, because this
 * library is also preloaded into each shell and helper program of a job. */
#ifndef CECL_NCCL_PROCESS_H
#define CECL_NCCL_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

/* -- real.c: the library to which calls are passed on -- */

struct cecl_nccl_real {
    void *handle;         /* NULL: no NCCL is open */
    uintptr_t begin, end; /* the addresses of its code in this process */
    int version;          /* as ncclGetVersion returns it */
    char path[PATH_MAX];
};

/* Finds the real NCCL (util/find_nccl.h) and opens it. */
ceclResult_t cecl_nccl_real_open(struct cecl_nccl_real *real);

/* Finds an NCCL library other than `real` that this process has loaded. Returns false if there is none. */
bool cecl_nccl_real_other(const struct cecl_nccl_real *real, char path[PATH_MAX]);

/* Whether the code at `address` belongs to the real NCCL. */
static inline bool cecl_nccl_real_has(const struct cecl_nccl_real *real, const void *address)
{
    return (uintptr_t)address - real->begin < real->end - real->begin;
}

/* -- process.c -- */

/* In the order of CECL_NCCL's choices. */
enum cecl_nccl_policy { CECL_NCCL_OFF, CECL_NCCL_AUTO, CECL_NCCL_ALL, CECL_NCCL_STRICT };

struct cecl_nccl_process {
    struct cecl_nccl_real real;
    ceclResult_t result;          /* what all calls return if there is no real NCCL */
    char why[CECL_MESSAGE_BYTES]; /* the message of `result` */
    enum cecl_nccl_policy policy;
    bool counts;               /* CECL_NCCL_STATS=1 */
    char stats_file[PATH_MAX]; /* CECL_NCCL_STATS_FILE; empty: not set */
    bool tries;                /* trials are on (CECL_NCCL=auto, CECL_NCCL_TRIALS=1) */
    int timeout_ms;            /* CECL_TIMEOUT_MS; 0: waits for ranks have no limit */
    bool is_old;               /* the real NCCL is older than cecl needs */
    bool is_forked; /* this is a forked child, whose parent called NCCL before the fork */
};

const struct cecl_nccl_process *cecl_nccl_process(void);

/* Whether the real NCCL has made a call: its return address, `caller`, lies in NCCL. Also true if no NCCL is open. */
static inline bool cecl_nccl_is_own(const struct cecl_nccl_process *process, const void *caller)
{
    return !process->real.handle || cecl_nccl_real_has(&process->real, caller);
}

#endif
