/* News of peers' ends: goodbye, abort, death. The life connections carry nothing else. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/packet.h"
#include "boot/process.h"
#include "boot/rank_list.h"
#include "util/clock.h"

static void tell(struct cecl_mesh *mesh, struct mesh_life message)
{
    for (int r = 0; r < mesh->nranks; r++)
        if (mesh->peers[r].life >= 0)
            (void)!send(mesh->peers[r].life, &message, sizeof(message),
                        MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* If this rank gives up because another rank did, returns the other rank's message, which `cause`
 * contains; otherwise NULL. While ranks join, that message may also have come through their exchange. It
 * is passed on unchanged, because messages would nest otherwise: "rank 0 gave up: rank 1 gave up: ...". */
static const char *find_beginning(const struct cecl_mesh *mesh, const char *cause)
{
    for (int r = 0; r < mesh->nranks; r++) {
        const struct mesh_peer *peer = &mesh->peers[r];
        if (atomic_load(&peer->state) == MESH_ABORTED && strstr(cause, peer->why))
            return peer->why;
    }
    return atomic_load(&mesh->joining) ? cecl_words_who_began(cause) : NULL;
}

struct mesh_life mesh_abort_message(const struct cecl_mesh *mesh, const char *cause)
{
    const char *beginning = find_beginning(mesh, cause);
    struct mesh_life message = {.kind = LIFE_ABORT};
    char words[CECL_MESSAGE_BYTES + 32];
    snprintf(words, sizeof(words), "rank %d gave up: %s", mesh->rank, cause);
    cecl_shorten(message.why, sizeof(message.why), beginning ? beginning : words);
    return message;
}

void cecl_mesh_tell_abort(struct cecl_mesh *mesh, const char *cause)
{
    tell(mesh, mesh_abort_message(mesh, cause));
}

void cecl_mesh_say_goodbye(struct cecl_mesh *mesh, const struct cecl_mesh_goodbye *words)
{
    struct mesh_life goodbye = {.kind = LIFE_GOODBYE, .has_words = words != NULL};
    if (mesh->has_left)
        return;
    mesh->has_left = true;
    if (words)
        goodbye.words = *words;
    tell(mesh, goodbye);
}

bool mesh_note(struct mesh_peer *peer, const struct mesh_life *message, ssize_t got)
{
    if (got != (ssize_t)sizeof(*message))
        return false;
    if (message->kind == LIFE_ABORT) {
        memcpy(peer->why, message->why, sizeof(peer->why) - 1);
        atomic_store(&peer->state, MESH_ABORTED);
    } else if (message->kind == LIFE_GOODBYE) {
        peer->has_words = message->has_words != 0;
        peer->words = message->words;
        atomic_store(&peer->state, MESH_LEFT);
    }
    return message->kind == LIFE_ABORT || message->kind == LIFE_GOODBYE;
}

void mesh_hear_reason(struct cecl_mesh *mesh, int rank, int fd)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    struct mesh_life message = {0};
    struct pollfd arrival = {.fd = fd, .events = POLLIN};
    /* the reason is sent right after the hello, which has arrived */
    (void)!poll(&arrival, 1, MESH_REASON_MS);
    const ssize_t got = cecl_packet_read(fd, &message, sizeof(message), 0);
    pthread_mutex_lock(&mesh->life_lock);
    if (atomic_load(&peer->state) == MESH_ALIVE && message.kind == LIFE_ABORT)
        (void)mesh_note(peer, &message, got);
    pthread_mutex_unlock(&mesh->life_lock);
}

enum mesh_state mesh_read_life(struct cecl_mesh *mesh, int rank)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    struct mesh_life message;

    pthread_mutex_lock(&mesh->life_lock);
    while (atomic_load(&peer->state) == MESH_ALIVE) {
        const ssize_t got = cecl_packet_read(peer->life, &message, sizeof(message), 0);
        if (got < 0 && !cecl_net_is_closed(errno))
            break; /* nothing has arrived, or this process lacks memory for now */
        if (!mesh_note(peer, &message, got))
            atomic_store(&peer->state, MESH_DEAD);
    }
    pthread_mutex_unlock(&mesh->life_lock);
    return (enum mesh_state)atomic_load(&peer->state);
}

/* Returns `rank` if its process has ended, or else another rank whose process has ended; -1: there is none. Waits
 * a moment for `rank`, because a process that ends closes its sockets a little before its descriptor becomes
 * readable. */
static int find_ended(const struct cecl_mesh *mesh, int rank)
{
    for (int ms = 0; ms < CECL_PROCESS_ENDING_MS; ms++) {
        if (cecl_process_has_ended(mesh->peers[rank].process))
            return rank;
        for (int r = 0; r < mesh->nranks; r++)
            if (cecl_process_has_ended(mesh->peers[r].process))
                return r;
        poll(NULL, 0, 1);
    }
    return -1;
}

/* The error for a peer that has closed without a message. While ranks join, a rank that gives up also
 * closes connections on which it cannot send the reason yet. So if the peer's process is alive, another
 * rank is to blame: one whose process has ended, or one that has said why it gave up. */
static ceclResult_t closed_error(struct cecl_mesh *mesh, int rank)
{
    const bool watched = mesh->peers[rank].process >= 0, joins = atomic_load(&mesh->joining);
    const int ended = joins && watched ? find_ended(mesh, rank) : -1;
    if (joins && ended < 0)
        CECL_TRY(mesh_first_reason(mesh));
    return cecl_fail(ceclRemoteError, "rank %d %s", ended < 0 ? rank : ended,
                     !joins || ended >= 0 ? "ended unexpectedly"
                     : watched            ? "left while the communicator was made"
                                          : "ended, or left while the communicator was made");
}

static ceclResult_t left_error(int rank)
{
    return cecl_fail(ceclRemoteError, "rank %d has left: its process or its communicator ended",
                     rank);
}

ceclResult_t mesh_peer_error(struct cecl_mesh *mesh, int rank)
{
    const struct mesh_peer *peer = &mesh->peers[rank];
    const int state = atomic_load(&peer->state);
    if (state == MESH_LEFT)
        return left_error(rank);
    /* `why` was written before the state, and is never written again */
    return state == MESH_ABORTED ? cecl_fail_with(ceclRemoteError, peer->why)
                                 : closed_error(mesh, rank);
}

ceclResult_t mesh_io_error(struct cecl_mesh *mesh, int rank, const char *doing, int error)
{
    if (!cecl_net_is_closed(error))
        return cecl_fail(ceclSystemError, "%s rank %d: %s", doing, rank, strerror(error));
    mesh_read_life(mesh, rank);
    return mesh_peer_error(mesh, rank);
}

/* The error for the first peer that aborted or died; ceclSuccess if there is none. */
static ceclResult_t first_error(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        const enum mesh_state state = (enum mesh_state)atomic_load(&mesh->peers[r].state);
        if (state == MESH_ABORTED || state == MESH_DEAD)
            return mesh_peer_error(mesh, r);
    }
    return ceclSuccess;
}

ceclResult_t mesh_interrupted(struct cecl_mesh *mesh)
{
    CECL_TRY(first_error(mesh));
    return cecl_fail(ceclRemoteError, "given up, because the communicator has failed");
}

ceclResult_t mesh_first_reason(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        if (mesh->peers[r].life >= 0)
            mesh_read_life(mesh, r);
        if (atomic_load(&mesh->peers[r].state) == MESH_ABORTED)
            return mesh_peer_error(mesh, r);
    }
    return ceclSuccess;
}

ceclResult_t cecl_mesh_news(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++)
        if (r != mesh->rank)
            mesh_read_life(mesh, r);
    return first_error(mesh);
}

void mesh_note_end(struct cecl_mesh *mesh, int rank)
{
    int alive = MESH_ALIVE;
    if (mesh_read_life(mesh, rank) == MESH_ALIVE)
        atomic_compare_exchange_strong(&mesh->peers[rank].state, &alive, MESH_DEAD);
}

void mesh_hear_event(const struct pollfd *event)
{
    eventfd_t events;
    if (event->revents)
        (void)!eventfd_read(event->fd, &events);
}

ceclResult_t cecl_mesh_watch(struct cecl_mesh *mesh, int wait_ms)
{
    struct pollfd *polls = mesh->life_polls, *wake = &polls[2 * mesh->nranks];
    for (int r = 0; r < mesh->nranks; r++) { /* this rank's own descriptors are -1 */
        const struct mesh_peer *peer = &mesh->peers[r];
        const bool lives = atomic_load(&peer->state) == MESH_ALIVE;
        polls[2 * r] = (struct pollfd){.fd = lives ? peer->life : -1, .events = POLLIN};
        polls[2 * r + 1] = (struct pollfd){.fd = lives ? peer->process : -1, .events = POLLIN};
    }
    *wake = (struct pollfd){.fd = mesh->wake_fd, .events = POLLIN};
    if (cecl_net_poll(polls, 2 * mesh->nranks + 1, wait_ms) > 0) {
        mesh_hear_event(wake);
        for (int r = 0; r < mesh->nranks; r++) {
            if (polls[2 * r].revents)
                mesh_read_life(mesh, r);
            if (polls[2 * r + 1].revents)
                mesh_note_end(mesh, r);
        }
    }
    return first_error(mesh); /* another thread may have read the news */
}

ceclResult_t cecl_mesh_check_peer(struct cecl_mesh *mesh, int rank)
{
    if (rank == mesh->rank)
        return ceclSuccess;
    const struct mesh_peer *peer = &mesh->peers[rank];
    const bool has_ended = cecl_process_has_ended(peer->process);
    const enum mesh_state state = mesh_read_life(mesh, rank);
    if (state == MESH_LEFT)
        return left_error(rank);
    /* After an abort, a goodbye or the end of the connection means that the peer has gone. */
    if (state == MESH_ABORTED && (has_ended || cecl_net_look(peer->life) >= 0))
        return cecl_fail(ceclRemoteError,
                         "rank %d gave up and then ended, or destroyed its communicator", rank);
    return state == MESH_DEAD || (state == MESH_ALIVE && has_ended)
               ? cecl_fail(ceclRemoteError, "rank %d ended unexpectedly", rank)
               : ceclSuccess;
}

bool cecl_mesh_left(struct cecl_mesh *mesh, int peer)
{
    return atomic_load(&mesh->peers[peer].state) == MESH_LEFT;
}

bool cecl_mesh_left_with(struct cecl_mesh *mesh, int peer, struct cecl_mesh_goodbye *words)
{
    if (!cecl_mesh_left(mesh, peer) || !mesh->peers[peer].has_words)
        return false;
    *words = mesh->peers[peer].words;
    return true;
}

void cecl_mesh_wake(struct cecl_mesh *mesh)
{
    (void)!eventfd_write(mesh->wake_fd, 1);
}

void cecl_mesh_interrupt(struct cecl_mesh *mesh)
{
    (void)!eventfd_write(mesh->interrupt_fd, 1);
}
