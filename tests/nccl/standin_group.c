/* Carries out calls; those of a group together. A thread may be several ranks, so no code waits for a single transfer. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

#define TIMEOUT_S 100
#define LOOKS 3 /* calls of standin_look after which a job may be complete */

static _Thread_local int depth;
static _Thread_local struct op *first;
static _Thread_local bool is_hollow;
static _Thread_local ncclResult_t refusal; /* a call in the open group failed */

/* The background job of the non-blocking communicators of one group. */
struct job {
    struct op *first;
    int users; /* communicators that have this job */
    int looks;
    bool is_done;
    ncclResult_t result;
};
static pthread_mutex_t jobs = PTHREAD_MUTEX_INITIALIZER;

struct op *standin_op(ncclComm_t comm)
{
    struct op *op = calloc(1, sizeof(*op));
    op->comm = comm;
    return op;
}

static void add(struct op *op, int sender, int receiver, bool sends, void *bytes, size_t count)
{
    const int peer = sends ? receiver : sender;
    op->has_no_peer = op->has_no_peer || peer < 0 || peer >= op->comm->nranks;
    if (op->has_no_peer)
        return;
    op->transfers[op->ntransfers++] = (struct transfer){
        .channel = &op->comm->shared->channels[sender * op->comm->nranks + receiver],
        .sends = sends,
        .at = bytes,
        .left = count,
    };
}

void standin_send(struct op *op, int peer, const void *bytes, size_t count)
{
    add(op, op->comm->rank, peer, true, (void *)(uintptr_t)bytes, count);
}

void standin_receive(struct op *op, int peer, void *bytes, size_t count)
{
    add(op, peer, op->comm->rank, false, bytes, count);
}

/* Copies as many bytes as it can in one piece: to the ring's free part for a send, from its full part for a receive. */
static size_t move(struct transfer *transfer)
{
    struct channel *channel = transfer->channel;
    const uint64_t written = atomic_load(&channel->written), read = atomic_load(&channel->read);
    const uint64_t from = transfer->sends ? written : read;
    const uint64_t there = transfer->sends ? STANDIN_RING - (written - read) : written - read;
    const uint64_t place = from % STANDIN_RING;
    size_t bytes = there < STANDIN_RING - place ? there : STANDIN_RING - place;
    bytes = bytes < transfer->left ? bytes : transfer->left;
    if (bytes == 0) /* the address may be NULL */
        return 0;
    if (transfer->sends)
        memcpy(channel->bytes + place, transfer->at, bytes);
    else
        memcpy(transfer->at, channel->bytes + place, bytes);
    atomic_fetch_add(transfer->sends ? &channel->written : &channel->read, bytes);
    transfer->at += bytes;
    transfer->left -= bytes;
    return bytes;
}

static bool is_same_end(const struct transfer *a, const struct transfer *b)
{
    return a->channel == b->channel && a->sends == b->sends;
}

/* Whether an earlier transfer at this end of the channel is not complete. */
static bool must_wait(const struct op *list, const struct op *op, int index)
{
    const struct transfer *mine = &op->transfers[index];
    for (const struct op *other = list; other; other = other->next) {
        for (int i = 0; i < other->ntransfers; i++) {
            if (&other->transfers[i] == mine)
                return false;
            if (is_same_end(&other->transfers[i], mine) && other->transfers[i].left > 0)
                return true;
        }
    }
    return false;
}

static size_t move_all(const struct op *list, struct op *op)
{
    size_t moved = 0;
    for (int i = 0; i < op->ntransfers; i++)
        if (op->transfers[i].left > 0 && !must_wait(list, op, i))
            moved += move(&op->transfers[i]);
    return moved;
}

static bool is_complete(const struct op *op)
{
    size_t left = 0;
    for (int i = 0; i < op->ntransfers; i++)
        left += op->transfers[i].left;
    return left == 0 &&
           (!op->waits_for_all || atomic_load(&op->comm->shared->joined) == op->comm->nranks);
}

/* One round over all calls. Returns how many bytes it moved. *is_done: whether all calls are complete. */
static size_t advance(struct op *list, bool *is_done)
{
    size_t moved = 0;
    *is_done = true;
    for (struct op *op = list; op; op = op->next) {
        moved += move_all(list, op);
        *is_done = *is_done && is_complete(op);
    }
    return moved;
}

static bool is_aborted(const struct op *list)
{
    bool is = false;
    for (const struct op *op = list; op; op = op->next)
        is = is || atomic_load(&op->comm->shared->is_aborted) ||
             (atomic_load(&op->comm->shared->is_revoked) && !op->split);
    return is;
}

/* How long a collective takes at least after all its ranks have come. */
static _Atomic unsigned least_us;

void standin_take_us(unsigned us)
{
    atomic_store(&least_us, us);
}

/* The environment also sets it, for programs that do not know the stand-in. */
__attribute__((constructor)) static void read_least_us(void)
{
    const char *us = getenv("STANDIN_TAKES_US");
    if (us)
        standin_take_us((unsigned)atoi(us));
}

static ncclResult_t move_until_done(void)
{
    bool is_done = false;
    time_t limit = time(NULL) + TIMEOUT_S;
    while (!is_done) {
        if (advance(first, &is_done) > 0)
            limit = time(NULL) + TIMEOUT_S;
        else if (is_aborted(first) || time(NULL) > limit)
            return ceclRemoteError;
        else
            sched_yield();
    }
    const unsigned us = atomic_load(&least_us);
    const struct timespec pause = {.tv_nsec = (long)us * 1000};
    if (us > 0)
        nanosleep(&pause, NULL);
    return ceclSuccess;
}

static void finish(struct op **list, ncclResult_t result)
{
    while (*list) {
        struct op *op = *list;
        *list = op->next;
        if (op->finish && result == (ncclResult_t)ceclSuccess)
            op->finish(op);
        free(op->staging);
        free(op);
    }
}

/* ---- in the background */

static void leave_job(ncclComm_t comm)
{
    struct job *job = comm->job;
    comm->job = NULL;
    if (job && --job->users == 0)
        free(job);
}

static ncclResult_t begin_job(void)
{
    struct job *job = calloc(1, sizeof(*job));
    pthread_mutex_lock(&jobs);
    job->first = first;
    for (struct op *op = first; op; op = op->next) {
        job->users += op->comm->job != job;
        op->comm->job = job;
    }
    first = NULL;
    pthread_mutex_unlock(&jobs);
    return ceclInProgress;
}

static void advance_job(struct job *job)
{
    if (job->is_done || job->looks++ < LOOKS)
        return;
    advance(job->first, &job->is_done);
    if (!job->is_done && is_aborted(job->first)) {
        job->result = ceclRemoteError;
        job->is_done = true;
    }
    if (job->is_done)
        finish(&job->first, job->result);
}

ncclResult_t standin_look(ncclComm_t comm)
{
    ncclResult_t result = ceclSuccess;
    pthread_mutex_lock(&jobs);
    if (comm->job) {
        advance_job(comm->job);
        result = comm->job->is_done ? comm->job->result : (ncclResult_t)ceclInProgress;
        if (comm->job->is_done)
            leave_job(comm);
    }
    pthread_mutex_unlock(&jobs);
    return result;
}

bool standin_is_ready(ncclComm_t comm)
{
    pthread_mutex_lock(&jobs);
    if (comm->job && comm->job->is_done && comm->job->result == (ncclResult_t)ceclSuccess)
        leave_job(comm); /* a group completes on all of its communicators at once */
    const bool is = !comm->job;
    pthread_mutex_unlock(&jobs);
    return is;
}

/* Drops the calls of `comm`; those of other communicators stay in the job. */
void standin_give_up(ncclComm_t comm)
{
    pthread_mutex_lock(&jobs);
    for (struct op **at = comm->job ? &comm->job->first : &(struct op *){NULL}; *at;) {
        struct op *op = *at;
        if (op->comm != comm) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        free(op->staging);
        free(op);
    }
    leave_job(comm);
    pthread_mutex_unlock(&jobs);
}

static ncclResult_t carry_out(void)
{
    if (standin_captures(first)) {
        first = NULL;
        return ceclSuccess;
    }
    if (first && first->comm->is_non_blocking)
        return begin_job();
    const ncclResult_t result = move_until_done();
    finish(&first, result);
    return result;
}

ncclResult_t standin_carry_out(struct op *list)
{
    first = list;
    return carry_out();
}

void standin_drop(struct op *list)
{
    finish(&list, ceclRemoteError);
}

static ncclResult_t drop(struct op *op, ncclResult_t result)
{
    free(op->staging);
    free(op);
    return result;
}

void standin_go_hollow(bool is)
{
    is_hollow = is;
}

ncclResult_t standin_enqueue(struct op *op)
{
    struct op **end = &first;
    if (is_hollow)
        return drop(op, ceclSuccess);
    if (op->has_no_peer || !standin_is_ready(op->comm)) {
        refusal = depth > 0 ? ceclInvalidArgument : ceclSuccess;
        return drop(op, ceclInvalidArgument);
    }
    while (*end)
        end = &(*end)->next;
    *end = op;
    return depth > 0 ? ceclSuccess : carry_out();
}

ncclResult_t ncclGroupStart(void)
{
    NOTE(0);
    depth++;
    return ceclSuccess;
}

/* Ends the group without carrying out its calls. */
static ncclResult_t give_up(ncclResult_t result)
{
    refusal = ceclSuccess;
    finish(&first, ceclRemoteError);
    return result;
}

ncclResult_t ncclGroupSimulateEnd(void *info)
{
    NOTE(WORD(info));
    if (depth == 1)
        give_up(ceclSuccess);
    return depth == 0 ? ceclInvalidUsage : (depth--, ceclSuccess);
}

ncclResult_t ncclGroupEnd(void)
{
    NOTE(0);
    if (depth == 0)
        return ceclInvalidUsage;
    if (--depth > 0)
        return ceclSuccess;
    return refusal == (ncclResult_t)ceclSuccess ? carry_out() : give_up(refusal);
}
