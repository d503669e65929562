/* Exchanges over the mesh. One routine moves frames between this rank and all peers at the same
 * time, so no order of sends and receives can deadlock ranks. The public calls are built on it. */
#include "boot/mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/mesh_internal.h"
#include "boot/rank_list.h"
#include "util/clock.h"

#define FRAME_MAGIC 0x6365636cu

struct exchange {
    struct mesh_header header; /* of this rank's frame */
    const char *send;
    char *recv;
    int fd; /* a descriptor to send along, or -1 */
};

ceclResult_t cecl_mesh_open(struct cecl_oob *oob, int64_t deadline, int64_t timeout_ms,
                            struct cecl_mesh **out)
{
    const size_t n = (size_t)oob->nranks;
    struct cecl_mesh *mesh = calloc(1, sizeof(*mesh) + n * sizeof(mesh->peers[0]));
    if (!mesh)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu ranks", n);
    mesh->nranks = oob->nranks;
    mesh->rank = oob->rank;
    mesh->timeout_ms = timeout_ms;
    mesh->init_deadline = deadline;
    mesh->init_timeout_ms = oob->timeout_ms;
    mesh->joining = true;
    mesh->activity = "joining";
    for (size_t r = 0; r < n; r++)
        mesh->peers[r] = (struct mesh_peer){.data = -1, .life = -1, .process = -1, .post = -1};
    pthread_mutex_init(&mesh->life_lock, NULL);
    mesh->polls = calloc(2 * n + 1, sizeof(*mesh->polls));
    mesh->life_polls = calloc(MESH_WATCHED * n + 1, sizeof(*mesh->life_polls));
    mesh->post_polls = calloc(n + 1, sizeof(*mesh->post_polls));
    mesh->verdicts = calloc(n, sizeof(int32_t) + MESH_TEXT_BYTES);
    mesh->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mesh->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mesh->rouse_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    ceclResult_t result = ceclSuccess;
    if (!mesh->polls || !mesh->life_polls || !mesh->post_polls || !mesh->verdicts)
        result = cecl_fail(ceclOutOfMemory, "no host memory for %zu ranks", n);
    else if (mesh->interrupt_fd < 0 || mesh->wake_fd < 0 || mesh->rouse_fd < 0)
        result = cecl_fail(ceclSystemError, "eventfd: %s", strerror(errno));
    result = mesh_connect(mesh, oob, deadline, result);
    if (result == ceclSuccess) {
        *out = mesh;
    } else {
        char words[CECL_MESSAGE_BYTES];
        cecl_keep_message(words);
        cecl_mesh_tell_abort(mesh, words); /* tells connected peers why */
        cecl_mesh_close(mesh);
        cecl_fail_with(result, words);
    }
    return result;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

void cecl_mesh_close(struct cecl_mesh *mesh)
{
    if (!mesh)
        return;
    cecl_mesh_say_goodbye(mesh);
    for (int r = 0; r < mesh->nranks; r++) {
        close_if_open(mesh->peers[r].data);
        close_if_open(mesh->peers[r].life);
        close_if_open(mesh->peers[r].process);
        close_if_open(mesh->peers[r].post);
    }
    close_if_open(mesh->interrupt_fd);
    close_if_open(mesh->wake_fd);
    close_if_open(mesh->rouse_fd);
    pthread_mutex_destroy(&mesh->life_lock);
    free(mesh->polls);
    free(mesh->life_polls);
    free(mesh->post_polls);
    free(mesh->verdicts);
    free(mesh);
}

void cecl_mesh_joined(struct cecl_mesh *mesh)
{
    atomic_store(&mesh->joining, false);
}

void cecl_mesh_activity(struct cecl_mesh *mesh, const char *call)
{
    mesh->activity = call;
}

bool cecl_mesh_broken(const struct cecl_mesh *mesh)
{
    return mesh->broken != ceclSuccess;
}

uint64_t cecl_mesh_exchanges(const struct cecl_mesh *mesh)
{
    return atomic_load(&mesh->exchanges);
}

/* ---- the part of one peer */

static size_t frame_bytes(const struct mesh_header *header)
{
    return sizeof(*header) + (size_t)header->bytes;
}

/* The part of a frame from `offset` on, within the header or within the payload. */
static const char *frame_at(const struct exchange *x, size_t offset, size_t *left)
{
    const size_t head = sizeof(x->header);
    if (offset < head) {
        *left = head - offset;
        return (const char *)&x->header + offset;
    }
    *left = frame_bytes(&x->header) - offset;
    return x->send + (offset - head);
}

/* Sends as much as the socket takes. A descriptor goes with the first byte. */
static ceclResult_t send_some(struct cecl_mesh *mesh, int rank, const struct exchange *x)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    while (peer->transfer.sent < frame_bytes(&x->header)) {
        size_t left;
        const char *at = frame_at(x, peer->transfer.sent, &left);
        struct iovec part = {.iov_base = (void *)(uintptr_t)at, .iov_len = left};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control = {0};
        if (peer->transfer.sent == 0 && x->fd >= 0) {
            message.msg_control = control.bytes;
            message.msg_controllen = sizeof(control.bytes);
            struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(rights), &x->fd, sizeof(int));
        }
        const ssize_t sent = sendmsg(peer->data, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            peer->transfer.sent += (size_t)sent;
        else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return ceclSuccess;
        else if (sent < 0 && errno != EINTR)
            return mesh_io_error(mesh, rank, "sending to", errno);
    }
    return ceclSuccess;
}

/* Keeps the descriptor that came with a message. A second one is not expected and is closed. */
static void keep_descriptors(struct msghdr *message, struct mesh_transfer *transfer)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (transfer->fd < 0)
                transfer->fd = fd;
            else
                close(fd);
        }
    }
}

/* Whether the peer's frame belongs to the same exchange as ours. Only then is
 * there room for its payload. */
static bool matches(const struct mesh_header *theirs, const struct mesh_header *ours)
{
    return theirs->sequence == ours->sequence && theirs->bytes == ours->bytes &&
           memcmp(theirs->kind, ours->kind, sizeof(ours->kind)) == 0;
}

/* Where the next bytes of a peer's frame go: to its header, to its place in recv, or to a buffer
 * that nobody reads (the payload of a frame that does not match). */
static char *place_for(struct mesh_transfer *t, const struct exchange *x, int rank, size_t *room)
{
    static _Thread_local char nowhere[4096];
    const size_t head = sizeof(t->header);
    if (t->received < head) {
        *room = head - t->received;
        return (char *)&t->header + t->received;
    }
    *room = frame_bytes(&t->header) - t->received;
    if (matches(&t->header, &x->header))
        return x->recv + (size_t)rank * (size_t)x->header.bytes + (t->received - head);
    if (*room > sizeof(nowhere))
        *room = sizeof(nowhere);
    return nowhere;
}

static bool has_all(const struct mesh_transfer *t)
{
    return t->received >= sizeof(t->header) && t->received == frame_bytes(&t->header);
}

static ceclResult_t receive_some(struct cecl_mesh *mesh, int rank, const struct exchange *x)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    struct mesh_transfer *t = &peer->transfer;
    while (!has_all(t)) {
        size_t room;
        struct iovec part = {.iov_base = place_for(t, x, rank, &room)};
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(4 * sizeof(int))];
        } control;
        part.iov_len = room;
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control.bytes)};
        const ssize_t got = recvmsg(peer->data, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got > 0) {
            keep_descriptors(&message, t);
            t->fd_lost = t->fd_lost || (message.msg_flags & MSG_CTRUNC);
            t->received += (size_t)got;
            if (t->received == sizeof(t->header) && t->header.magic != FRAME_MAGIC)
                return cecl_fail(ceclInternalError, "rank %d sent no frame of the mesh", rank);
        } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return ceclSuccess;
        } else if (got == 0 || errno != EINTR) {
            return mesh_io_error(mesh, rank, "receiving from", got == 0 ? EPIPE : errno);
        }
    }
    return ceclSuccess;
}

/* ---- all peers at the same time */

/* A late rank may only be waiting itself: for one that completed the exchange before with this rank
 * and not with that one. Its time is up soon, if not now, and then it says for whom it waited. */
static ceclResult_t listen_for_reason(struct cecl_mesh *mesh)
{
    const int64_t end = cecl_now_ms() + CECL_MESH_WORD_MS;
    do {
        CECL_TRY(mesh_first_reason(mesh));
        poll(NULL, 0, 1);
    } while (cecl_now_ms() < end);
    return ceclSuccess;
}

/* Fails with ceclTimeout and names the ranks that the exchange waits for. */
static ceclResult_t name_who_is_late(struct cecl_mesh *mesh, const struct exchange *x)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < mesh->nranks; r++) {
        const struct mesh_transfer *t = &mesh->peers[r].transfer;
        if (r != mesh->rank && (!has_all(t) || t->sent < frame_bytes(&x->header)))
            cecl_rank_list_add(&list, r);
    }
    if (list.count > 1)
        CECL_TRY(listen_for_reason(mesh));
    const char *words = cecl_rank_list_words(&list);
    if (atomic_load(&mesh->joining))
        return cecl_fail(ceclTimeout,
                         "%s did not come within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS); has a "
                         "process ended?",
                         words, mesh->init_timeout_ms);
    return cecl_fail(ceclTimeout,
                     "%s did not come within %" PRId64 " ms (CECL_TIMEOUT_MS); did every rank make "
                     "the call?",
                     words, mesh->timeout_ms);
}

/* Fills in what is polled of each peer: its socket, and its process. poll() skips -1. Returns the
 * number of peers to wait for. */
static int fill_polls(struct cecl_mesh *mesh, const struct exchange *x)
{
    int awaited = 0;
    for (int r = 0; r < mesh->nranks; r++) {
        struct mesh_peer *peer = &mesh->peers[r];
        const bool sent = peer->transfer.sent == frame_bytes(&x->header),
                   got = has_all(&peer->transfer), waits = r != mesh->rank && !(sent && got);
        mesh->polls[2 * r] =
            (struct pollfd){.fd = waits ? peer->data : -1,
                            .events = (short)((got ? 0 : POLLIN) | (sent ? 0 : POLLOUT))};
        mesh->polls[2 * r + 1] =
            (struct pollfd){.fd = waits ? peer->process : -1, .events = POLLIN};
        awaited += waits;
    }
    return awaited;
}

/* Finds an awaited peer whose process has ended. The first time that is noted only: what the peer
 * sent before may have come after the last look at its socket. */
static ceclResult_t notice_ends(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        struct mesh_transfer *transfer = &mesh->peers[r].transfer;
        if (!mesh->polls[2 * r + 1].revents)
            continue;
        if (transfer->ended) {
            mesh_note_end(mesh, r);
            return mesh_peer_error(mesh, r);
        }
        transfer->ended = true;
    }
    return ceclSuccess;
}

/* Waits until some peer's socket is ready. *through is set when no peer is left to wait for. */
static ceclResult_t wait_for_peers(struct cecl_mesh *mesh, const struct exchange *x,
                                   int64_t deadline, bool *through)
{
    const nfds_t count = 2 * (nfds_t)mesh->nranks;
    *through = fill_polls(mesh, x) == 0;
    if (*through)
        return ceclSuccess;
    mesh->polls[count] = (struct pollfd){.fd = mesh->interrupt_fd, .events = POLLIN};
    const int ready = poll(mesh->polls, count + 1, cecl_ms_left(deadline));
    if (ready < 0 && errno != EINTR)
        return cecl_fail(ceclSystemError, "poll: %s", strerror(errno));
    if (ready == 0)
        return name_who_is_late(mesh, x);
    if (ready <= 0)
        return ceclSuccess;
    CECL_TRY(notice_ends(mesh));
    if (!mesh->polls[count].revents)
        return ceclSuccess;
    CECL_TRY(mesh_first_error(mesh));
    return cecl_fail(ceclRemoteError, "given up, for the communicator has failed");
}

/* Moves all frames. On success every peer's frame was received whole, whether it matched or not. */
static ceclResult_t move_frames(struct cecl_mesh *mesh, const struct exchange *x)
{
    const int64_t deadline =
        atomic_load(&mesh->joining) ? mesh->init_deadline : cecl_deadline(mesh->timeout_ms);
    bool through = false;
    ceclResult_t result = ceclSuccess;

    for (int r = 0; r < mesh->nranks; r++) {
        mesh->peers[r].transfer = (struct mesh_transfer){.fd = -1};
    }
    while (result == ceclSuccess && !through) {
        for (int r = 0; r < mesh->nranks && result == ceclSuccess; r++) {
            if (r == mesh->rank)
                continue;
            result = send_some(mesh, r, x);
            if (result == ceclSuccess)
                result = receive_some(mesh, r, x);
        }
        if (result == ceclSuccess)
            result = wait_for_peers(mesh, x, deadline, &through);
    }
    return result;
}

static void drop_descriptors(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        close_if_open(mesh->peers[r].transfer.fd);
        mesh->peers[r].transfer.fd = -1;
    }
}

static ceclResult_t exchange(struct cecl_mesh *mesh, const char *kind, const void *send, void *recv,
                             size_t bytes, int fd)
{
    struct exchange x = {
        .header = {.magic = FRAME_MAGIC, .bytes = bytes}, .send = send, .recv = recv, .fd = fd};

    if (mesh->broken != ceclSuccess)
        return cecl_fail_with(mesh->broken, mesh->broken_text);
    x.header.sequence = mesh->sequence++;
    strncpy(x.header.kind, kind, sizeof(x.header.kind) - 1);
    atomic_fetch_add(&mesh->exchanges, 1);

    ceclResult_t result = move_frames(mesh, &x);
    if (result != ceclSuccess) { /* a frame is incomplete, so nothing after it can be understood */
        cecl_fail(result, "%s: %s", mesh->activity, cecl_message());
        mesh->broken = result;
        cecl_keep_message(mesh->broken_text);
    }
    for (int r = 0; r < mesh->nranks && result == ceclSuccess; r++) {
        const struct mesh_header *theirs = &mesh->peers[r].transfer.header;
        if (r == mesh->rank || matches(theirs, &x.header))
            continue;
        result = cecl_fail(ceclInvalidUsage,
                           "rank %d is in '%.8s' (%" PRIu64
                           " bytes) while rank %d is in '%.8s' (%zu bytes): "
                           "ranks must make the same calls in the same order",
                           r, theirs->kind, theirs->bytes, mesh->rank, x.header.kind, bytes);
    }
    if (result == ceclSuccess && bytes > 0)
        memcpy((char *)recv + (size_t)mesh->rank * bytes, send, bytes);
    return result;
}

/* ---- the public calls */

ceclResult_t cecl_mesh_allgather(struct cecl_mesh *mesh, const char *kind, const void *send,
                                 void *recv, size_t bytes)
{
    ceclResult_t result = exchange(mesh, kind, send, recv, bytes, -1);
    drop_descriptors(mesh); /* a rank inside another call may have sent descriptors */
    return result;
}

struct verdict {
    int32_t result;
    char text[MESH_TEXT_BYTES];
};

ceclResult_t cecl_mesh_agree(struct cecl_mesh *mesh, ceclResult_t mine)
{
    struct verdict verdict = {.result = (int32_t)mine}, *all = mesh->verdicts;
    if (mine != ceclSuccess)
        cecl_shorten(verdict.text, sizeof(verdict.text), cecl_message());
    CECL_TRY(cecl_mesh_allgather(mesh, "agree", &verdict, all, sizeof(verdict)));
    for (int r = 0; r < mesh->nranks; r++)
        if (all[r].result != ceclSuccess)
            return cecl_fail((ceclResult_t)all[r].result, "rank %d: %.*s", r, MESH_TEXT_BYTES,
                             all[r].text);
    return ceclSuccess;
}

/* Whether a descriptor came from `rank` in the last exchange. */
static ceclResult_t check_descriptor(const struct cecl_mesh *mesh, int rank)
{
    const struct mesh_transfer *transfer = &mesh->peers[rank].transfer;
    if (rank == mesh->rank || transfer->fd >= 0)
        return ceclSuccess;
    return transfer->fd_lost
               ? cecl_fail(ceclSystemError,
                           "no descriptor is left here for the one that rank %d sent; is the limit "
                           "of open files (ulimit -n) reached?",
                           rank)
               : cecl_fail(ceclRemoteError, "rank %d sent no descriptor", rank);
}

ceclResult_t cecl_mesh_exchange_fd(struct cecl_mesh *mesh, int fd, int *fds)
{
    ceclResult_t result = exchange(mesh, "fd", NULL, NULL, 0, fd);
    for (int r = 0; r < mesh->nranks && result == ceclSuccess; r++)
        result = check_descriptor(mesh, r);
    if (result != ceclSuccess) {
        drop_descriptors(mesh);
        return result;
    }
    for (int r = 0; r < mesh->nranks; r++) {
        fds[r] = mesh->peers[r].transfer.fd;
        mesh->peers[r].transfer.fd = -1;
    }
    return ceclSuccess;
}

ceclResult_t cecl_mesh_share_fd(struct cecl_mesh *mesh, int root, int *fd)
{
    const bool is_root = mesh->rank == root;
    ceclResult_t result = exchange(mesh, "share", NULL, NULL, 0, is_root ? *fd : -1);
    if (result == ceclSuccess)
        result = check_descriptor(mesh, root);
    if (result == ceclSuccess && !is_root) {
        *fd = mesh->peers[root].transfer.fd;
        mesh->peers[root].transfer.fd = -1;
    }
    drop_descriptors(mesh);
    return result;
}
