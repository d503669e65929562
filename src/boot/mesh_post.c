/* Messages between two ranks at any time, with descriptors. Each pair has a socket for them that
 * keeps message boundaries (SOCK_SEQPACKET), so a message arrives whole or not at all. Neither rank
 * listens for it: one makes both ends, and sends one over the pair's data connection, where each
 * has proved who it is. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/process.h"
#include "util/clock.h"

#define POST_MAGIC 0x74736f70u
#define TICK_MS 50 /* ms after which a full socket's peer is looked at again */

/* What a message begins with. So no message is empty, and 0 bytes are the end. */
struct post_header {
    uint32_t magic;
    uint16_t bytes, nfds;
};

/* Room for the descriptors of one message. */
union post_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(CECL_MESH_POST_FDS * sizeof(int))];
};

/* Sends `parts` and the descriptors without waiting. Returns as sendmsg does. */
static ssize_t send_with_fds(int socket, struct iovec *parts, size_t nparts, const int *fds,
                             int nfds)
{
    union post_control control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = nparts};
    if (nfds > 0) {
        const size_t bytes = (size_t)nfds * sizeof(int);
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(rights), fds, bytes);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Whether to receive once more. ECONNRESET comes once, before messages that can still be received:
 * the peer has closed and did not take all of this rank's. */
static bool receives_more(ssize_t got)
{
    return got < 0 && (errno == EINTR || errno == ECONNRESET);
}

/* Returns as recvmsg does, and the descriptors that came, whatever else did. *flags: msg_flags. */
static ssize_t receive_with_fds(int socket, struct iovec *parts, size_t nparts, int *fds, int *nfds,
                                int *flags)
{
    union post_control control;
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = nparts,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    *nfds = 0;
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (receives_more(got));
    if (got < 0)
        return got;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            const size_t bytes = c->cmsg_len - CMSG_LEN(0);
            memcpy(fds + *nfds, CMSG_DATA(c), bytes); /* `control` holds no more than fit */
            *nfds += (int)(bytes / sizeof(int));
        }
    *flags = message.msg_flags;
    return got;
}

/* ---- making the connection */

/* Whether a send may succeed later. ETOOMANYREFS: more descriptors are under way than this user
 * may send; receivers will take some. */
static bool may_try_again(int error)
{
    return cecl_net_is_early(error) || error == ETOOMANYREFS;
}

static ceclResult_t offer(struct cecl_mesh *mesh, int peer, int end, int64_t deadline)
{
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    while (send_with_fds(mesh->peers[peer].data, &part, 1, &end, 1) != 1) {
        if (!may_try_again(errno))
            return mesh_io_error(mesh, peer, "sending a descriptor to", errno);
        if (cecl_ms_left(deadline) == 0)
            return mesh_no_connection(mesh, peer);
        poll(NULL, 0, 1);
    }
    return ceclSuccess;
}

ceclResult_t mesh_offer_post(struct cecl_mesh *mesh, int peer, int64_t deadline)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return cecl_fail(ceclSystemError, "no pair of Unix sockets: %s", strerror(errno));
    mesh->peers[peer].post = ends[0];
    const ceclResult_t result = offer(mesh, peer, ends[1], deadline);
    close(ends[1]);
    return result;
}

static void close_all(const int *fds, int nfds)
{
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
}

/* Waits until something has come over the data connection, or the peer has ended. */
static ceclResult_t await_offer(struct cecl_mesh *mesh, int peer, int64_t deadline)
{
    struct pollfd poller = {.fd = mesh->peers[peer].data, .events = POLLIN};
    for (;;) {
        const int left = cecl_ms_left(deadline);
        const int ready = poll(&poller, 1, left < 0 || left > TICK_MS ? TICK_MS : left);
        if (ready > 0)
            return ceclSuccess;
        if (ready < 0 && errno != EINTR)
            return cecl_fail(ceclSystemError, "poll: %s", strerror(errno));
        CECL_TRY(mesh_notice_leavers(mesh));
        if (left == 0)
            return cecl_fail(ceclTimeout,
                             "no connection for messages from rank %d within %" PRId64
                             " ms (CECL_INIT_TIMEOUT_MS)",
                             peer, mesh->init_timeout_ms);
    }
}

ceclResult_t mesh_accept_post(struct cecl_mesh *mesh, int peer, int64_t deadline)
{
    int fds[CECL_MESH_POST_FDS], nfds = 0, flags;
    char byte;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    ssize_t got;
    do {
        CECL_TRY(await_offer(mesh, peer, deadline));
        got = receive_with_fds(mesh->peers[peer].data, &part, 1, fds, &nfds, &flags);
    } while (got < 0 && cecl_net_is_early(errno));
    if (got <= 0)
        return mesh_io_error(mesh, peer, "receiving from", got == 0 ? EPIPE : errno);
    if (nfds == 1) {
        mesh->peers[peer].post = fds[0];
        return ceclSuccess;
    }
    close_all(fds, nfds);
    return cecl_fail(ceclSystemError,
                     "no descriptor is left here for the one that rank %d sent; is the limit of "
                     "open files (ulimit -n) reached?",
                     peer);
}

/* ---- sending */

static ceclResult_t check_post(const struct cecl_mesh *mesh, int peer, size_t bytes, int nfds)
{
    if (peer < 0 || peer >= mesh->nranks || peer == mesh->rank)
        return cecl_fail(ceclInvalidArgument, "message to rank %d: another rank of %d expected",
                         peer, mesh->nranks);
    if (bytes > CECL_MESH_POST_BYTES)
        return cecl_fail(ceclInvalidArgument, "message of %zu bytes: at most %d expected", bytes,
                         CECL_MESH_POST_BYTES);
    if (nfds < 0 || nfds > CECL_MESH_POST_FDS)
        return cecl_fail(ceclInvalidArgument, "message with %d descriptors: 0 to %d expected", nfds,
                         CECL_MESH_POST_FDS);
    return ceclSuccess;
}

/* A process that ends closes its sockets one by one. So what its life connection tells may come a
 * moment after the end of this one. */
static enum mesh_state await_news(struct cecl_mesh *mesh, int peer)
{
    for (int ms = 0; ms < CECL_PROCESS_ENDING_MS && mesh_read_life(mesh, peer) == MESH_ALIVE;
         ms++) {
        if (cecl_process_has_ended(mesh->peers[peer].process))
            mesh_note_end(mesh, peer);
        else
            poll(NULL, 0, 1);
    }
    return mesh_read_life(mesh, peer);
}

/* The error for a message that could not be sent for `error`, an errno. */
static ceclResult_t no_post(struct cecl_mesh *mesh, int peer, int error)
{
    return cecl_net_is_closed(error) && await_news(mesh, peer) == MESH_ALIVE
               ? cecl_fail(ceclRemoteError, "rank %d has closed its connection for messages", peer)
               : mesh_io_error(mesh, peer, "sending a message to", error);
}

/* Waits until the socket takes more, the peer ends, or a moment has passed. */
static ceclResult_t wait_for_room(struct cecl_mesh *mesh, int peer, int error, int64_t deadline)
{
    struct pollfd polls[] = {
        {.fd = error == ETOOMANYREFS ? -1 : mesh->peers[peer].post, .events = POLLOUT},
        {.fd = mesh->interrupt_fd, .events = POLLIN},
        {.fd = mesh->peers[peer].process, .events = POLLIN},
    };
    const int left = cecl_ms_left(deadline);
    if (left == 0)
        return cecl_fail(ceclTimeout, "rank %d took no message in time", peer);
    const int tick = error == ETOOMANYREFS ? 1 : TICK_MS;
    if (poll(polls, 3, left < 0 || left > tick ? tick : left) < 0 && errno != EINTR)
        return cecl_fail(ceclSystemError, "poll: %s", strerror(errno));
    if (polls[2].revents)
        mesh_note_end(mesh, peer);
    if (!polls[1].revents)
        return ceclSuccess;
    CECL_TRY(mesh_first_error(mesh));
    return cecl_fail(ceclRemoteError, "given up, for the communicator has failed");
}

ceclResult_t cecl_mesh_post(struct cecl_mesh *mesh, int peer, const void *message, size_t bytes,
                            const int *fds, int nfds, int64_t deadline)
{
    CECL_TRY(check_post(mesh, peer, bytes, nfds));
    struct post_header header = {
        .magic = POST_MAGIC, .bytes = (uint16_t)bytes, .nfds = (uint16_t)nfds};
    struct iovec parts[] = {
        {.iov_base = &header, .iov_len = sizeof(header)},
        {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes},
    };
    for (;;) {
        /* A forked child may keep the sockets of a peer that has gone, and they would take it. */
        if (mesh_read_life(mesh, peer) != MESH_ALIVE)
            return mesh_peer_error(mesh, peer);
        if (send_with_fds(mesh->peers[peer].post, parts, 2, fds, nfds) >= 0)
            return ceclSuccess;
        const int error = errno;
        if (!may_try_again(error))
            return no_post(mesh, peer, error);
        CECL_TRY(wait_for_room(mesh, peer, error, deadline));
    }
}

/* ---- taking */

/* No further message is taken from the peer, and it can post none. */
static void end_post(struct mesh_peer *peer)
{
    atomic_store(&peer->post_ended, true);
    shutdown(peer->post, SHUT_RDWR);
}

/* Notes that no further message comes by a peer's `post`, if it is closed and read to its end. A
 * closed socket stays readable. */
static void notice_end(struct cecl_mesh *mesh, int rank)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    char byte;
    ssize_t got;
    do
        got = recv(peer->post, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    while (receives_more(got));
    if (got == 0 || (got < 0 && cecl_net_is_closed(errno)))
        end_post(peer);
}

bool cecl_mesh_await(struct cecl_mesh *mesh, int wait_ms)
{
    const nfds_t count = (nfds_t)mesh->nranks;
    struct pollfd *rouse = &mesh->post_polls[count];
    for (int r = 0; r < mesh->nranks; r++) { /* this rank's own is -1, which poll() skips */
        const struct mesh_peer *peer = &mesh->peers[r];
        mesh->post_polls[r] = (struct pollfd){
            .fd = atomic_load(&peer->post_ended) ? -1 : peer->post, .events = POLLIN};
    }
    *rouse = (struct pollfd){.fd = mesh->rouse_fd, .events = POLLIN};
    if (poll(mesh->post_polls, count + 1, wait_ms) <= 0)
        return false;
    eventfd_t events;
    bool any = false;
    if (rouse->revents)
        (void)!eventfd_read(mesh->rouse_fd, &events);
    for (int r = 0; r < mesh->nranks; r++)
        if (mesh->post_polls[r].revents) {
            notice_end(mesh, r);
            any = true;
        }
    return any;
}

void cecl_mesh_rest(struct cecl_mesh *mesh, int wait_ms)
{
    struct pollfd rouse = {.fd = mesh->rouse_fd, .events = POLLIN};
    eventfd_t events;
    if (poll(&rouse, 1, wait_ms) > 0)
        (void)!eventfd_read(mesh->rouse_fd, &events);
}

void cecl_mesh_rouse(struct cecl_mesh *mesh)
{
    (void)!eventfd_write(mesh->rouse_fd, 1);
}

/* Why what was received is no message, or NULL. */
static const char *find_fault(const struct post_header *header, size_t got, int nfds, int flags)
{
    if (flags & MSG_TRUNC)
        return "it is too long";
    if (got < sizeof(*header) || header->magic != POST_MAGIC ||
        header->bytes != got - sizeof(*header))
        return "it is not one of cecl";
    if (header->nfds > CECL_MESH_POST_FDS || (nfds != header->nfds && !(flags & MSG_CTRUNC)))
        return "descriptors were lost: there are more, or fewer, than a message has";
    return NULL;
}

/* One peer's next message; results as for cecl_mesh_take. */
static ceclResult_t take_from(struct cecl_mesh *mesh, int rank, void *message, size_t room,
                              size_t *bytes, int *fds, int *nfds)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    struct post_header header = {0};
    struct iovec parts[] = {
        {.iov_base = &header, .iov_len = sizeof(header)},
        {.iov_base = message, .iov_len = room},
    };
    int received[CECL_MESH_POST_FDS], count, flags = 0;
    if (peer->post < 0 || atomic_load(&peer->post_ended))
        return ceclInProgress;
    const ssize_t got = receive_with_fds(peer->post, parts, 2, received, &count, &flags);
    if (got < 0 && !cecl_net_is_closed(errno))
        return ceclInProgress;
    if (got <= 0) { /* the news of its end comes by its life connection */
        end_post(peer);
        return ceclInProgress;
    }
    const char *fault = find_fault(&header, (size_t)got, count, flags);
    if (fault) {
        close_all(received, count);
        end_post(peer);
        return cecl_fail(ceclRemoteError, "a message of rank %d cannot be taken: %s", rank, fault);
    }
    if (flags & MSG_CTRUNC) { /* this process's own trouble; what is lost cannot be sent again */
        close_all(received, count);
        atomic_store(&peer->post_ended, true);
        shutdown(peer->post, SHUT_RD); /* what this rank has to tell may still go */
        return cecl_fail(
            ceclSystemError,
            "no descriptor is left here for those that rank %d sent with a message; is "
            "the limit of open files (ulimit -n) reached?",
            rank);
    }
    *bytes = header.bytes;
    *nfds = count;
    memcpy(fds, received, (size_t)count * sizeof(int));
    return ceclSuccess;
}

ceclResult_t cecl_mesh_take(struct cecl_mesh *mesh, int *peer, void *message, size_t room,
                            size_t *bytes, int *fds, int *nfds)
{
    for (int i = 0; i < mesh->nranks; i++) {
        const int rank = mesh->take_turn;
        mesh->take_turn = (rank + 1) % mesh->nranks;
        const ceclResult_t result = take_from(mesh, rank, message, room, bytes, fds, nfds);
        if (result == ceclInProgress)
            continue;
        if (result == ceclSuccess)
            *peer = rank;
        return result;
    }
    return ceclInProgress;
}
