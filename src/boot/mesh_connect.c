/* How the mesh comes to be: every rank listens under a secret name, connects to all lower ranks,
 * and takes connections of higher ones that
 * show the secret. A stranger that finds the name is one of many pending connections with a
 * deadline of its own; it holds up nobody. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "util/clock.h"

#define HELLO_MAGIC 0x6d657368u
#define PENDING_MAX 64  /* connections that have not shown the secret yet */
#define PENDING_MS 5000 /* how long they may take */
#define BACKLOG 4096
#define CHANNELS 2 /* data, life */

/* What ranks tell each other through the oob: where they listen, and what a caller must show. */
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

struct pending {
    int fd;
    size_t got;
    int64_t deadline;
    struct hello hello;
};

static socklen_t abstract_address(const char *name, struct sockaddr_un *address)
{
    const size_t length = strnlen(name, sizeof(((struct invitation *)0)->name));
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, length); /* a leading zero: abstract, no file */
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

/* Whether the other end runs as the same user: the kernel's word, not its own. */
static bool same_user(int fd)
{
    struct ucred credentials;
    socklen_t length = sizeof(credentials);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
           credentials.uid == geteuid();
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
            ceclResult_t result = cecl_fail(full ? ceclTimeout : ceclRemoteError,
                                            "connecting to rank %d: %s", peer, strerror(errno));
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
    return result;
}

static int *place_of(struct cecl_mesh *mesh, int rank, int channel)
{
    return channel == 0 ? &mesh->peers[rank].data : &mesh->peers[rank].life;
}

/* A connection has sent its hello: it is one of ours, in its place, or closed. Returns 1 if taken.
 * */
static int admit(struct cecl_mesh *mesh, const struct invitation *mine, struct pending *one)
{
    const struct hello *hello = &one->hello;
    if (hello->magic == HELLO_MAGIC && hello->rank > mesh->rank && hello->rank < mesh->nranks &&
        hello->channel < CHANNELS && *place_of(mesh, hello->rank, hello->channel) < 0 &&
        cecl_net_equal(hello->secret, mine->secret, sizeof(mine->secret)) && same_user(one->fd)) {
        *place_of(mesh, hello->rank, hello->channel) = one->fd;
        return 1;
    }
    close(one->fd);
    return 0;
}

/* Reads on; true when this connection is settled (admitted, refused or gone). */
static bool advance(struct cecl_mesh *mesh, const struct invitation *mine, struct pending *one,
                    int *admitted)
{
    const ssize_t got =
        recv(one->fd, (char *)&one->hello + one->got, sizeof(one->hello) - one->got, MSG_DONTWAIT);
    if (got > 0) {
        one->got += (size_t)got;
        if (one->got < sizeof(one->hello))
            return false;
        *admitted += admit(mesh, mine, one);
        return true;
    }
    const bool alive = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (alive && cecl_now_ms() < one->deadline)
        return false;
    close(one->fd);
    return true;
}

/* Takes new connections as long as there is room; with none the oldest, which is overdue at the
 * latest soon, makes place. */
static void take_new(int listener, struct pending *pending, int *count)
{
    while (*count < PENDING_MAX) {
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        pending[(*count)++] = (struct pending){.fd = fd, .deadline = cecl_now_ms() + PENDING_MS};
    }
}

static ceclResult_t await_callers(struct cecl_mesh *mesh, const struct invitation *mine,
                                  int listener, int64_t deadline)
{
    struct pending pending[PENDING_MAX];
    struct pollfd polls[PENDING_MAX + 1];
    const int expected = CHANNELS * (mesh->nranks - 1 - mesh->rank);
    int count = 0, admitted = 0;
    ceclResult_t result = ceclSuccess;

    while (admitted < expected && result == ceclSuccess) {
        polls[0] = (struct pollfd){.fd = count < PENDING_MAX ? listener : -1, .events = POLLIN};
        for (int i = 0; i < count; i++)
            polls[i + 1] = (struct pollfd){.fd = pending[i].fd, .events = POLLIN};
        int wait = cecl_ms_left(deadline);
        if (count > 0 && (wait < 0 || wait > 100))
            wait = 100; /* look at the deadlines of those that are pending */
        if (poll(polls, (nfds_t)count + 1, wait) < 0 && errno != EINTR)
            result = cecl_fail(ceclSystemError, "poll: %s", strerror(errno));
        int kept = 0;
        for (int i = 0; i < count; i++)
            if (!advance(mesh, mine, &pending[i], &admitted))
                pending[kept++] = pending[i];
        count = kept;
        take_new(listener, pending, &count);
        if (admitted < expected && cecl_ms_left(deadline) == 0)
            result = cecl_fail(ceclTimeout, "%d of %d connections from higher ranks came in time",
                               admitted, expected);
    }
    for (int i = 0; i < count; i++)
        close(pending[i].fd);
    return result;
}

ceclResult_t mesh_connect(struct cecl_mesh *mesh, struct cecl_oob *oob, int64_t deadline)
{
    struct invitation mine = {0}, *all = calloc((size_t)mesh->nranks, sizeof(*all));
    int listener = -1;
    ceclResult_t local =
        all ? open_listener(&mine, &listener)
            : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", mesh->nranks);

    /* Listening comes before anyone is told the name, so a connection never finds nobody. A rank
     * that failed comes with an empty name. */
    char words[CECL_MESSAGE_BYTES];
    memcpy(words, cecl_message(), sizeof(words));
    if (local != ceclSuccess)
        mine = (struct invitation){0};
    ceclResult_t result = all ? oob->allgather(oob, &mine, all, sizeof(mine)) : local;
    if (local != ceclSuccess)
        result = cecl_fail_with(local, words);
    for (int r = 0; r < mesh->nranks && result == ceclSuccess; r++)
        if (all[r].name[0] == '\0')
            result = cecl_fail(ceclRemoteError, "rank %d could not open a Unix socket", r);
    for (int r = 0; r < mesh->rank && result == ceclSuccess; r++)
        for (int c = 0; c < CHANNELS && result == ceclSuccess; c++)
            result = call_peer(mesh, &all[r], r, c, deadline, place_of(mesh, r, c));
    if (result == ceclSuccess)
        result = await_callers(mesh, &mine, listener, deadline);
    if (listener >= 0)
        close(listener);
    free(all);
    return result;
}
