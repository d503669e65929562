/* The events of a communicator. They are kept in memory that is allocated at the start, and are written to
 * the file when that memory is full and at the end. Calls on a communicator come one at a time, so there is
 * no lock. */
#include "comm/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device/nvtx.h"
#include "util/log.h"
#include "util/settings.h"

#define NAME_BYTES 4096

struct cecl_trace {
    bool nvtx;
    int rank;
    size_t count;
    struct cecl_trace_event *events; /* [CECL_TRACE_EVENTS]; NULL: there is no file */
    char file[NAME_BYTES];
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Makes a system call only the first time in each thread. */
static int32_t thread_id(void)
{
    static _Thread_local int32_t id;
    if (id == 0)
        id = (int32_t)syscall(SYS_gettid);
    return id;
}

/* Makes the file's name. %r stands for the rank and %p for the process. Without %r, the rank is appended.
 * Returns false if the name is too long. */
static bool name_file(const char *pattern, int rank, char out[NAME_BYTES])
{
    size_t used = 0;
    bool has_rank = false;
    for (const char *p = pattern; *p && used < NAME_BYTES - 32; p++) {
        const bool is_rank = p[0] == '%' && p[1] == 'r';
        if (is_rank || (p[0] == '%' && p[1] == 'p')) {
            used += (size_t)snprintf(out + used, NAME_BYTES - used, "%ld",
                                     is_rank ? (long)rank : (long)getpid());
            has_rank = has_rank || is_rank;
            p++;
        } else {
            out[used++] = *p;
        }
    }
    out[used] = '\0';
    if (!has_rank)
        snprintf(out + used, NAME_BYTES - used, ".%d", rank);
    return used < NAME_BYTES - 32;
}

static void open_file(struct cecl_trace *trace, const char *pattern, int nranks)
{
    const size_t bytes = CECL_TRACE_EVENTS * sizeof(*trace->events);
    if (!name_file(pattern, trace->rank, trace->file)) {
        cecl_log(CECL_LOG_WARN, trace->rank, "CECL_TRACE: the file name is too long; no trace");
        return;
    }
    if (!cecl_trace_file_begin(trace->file, trace->rank, nranks))
        return;
    trace->events = malloc(bytes);
    if (trace->events)
        memset(trace->events, 0, bytes); /* touches the pages, so that calls do not fault on them */
    else
        cecl_log(CECL_LOG_WARN, trace->rank, "CECL_TRACE: no host memory; no trace");
}

struct cecl_trace *cecl_trace_open(const struct cecl_resolved *config, int rank, int nranks)
{
    const char *pattern = cecl_setting_text(CECL_SET_TRACE);
    if (!config->nvtx && !pattern)
        return NULL;
    struct cecl_trace *trace = calloc(1, sizeof(*trace));
    if (!trace) {
        cecl_log(CECL_LOG_WARN, rank, "CECL_TRACE, CECL_NVTX: no host memory; neither is on");
        return NULL;
    }
    /* A communicator that was made from another one uses its parent's file. A file with the communicator's
     * own rank number may belong to another process. */
    trace->rank = config->trace_rank >= 0 ? config->trace_rank : rank;
    trace->nvtx = config->nvtx && cecl_nvtx_open();
    if (config->nvtx && !trace->nvtx && rank == 0)
        cecl_log(CECL_LOG_WARN, -1,
                 "CECL_NVTX=1: this libcecl was built without CUDA; no NVTX ranges");
    if (pattern)
        open_file(trace, pattern, nranks);
    if (trace->nvtx || trace->events)
        return trace;
    free(trace);
    return NULL;
}

/* Writes the events. If the file can no longer be written, warns and stops writing. */
static void flush(struct cecl_trace *trace)
{
    if (trace->count > 0 &&
        !cecl_trace_file_add(trace->file, trace->rank, trace->events, trace->count)) {
        free(trace->events);
        trace->events = NULL;
    }
    trace->count = 0;
}

void cecl_trace_close(struct cecl_trace *trace)
{
    if (!trace)
        return;
    flush(trace);
    free(trace->events);
    free(trace);
}

void cecl_trace_start(struct cecl_traced *call)
{
    if (call->trace->nvtx)
        cecl_nvtx_push(call->name);
    call->start_ns = now_ns();
}

void cecl_trace_end(const struct cecl_traced *call, uint64_t send_bytes, uint64_t recv_bytes,
                    const char *path, ceclResult_t result)
{
    struct cecl_trace *trace = call->trace;
    if (!trace)
        return;
    const int64_t end = now_ns();
    if (trace->nvtx)
        cecl_nvtx_pop();
    if (!trace->events)
        return;
    struct cecl_trace_event *event = &trace->events[trace->count++];
    event->name = call->name;
    event->start_ns = call->start_ns;
    event->end_ns = end;
    event->send_bytes = send_bytes;
    event->recv_bytes = recv_bytes;
    event->thread = thread_id();
    event->result = (int32_t)result;
    strncpy(event->path, path, sizeof(event->path) - 1); /* the last byte is 0 from the start */
    if (trace->count == CECL_TRACE_EVENTS)
        flush(trace);
}
