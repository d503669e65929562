/* What a rank and ranks of other hosts tell each other, through this rank's sockets to the thread of its host's leader
 * (links.h): frames of exchanges, news of goodbyes, aborts and deaths, and last calls. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/packet.h"

union message {
    struct cecl_link_head head;
    char bytes[CECL_LINK_BYTES];
};

/* ---- frames */

/* The error for a line that has ended, because the leader's process has ended, or only the thread in it. */
static ceclResult_t line_error(struct cecl_mesh *mesh, const char *doing, int error)
{
    const int leader = mesh->hosts->leader;
    mesh_away_hear(mesh);
    if (leader != mesh->rank)
        return mesh_io_error(mesh, leader, doing, error);
    return cecl_fail(ceclSystemError, "the thread for links to other hosts has ended");
}

static ceclResult_t send_frame(struct cecl_mesh *mesh, const struct mesh_exchange *x)
{
    struct cecl_link_head head = {.kind = CECL_LINK_FRAME};
    struct iovec parts[] = {
        {.iov_base = &head, .iov_len = sizeof(head)},
        {.iov_base = (void *)(uintptr_t)&x->header, .iov_len = sizeof(x->header)},
        {.iov_base = (void *)(uintptr_t)x->send, .iov_len = x->bytes}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    if (mesh->hosts->is_sent)
        return ceclSuccess;
    mesh->hosts->is_sent =
        sendmsg(mesh->hosts->line[CECL_LINE_FRAMES], &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
    return mesh->hosts->is_sent || cecl_net_is_early(errno) ? ceclSuccess
                                                            : line_error(mesh, "sending to", errno);
}

/* Takes a frame, or keeps it for the next exchange if its sender is ahead of this rank. */
static ceclResult_t place_frame(struct cecl_mesh *mesh, const struct mesh_exchange *x,
                                const union message *message, size_t got)
{
    const int rank = message->head.from;
    const char *frame = message->bytes + sizeof(message->head);
    const size_t bytes = got - sizeof(message->head);
    struct mesh_early *early = &mesh->hosts->early[rank];
    if (!mesh->peers[rank].transfer.received)
        return mesh_take_frame(mesh, rank, x, frame, bytes);
    if (early->bytes > 0 || bytes == 0 || bytes > sizeof(early->frame))
        return cecl_fail(ceclInternalError, "rank %d sent an invalid frame", rank);
    memcpy(early->frame, frame, bytes);
    early->bytes = bytes;
    return ceclSuccess;
}

/* Notes the last word of a rank, or of all ranks of its host, on the line of frames. The life line says the same. */
static void note_last_frame(struct cecl_mesh *mesh, const struct cecl_link_head *head)
{
    const bool of_host = head->kind == CECL_LINK_CUT || head->kind == CECL_LINK_LEFT;
    const struct mesh_hosts *hosts = mesh->hosts;
    for (int r = 0; r < mesh->nranks; r++)
        if (r == head->from || (of_host && hosts->host[r] == hosts->host[head->from]))
            hosts->early[r].is_last = true;
}

static ceclResult_t receive_frames(struct cecl_mesh *mesh, const struct mesh_exchange *x)
{
    union message message;
    for (;;) {
        const ssize_t got =
            cecl_packet_read(mesh->hosts->line[CECL_LINE_FRAMES], &message, sizeof(message), 0);
        if (got < 0 && cecl_net_is_early(errno))
            return ceclSuccess;
        if (got <= 0)
            return line_error(mesh, "receiving from", got == 0 ? EPIPE : errno);
        if ((size_t)got < sizeof(message.head) || message.head.from >= mesh->nranks ||
            !cecl_mesh_is_away(mesh, message.head.from))
            return cecl_fail(ceclInternalError, "the line to other hosts brought an invalid frame");
        if (message.head.kind == CECL_LINK_FRAME)
            CECL_TRY(place_frame(mesh, x, &message, (size_t)got));
        else
            note_last_frame(mesh, &message.head);
    }
}

ceclResult_t mesh_away_begin(struct cecl_mesh *mesh, const struct mesh_exchange *x)
{
    if (!mesh->hosts)
        return ceclSuccess;
    mesh->hosts->is_sent = false;
    for (int r = 0; r < mesh->nranks; r++) {
        struct mesh_early *early = &mesh->hosts->early[r];
        const size_t bytes = early->bytes;
        early->bytes = 0;
        if (bytes > 0)
            CECL_TRY(mesh_take_frame(mesh, r, x, early->frame, bytes));
    }
    return ceclSuccess;
}

/* The news that a rank has ended may come before that rank's last frames: they may wait in the leader's thread, or the
 * watchdog may read the news after frames are read here. So no frame is missing before the rank's last word has come
 * behind the frames, too. */
ceclResult_t mesh_away_move(struct cecl_mesh *mesh, const struct mesh_exchange *x)
{
    if (!mesh->hosts)
        return ceclSuccess;
    mesh_away_hear(mesh);
    CECL_TRY(send_frame(mesh, x));
    CECL_TRY(receive_frames(mesh, x));
    for (int r = 0; r < mesh->nranks; r++) {
        if (!cecl_mesh_is_away(mesh, r))
            continue;
        mesh->peers[r].transfer.sent = mesh->hosts->is_sent;
        if (!mesh->peers[r].transfer.received && mesh->hosts->early[r].is_last &&
            atomic_load(&mesh->peers[r].state) != MESH_ALIVE)
            return mesh_peer_error(mesh, r);
    }
    return ceclSuccess;
}

void mesh_away_polls(const struct cecl_mesh *mesh, struct pollfd *polls)
{
    const struct mesh_hosts *hosts = mesh->hosts;
    polls[0] =
        (struct pollfd){.fd = hosts ? hosts->line[CECL_LINE_FRAMES] : -1,
                        .events = (short)(POLLIN | (hosts && !hosts->is_sent ? POLLOUT : 0))};
    polls[1] = mesh_away_life_poll(mesh);
}

/* ---- life */

struct pollfd mesh_away_life_poll(const struct cecl_mesh *mesh)
{
    const bool waits = mesh->hosts && !atomic_load(&mesh->hosts->life_ended);
    return (struct pollfd){.fd = waits ? mesh->hosts->line[CECL_LINE_LIFE] : -1, .events = POLLIN};
}

/* Sends a message on the life line, if there is one. Returns whether it was sent. */
static bool send_life(const struct cecl_mesh *mesh, const void *message, size_t bytes)
{
    const int line = mesh->hosts ? mesh->hosts->line[CECL_LINE_LIFE] : -1;
    return line >= 0 && send(line, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

void mesh_away_tell(struct cecl_mesh *mesh, const struct mesh_life *message)
{
    struct {
        struct cecl_link_head head;
        struct mesh_life life;
    } whole = {.head = {.kind = CECL_LINK_LIFE}, .life = *message};
    (void)send_life(mesh, &whole, sizeof(whole));
}

bool cecl_mesh_tell_call(struct cecl_mesh *mesh, uint64_t call)
{
    struct {
        struct cecl_link_head head;
        uint64_t call;
    } whole = {.head = {.kind = CECL_LINK_CALL}, .call = call};
    return send_life(mesh, &whole, sizeof(whole));
}

uint64_t cecl_mesh_call_of(const struct cecl_mesh *mesh, int rank)
{
    return mesh->hosts ? atomic_load(&mesh->hosts->calls[rank]) : 0;
}

/* Notes that no rank of the host of `rank` can be reached any more. `message` says why; NULL: that host's leader
 * has left. If the leader has died, the other ranks of that host may still take connections. Otherwise that host
 * is cut off. */
static void note_host(struct cecl_mesh *mesh, int rank, const struct mesh_life *message)
{
    const bool is_dead = atomic_load(&mesh->peers[rank].state) == MESH_DEAD ||
                         atomic_load(&mesh->peers[rank].has_gone);
    for (int r = 0; r < mesh->nranks; r++) {
        struct mesh_peer *peer = &mesh->peers[r];
        if (mesh->hosts->host[r] != mesh->hosts->host[rank])
            continue;
        if (message && !is_dead)
            atomic_store(&peer->is_cut_off, true); /* written before the state */
        if (atomic_load(&peer->state) != MESH_ALIVE)
            continue;
        if (message)
            (void)mesh_note(peer, message, (ssize_t)sizeof(*message));
        else
            atomic_store(&peer->state, MESH_LEFT);
    }
}

static void note_message(struct cecl_mesh *mesh, const struct cecl_link_head *head,
                         const struct mesh_life *life, ssize_t bytes)
{
    struct mesh_peer *peer = &mesh->peers[head->from];
    const bool lives = atomic_load(&peer->state) == MESH_ALIVE;
    if (head->kind == CECL_LINK_CUT)
        note_host(mesh, head->from, life);
    else if (head->kind == CECL_LINK_LEFT)
        note_host(mesh, head->from, NULL);
    else if (atomic_load(&peer->state) == MESH_ABORTED)
        atomic_fetch_or(&peer->has_gone,
                        head->kind == CECL_LINK_GONE || life->kind == LIFE_GOODBYE);
    else if (lives && (head->kind != CECL_LINK_LIFE || !mesh_note(peer, life, bytes)))
        atomic_store(&peer->state, MESH_DEAD);
}

static void note_call(struct cecl_mesh *mesh, const union message *message, ssize_t bytes)
{
    uint64_t call;
    if (bytes != (ssize_t)sizeof(call))
        return;
    memcpy(&call, message->bytes + sizeof(message->head), sizeof(call));
    atomic_store(&mesh->hosts->calls[message->head.from], call);
}

/* The leader's thread has ended. If the leader said goodbye, ranks of other hosts count as left, because
 * no news of them can arrive any more. Otherwise errors name the leader. */
static void note_line_end(struct cecl_mesh *mesh)
{
    const int leader = mesh->hosts->leader;
    atomic_store(&mesh->hosts->life_ended, true);
    if (leader == mesh->rank || atomic_load(&mesh->peers[leader].state) != MESH_LEFT)
        return;
    for (int r = 0; r < mesh->nranks; r++)
        if (cecl_mesh_is_away(mesh, r))
            note_host(mesh, r, NULL);
}

/* Reads the messages that have arrived. Returns false once the line has ended. The caller holds life_lock. */
static bool read_life(struct cecl_mesh *mesh)
{
    union message message;
    struct mesh_life life;
    for (;;) {
        const ssize_t got =
            cecl_packet_read(mesh->hosts->line[CECL_LINE_LIFE], &message, sizeof(message), 0);
        if (got < 0)
            return !cecl_net_is_closed(errno);
        const ssize_t bytes = got - (ssize_t)sizeof(message.head);
        if (bytes < 0 || message.head.from >= mesh->nranks)
            return false;
        if (message.head.kind == CECL_LINK_CALL) {
            note_call(mesh, &message, bytes);
            continue;
        }
        life = (struct mesh_life){.kind = 0};
        memcpy(&life, message.bytes + sizeof(message.head),
               (size_t)bytes < sizeof(life) ? (size_t)bytes : sizeof(life));
        note_message(mesh, &message.head, &life, bytes);
    }
}

void mesh_away_hear(struct cecl_mesh *mesh)
{
    if (!mesh->hosts || mesh->hosts->line[CECL_LINE_LIFE] < 0 ||
        atomic_load(&mesh->hosts->life_ended))
        return;
    const int leader = mesh->hosts->leader;
    pthread_mutex_lock(&mesh->life_lock);
    const bool goes_on = read_life(mesh);
    pthread_mutex_unlock(&mesh->life_lock);
    if (goes_on)
        return;
    if (leader != mesh->rank)
        mesh_read_life(mesh, leader);
    pthread_mutex_lock(&mesh->life_lock);
    note_line_end(mesh);
    pthread_mutex_unlock(&mesh->life_lock);
}
