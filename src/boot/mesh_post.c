/* Messages between two ranks at any time, with descriptors. Each is a packet, so it arrives whole
 * or not at all. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/packet.h"
#include "boot/process.h"
#include "util/clock.h"

#define POST_MAGIC 0x74736f70u
#define TICK_MS 50 /* ms after which a wait on a full socket checks whether the peer is alive */

/* The header of each message. Because of it no message is empty, and a read of 0 bytes means that the
 * connection has ended. */
struct post_header {
    uint32_t magic;
    uint16_t bytes, nfds;
};

/* ---- sending */

/* Whether a send may succeed later. ETOOMANYREFS: this user has too many sent descriptors that are not
 * received yet. */
static bool may_try_again(int error)
{
    return cecl_net_is_early(error) || error == ETOOMANYREFS;
}

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

/* A process that ends closes its sockets one by one. So news on the life connection may come a
 * moment after the end of the post connection. */
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

/* The error for a message that could not be sent because of `error`, an errno. */
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
    return polls[1].revents ? mesh_interrupted(mesh) : ceclSuccess;
}

ceclResult_t cecl_mesh_post(struct cecl_mesh *mesh, int peer, const void *message, size_t bytes,
                            const int *fds, int nfds, int64_t deadline)
{
    CECL_TRY(check_post(mesh, peer, bytes, nfds));
    struct post_header header = {
        .magic = POST_MAGIC, .bytes = (uint16_t)bytes, .nfds = (uint16_t)nfds};
    struct iovec parts[CECL_PACKET_PARTS] = {
        {.iov_base = &header, .iov_len = sizeof(header)},
        {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes},
    };
    for (;;) {
        /* A child may hold a dead peer's sockets open. A send would then succeed, although no
         * process would read it. */
        if (mesh_read_life(mesh, peer) != MESH_ALIVE)
            return mesh_peer_error(mesh, peer);
        if (cecl_packet_send(mesh->peers[peer].post, parts, fds, nfds) >= 0)
            return ceclSuccess;
        const int error = errno;
        if (!may_try_again(error))
            return no_post(mesh, peer, error);
        CECL_TRY(wait_for_room(mesh, peer, error, deadline));
    }
}

/* ---- taking */

/* Ends messages with the peer, in both directions. */
static void end_post(struct mesh_peer *peer)
{
    atomic_store(&peer->post_ended, true);
    shutdown(peer->post, SHUT_RDWR);
}

bool cecl_mesh_await(struct cecl_mesh *mesh, int wait_ms)
{
    bool any = false;
    for (int r = 0; r < mesh->nranks; r++) { /* this rank's own socket is -1 */
        const struct mesh_peer *peer = &mesh->peers[r];
        mesh->post_polls[r] = (struct pollfd){
            .fd = atomic_load(&peer->post_ended) ? -1 : peer->post, .events = POLLIN};
    }
    struct pollfd *rouse = &mesh->post_polls[mesh->nranks];
    *rouse = (struct pollfd){.fd = mesh->rouse_fd, .events = POLLIN};
    if (cecl_net_poll(mesh->post_polls, mesh->nranks + 1, wait_ms) <= 0)
        return false;
    mesh_hear_event(rouse);
    for (int r = 0; r < mesh->nranks; r++)
        if (mesh->post_polls[r].revents) {
            /* the peer has closed, and all was read */
            if (cecl_net_look(mesh->peers[r].post) == 0)
                /* an ended socket stays readable, so it is no longer polled */
                end_post(&mesh->peers[r]);
            any = true;
        }
    return any;
}

void cecl_mesh_rest(struct cecl_mesh *mesh, int wait_ms)
{
    struct pollfd rouse = {.fd = mesh->rouse_fd, .events = POLLIN};
    if (poll(&rouse, 1, wait_ms) > 0)
        mesh_hear_event(&rouse);
}

void cecl_mesh_rouse(struct cecl_mesh *mesh)
{
    (void)!eventfd_write(mesh->rouse_fd, 1);
}

/* Why a received packet is not a valid message, or NULL. */
static const char *find_fault(const struct post_header *header, size_t got, int nfds, int flags)
{
    if (flags & MSG_TRUNC)
        return "it is too long";
    if (got < sizeof(*header) || header->magic != POST_MAGIC ||
        header->bytes != got - sizeof(*header))
        return "it is not a message of cecl's";
    if (header->nfds > CECL_MESH_POST_FDS || (nfds != header->nfds && !(flags & MSG_CTRUNC)))
        return "it has more or fewer descriptors than its header says";
    return NULL;
}

/* One peer's next message; results as for cecl_mesh_take. */
static ceclResult_t take_from(struct cecl_mesh *mesh, int rank, void *message, size_t room,
                              size_t *bytes, int *fds, int *nfds)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    struct post_header header = {0};
    struct iovec parts[CECL_PACKET_PARTS] = {
        {.iov_base = &header, .iov_len = sizeof(header)},
        {.iov_base = message, .iov_len = room},
    };
    int received[CECL_MESH_POST_FDS], count, flags = 0;
    if (peer->post < 0 || atomic_load(&peer->post_ended))
        return ceclInProgress;
    const ssize_t got = cecl_packet_take(peer->post, parts, received, &count, &flags);
    if (got < 0 && !cecl_net_is_closed(errno))
        return ceclInProgress;
    if (got <= 0) { /* the life connection tells whether the peer left or died */
        end_post(peer);
        return ceclInProgress;
    }
    const char *fault = find_fault(&header, (size_t)got, count, flags);
    if (fault) {
        cecl_net_drop(received, count);
        end_post(peer);
        return cecl_fail(ceclRemoteError, "a message of rank %d cannot be taken: %s", rank, fault);
    }
    /* Our own descriptor limit, not the peer's fault. The lost descriptors cannot be sent again. */
    if (flags & MSG_CTRUNC) {
        cecl_net_drop(received, count);
        atomic_store(&peer->post_ended, true);
        shutdown(peer->post, SHUT_RD); /* messages can still be sent to the peer */
        return cecl_fail(ceclSystemError,
                         "rank %d has no descriptor left for those that rank %d sent with a "
                         "message; is the limit "
                         "of open files (ulimit -n) reached?",
                         mesh->rank, rank);
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
