/* Exchanges over the mesh. One routine moves frames between this rank and all peers at the same
 * time, so no order of sends and receives can deadlock ranks. All exchanges are built on that
 * routine. */
#include "boot/mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/packet.h"
#include "boot/rank_list.h"
#include "util/clock.h"
#include "util/fds.h"

#define OWN_FDS 3 /* of a rank: interrupt_fd, wake_fd, rouse_fd */

ceclResult_t cecl_mesh_check_limit(int nranks)
{
    struct rlimit limit;
    const uint64_t n = (uint64_t)nranks, needed = n * ((n - 1) * MESH_CHANNELS + OWN_FDS);
    return getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed
               ? ceclSuccess
               : cecl_fail(ceclSystemError,
                           "limit of open files (ulimit -n): %" PRIu64 "; %d ranks in one process "
                           "need more than %" PRIu64 " descriptors",
                           (uint64_t)limit.rlim_cur, nranks, needed);
}

ceclResult_t cecl_mesh_new(const struct cecl_oob *oob, int64_t timeout_ms,
                           struct cecl_invitation *invitation, struct cecl_mesh **out)
{
    const size_t n = (size_t)oob->nranks;
    struct cecl_mesh *mesh = calloc(1, sizeof(*mesh) + n * sizeof(mesh->peers[0]));
    *invitation = (struct cecl_invitation){.process = cecl_process_self()};
    if (!mesh)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu ranks", n);
    mesh->nranks = oob->nranks;
    mesh->rank = oob->rank;
    mesh->timeout_ms = timeout_ms;
    mesh->init_deadline = oob->deadline;
    mesh->init_timeout_ms = oob->timeout_ms;
    mesh->joining = true;
    mesh->activity = "joining";
    mesh->listener = -1;

    for (size_t r = 0; r < n; r++)
        mesh->peers[r] = (struct mesh_peer){.data = -1, .life = -1, .process = -1, .post = -1};
    pthread_mutex_init(&mesh->life_lock, NULL);
    mesh->polls = calloc(5 * n + 3, sizeof(*mesh->polls));
    mesh->verdicts = calloc(n, sizeof(int32_t) + MESH_TEXT_BYTES);
    mesh->interrupt_fd = CECL_FD(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    mesh->wake_fd = CECL_FD(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    mesh->rouse_fd = CECL_FD(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));

    ceclResult_t result = ceclSuccess;
    if (!mesh->polls || !mesh->verdicts)
        result = cecl_fail(ceclOutOfMemory, "no host memory for %zu ranks", n);
    else if (mesh->interrupt_fd < 0 || mesh->wake_fd < 0 || mesh->rouse_fd < 0)
        result = cecl_fail(ceclSystemError, "eventfd: %s", strerror(errno));
    else
        result = mesh_listen(mesh, invitation);
    if (result != ceclSuccess) {
        cecl_mesh_close(mesh);
        return result;
    }
    mesh->life_polls = mesh->polls + 2 * n + 1;
    mesh->post_polls = mesh->life_polls + 2 * n + 1;
    *out = mesh;
    return ceclSuccess;
}

void cecl_mesh_close(struct cecl_mesh *mesh)
{
    if (!mesh)
        return;
    cecl_mesh_say_goodbye(mesh, NULL);
    for (int r = 0; r < mesh->nranks; r++) {
        struct mesh_peer *peer = &mesh->peers[r];
        int fds[] = {peer->data, peer->life, peer->post, peer->process};
        cecl_net_drop(fds, 4);
    }
    int own[] = {mesh->interrupt_fd, mesh->wake_fd, mesh->rouse_fd};
    cecl_net_drop(own, 3);
    if (mesh->listener >= 0)
        cecl_net_close(mesh->listener);
    pthread_mutex_destroy(&mesh->life_lock);
    free(mesh->polls);
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

/* ---- the part of one peer */

#define FRAME_MAGIC 0x6365636cu

/* Whether the peer's frame belongs to the same exchange as ours. */
static bool matches(const struct mesh_header *theirs, const struct mesh_header *ours)
{
    return theirs->sequence == ours->sequence && theirs->bytes == ours->bytes &&
           memcmp(theirs->kind, ours->kind, sizeof(ours->kind)) == 0;
}

/* Checks a frame of which `got` bytes were received. `is_long`: it had more bytes. */
static ceclResult_t judge_frame(int rank, const struct mesh_exchange *x, struct mesh_transfer *t,
                                size_t got, bool is_long)
{
    t->received = true;
    const bool is_whole = got == sizeof(t->header) + x->bytes && !is_long;
    return got < sizeof(t->header) || t->header.magic != FRAME_MAGIC ||
                   (matches(&t->header, &x->header) && !is_whole)
               ? cecl_fail(ceclInternalError, "rank %d sent an invalid frame", rank)
               : ceclSuccess;
}

static ceclResult_t send_frame(struct cecl_mesh *mesh, int rank, const struct mesh_exchange *x)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    struct iovec parts[CECL_PACKET_PARTS] = {
        {.iov_base = (void *)(uintptr_t)&x->header, .iov_len = sizeof(x->header)},
        {.iov_base = (void *)(uintptr_t)x->send, .iov_len = x->bytes}};
    if (!peer->transfer.sent)
        peer->transfer.sent = cecl_packet_send(peer->data, parts, &x->fd, x->fd >= 0) >= 0;
    return peer->transfer.sent || cecl_net_is_early(errno)
               ? ceclSuccess
               : mesh_io_error(mesh, rank, "sending to", errno);
}

/* Receives the peer's frame, if it has arrived. At most one descriptor is expected; others are closed. If
 * the frame belongs to another exchange, its payload may be cut. */
static ceclResult_t receive_frame(struct cecl_mesh *mesh, int rank, const struct mesh_exchange *x)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    struct mesh_transfer *t = &peer->transfer;
    struct iovec parts[CECL_PACKET_PARTS] = {
        {.iov_base = &t->header, .iov_len = sizeof(t->header)},
        {.iov_base = x->bytes > 0 ? x->recv + (size_t)rank * (size_t)x->header.bytes : NULL,
         .iov_len = x->bytes}};
    int fds[CECL_PACKET_FDS], nfds, flags = 0;
    if (t->received)
        return ceclSuccess;
    const ssize_t got = cecl_packet_take(peer->data, parts, fds, &nfds, &flags);
    if (got < 0 && cecl_net_is_early(errno))
        return ceclSuccess;
    if (got <= 0)
        return mesh_io_error(mesh, rank, "receiving from", got == 0 ? EPIPE : errno);
    if (nfds > 0)
        t->fd = fds[0];
    cecl_net_drop(fds + 1, nfds - 1);
    t->fd_lost = flags & MSG_CTRUNC;
    return judge_frame(rank, x, t, (size_t)got, flags & MSG_TRUNC);
}
/* ---- all peers at the same time */

/* A late rank may itself wait for a third rank, which completed the previous exchange with this rank but not with
 * the late one. The late rank's own wait ends soon, and the late rank then names the rank for which it waited. So
 * this rank listens a little longer. */
static ceclResult_t listen_for_reason(struct cecl_mesh *mesh)
{
    const int64_t end = cecl_now_ms() + CECL_MESH_WORD_MS;
    do {
        CECL_TRY(mesh_first_reason(mesh));
        poll(NULL, 0, 1);
    } while (cecl_now_ms() < end);
    return ceclSuccess;
}

static ceclResult_t name_who_is_late(struct cecl_mesh *mesh)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < mesh->nranks; r++) {
        const struct mesh_transfer *t = &mesh->peers[r].transfer;
        if (r != mesh->rank && !(t->sent && t->received))
            cecl_rank_list_add(&list, r);
    }
    if (list.count > 1)
        CECL_TRY(listen_for_reason(mesh));
    const bool joins = atomic_load(&mesh->joining);
    return cecl_fail(ceclTimeout, "%s did not come within %" PRId64 " ms (%s); %s",
                     cecl_rank_list_words(&list), joins ? mesh->init_timeout_ms : mesh->timeout_ms,
                     joins ? "CECL_INIT_TIMEOUT_MS" : "CECL_TIMEOUT_MS",
                     joins ? "has a process ended?" : "did every rank make the call?");
}

/* Fills in the poll list: first the peers' processes, then their sockets. poll() looks at the processes first, so
 * if a process has ended, its last data has arrived when poll() looks at its socket.
 * Returns the number of peers to wait for. */
static int fill_polls(struct cecl_mesh *mesh)
{
    int awaited = 0;
    for (int r = 0; r < mesh->nranks; r++) {
        const struct mesh_peer *peer = &mesh->peers[r];
        const bool sent = peer->transfer.sent, got = peer->transfer.received,
                   waits = r != mesh->rank && !(sent && got);
        mesh->polls[r] = (struct pollfd){.fd = waits ? peer->process : -1, .events = POLLIN};
        mesh->polls[mesh->nranks + r] =
            (struct pollfd){.fd = waits ? peer->data : -1,
                            .events = (short)((got ? 0 : POLLIN) | (sent ? 0 : POLLOUT))};
        awaited += waits;
    }
    return awaited;
}

/* Waits until some peer's socket is ready. *through is set when no peer is left to wait for. */
static ceclResult_t wait_for_peers(struct cecl_mesh *mesh, int64_t deadline, bool *through)
{
    const int n = mesh->nranks;
    struct pollfd *polls = mesh->polls, *interrupt = &polls[2 * n];
    *through = fill_polls(mesh) == 0;
    if (*through)
        return ceclSuccess;
    *interrupt = (struct pollfd){.fd = mesh->interrupt_fd, .events = POLLIN};
    const int ready = cecl_net_poll(polls, 2 * n + 1, cecl_ms_left(deadline));
    if (ready < 0)
        return errno == EINTR ? ceclSuccess
                              : cecl_fail(ceclSystemError, "poll: %s", strerror(errno));
    if (ready == 0)
        return cecl_ms_left(deadline) == 0 ? name_who_is_late(mesh) : ceclSuccess;
    for (int r = 0; r < n; r++)
        /* the peer's process has ended, and there is nothing left to read */
        if (polls[r].revents && !polls[n + r].revents) {
            mesh_note_end(mesh, r);
            return mesh_peer_error(mesh, r);
        }
    return interrupt->revents ? mesh_interrupted(mesh) : ceclSuccess;
}

/* Moves all frames. On success every peer's frame was received, whether it belongs to this exchange or
 * not. */
static ceclResult_t move_frames(struct cecl_mesh *mesh, const struct mesh_exchange *x,
                                int64_t deadline)
{
    bool through = false;
    for (int r = 0; r < mesh->nranks; r++)
        mesh->peers[r].transfer = (struct mesh_transfer){.fd = -1};
    while (!through) {
        for (int r = 0; r < mesh->nranks; r++)
            if (r != mesh->rank) {
                CECL_TRY(send_frame(mesh, r, x));
                CECL_TRY(receive_frame(mesh, r, x));
            }
        CECL_TRY(wait_for_peers(mesh, deadline, &through));
    }
    return ceclSuccess;
}

static void drop_descriptors(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++)
        cecl_net_drop(&mesh->peers[r].transfer.fd, 1);
}

uint64_t cecl_mesh_exchanges(const struct cecl_mesh *mesh)
{
    return mesh->sequence;
}

static ceclResult_t exchange_frames(struct cecl_mesh *mesh, struct mesh_exchange *x,
                                    int64_t deadline)
{
    x->header.sequence = mesh->sequence++;
    ceclResult_t result = move_frames(mesh, x, deadline);
    if (result != ceclSuccess) { /* a peer may wait for this frame, or may not have sent its own */
        cecl_fail(result, "%s: %s", mesh->activity, cecl_message());
        mesh->broken = result;
        cecl_keep_message(mesh->broken_text);
    }
    for (int r = 0; r < mesh->nranks && result == ceclSuccess; r++) {
        const struct mesh_header *theirs = &mesh->peers[r].transfer.header;
        if (r == mesh->rank || matches(theirs, &x->header))
            continue;
        result =
            cecl_fail(ceclInvalidUsage,
                      "rank %d is in '%.8s' (%" PRIu64
                      " bytes) while rank %d is in '%.8s' (%" PRIu64 " bytes): "
                      "ranks must make the same calls in the same order",
                      r, theirs->kind, theirs->bytes, mesh->rank, x->header.kind, x->header.bytes);
    }
    return result;
}

/* Exchanges `bytes` bytes, in as many frames as that takes. The first frame shows whether a rank is inside
 * another call. */
static ceclResult_t exchange(struct cecl_mesh *mesh, const char *kind, const char *send, char *recv,
                             size_t bytes, int fd)
{
    const int64_t deadline =
        atomic_load(&mesh->joining) ? mesh->init_deadline : cecl_deadline(mesh->timeout_ms);
    struct mesh_exchange x = {.header = {.magic = FRAME_MAGIC, .bytes = bytes}, .fd = fd};
    ceclResult_t result = ceclSuccess;
    size_t done = 0;

    if (mesh->broken != ceclSuccess)
        return cecl_fail_with(mesh->broken, mesh->broken_text);
    strncpy(x.header.kind, kind, sizeof(x.header.kind) - 1);
    do {
        x.bytes = bytes - done < CECL_PACKET_BODY ? bytes - done : CECL_PACKET_BODY;
        x.send = x.bytes > 0 ? send + done : NULL;
        x.recv = x.bytes > 0 ? recv + done : NULL;
        result = exchange_frames(mesh, &x, deadline);
        done += x.bytes;
    } while (result == ceclSuccess && done < bytes);
    if (result == ceclSuccess && bytes > 0)
        memcpy(recv + (size_t)mesh->rank * bytes, send, bytes);
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

/* Hands over the descriptor that `rank` sent in the last exchange; -1 if `rank` is this rank. */
static ceclResult_t take_descriptor(struct cecl_mesh *mesh, int rank, int *fd)
{
    struct mesh_transfer *transfer = &mesh->peers[rank].transfer;
    if (rank != mesh->rank && transfer->fd < 0)
        return transfer->fd_lost
                   ? cecl_fail(ceclSystemError,
                               "rank %d has no descriptor left for the one that rank %d sent; is "
                               "the limit of open files (ulimit -n) reached?",
                               mesh->rank, rank)
                   : cecl_fail(ceclRemoteError, "rank %d sent no descriptor", rank);
    *fd = transfer->fd;
    transfer->fd = -1;
    return ceclSuccess;
}

/* Exchanges descriptors, and keeps those of the ranks from `first` on. */
static ceclResult_t exchange_fds(struct cecl_mesh *mesh, const char *kind, int fd, int first,
                                 int count, int *fds)
{
    ceclResult_t result = exchange(mesh, kind, NULL, NULL, 0, fd);
    int taken = 0;
    for (; taken < count && result == ceclSuccess; taken += result == ceclSuccess)
        result = take_descriptor(mesh, first + taken, &fds[taken]);
    drop_descriptors(mesh);
    if (result != ceclSuccess)
        cecl_net_drop(fds, taken);
    return result;
}

ceclResult_t cecl_mesh_exchange_fd(struct cecl_mesh *mesh, int fd, int *fds)
{
    return exchange_fds(mesh, "fd", fd, 0, mesh->nranks, fds);
}

ceclResult_t cecl_mesh_share_fd(struct cecl_mesh *mesh, int root, int *fd)
{
    const bool is_root = mesh->rank == root;
    return exchange_fds(mesh, "share", is_root ? *fd : -1, root, !is_root, fd);
}
