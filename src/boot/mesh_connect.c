/* How the mesh is made. Every rank listens under a secret name, connects to all lower ranks, and
 * accepts connections of higher ranks that show the secret. The door (door.h) keeps out other callers that
 * find the name. A rank that gives up meanwhile also connects to the ranks to which it has no connection
 * yet, and tells them why. A rank that gives up before it knows the others' names just stops listening, and
 * they notice that. Otherwise they would wait for it until init times out. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "boot/door.h"
#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/process.h"
#include "boot/rank_list.h"
#include "util/clock.h"
#include "util/fds.h"

#define HELLO_MAGIC 0x6d657368u
#define TICK_MS 50 /* most ms until a rank that gives up is noticed */

/* The first bytes on a new connection. */
struct hello {
    uint32_t magic;
    uint16_t rank, channel;
    uint8_t secret[16];
};

/* The peers' invitations. */
struct invited {
    const char *first;
    size_t apart; /* bytes from one rank's invitation to the next */
};

static const struct cecl_invitation *of_rank(const struct invited *all, int rank)
{
    return (const void *)(all->first + (size_t)rank * all->apart);
}

static socklen_t abstract_address(const char *name, struct sockaddr_un *address)
{
    const size_t length = strnlen(name, sizeof(((struct cecl_invitation *)0)->name));
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* the leading zero byte makes the name abstract: there is no file */
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

ceclResult_t mesh_listen(struct cecl_mesh *mesh, struct cecl_invitation *mine)
{
    uint64_t id[2];
    struct sockaddr_un address;

    CECL_TRY(cecl_net_random(id, sizeof(id)));
    CECL_TRY(cecl_net_random(mine->secret, sizeof(mine->secret)));
    snprintf(mine->name, sizeof(mine->name), "cecl-%016llx%016llx", (unsigned long long)id[0],
             (unsigned long long)id[1]);
    const socklen_t length = abstract_address(mine->name, &address);
    return cecl_net_listen(SOCK_SEQPACKET, (struct sockaddr *)&address, length, &mesh->listener);
}

/* The process at the other end, according to the kernel. pid 0: unknown. */
static struct ucred credentials_of(int fd)
{
    struct ucred credentials = {.uid = (uid_t)-1};
    socklen_t length = sizeof(credentials);
    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
    return credentials;
}

static bool same_user(int fd)
{
    return credentials_of(fd).uid == geteuid();
}

/* Fails if a rank has connected and closed again, or if its process has ended. Does not read data that the
 * rank sent. */
static ceclResult_t notice_leavers(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        const struct mesh_peer *peer = &mesh->peers[r];
        const bool ended = cecl_process_has_ended(peer->process);
        if (!ended && (peer->data < 0 || cecl_net_look(peer->data) != 0))
            continue;
        if (peer->life >= 0 && mesh_read_life(mesh, r) == MESH_ABORTED)
            return mesh_peer_error(mesh, r); /* the rank has sent the reason */
        return ended
                   ? cecl_fail(ceclRemoteError, "rank %d ended while the communicator was made", r)
                   : mesh_peer_error(mesh, r);
    }
    return ceclSuccess;
}

/* Connects `fd` to a peer's listener, whose queue may be full for a while. */
static ceclResult_t reach(struct cecl_mesh *mesh, const struct cecl_invitation *theirs, int peer,
                          int fd)
{
    struct sockaddr_un address;
    const socklen_t length = abstract_address(theirs->name, &address);
    while (connect(fd, (struct sockaddr *)&address, length) != 0) {
        if (errno == ECONNREFUSED && mesh->peers[peer].process < 0)
            return cecl_fail(ceclRemoteError,
                             "rank %d has ended, or it is on another host that has the same id; in "
                             "that case give each host an id of its own (CECL_HOST_ID)",
                             peer);
        if (!cecl_net_is_early(errno))
            return mesh_io_error(mesh, peer, "connecting to", errno);
        if (cecl_ms_left(mesh->init_deadline) == 0)
            return cecl_fail(ceclTimeout,
                             "rank %d took no connection within %" PRId64
                             " ms (CECL_INIT_TIMEOUT_MS)",
                             peer, mesh->init_timeout_ms);
        CECL_TRY(notice_leavers(mesh));
        poll(NULL, 0, 1);
    }
    return ceclSuccess;
}

/* Says hello to the rank that sent this invitation. A new connection always has room for a hello. */
static bool say_hello(int fd, const struct cecl_invitation *theirs, int rank, int channel)
{
    struct hello hello = {
        .magic = HELLO_MAGIC, .rank = (uint16_t)rank, .channel = (uint16_t)channel};
    memcpy(hello.secret, theirs->secret, sizeof(hello.secret));
    return send(fd, &hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

static ceclResult_t call_peer(struct cecl_mesh *mesh, const struct cecl_invitation *theirs,
                              int peer, int channel, int *out)
{
    const int fd = cecl_net_open(AF_UNIX, SOCK_SEQPACKET);
    if (fd < 0)
        return ceclSystemError;
    ceclResult_t result = reach(mesh, theirs, peer, fd);
    if (result == ceclSuccess && !same_user(fd))
        result = cecl_fail(ceclRemoteError, "rank %d runs as another user", peer);
    if (result == ceclSuccess && !say_hello(fd, theirs, mesh->rank, channel))
        result = mesh_io_error(mesh, peer, "sending to", errno);
    if (result == ceclSuccess)
        *out = fd;
    else
        cecl_net_close(fd);
    return result;
}

/* Where the descriptor of a connection is kept. NULL: there is no such channel. */
static int *place_of(struct cecl_mesh *mesh, int rank, int channel)
{
    struct mesh_peer *peer = &mesh->peers[rank];
    int *const places[MESH_CHANNELS] = {&peer->data, &peer->life, &peer->post};
    return channel < MESH_CHANNELS ? places[channel] : NULL;
}

/* Whether a hello comes from another rank. */
static bool is_of_rank(const struct cecl_mesh *mesh, const struct cecl_invitation *mine,
                       const struct hello *hello, int fd)
{
    return hello->magic == HELLO_MAGIC && hello->rank < mesh->nranks && hello->rank != mesh->rank &&
           cecl_net_equal(hello->secret, mine->secret, sizeof(mine->secret)) && same_user(fd);
}

/* Takes the connection of a caller that has sent its hello, or reads why the caller gives up, or turns the caller
 * away. Returns whether the connection was taken. */
static bool admit(struct cecl_mesh *mesh, const struct cecl_invitation *mine,
                  const struct cecl_caller *caller)
{
    struct hello hello;
    memcpy(&hello, caller->said, sizeof(hello));
    const bool known = is_of_rank(mesh, mine, &hello, caller->fd);
    int *place =
        known && hello.rank > mesh->rank ? place_of(mesh, hello.rank, hello.channel) : NULL;
    if (place && *place < 0) {
        *place = caller->fd;
        return true;
    }
    if (known && hello.channel == MESH_REASON)
        mesh_hear_reason(mesh, hello.rank, caller->fd);
    cecl_net_close(caller->fd);
    return false;
}

static bool is_missing(const struct cecl_mesh *mesh, int rank)
{
    const struct mesh_peer *peer = &mesh->peers[rank];
    return peer->data < 0 || peer->life < 0 || peer->post < 0;
}

static ceclResult_t name_who_is_missing(struct cecl_mesh *mesh)
{
    struct cecl_rank_list list = {0};
    for (int r = mesh->rank + 1; r < mesh->nranks; r++)
        if (is_missing(mesh, r))
            cecl_rank_list_add(&list, r);
    return cecl_fail(ceclTimeout,
                     "no connection from %s within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS), though "
                     "all ranks had joined; has a process ended?",
                     cecl_rank_list_words(&list), mesh->init_timeout_ms);
}

static int admit_callers(struct cecl_mesh *mesh, const struct cecl_invitation *mine,
                         struct cecl_door *door, int wait_ms)
{
    struct cecl_caller caller;
    int admitted = 0;
    cecl_door_attend(door, wait_ms);
    while (cecl_door_next(door, &caller))
        admitted += admit(mesh, mine, &caller);
    return admitted;
}

/* A peer that has gone may have connected before, to tell why. Attends the door for that, and returns the error with
 * the reason. If none comes, returns `known`, whose message is the last one. */
static ceclResult_t await_reason(struct cecl_mesh *mesh, const struct cecl_invitation *mine,
                                 struct cecl_door *door, ceclResult_t known)
{
    const int64_t deadline = cecl_deadline(MESH_REASON_MS);
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    ceclResult_t told = mesh_first_reason(mesh);
    while (told == ceclSuccess && cecl_ms_left(deadline) > 0) {
        (void)admit_callers(mesh, mine, door, 1);
        told = mesh_first_reason(mesh);
    }
    return told != ceclSuccess ? told : cecl_fail_with(known, words);
}

/* Whether a rank still listens: then its name cannot be bound. Connecting would show this, too, but would take a
 * place in the rank's queue. */
static bool listens(const struct cecl_invitation *theirs)
{
    struct sockaddr_un address;
    const socklen_t length = abstract_address(theirs->name, &address);
    const int fd = CECL_FD(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0;
    if (fd >= 0)
        cecl_fds_close(fd);
    return !is_free;
}

/* Fails if a missing rank does not listen any more, and no caller waits at the door. (A rank that has connected to
 * all stops listening, too, but its calls wait at the door then.) */
static ceclResult_t notice_silent_leavers(struct cecl_mesh *mesh, const struct invited *all,
                                          const struct cecl_door *door)
{
    for (int r = mesh->rank + 1; r < mesh->nranks; r++)
        if (is_missing(mesh, r) && !listens(of_rank(all, r)) && cecl_door_is_idle(door))
            return mesh_peer_error(mesh, r);
    return ceclSuccess;
}

/* Accepts all expected connections. */
static ceclResult_t await_callers(struct cecl_mesh *mesh, const struct invited *all,
                                  struct cecl_door *door)
{
    const int64_t long_since = cecl_deadline(MESH_LONG_MS);
    int expected = (mesh->nranks - 1 - mesh->rank) * MESH_CHANNELS;
    while (expected > 0) {
        const int left = cecl_ms_left(mesh->init_deadline), trouble = cecl_door_trouble(door);
        if (trouble)
            return cecl_fail(ceclSystemError,
                             "rank %d cannot take the connections of other ranks: %s", mesh->rank,
                             strerror(trouble));
        CECL_TRY(mesh_first_reason(mesh));
        CECL_TRY(notice_leavers(mesh));
        CECL_TRY(cecl_ms_left(long_since) == 0 ? notice_silent_leavers(mesh, all, door)
                                               : ceclSuccess);
        if (left == 0)
            return name_who_is_missing(mesh);
        expected -= admit_callers(mesh, of_rank(all, mesh->rank), door,
                                  left < 0 || left > TICK_MS ? TICK_MS : left);
    }
    return ceclSuccess;
}

/* ---- giving up */

/* Connects to a rank that listens, and tells it why this rank gives up. Returns false if there is no
 * descriptor left. */
static bool call_with_reason(const struct cecl_invitation *theirs, int rank,
                             const struct mesh_life *reason)
{
    struct sockaddr_un address;
    const socklen_t length = abstract_address(theirs->name, &address);
    const int fd = cecl_net_open(AF_UNIX, SOCK_SEQPACKET);
    if (fd < 0)
        return false;
    if (connect(fd, (struct sockaddr *)&address, length) == 0 && same_user(fd) &&
        say_hello(fd, theirs, rank, MESH_REASON))
        (void)!send(fd, reason, sizeof(*reason), MSG_NOSIGNAL | MSG_DONTWAIT);
    cecl_fds_close(fd);
    return true;
}

/* Tells the ranks to which there is no connection yet why this rank gives up. Ranks that have connected
 * are admitted first, because they may not listen any more; they read the reason from that connection. */
static void tell_unconnected(struct cecl_mesh *mesh, const struct invited *all,
                             struct cecl_door *door, const struct mesh_life *reason)
{
    for (int looks = 0; looks < 2 && door->bytes > 0;
         looks++) /* the first look accepts, the second reads */
        (void)admit_callers(mesh, of_rank(all, mesh->rank), door, 0);
    for (int r = 0; r < mesh->nranks; r++) {
        if (r == mesh->rank || mesh->peers[r].life >= 0)
            continue;
        if (!call_with_reason(of_rank(all, r), mesh->rank, reason)) {
            cecl_door_close(door); /* the door's descriptors become free */
            (void)call_with_reason(of_rank(all, r), mesh->rank, reason);
        }
    }
}

/* ---- the whole */

/* Watches the processes that are not watched yet: those that the invitations name, or, without `all`,
 * those that have connected, which may be in PID namespaces below this one. If there are too few descriptors, watches none, and so leaves them to other
 * uses. */
static void watch_processes(struct cecl_mesh *mesh, const struct invited *all)
{
    bool lacks = false;
    for (int r = 0; r < mesh->nranks && !lacks; r++) {
        struct mesh_peer *peer = &mesh->peers[r];
        if (r == mesh->rank || peer->process >= 0)
            continue;
        peer->process = all ? cecl_process_watch(&of_rank(all, r)->process)
                            : cecl_process_watch_pid((int32_t)credentials_of(peer->data).pid);
        lacks = peer->process < 0 && (errno == EMFILE || errno == ENFILE);
    }
    for (int r = 0; r < mesh->nranks && lacks; r++)
        cecl_net_drop(&mesh->peers[r].process, 1);
}

/* Connects to the lower ranks. */
static ceclResult_t call_peers(struct cecl_mesh *mesh, const struct invited *all)
{
    for (int peer = 0; peer < mesh->rank; peer++)
        for (int channel = 0; channel < MESH_CHANNELS; channel++)
            CECL_TRY(
                call_peer(mesh, of_rank(all, peer), peer, channel, place_of(mesh, peer, channel)));
    return ceclSuccess;
}

ceclResult_t cecl_mesh_connect(struct cecl_mesh *mesh, const void *invitations, size_t apart)
{
    const struct invited all = {.first = invitations, .apart = apart};
    const struct cecl_invitation *mine = of_rank(&all, mesh->rank);
    struct cecl_door door;
    watch_processes(mesh, &all);
    ceclResult_t result = cecl_door_open(&door, mesh->listener, sizeof(struct hello), NULL);
    mesh->listener = -1;
    if (result == ceclSuccess)
        result = call_peers(mesh, &all);
    if (result == ceclSuccess)
        result = await_callers(mesh, &all, &door);
    if (result == ceclRemoteError)
        result = await_reason(mesh, mine, &door, result);
    if (result == ceclSuccess) {
        cecl_door_close(&door);
        watch_processes(mesh, NULL);
        return ceclSuccess;
    }
    const struct mesh_life reason = mesh_abort_message(mesh, cecl_message());
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    tell_unconnected(mesh, &all, &door, &reason);
    cecl_door_close(&door);
    return cecl_fail_with(result, words);
}
