/* The file of a trace: an array of events in the format of Chrome's viewers. Each write puts an end behind
 * the array, so the file is complete; the next write overwrites that end. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/trace.h"
#include "util/log.h"

#define CLOSING "\n]\n"

/* Names of files that this process has begun. The first communicator with a name empties an older file. */
struct begun {
    struct begun *next;
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct begun *begun;

static bool is_begun(const char *name)
{
    for (const struct begun *b = begun; b; b = b->next)
        if (strcmp(b->name, name) == 0)
            return true;
    return false;
}

static bool keep(const char *name)
{
    const size_t bytes = strlen(name) + 1;
    struct begun *b = malloc(sizeof(*b) + bytes);
    if (!b)
        return false;
    memcpy(b->name, name, bytes);
    b->next = begun;
    begun = b;
    return true;
}

static bool warn(const char *name, int rank, const char *what, const char *why)
{
    cecl_log(CECL_LOG_WARN, rank, "CECL_TRACE: %s %s: %s; calls go on without a trace", name, what,
             why);
    return false;
}

static bool begin(const char *name, int rank, int nranks)
{
    FILE *file = fopen(name, "we");
    if (!file)
        return warn(name, rank, "cannot be written", strerror(errno));
    fprintf(file,
            "[\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, "
            "\"args\": {\"name\": \"cecl rank %d of %d\"}}" CLOSING,
            rank, rank, nranks);
    const bool written = !ferror(file);
    if (fclose(file) != 0 || !written)
        return warn(name, rank, "cannot be written", strerror(errno));
    return keep(name) || warn(name, rank, "cannot be begun", "no host memory");
}

bool cecl_trace_file_begin(const char *name, int rank, int nranks)
{
    pthread_mutex_lock(&lock);
    const bool result = is_begun(name) || begin(name, rank, nranks);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Times are in us. The library makes all strings itself, so none needs an escape. */
static void write_event(FILE *file, int rank, const struct cecl_trace_event *e)
{
    fprintf(file,
            ",\n{\"ph\": \"X\", \"name\": \"%s\", \"pid\": %d, \"tid\": %" PRId32
            ", \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"bytes\": %" PRIu64
            ", \"recv_bytes\": %" PRIu64 ", \"path\": \"%s\", \"result\": \"%s\"}}",
            e->name, rank, e->thread, (double)e->start_ns * 1e-3,
            (double)(e->end_ns - e->start_ns) * 1e-3, e->send_bytes, e->recv_bytes, e->path,
            ceclGetErrorString((ceclResult_t)e->result));
}

static bool add(const char *name, int rank, const struct cecl_trace_event *events, size_t count)
{
    FILE *file = fopen(name, "r+e");
    if (!file)
        return warn(name, rank, "cannot be written", strerror(errno));
    bool written = fseek(file, -(long)strlen(CLOSING), SEEK_END) == 0;
    for (size_t i = 0; i < count && written; i++)
        write_event(file, rank, &events[i]);
    fputs(CLOSING, file);
    written = !ferror(file) && written;
    if (fclose(file) != 0 || !written)
        return warn(name, rank, "was not completely written", strerror(errno));
    return true;
}

bool cecl_trace_file_add(const char *name, int rank, const struct cecl_trace_event *events,
                         size_t count)
{
    pthread_mutex_lock(&lock);
    const bool result = add(name, rank, events, count);
    pthread_mutex_unlock(&lock);
    return result;
}
