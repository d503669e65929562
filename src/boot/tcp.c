/* A rank's side of the TCP bootstrap: connecting to the root, proving the secret, sending its own part,
 * and receiving the parts of all. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "boot/net.h"
#include "boot/tcp.h"
#include "util/clock.h"
#include "util/fds.h"

#define ROOT CECL_TCP_ROOT
#define BEAR_MS 1000 /* ms for which this process retries when it lacks descriptors or memory */
#define REST_MS 20   /* ms between two tries */

struct client {
    int fd;
    int64_t deadline;
    int64_t timeout_ms; /* ms from the start to the deadline */
};

/* Another possible reason why the root does not answer at the id's address. */
static const char *other_reason(const struct cecl_tcp_id *id)
{
    return cecl_tcp_is_loopback(id)
               ? ". The id is for one host: if it was made on another host or in another "
                 "container, "
                 "set CECL_SOCKET_IFNAME there to an interface that all ranks reach"
               : "";
}

static ceclResult_t in_time(const struct client *client, ceclResult_t result)
{
    return cecl_tcp_in_time(result, client->timeout_ms);
}

/* Begins a connection to the root. Before the root knows of this rank, this rank cannot tell anyone that
 * it gives up, and all would wait for it. So if descriptors or memory are scarce, it retries for a while.
 * *error: the errno of connect(). Returns what cecl_net_open returns. */
static int begin_connection(const struct cecl_tcp_id *id, int64_t deadline, int *error)
{
    const union cecl_tcp_address at = cecl_tcp_from_here(id);
    const int family = at.any.sa_family;
    const int64_t bear = cecl_deadline(BEAR_MS);
    for (;;) {
        const int fd = cecl_net_open(family, SOCK_STREAM);
        *error = fd >= 0 && connect(fd, &at.any, cecl_tcp_length(family)) == 0 ? 0 : errno;
        if (!cecl_net_is_scarce(*error) || cecl_ms_left(bear) == 0 || cecl_ms_left(deadline) == 0)
            return fd;
        if (fd >= 0)
            cecl_fds_close(fd);
        poll(NULL, 0, REST_MS);
    }
}

/* Connects to the root and sets client->fd. The caller closes it, also on failure. */
static ceclResult_t connect_root(const struct cecl_tcp_id *id, struct client *client)
{
    int error;
    client->fd = begin_connection(id, client->deadline, &error);
    if (client->fd < 0)
        return ceclSystemError;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof(error);
        CECL_TRY(in_time(client, cecl_net_wait(client->fd, POLLOUT, client->deadline, ROOT)));
        if (getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
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
    cecl_tcp_send_at_once(client->fd);
    return ceclSuccess;
}

/* Says that this rank joins, and receives the root's proof. said: its patience and tag are filled in here.
 * *put_off: newer callers replaced this one, which must connect again. The root may put this rank off before all has
 * arrived, so the root's answer is read even if not all could be sent. */
static ceclResult_t shake_hands(const struct client *client, const struct cecl_tcp_id *id,
                                struct cecl_tcp_said *said, bool *put_off)
{
    const int left = cecl_ms_left(client->deadline);
    struct cecl_tcp_proof proof;
    CECL_TRY(cecl_net_random(said->nonce, sizeof(said->nonce)));
    said->patience_ms = left > 0 ? left : 0;
    said->tag = cecl_tcp_rank_tag(id->secret, said);
    const ceclResult_t sent =
        in_time(client, cecl_net_send(client->fd, said, sizeof(*said), client->deadline, ROOT));
    if (sent != ceclSuccess && sent != ceclRemoteError)
        return sent;
    const ceclResult_t heard =
        in_time(client, cecl_net_recv(client->fd, &proof, sizeof(proof), client->deadline, ROOT));
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
                              struct client *client)
{
    for (;;) {
        bool put_off = false;
        ceclResult_t result = connect_root(id, client);
        if (result == ceclSuccess)
            result = shake_hands(client, id, said, &put_off);
        if (!put_off)
            return result;
        if (cecl_ms_left(client->deadline) == 0)
            return in_time(client, ceclTimeout);
        cecl_net_close(client->fd);
        client->fd = -1;
        poll(NULL, 0, REST_MS);
    }
}

static ceclResult_t allgather(struct cecl_oob *oob, const void *send, void *recv, size_t bytes)
{
    struct cecl_tcp_id id;
    memcpy(&id, oob->context, sizeof(id));
    if (id.magic != CECL_TCP_MAGIC || cecl_tcp_length(id.at.any.sa_family) == 0)
        return cecl_fail(ceclInvalidUsage, "unique id: not made by ceclGetUniqueId");

    struct cecl_tcp_said said = {.kind = CECL_TCP_MAGIC,
                                 .rank = oob->rank,
                                 .nranks = oob->nranks,
                                 .timeout_ms = oob->timeout_ms,
                                 .process = cecl_fork_process()};
    struct client client = {.fd = -1, .deadline = oob->deadline, .timeout_ms = oob->timeout_ms};
    memcpy(said.part, send, bytes);
    ceclResult_t result = meet_root(&id, &said, &client);
    oob->is_known = result == ceclSuccess;
    if (client.fd < 0)
        return result;
    struct cecl_lifeline *line = cecl_lifeline_new(client.fd, oob->nranks, oob->timeout_ms);
    if (result == ceclSuccess)
        result = line ? cecl_lifeline_hear(line, recv, bytes, oob->deadline)
                      : cecl_fail(ceclOutOfMemory, "no host memory to hear the root");
    oob->line = line;
    return result;
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
