/* What calls leave for people who look at a timeline: NVTX ranges (CECL_NVTX), and a file of host times
 * that Chrome's viewers read (CECL_TRACE). A communicator without either pays a look at a pointer. */
#ifndef CECL_COMM_TRACE_H
#define CECL_COMM_TRACE_H

#include "comm/comm.h"
#include "util/fork.h"

#define CECL_TRACE_EVENTS 8192 /* kept in memory; then they are written */

struct cecl_trace;

/* One call that is over. */
struct cecl_trace_event {
    const char *name;
    int64_t start_ns, end_ns; /* CLOCK_MONOTONIC: alike on all ranks of a host */
    uint64_t send_bytes, recv_bytes;
    int32_t thread;
    int32_t result; /* ceclResult_t */
    char path[sizeof(((ceclExplanation_t *)0)->path)];
};

/* One that is being made. Without a trace: nothing. */
struct cecl_traced {
    struct cecl_trace *trace;
    const char *name;
    int64_t start_ns;
};

/* NULL where neither is wanted, and where that cannot be had: a warning says so. */
struct cecl_trace *cecl_trace_open(const struct cecl_resolved *config, int rank, int nranks);
/* Writes what is left, and frees. NULL has no effect. */
void cecl_trace_close(struct cecl_trace *trace);

/* The trace of a handle that nothing has checked yet; NULL: none. */
static inline struct cecl_trace *cecl_trace_of(ceclComm_t comm)
{
    return comm && comm->magic == CECL_COMM_MAGIC && comm->generation == cecl_fork_generation()
               ? comm->trace
               : NULL;
}

/* `name` must stay; `bytes`: told to NVTX, 0 where they are not known yet. */
void cecl_trace_start(struct cecl_traced *call);
static inline struct cecl_traced cecl_trace_begin(ceclComm_t comm, const char *name)
{
    struct cecl_traced call = {.trace = cecl_trace_of(comm), .name = name};
    if (call.trace)
        cecl_trace_start(&call);
    return call;
}

/* `path`: how it was carried out. The thread's last error stays as it is. */
void cecl_trace_end(const struct cecl_traced *call, uint64_t send_bytes, uint64_t recv_bytes,
                    const char *path, ceclResult_t result);

/* trace_file.c: one file for each name that the process has begun; every communicator of the name adds
 * to it. After each call the file is whole. */
/* Begins it, or finds it begun. False with a warning where it cannot be written. */
bool cecl_trace_file_begin(const char *name, int rank, int nranks);
bool cecl_trace_file_add(const char *name, int rank, const struct cecl_trace_event *events,
                         size_t count);

#endif
