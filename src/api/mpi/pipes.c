/* Pipes that are made of MPI messages. The messages of a failed communicator may stay in flight for ever, so
 * all messages lie in buffers of the pipes, and MPI never touches memory of the program. Between two ranks at
 * most one message in each direction is in flight. A message lands at its sender when its receiver takes it
 * (MPI_Issend), so each rank knows which of its messages MPI still carries. */
#include "api/mpi/pipes.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESSAGE_BYTES 65536
#define FIRST_TAG 0          /* the tag of the pipes for which the base was made */
#define TAG_LEAST_MOST 32767 /* the largest tag that every MPI has */
#define LANDING_MS 100       /* how long closing waits for messages in flight, in ms */

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

/* A communicator of MPI that pipes share, each with a tag of its own. */
struct base {
    MPI_Comm comm;
    int rank, nranks;
    int64_t most_tag;
    _Atomic int64_t drawn; /* tags that this rank has given */
    _Atomic int users;
    _Atomic bool carries; /* MPI carries a message, perhaps for ever */
};

struct pipes {
    struct base *base;
    int tag;
    int *ranks; /* [nranks] the ranks of these pipes, by their numbers in the base */
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
    if (MPI_Issend(out->buffer->bytes, (int)now, MPI_BYTE, pipes->ranks[peer], pipes->tag,
                   pipes->base->comm, &out->request) != MPI_SUCCESS) {
        pipes->error = "MPI_Issend failed";
        return 0;
    }
    out->flies = true;
    return now;
}

/* A peer sends the bytes of one put in one message. So if a byte is there, `least` bytes are there. */
static size_t take(void *context, int peer, void *bytes, size_t count, size_t least)
{
    struct pipes *pipes = context;
    struct message *in = &pipes->in[peer];
    if (!is_usable(pipes) || !has_room(pipes, in))
        return 0;
    if (!in->flies && in->taken == in->count) {
        if (MPI_Irecv(in->buffer->bytes, MESSAGE_BYTES, MPI_BYTE, pipes->ranks[peer], pipes->tag,
                      pipes->base->comm, &in->request) != MPI_SUCCESS) {
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

static void free_pipes(struct pipes *pipes)
{
    if (!pipes)
        return;
    free(pipes->out);
    free(pipes->in);
    free(pipes->ranks);
    free(pipes);
}

/* While MPI carries a message, its communicator is kept: MPI would give the communicator's number to a new one,
 * and deliver the message there.
 * usable: MPI has not ended */
static void leave(struct base *base, bool usable)
{
    if (atomic_fetch_sub(&base->users, 1) > 1)
        return;
    if (usable && !atomic_load(&base->carries))
        (void)MPI_Comm_free(&base->comm);
    free(base);
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
        if (pipes->out[r].flies || pipes->in[r].flies)
            atomic_store(&pipes->base->carries, true);
        let_go(&pipes->out[r], usable);
        let_go(&pipes->in[r], usable);
    }
    leave(pipes->base, usable);
    free_pipes(pipes);
}

/* ---- making pipes */

static ceclResult_t split(void *context, int number, const int *ranks, int nranks,
                          struct cecl_net_pipes *out);

/* A rank of the base gives each tag once, and never a tag that another rank gives. So two communicators that
 * share ranks never receive each other's messages. */
static int draw(void *context)
{
    struct base *base = ((struct pipes *)context)->base;
    const int64_t number = atomic_fetch_add(&base->drawn, 1),
                  tag = FIRST_TAG + 1 + number * base->nranks + base->rank;
    return tag <= base->most_tag ? (int)tag : -1;
}

/* Makes pipes of a base, and counts them as a user of the base.
 * from  pipes to whose ranks the numbers in `ranks` refer; NULL: they refer to the ranks of the base */
static ceclResult_t make(struct base *base, int tag, const struct pipes *from, const int *ranks,
                         int nranks, struct cecl_net_pipes *out)
{
    const size_t n = (size_t)nranks;
    struct pipes *pipes = calloc(1, sizeof(*pipes));
    if (pipes)
        *pipes = (struct pipes){.base = base,
                                .tag = tag,
                                .ranks = calloc(n, sizeof(*pipes->ranks)),
                                .nranks = nranks,
                                .out = calloc(n, sizeof(*pipes->out)),
                                .in = calloc(n, sizeof(*pipes->in))};
    if (!pipes || !pipes->ranks || !pipes->out || !pipes->in) {
        free_pipes(pipes);
        return cecl_fail(ceclOutOfMemory, "no host memory for MPI among %d ranks", nranks);
    }
    for (int r = 0; r < nranks; r++)
        pipes->ranks[r] = from ? from->ranks[ranks[r]] : r;
    atomic_fetch_add(&base->users, 1);
    *out = (struct cecl_net_pipes){pipes, put, take, has_left, error_of, close_pipes, draw, split};
    return ceclSuccess;
}

static ceclResult_t split(void *context, int number, const int *ranks, int nranks,
                          struct cecl_net_pipes *out)
{
    const struct pipes *from = context;
    return make(from->base, number, from, ranks, nranks, out);
}

/* ---- lending */

/* Threads of streams call MPI while the program may call MPI, too, so MPI must allow several threads at a
 * time. */
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

/* Sets up a communicator of MPI for these pipes and for the pipes of child communicators. */
static bool make_base(MPI_Comm comm, struct base *base)
{
    int *most = NULL, is_set = 0;
    if (MPI_Comm_dup(comm, &base->comm) != MPI_SUCCESS)
        return false;
    if (MPI_Comm_rank(base->comm, &base->rank) != MPI_SUCCESS ||
        MPI_Comm_size(base->comm, &base->nranks) != MPI_SUCCESS ||
        MPI_Comm_set_errhandler(base->comm, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &is_set) != MPI_SUCCESS) {
        (void)MPI_Comm_free(&base->comm);
        return false;
    }
    base->most_tag = is_set && most ? *most : TAG_LEAST_MOST;
    return true;
}

static ceclResult_t open_pipes(const struct cecl_net_lender *lender, struct cecl_mesh *mesh,
                               int rank, int nranks, struct cecl_net_pipes *pipes)
{
    MPI_Comm *comm = lender->context;
    struct base made = {.users = 1}, *base = calloc(1, sizeof(*base));
    (void)mesh, (void)rank;
    /* even without memory for `base`, because make_base is collective */
    if (!make_base(*comm, &made)) {
        free(base);
        return cecl_fail(ceclSystemError, "MPI_Comm_dup failed");
    }
    if (!base) {
        (void)MPI_Comm_free(&made.comm);
        return cecl_fail(ceclOutOfMemory, "no host memory for MPI among %d ranks", nranks);
    }
    *base = made;
    const ceclResult_t result = make(base, FIRST_TAG, NULL, NULL, nranks, pipes);
    leave(base, true);
    return result;
}

struct cecl_net_lender cecl_mpi_lender(void *comm)
{
    return (struct cecl_net_lender){
        .name = "MPI", .context = comm, .check = check, .open = open_pipes};
}
