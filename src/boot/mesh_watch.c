/* News of peers' ends: goodbye, abort, death. The life connections carry nothing else. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/mesh_internal.h"

/* A message on a life connection. It is always sent and received whole, because it is far smaller
 * than any socket buffer. */
enum life_kind { LIFE_GOODBYE = 1, LIFE_ABORT = 2 };
struct life_message {
    uint32_t kind;
    int32_t origin; /* LIFE_ABORT: the rank that gave up first, and why */
    char cause[MESH_TEXT_BYTES];
};

static void tell(struct cecl_mesh *mesh, const struct life_message *message)
{
    for (int r = 0; r < mesh->nranks; r++)
        if (mesh->peers[r].life >= 0)
            (void)!send(mesh->peers[r].life, message, sizeof(*message),
                        MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Finds a peer whose message `cause` repeats: this rank gives up because that peer did. NULL when
 * there is none. */
static const struct mesh_peer *find_source(const struct cecl_mesh *mesh, const char *cause)
{
    for (int r = 0; r < mesh->nranks; r++) {
        const struct mesh_peer *peer = &mesh->peers[r];
        if (atomic_load(&peer->state) == MESH_ABORTED && strstr(cause, peer->cause))
            return peer;
    }
    return NULL;
}

/* Passes on what another rank began in that rank's words. Otherwise messages would nest: "rank 0
 * gave up: rank 1 gave up: ...". */
void cecl_mesh_tell_abort(struct cecl_mesh *mesh, const char *cause)
{
    const struct mesh_peer *source = find_source(mesh, cause);
    struct life_message message = {.kind = LIFE_ABORT,
                                   .origin = source ? source->origin : mesh->rank};
    snprintf(message.cause, sizeof(message.cause), "%s", source ? source->cause : cause);
    tell(mesh, &message);
}

void mesh_say_goodbye(struct cecl_mesh *mesh)
{
    const struct life_message message = {.kind = LIFE_GOODBYE};
    tell(mesh, &message);
}

enum mesh_state mesh_read_life(struct cecl_mesh *mesh, int rank)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    struct life_message message;

    pthread_mutex_lock(&mesh->life_lock);
    while (atomic_load(&peer->state) == MESH_ALIVE) {
        const ssize_t got = recv(peer->life, &message, sizeof(message), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (got == (ssize_t)sizeof(message) && message.kind == LIFE_GOODBYE) {
            atomic_store(&peer->state, MESH_LEFT);
        } else if (got == (ssize_t)sizeof(message) && message.kind == LIFE_ABORT) {
            memcpy(peer->cause, message.cause, sizeof(peer->cause));
            peer->cause[sizeof(peer->cause) - 1] = '\0';
            peer->origin = message.origin;
            atomic_store(&peer->state, MESH_ABORTED);
        } else {
            atomic_store(&peer->state, MESH_DEAD);
        }
    }
    pthread_mutex_unlock(&mesh->life_lock);
    return (enum mesh_state)atomic_load(&peer->state);
}

ceclResult_t mesh_peer_error(struct cecl_mesh *mesh, int rank)
{
    const struct mesh_peer *peer = &mesh->peers[rank];
    switch ((enum mesh_state)atomic_load(&peer->state)) {
    case MESH_LEFT:
        return cecl_fail(ceclRemoteError, "rank %d has left: it destroyed its communicator", rank);
    case MESH_ABORTED: /* the cause was written before the state, and is never written again */
        return cecl_fail(ceclRemoteError, "rank %d gave up: %s", peer->origin, peer->cause);
    case MESH_DEAD:
    case MESH_ALIVE: break;
    }
    return cecl_fail(ceclRemoteError, "rank %d ended unexpectedly", rank);
}

ceclResult_t mesh_first_error(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        const enum mesh_state state = (enum mesh_state)atomic_load(&mesh->peers[r].state);
        if (state == MESH_ABORTED || state == MESH_DEAD)
            return mesh_peer_error(mesh, r);
    }
    return ceclSuccess;
}

ceclResult_t cecl_mesh_news(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++)
        if (r != mesh->rank)
            mesh_read_life(mesh, r);
    return mesh_first_error(mesh);
}

/* Notes that the peer's process has ended, even if a forked child still holds its sockets. */
static void note_end(struct cecl_mesh *mesh, int rank)
{
    int alive = MESH_ALIVE;
    if (mesh_read_life(mesh, rank) == MESH_ALIVE)
        atomic_compare_exchange_strong(&mesh->peers[rank].state, &alive, MESH_DEAD);
}

ceclResult_t cecl_mesh_watch(struct cecl_mesh *mesh, int wait_ms)
{
    nfds_t count = 0;
    for (int r = 0; r < mesh->nranks; r++) {
        const struct mesh_peer *peer = &mesh->peers[r];
        if (r == mesh->rank || atomic_load(&peer->state) != MESH_ALIVE)
            continue;
        mesh->life_polls[count++] = (struct pollfd){.fd = peer->life, .events = POLLIN};
        mesh->life_polls[count++] = (struct pollfd){.fd = peer->process, .events = POLLIN};
    }
    mesh->life_polls[count] = (struct pollfd){.fd = mesh->wake_fd, .events = POLLIN};
    if (poll(mesh->life_polls, count + 1, wait_ms) > 0) {
        eventfd_t events;
        if (mesh->life_polls[count].revents)
            (void)!eventfd_read(mesh->wake_fd, &events);
        nfds_t at = 0;
        for (int r = 0; r < mesh->nranks; r++) {
            if (r == mesh->rank || mesh->life_polls[at].fd != mesh->peers[r].life)
                continue;
            if (mesh->life_polls[at].revents)
                mesh_read_life(mesh, r);
            if (mesh->life_polls[at + 1].revents)
                note_end(mesh, r);
            at += 2;
        }
    }
    return mesh_first_error(mesh); /* an exchange may have learned of it before */
}

int cecl_mesh_left(struct cecl_mesh *mesh, int peer)
{
    return atomic_load(&mesh->peers[peer].state) == MESH_LEFT;
}

void cecl_mesh_wake(struct cecl_mesh *mesh)
{
    (void)!eventfd_write(mesh->wake_fd, 1);
}

void cecl_mesh_interrupt(struct cecl_mesh *mesh)
{
    (void)!eventfd_write(mesh->interrupt_fd, 1);
}
