/* News of peers' ends: a peer's row tells goodbye and abort, the descriptor of its process tells death. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "boot/mesh_internal.h"
#include "boot/rank_list.h"

/* ---- telling */

/* Wakes the peers' watchdogs. */
static void tell(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++)
        if (r != mesh->rank)
            cecl_inbox_ring(mesh->bell, mesh->peers[r].invitation.at.name, MESH_BELL);
}

/* Copies the reason that a peer has written. Ends the text, because a broken peer may have written anything. */
static void copy_why(const struct cecl_mesh *mesh, int rank, char why[MESH_TEXT_BYTES])
{
    memcpy(why, mesh->rows[rank].why, MESH_TEXT_BYTES - 1);
    why[MESH_TEXT_BYTES - 1] = '\0';
}

/* If this rank gives up because another rank did, `cause` contains that rank's message: copies the message to `why`,
 * and returns true. This rank passes the message on unchanged, because messages would nest otherwise: "rank 0 gave up:
 * rank 1 gave up: ...". While ranks join, the message may be in no row, because it came by an exchange. */
static bool find_beginning(const struct cecl_mesh *mesh, const char *cause,
                           char why[MESH_TEXT_BYTES])
{
    for (int r = 0; r < mesh->nranks; r++) {
        if (r == mesh->rank || atomic_load(&mesh->rows[r].state) != MESH_ABORTED)
            continue;
        copy_why(mesh, r, why);
        if (strstr(cause, why))
            return true;
    }
    const char *began = atomic_load(&mesh->joining) ? cecl_words_who_began(cause) : NULL;
    if (began)
        cecl_shorten(why, MESH_TEXT_BYTES, began);
    return began;
}

/* Writes in this rank's row how the rank ends, unless the row says so already. */
static void end_as(struct cecl_mesh *mesh, enum mesh_state state)
{
    uint32_t alive = MESH_ALIVE;
    atomic_compare_exchange_strong(&mesh->rows[mesh->rank].state, &alive, state);
}

void cecl_mesh_tell_abort(struct cecl_mesh *mesh, const char *cause)
{
    char words[CECL_MESSAGE_BYTES + 32], why[MESH_TEXT_BYTES];
    if (!mesh->rows)
        return;
    if (!find_beginning(mesh, cause, why)) {
        snprintf(words, sizeof(words), "rank %d gave up: %s", mesh->rank, cause);
        cecl_shorten(why, sizeof(why), words);
    }
    pthread_mutex_lock(&mesh->lock);
    struct mesh_row *mine = &mesh->rows[mesh->rank];
    if (atomic_load(&mine->state) == MESH_ALIVE) {
        memcpy(mine->why, why, sizeof(why));
        end_as(mesh, MESH_ABORTED);
    }
    pthread_mutex_unlock(&mesh->lock);
    tell(mesh);
}

void cecl_mesh_say_goodbye(struct cecl_mesh *mesh, const uint32_t *epoch)
{
    struct mesh_row *mine = mesh->rows ? &mesh->rows[mesh->rank] : NULL;
    if (!mine || atomic_load(&mine->gone))
        return;
    mine->epoch = epoch ? *epoch : 0;
    mine->has_epoch = epoch != NULL;
    end_as(mesh, MESH_LEFT);
    atomic_store(&mine->gone, 1);
    tell(mesh);
}

/* ---- looking */

static bool is_readable(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&poller, 1, 0) > 0;
}

enum mesh_state mesh_look(struct cecl_mesh *mesh, int rank)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    /* looks at the process first, so that the code below sees what the process wrote before its end */
    if (is_readable(mesh->processes[rank]))
        atomic_store(&peer->has_died, true);
    const uint32_t state = mesh->rows ? atomic_load(&mesh->rows[rank].state) : MESH_ALIVE;
    return state == MESH_LEFT || state == MESH_ABORTED ? (enum mesh_state)state
           : atomic_load(&peer->has_died)              ? MESH_DEAD
                                                       : MESH_ALIVE;
}

ceclResult_t mesh_peer_error(struct cecl_mesh *mesh, int rank)
{
    const enum mesh_state state = mesh_look(mesh, rank);
    char why[MESH_TEXT_BYTES];
    if (state == MESH_LEFT)
        return cecl_fail(ceclRemoteError, "rank %d has left: its process or its communicator ended",
                         rank);
    if (state == MESH_DEAD)
        return cecl_fail(ceclRemoteError, "rank %d ended unexpectedly", rank);
    copy_why(mesh, rank, why);
    return cecl_fail_with(ceclRemoteError, why);
}

ceclResult_t cecl_mesh_news(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        const enum mesh_state state = r == mesh->rank ? MESH_ALIVE : mesh_look(mesh, r);
        if (state == MESH_ABORTED || state == MESH_DEAD)
            return mesh_peer_error(mesh, r);
    }
    return ceclSuccess;
}

ceclResult_t mesh_interrupted(struct cecl_mesh *mesh)
{
    char why[MESH_TEXT_BYTES] = "";
    CECL_TRY(cecl_mesh_news(mesh));
    if (mesh->rows)
        copy_why(mesh, mesh->rank, why); /* the message that this rank has told its peers */
    return cecl_fail_with(ceclRemoteError,
                          *why ? why : "given up, because the communicator has failed");
}

/* Takes a peer for dead if nobody listens at its name: its process has become another program (exec). */
static void look_for_exec(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++)
        if (mesh_is_elsewhere(mesh, r) && mesh_look(mesh, r) == MESH_ALIVE &&
            !cecl_inbox_is_taken(mesh->peers[r].invitation.at.name, MESH_POST))
            atomic_store(&mesh->peers[r].has_died, true);
}

ceclResult_t cecl_mesh_watch(struct cecl_mesh *mesh, int wait_ms)
{
    struct pollfd *polls = mesh->polls;
    int count = 0;
    char byte;
    polls[count++] = (struct pollfd){.fd = mesh->bell, .events = POLLIN};
    for (int r = 0; r < mesh->nranks; r++)
        if (mesh->processes[r] >= 0 && mesh_look(mesh, r) == MESH_ALIVE)
            polls[count++] = (struct pollfd){.fd = mesh->processes[r], .events = POLLIN};
    if (poll(polls, (nfds_t)count, wait_ms) == 0)
        look_for_exec(mesh);
    else if (polls[0].revents) /* the loop has a bound: other processes may go on ringing */
        for (int rings = 0; rings < mesh->nranks && recv(mesh->bell, &byte, 1, MSG_DONTWAIT) >= 0;)
            rings++;
    return cecl_mesh_news(mesh);
}

ceclResult_t cecl_mesh_check_peer(struct cecl_mesh *mesh, int rank)
{
    if (rank == mesh->rank)
        return ceclSuccess;
    const enum mesh_state state = mesh_look(mesh, rank);
    if (state == MESH_ABORTED &&
        (atomic_load(&mesh->peers[rank].has_died) || atomic_load(&mesh->rows[rank].gone)))
        return cecl_fail(ceclRemoteError,
                         "rank %d gave up and then ended, or destroyed its communicator", rank);
    return state == MESH_LEFT || state == MESH_DEAD ? mesh_peer_error(mesh, rank) : ceclSuccess;
}

bool cecl_mesh_left(struct cecl_mesh *mesh, int peer)
{
    return atomic_load(&mesh->rows[peer].state) == MESH_LEFT;
}

bool cecl_mesh_left_with(struct cecl_mesh *mesh, int peer, uint32_t *epoch)
{
    if (!cecl_mesh_left(mesh, peer) || !mesh->rows[peer].has_epoch)
        return false;
    *epoch = mesh->rows[peer].epoch;
    return true;
}

void cecl_mesh_wake(struct cecl_mesh *mesh)
{
    cecl_inbox_ring(mesh->bell, mesh->peers[mesh->rank].invitation.at.name, MESH_BELL);
}
