/* Records of calls for timelines: NVTX ranges (CECL_NVTX), and a file of host times that Chrome's
 * viewers read (CECL_TRACE). Without either, each call only tests a pointer. */
#ifndef CECL_COMM_TRACE_H
#define CECL_COMM_TRACE_H

#include "comm/comm.h"
#include "util/fork.h"

#define CECL_TRACE_EVENTS 8192 /* events kept in memory before they are written */

struct cecl_trace;

/* A call that has ended. */
struct cecl_trace_event {
    const char *name;
    int64_t start_ns, end_ns; /* CLOCK_MONOTONIC: equal on all ranks of a host */
    uint64_t send_bytes, recv_bytes;
    int32_t thread;
    int32_t result; /* ceclResult_t */
    char path[sizeof(((ceclExplanation_t *)0)->path)];
};

/* A call that is being made. Empty if there is no trace. */
struct cecl_traced {
    struct cecl_trace *trace;
    const char *name;
    int64_t start_ns;
};

/* Returns NULL if neither NVTX nor a file is set. Also returns NULL, after a warning, if neither could be
 * opened. */
struct cecl_trace *cecl_trace_open(const struct cecl_resolved *config, int rank, int nranks);
/* Writes the remaining events, and frees the trace. NULL has no effect. */
void cecl_trace_close(struct cecl_trace *trace);

/* The trace of a handle that has not been checked yet; NULL if there is none. */
static inline struct cecl_trace *cecl_trace_of(ceclComm_t comm)
{
    return comm && comm->magic == CECL_COMM_MAGIC && comm->generation == cecl_fork_generation()
               ? comm->trace
               : NULL;
}

/* `name` must stay valid. */
void cecl_trace_start(struct cecl_traced *call);
static inline struct cecl_traced cecl_trace_begin(ceclComm_t comm, const char *name)
{
    struct cecl_traced call = {.trace = cecl_trace_of(comm), .name = name};
    if (call.trace)
        cecl_trace_start(&call);
    return call;
}

/* `path`: how the call was carried out. The thread's last error message does not change. */
void cecl_trace_end(const struct cecl_traced *call, uint64_t send_bytes, uint64_t recv_bytes,
                    const char *path, ceclResult_t result);

/* trace_file.c: the process begins one file for each name, and every communicator with that name adds to it.
 * The file is complete after each write. */
/* Begins the file, if this process has not begun it. Returns false, with a warning, if it cannot be
 * written. */
bool cecl_trace_file_begin(const char *name, int rank, int nranks);
bool cecl_trace_file_add(const char *name, int rank, const struct cecl_trace_event *events,
                         size_t count);

#endif
