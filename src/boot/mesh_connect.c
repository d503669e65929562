/* How the mesh is made. Every rank listens under a secret name, connects to all lower ranks, and
 * accepts connections of higher ranks that show the secret. The door (door.h) keeps out anybody
 * else who finds the name. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "boot/door.h"
#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/rank_list.h"
#include "util/clock.h"

#define HELLO_MAGIC 0x6d657368u
#define BACKLOG 4096
#define CHANNELS 2 /* one connection for data, one for life */
#define TICK_MS 50 /* ms after which a rank that gives up is noticed, at most */

/* What a rank tells the others through the oob: where it listens, and what a caller must show. */
struct invitation {
    char name[40];
    uint8_t secret[16];
};

/* The first bytes on a new connection. */
struct hello {
    uint32_t magic;
    uint16_t rank, channel;
    uint8_t secret[16];
};
_Static_assert(sizeof(struct hello) <= CECL_DOOR_SAID_MAX, "a caller says it at the door");

static socklen_t abstract_address(const char *name, struct sockaddr_un *address)
{
    const size_t length = strnlen(name, sizeof(((struct invitation *)0)->name));
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* the leading zero makes the name abstract: there is no file */
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static ceclResult_t open_listener(struct invitation *mine, int *listener)
{
    uint64_t id[2];
    struct sockaddr_un address;

    CECL_TRY(cecl_net_random(id, sizeof(id)));
    CECL_TRY(cecl_net_random(mine->secret, sizeof(mine->secret)));
    snprintf(mine->name, sizeof(mine->name), "cecl-%016llx%016llx", (unsigned long long)id[0],
             (unsigned long long)id[1]);
    const socklen_t length = abstract_address(mine->name, &address);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "no Unix socket: %s", strerror(errno));
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, BACKLOG) != 0) {
        ceclResult_t result =
            cecl_fail(ceclSystemError, "listening on a Unix socket: %s", strerror(errno));
        close(fd);
        return result;
    }
    *listener = fd;
    return ceclSuccess;
}

/* Whether the process at the other end runs as the same user. The kernel says
 * so, not the other end. */
static bool same_user(int fd)
{
    struct ucred credentials;
    socklen_t length = sizeof(credentials);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
           credentials.uid == geteuid();
}

static ceclResult_t did_not_answer(const struct cecl_mesh *mesh, int peer)
{
    return cecl_fail(ceclTimeout,
                     "rank %d took no connection within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
                     peer, mesh->init_timeout_ms);
}

static ceclResult_t call_peer(const struct cecl_mesh *mesh, const struct invitation *theirs,
                              int peer, int channel, int64_t deadline, int *out)
{
    struct sockaddr_un address;
    const socklen_t length = abstract_address(theirs->name, &address);
    char who[32];
    snprintf(who, sizeof(who), "rank %d", peer);

    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "no Unix socket: %s", strerror(errno));
    while (connect(fd, (struct sockaddr *)&address, length) != 0) {
        const bool full = errno == EAGAIN || errno == EINTR;
        if (!full || cecl_ms_left(deadline) == 0) {
            ceclResult_t result = full ? did_not_answer(mesh, peer)
                                       : cecl_fail(ceclRemoteError, "connecting to rank %d: %s",
                                                   peer, strerror(errno));
            close(fd);
            return result;
        }
        poll(NULL, 0, 1);
    }
    struct hello hello = {
        .magic = HELLO_MAGIC, .rank = (uint16_t)mesh->rank, .channel = (uint16_t)channel};
    memcpy(hello.secret, theirs->secret, sizeof(hello.secret));
    ceclResult_t result = same_user(fd)
                              ? cecl_net_send(fd, &hello, sizeof(hello), deadline, who)
                              : cecl_fail(ceclRemoteError, "rank %d runs as another user", peer);
    if (result == ceclSuccess)
        *out = fd;
    else
        close(fd);
    return result == ceclTimeout ? did_not_answer(mesh, peer) : result;
}

static int *place_of(struct cecl_mesh *mesh, int rank, int channel)
{
    return channel == 0 ? &mesh->peers[rank].data : &mesh->peers[rank].life;
}

/* Judges a caller that has sent its hello: takes its connection, or turns it away. */
static bool admit(struct cecl_mesh *mesh, const struct invitation *mine,
                  const struct cecl_caller *caller)
{
    struct hello hello;
    memcpy(&hello, caller->said, sizeof(hello));
    if (hello.magic == HELLO_MAGIC && hello.rank > mesh->rank && hello.rank < mesh->nranks &&
        hello.channel < CHANNELS && *place_of(mesh, hello.rank, hello.channel) < 0 &&
        cecl_net_equal(hello.secret, mine->secret, sizeof(mine->secret)) && same_user(caller->fd)) {
        *place_of(mesh, hello.rank, hello.channel) = caller->fd;
        return true;
    }
    close(caller->fd);
    return false;
}

static bool greet(struct cecl_caller *caller)
{
    (void)caller; /* the caller sends first */
    return true;
}

/* Finds a rank that connected and closed again: it gave up. Data that it sent is not read. */
static ceclResult_t notice_leavers(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        char byte;
        const int fd = mesh->peers[r].data;
        const ssize_t got = fd < 0 ? 1 : recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)))
            continue;
        if (mesh->peers[r].life >= 0 && mesh_read_life(mesh, r) == MESH_ABORTED)
            return mesh_peer_error(mesh, r); /* it has sent the reason */
        return cecl_fail(ceclRemoteError, "rank %d left while the communicator was made", r);
    }
    return ceclSuccess;
}

static ceclResult_t name_who_is_missing(struct cecl_mesh *mesh)
{
    struct cecl_rank_list list = {0};
    for (int r = mesh->rank + 1; r < mesh->nranks; r++)
        if (mesh->peers[r].data < 0 || mesh->peers[r].life < 0)
            cecl_rank_list_add(&list, r);
    return cecl_fail(ceclTimeout,
                     "no connection from %s within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS), though "
                     "all ranks had joined; has a process ended?",
                     cecl_rank_list_words(&list), mesh->init_timeout_ms);
}

/* Accepts all expected connections. Takes over `listener`. */
static ceclResult_t await_callers(struct cecl_mesh *mesh, const struct invitation *mine,
                                  int listener, int64_t deadline)
{
    const int expected = CHANNELS * (mesh->nranks - 1 - mesh->rank);
    struct cecl_door door;
    struct cecl_caller caller;
    int admitted = 0;

    ceclResult_t result = cecl_door_open(&door, listener, sizeof(struct hello), greet);
    while (result == ceclSuccess && admitted < expected) {
        const int left = cecl_ms_left(deadline);
        cecl_door_attend(&door, left < 0 || left > TICK_MS ? TICK_MS : left);
        while (cecl_door_next(&door, &caller))
            admitted += admit(mesh, mine, &caller);
        if (admitted == expected)
            break;
        const int trouble = cecl_door_trouble(&door);
        result = trouble ? cecl_fail(ceclSystemError,
                                     "rank %d cannot take the connections of other ranks: %s",
                                     mesh->rank, strerror(trouble))
                         : notice_leavers(mesh);
        if (result == ceclSuccess && cecl_ms_left(deadline) == 0)
            result = name_who_is_missing(mesh);
    }
    cecl_door_close(&door);
    return result;
}

/* Returns -1 for peers in this process or in another process namespace: they have no descriptor. */
static int open_process(const struct mesh_peer *peer)
{
    struct ucred credentials;
    socklen_t length = sizeof(credentials);
    if (getsockopt(peer->data, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0 ||
        credentials.pid <= 0 || credentials.pid == getpid())
        return -1;
    return (int)syscall(SYS_pidfd_open, credentials.pid, 0);
}

void cecl_mesh_watch_processes(struct cecl_mesh *mesh)
{
    for (int r = 0; r < mesh->nranks; r++) {
        errno = 0;
        if (r != mesh->rank)
            mesh->peers[r].process = open_process(&mesh->peers[r]);
        if (errno != EMFILE && errno != ENFILE)
            continue;
        /* frees those opened before: other uses need the descriptors more */
        for (int q = 0; q < r; q++) {
            if (mesh->peers[q].process >= 0)
                close(mesh->peers[q].process);
            mesh->peers[q].process = -1;
        }
        return;
    }
}

ceclResult_t mesh_connect(struct cecl_mesh *mesh, struct cecl_oob *oob, int64_t deadline,
                          ceclResult_t local)
{
    struct invitation mine = {0}, *all = calloc((size_t)mesh->nranks, sizeof(*all));
    int listener = -1;
    if (local == ceclSuccess)
        local = all ? open_listener(&mine, &listener)
                    : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", mesh->nranks);

    /* Every rank listens before it tells its name, so a connection always finds a listener. A rank
     * that has failed sends an empty name. */
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    if (local != ceclSuccess)
        mine = (struct invitation){0};
    ceclResult_t result = all ? oob->allgather(oob, &mine, all, sizeof(mine)) : local;
    if (local != ceclSuccess)
        result = cecl_fail_with(local, words);
    for (int r = 0; r < mesh->nranks && result == ceclSuccess; r++)
        if (all[r].name[0] == '\0')
            result =
                cecl_fail(ceclRemoteError,
                          "rank %d could not open what it listens with (descriptors, memory)", r);
    for (int r = 0; r < mesh->rank && result == ceclSuccess; r++)
        for (int c = 0; c < CHANNELS && result == ceclSuccess; c++)
            result = call_peer(mesh, &all[r], r, c, deadline, place_of(mesh, r, c));
    if (result == ceclSuccess)
        result = await_callers(mesh, &mine, listener, deadline);
    else if (listener >= 0)
        close(listener);
    free(all);
    return result;
}
