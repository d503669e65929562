/* A rank's side of the TCP bootstrap: joining, and its line to the root (oob.h). */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boot/net.h"
#include "boot/tcp.h"
#include "util/fds.h"
#include "util/thread.h"

#define ROOT "the rank that made the unique id"
#define REST_MS 20 /* how long a rank that the root put off waits before it connects again, in ms */
#define SAY_MS 1000 /* how long sending a message may take, in ms */
#define TICK_MS 50  /* how late a wait notices that another thread has ended it, in ms */

/* If a wait for the root ended with ceclTimeout, makes the message say the time limit. */
static ceclResult_t in_time(const struct cecl_lifeline *line, ceclResult_t result)
{
    return result != ceclTimeout
               ? result
               : cecl_fail(ceclTimeout,
                           "no answer from " ROOT " within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
                           line->timeout_ms);
}

static ceclResult_t hear(const struct cecl_lifeline *line, void *data, size_t bytes,
                         int64_t deadline)
{
    return in_time(line, cecl_net_recv(line->fd, data, bytes, deadline, ROOT));
}

static ceclResult_t say(int fd, uint64_t kind, const void *part, size_t bytes)
{
    struct cecl_tcp_said said = {.kind = kind};
    memcpy(said.part, part, bytes);
    return cecl_net_send(fd, &said, sizeof(said), cecl_deadline(SAY_MS), ROOT);
}

void cecl_lifeline_close(struct cecl_lifeline *line)
{
    if (line->nranks > 0 && line->fd >= 0)
        cecl_net_close(line->fd);
    line->fd = -1;
}

/* ---- what the root says */

/* Receives a reply's head, and notes what an empty reply says. For an error, also receives the root's message. */
static ceclResult_t hear_head(struct cecl_lifeline *line, struct cecl_tcp_reply *reply,
                              int64_t deadline)
{
    char words[CECL_MESSAGE_BYTES] = "";
    const size_t most = sizeof(words) - 1;
    CECL_TRY(hear(line, reply, sizeof(*reply), deadline));
    const ceclResult_t status = (ceclResult_t)reply->status;
    if (status == ceclSuccess && reply->bytes == 0) {
        line->root_may_end = line->root_may_end || reply->left == 0;
        if (line->left < 0)
            line->left = (int)reply->left - 1;
    }
    if (status == ceclSuccess ||
        hear(line, words, reply->bytes < most ? (size_t)reply->bytes : most, deadline) !=
            ceclSuccess)
        return status;
    return cecl_fail_with(status, words);
}

/* Receives what the root sends once all ranks have sent a part: `bytes` bytes of each rank. If the root sends an error
 * instead, fails with that error. recv NULL: the parts are not needed. */
static ceclResult_t hear_parts(struct cecl_lifeline *line, void *recv, size_t bytes,
                               int64_t deadline)
{
    struct cecl_tcp_reply reply = {.bytes = 0};
    char part[CECL_OOB_PART_BYTES];
    while (reply.bytes == 0) /* the parts come next */
        CECL_TRY(hear_head(line, &reply, deadline));
    if (reply.bytes != (uint64_t)line->nranks * sizeof(part))
        return cecl_fail(ceclInternalError, "the root sent %llu bytes, %zu expected",
                         (unsigned long long)reply.bytes, (size_t)line->nranks * sizeof(part));
    for (int r = 0; r < line->nranks; r++) {
        CECL_TRY(hear(line, part, sizeof(part), deadline));
        if (recv)
            memcpy((char *)recv + (size_t)r * bytes, part, bytes);
    }
    return ceclSuccess;
}

/* ---- joining */

/* For messages: a possible reason why the root does not answer at the id's address. */
static const char *other_reason(const struct cecl_tcp_id *id)
{
    return cecl_tcp_is_loopback(id)
               ? ". The id is for one host: if it was made on another host or in another "
                 "container, "
                 "set CECL_SOCKET_IFNAME there to an interface that all ranks reach"
               : "";
}

/* Begins a connection to the root. As long as the root does not know of this rank, this rank cannot tell anyone that it
 * gives up, and all would wait for it. So while descriptors or memory are lacking, this function tries again, for a
 * second. Sets *error to the errno of connect(). Returns what cecl_net_open returns. */
static int begin_connection(const struct cecl_tcp_id *id, int64_t deadline, int *error)
{
    const union cecl_tcp_address at = cecl_tcp_from_here(id);
    const int family = at.any.sa_family;
    int64_t lack[2] = {0};
    for (;;) {
        int fd = cecl_net_open(family, SOCK_STREAM);
        *error = fd >= 0 && connect(fd, &at.any, cecl_tcp_length(family)) == 0 ? 0 : errno;
        if (!cecl_net_bears(*error, lack) || cecl_ms_left(deadline) == 0)
            return fd;
        cecl_net_drop(&fd, 1);
    }
}

/* Connects to the root and sets line->fd, which the caller closes even on failure. */
static ceclResult_t connect_root(const struct cecl_tcp_id *id, struct cecl_lifeline *line,
                                 int64_t deadline)
{
    int error;
    line->fd = begin_connection(id, deadline, &error);
    if (line->fd < 0)
        return ceclSystemError;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof(error);
        CECL_TRY(in_time(line, cecl_net_wait(line->fd, POLLOUT, deadline, ROOT)));
        if (getsockopt(line->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
    }
    /* ECONNRESET: the root ended while this connection was in its queue. */
    if (error == ECONNREFUSED || error == ECONNRESET)
        return cecl_fail(
            ceclInvalidUsage,
            "unique id: no process listens at its address; the id was used already, or the "
            "process that made it has ended: make a new one with ceclGetUniqueId%s",
            other_reason(id));
    if (error != 0)
        return cecl_fail(error == ETIMEDOUT ? ceclTimeout : ceclSystemError,
                         "connecting to " ROOT ": %s", strerror(error));
    cecl_tcp_set_up(line->fd);
    return ceclSuccess;
}

/* Says that this rank joins, and receives the root's proof. Fills in nonce, patience_ms and tag of *said. Sets *put_off
 * if the root dropped this connection for newer ones, so that this rank must connect again. The root may do so before
 * it has read all of `said`, so this function reads the root's answer even if not all of `said` could be sent. */
static ceclResult_t shake_hands(const struct cecl_lifeline *line, const struct cecl_tcp_id *id,
                                struct cecl_tcp_said *said, int64_t deadline, bool *put_off)
{
    const int left = cecl_ms_left(deadline);
    struct cecl_tcp_proof proof;
    CECL_TRY(cecl_net_random(said->nonce, sizeof(said->nonce)));
    said->patience_ms = left > 0 ? left : 0;
    said->tag = cecl_tcp_rank_tag(id->secret, said);
    const ceclResult_t sent =
        in_time(line, cecl_net_send(line->fd, said, sizeof(*said), deadline, ROOT));
    if (sent != ceclSuccess && sent != ceclRemoteError)
        return sent;
    const ceclResult_t heard = hear(line, &proof, sizeof(proof), deadline);
    *put_off = heard == ceclSuccess && proof.tag == CECL_TCP_AGAIN;
    if (heard == ceclRemoteError)
        return cecl_fail(ceclInvalidUsage,
                         "unique id: " ROOT " closed the connection: the job has another secret, "
                         "has begun already, or has ended");
    if (heard != ceclSuccess || *put_off)
        return heard;
    const uint64_t expected = cecl_tcp_root_tag(id->secret, said);
    return cecl_net_equal(&proof.tag, &expected, sizeof(expected))
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage,
                           "unique id: the listener at its address is not cecl, or has another "
                           "secret%s",
                           other_reason(id));
}

/* Connects to the root and proves the secret. Connects again if the root puts this rank off. */
static ceclResult_t meet_root(const struct cecl_tcp_id *id, struct cecl_tcp_said *said,
                              struct cecl_lifeline *line, int64_t deadline)
{
    for (;;) {
        bool put_off = false;
        ceclResult_t result = connect_root(id, line, deadline);
        if (result == ceclSuccess)
            result = shake_hands(line, id, said, deadline, &put_off);
        if (!put_off)
            return result;
        if (cecl_ms_left(deadline) == 0)
            return in_time(line, ceclTimeout);
        cecl_lifeline_close(line);
        poll(NULL, 0, REST_MS);
    }
}

static ceclResult_t allgather(struct cecl_oob *oob, const void *send, void *recv, size_t bytes)
{
    struct cecl_tcp_id id;
    memcpy(&id, oob->context, sizeof(id));
    if (id.magic != CECL_TCP_MAGIC || cecl_tcp_length(id.at.any.sa_family) == 0)
        return cecl_fail(ceclInvalidUsage,
                         "unique id: not made by ceclGetUniqueId of this version of cecl");

    struct cecl_tcp_said said = {.kind = CECL_TCP_MAGIC,
                                 .rank = oob->rank,
                                 .nranks = oob->nranks,
                                 .timeout_ms = oob->timeout_ms,
                                 .process = cecl_fork_process(),
                                 .host = oob->host};
    memcpy(said.part, send, bytes);
    oob->line = (struct cecl_lifeline){.nranks = oob->nranks,
                                       .fd = -1,
                                       .timeout_ms = oob->timeout_ms,
                                       .left = -1,
                                       .lock = PTHREAD_MUTEX_INITIALIZER};
    CECL_TRY(meet_root(&id, &said, &oob->line, oob->deadline));
    oob->is_known = true;
    return hear_parts(&oob->line, recv, bytes, oob->deadline);
}

void cecl_oob_from_id(struct cecl_oob *oob, const ceclUniqueId *id, int nranks, int rank,
                      int64_t timeout_ms)
{
    *oob = (struct cecl_oob){.nranks = nranks,
                             .rank = rank,
                             .timeout_ms = timeout_ms,
                             .deadline = cecl_deadline(timeout_ms),
                             .context = (void *)(uintptr_t)id,
                             .allgather = allgather};
}

/* ---- the line */

/* Waits until the root has sent something, until the deadline, or until *ended. */
static ceclResult_t await_root(const struct cecl_lifeline *line, int64_t deadline,
                               const _Atomic bool *ended)
{
    for (;;) {
        const int left = cecl_ms_left(deadline);
        struct pollfd root = {.fd = line->fd, .events = POLLIN};
        if (poll(&root, 1, left < 0 || left > TICK_MS ? TICK_MS : left) > 0)
            return ceclSuccess;
        if (ended && atomic_load(ended))
            return cecl_fail(ceclRemoteError, "the communicator has failed");
        if (left == 0)
            return cecl_fail(ceclTimeout, "other ranks did not take part in time");
    }
}

static ceclResult_t gather(struct cecl_lifeline *line, const void *send, void *recv, size_t bytes,
                           int64_t deadline, const _Atomic bool *ended)
{
    if (line->fd < 0)
        return cecl_fail(ceclRemoteError, ROOT " has ended");
    if (line->has_told) /* after a failure the root no longer answers */
        return cecl_fail(ceclRemoteError, "the communicator has failed");
    const ceclResult_t said = say(line->fd, CECL_TCP_PART, send, bytes);
    if (said != ceclSuccess && said != ceclRemoteError) /* the root may have told why it closed */
        return said;
    CECL_TRY(await_root(line, deadline, ended));
    return hear_parts(line, recv, bytes, deadline);
}

ceclResult_t cecl_lifeline_gather(struct cecl_lifeline *line, const void *send, void *recv,
                                  size_t bytes, int64_t deadline, const _Atomic bool *ended)
{
    pthread_mutex_lock(&line->lock);
    const ceclResult_t result = gather(line, send, recv, bytes, deadline, ended);
    line->is_broken = line->is_broken || result != ceclSuccess;
    pthread_mutex_unlock(&line->lock);
    return result;
}

ceclResult_t cecl_lifeline_agree(struct cecl_lifeline *line, ceclResult_t mine, int64_t deadline,
                                 const _Atomic bool *ended)
{
    struct cecl_vote *all = calloc((size_t)line->nranks, sizeof(*all));
    if (!all && mine == ceclSuccess) /* the vote below tells the others */
        mine =
            cecl_fail(ceclOutOfMemory, "no host memory for an exchange of %d ranks", line->nranks);
    const struct cecl_vote vote = cecl_vote_of(mine);
    ceclResult_t result = cecl_lifeline_gather(line, &vote, all, sizeof(vote), deadline, ended);
    if (result == ceclSuccess && all)
        result = cecl_votes_count(all, sizeof(vote), line->nranks);
    free(all);
    return mine == ceclSuccess ? result : cecl_vote_again(&vote);
}

void cecl_lifeline_rest(struct cecl_lifeline *line, int wake, int ms)
{
    uint64_t count;
    struct pollfd polls[] = {{.fd = wake, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    if (pthread_mutex_trylock(&line->lock) == 0) {
        polls[1].fd = line->fd;
        pthread_mutex_unlock(&line->lock);
    }
    (void)poll(polls, 2, ms);
    (void)!read(wake, &count, sizeof(count));
}

static ceclResult_t news(struct cecl_lifeline *line)
{
    struct cecl_tcp_reply reply = {.bytes = 0};
    const int look = line->fd < 0 ? -1 : cecl_net_look(line->fd);
    if (look > 0)
        return hear_head(line, &reply, cecl_deadline(SAY_MS));
    if (look < 0)
        return ceclSuccess;
    cecl_lifeline_close(line);
    return line->root_may_end
               ? ceclSuccess
               : cecl_fail(ceclRemoteError, ROOT " has ended, so ranks no longer learn if one of "
                                                 "them ends");
}

/* If another thread is exchanging, that thread reads the news. */
ceclResult_t cecl_lifeline_news(struct cecl_lifeline *line)
{
    if (pthread_mutex_trylock(&line->lock) != 0)
        return ceclSuccess;
    const ceclResult_t result = news(line);
    line->has_told = line->has_told || result != ceclSuccess;
    pthread_mutex_unlock(&line->lock);
    return result;
}

void cecl_lifeline_fail(struct cecl_lifeline *line, const char *words)
{
    if (!cecl_lock_until(&line->lock, cecl_deadline(SAY_MS)))
        return;
    if (line->fd >= 0 && !line->has_told)
        (void)!say(line->fd, CECL_TCP_FAILURE, words, strnlen(words, CECL_MESSAGE_BYTES - 1));
    line->has_told = true;
    pthread_mutex_unlock(&line->lock);
}

void cecl_lifeline_leave(struct cecl_lifeline *line)
{
    const int64_t deadline = cecl_deadline(SAY_MS);
    char rest;
    if (!cecl_lock_until(&line->lock, deadline))
        return;
    if (line->fd >= 0 && say(line->fd, CECL_TCP_GOODBYE, "", 0) == ceclSuccess)
        while (cecl_net_recv(line->fd, &rest, 1, deadline, ROOT) == ceclSuccess)
            ;
    cecl_lifeline_close(line);
    pthread_mutex_unlock(&line->lock);
}
