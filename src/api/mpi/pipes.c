/* Pipes that are made of MPI messages. The messages of a failed communicator may stay in flight for ever, so
 * they use buffers of the pipes, and MPI never touches memory of the program. Between two ranks at most one
 * message in each direction is in flight. */
#include "api/mpi/pipes.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESSAGE_BYTES 65536
#define TAG 0
#define LANDING_MS 100 /* how long closing waits for messages in flight, in ms */

struct buffer {
    struct buffer *next;
    char bytes[MESSAGE_BYTES];
};

/* One direction of one peer. */
struct message {
    MPI_Request request;
    bool flies;
    size_t count, taken;   /* bytes of a received message, and how many were taken out of it */
    struct buffer *buffer; /* NULL: not needed yet */
};

struct pipes {
    MPI_Comm comm; /* a duplicate that only these pipes use */
    struct message *out, *in;
    int nranks;
    const char *error; /* a message, or NULL */
};

/* Whether MPI can be called: there was no error, and no MPI_Finalize. */
static bool is_usable(struct pipes *pipes)
{
    int ended = 1;
    if (!pipes->error && (MPI_Finalized(&ended) != MPI_SUCCESS || ended))
        pipes->error = "MPI_Finalize was called before cecl's communicator ended";
    return !pipes->error;
}

static bool has_room(struct pipes *pipes, struct message *message)
{
    if (!message->buffer)
        message->buffer = malloc(sizeof(*message->buffer));
    if (!message->buffer)
        pipes->error = "no host memory for a message";
    return message->buffer != NULL;
}

/* Whether no message of this direction is in flight. */
static bool has_landed(struct pipes *pipes, struct message *message)
{
    int done = 0, count = 0;
    MPI_Status status;
    if (!message->flies)
        return true;
    if (MPI_Test(&message->request, &done, &status) != MPI_SUCCESS ||
        (done && MPI_Get_count(&status, MPI_BYTE, &count) != MPI_SUCCESS)) {
        pipes->error = "MPI_Test failed";
        return false;
    }
    message->flies = !done;
    message->count = (size_t)count;
    message->taken = 0;
    return done;
}

static size_t put(void *context, int peer, const void *bytes, size_t count, size_t least)
{
    struct pipes *pipes = context;
    struct message *out = &pipes->out[peer];
    const size_t now = count < MESSAGE_BYTES ? count : MESSAGE_BYTES;
    if (now < least || now == 0 || !is_usable(pipes) || !has_landed(pipes, out) ||
        !has_room(pipes, out))
        return 0;
    memcpy(out->buffer->bytes, bytes, now);
    if (MPI_Isend(out->buffer->bytes, (int)now, MPI_BYTE, peer, TAG, pipes->comm, &out->request) !=
        MPI_SUCCESS) {
        pipes->error = "MPI_Isend failed";
        return 0;
    }
    out->flies = true;
    return now;
}

/* Bytes that were put together arrive as one message, so `least` bytes are there as soon as any are. */
static size_t take(void *context, int peer, void *bytes, size_t count, size_t least)
{
    struct pipes *pipes = context;
    struct message *in = &pipes->in[peer];
    if (!is_usable(pipes) || !has_room(pipes, in))
        return 0;
    if (!in->flies && in->taken == in->count) {
        if (MPI_Irecv(in->buffer->bytes, MESSAGE_BYTES, MPI_BYTE, peer, TAG, pipes->comm,
                      &in->request) != MPI_SUCCESS) {
            pipes->error = "MPI_Irecv failed";
            return 0;
        }
        in->flies = true;
    }
    if (!has_landed(pipes, in))
        return 0;
    const size_t there = in->count - in->taken, now = count < there ? count : there;
    if (now < least)
        return 0;
    memcpy(bytes, in->buffer->bytes + in->taken, now);
    in->taken += now;
    return now;
}

static bool has_left(void *context, int peer)
{
    struct pipes *pipes = context;
    return is_usable(pipes) && has_landed(pipes, &pipes->out[peer]);
}

static const char *error_of(void *context)
{
    return ((const struct pipes *)context)->error;
}

/* Returns whether no message is in flight. */
static bool have_landed(struct pipes *pipes)
{
    bool all = true;
    for (int r = 0; r < pipes->nranks; r++) {
        all = has_landed(pipes, &pipes->out[r]) && all;
        all = has_landed(pipes, &pipes->in[r]) && all;
    }
    return all;
}

/* Frees the buffer of a message. If the message is in flight, the buffer is kept for ever, because MPI may
 * use it at any time. */
static void let_go(struct message *message, bool usable)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct buffer *kept;
    if (!message->flies) {
        free(message->buffer);
        return;
    }
    pthread_mutex_lock(&lock);
    message->buffer->next = kept;
    kept = message->buffer;
    pthread_mutex_unlock(&lock);
    if (usable)
        (void)MPI_Request_free(&message->request);
}

static void close_pipes(void *context)
{
    struct pipes *pipes = context;
    const struct timespec pause = {.tv_nsec = 1000000};
    const bool usable = is_usable(pipes);
    for (int r = 0; r < pipes->nranks && usable; r++)
        if (pipes->in[r].flies)
            (void)MPI_Cancel(&pipes->in[r].request);
    for (int i = 0; i < LANDING_MS && usable && !have_landed(pipes); i++)
        nanosleep(&pause, NULL);
    for (int r = 0; r < pipes->nranks; r++) {
        let_go(&pipes->out[r], usable);
        let_go(&pipes->in[r], usable);
    }
    if (usable)
        (void)MPI_Comm_free(&pipes->comm);
    free(pipes->out);
    free(pipes->in);
    free(pipes);
}

/* ---- lending */

/* MPI must allow that threads of streams call it while the program does. */
static ceclResult_t check(void *context)
{
    int level = MPI_THREAD_SINGLE;
    (void)context;
    if (MPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE)
        return ceclSuccess;
    return cecl_fail(ceclInvalidUsage,
                     "MPI between nodes needs MPI_THREAD_MULTIPLE, but MPI has %s: ask "
                     "MPI_Init_thread for MPI_THREAD_MULTIPLE",
                     level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                     : level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                    : "MPI_THREAD_SINGLE");
}

static ceclResult_t open_pipes(void *context, struct cecl_net_pipes *lent)
{
    MPI_Comm *comm = context;
    struct pipes *pipes = calloc(1, sizeof(*pipes));
    MPI_Comm own = MPI_COMM_NULL;
    int nranks = 0;
    if (MPI_Comm_dup(*comm, &own) != MPI_SUCCESS || MPI_Comm_size(own, &nranks) != MPI_SUCCESS ||
        MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN) != MPI_SUCCESS) {
        free(pipes);
        return cecl_fail(ceclSystemError, "MPI_Comm_dup failed");
    }
    if (pipes) {
        *pipes = (struct pipes){.comm = own,
                                .nranks = nranks,
                                .out = calloc((size_t)nranks, sizeof(*pipes->out)),
                                .in = calloc((size_t)nranks, sizeof(*pipes->in))};
        *lent = (struct cecl_net_pipes){pipes, put, take, has_left, error_of, close_pipes};
    }
    if (pipes && pipes->out && pipes->in)
        return ceclSuccess;
    if (pipes) {
        free(pipes->out);
        free(pipes->in);
    }
    free(pipes);
    (void)MPI_Comm_free(&own);
    return cecl_fail(ceclOutOfMemory, "no host memory for MPI among %d ranks", nranks);
}

struct cecl_net_lender cecl_mpi_lender(void *comm)
{
    return (struct cecl_net_lender){comm, "MPI", check, open_pipes};
}
