/* See net.h. */
#include "boot/net.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "util/clock.h"
#include "util/fds.h"

#define BACKLOG 4096
#define BEAR_MS 1000 /* for how long descriptors or memory may be lacking before that is an error */
#define UNSEEN_MS 500 /* a lack counts as new if none was seen for this long */
#define REST_US 20000 /* how long to rest during a lack, when poll() would return at once */

bool cecl_net_is_closed(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ECONNREFUSED ||
           error == ECONNABORTED || error == ENOTCONN || error == ETIMEDOUT;
}

bool cecl_net_is_early(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

bool cecl_net_is_scarce(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

bool cecl_net_bears(int error, int64_t lack[2])
{
    const int64_t now = cecl_now_ms();
    const bool is_scarce = cecl_net_is_scarce(error);
    lack[0] = now - lack[1] < UNSEEN_MS ? lack[0] : now;
    lack[1] = is_scarce ? now : 0;
    if (is_scarce)
        cecl_pause_us(REST_US);
    return is_scarce && now - lack[0] < BEAR_MS;
}

static const char *kind_of(int family)
{
    return family == AF_UNIX ? "Unix" : "TCP";
}

int cecl_net_open(int family, int type)
{
    const int fd = CECL_FD(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), error = errno;
    if (fd < 0)
        (void)!cecl_fail(ceclSystemError, "opening a %s socket: %s", kind_of(family),
                         strerror(error));
    errno = error;
    return fd;
}

ceclResult_t cecl_net_listen(int type, struct sockaddr *address, socklen_t length, int *listener)
{
    const int family = address->sa_family, fd = cecl_net_open(family, type);
    if (fd < 0)
        return ceclSystemError;
    if (bind(fd, address, length) == 0 && (type == SOCK_DGRAM || listen(fd, BACKLOG) == 0) &&
        (family == AF_UNIX || getsockname(fd, address, &length) == 0)) {
        *listener = fd;
        return ceclSuccess;
    }
    const int error = errno;
    cecl_fds_close(fd);
    return cecl_fail(ceclSystemError, "listening on a %s socket: %s", kind_of(family),
                     strerror(error));
}

int cecl_net_look(int fd)
{
    char byte;
    const ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 ? (int)got : cecl_net_is_closed(errno) ? 0 : -1;
}

void cecl_net_close(int fd)
{
    shutdown(fd, SHUT_RDWR);
    cecl_fds_close(fd);
}

void cecl_net_drop(int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0)
            cecl_fds_close(fds[i]);
        fds[i] = -1;
    }
}

ceclResult_t cecl_net_wait(int fd, short events, int64_t deadline, const char *who)
{
    for (;;) {
        struct pollfd poller = {.fd = fd, .events = events};
        const int ready = poll(&poller, 1, cecl_ms_left(deadline));
        if (ready > 0)
            return ceclSuccess;
        if (ready == 0)
            return cecl_fail(ceclTimeout, "no answer from %s in time", who);
        if (errno != EINTR)
            return cecl_fail(ceclSystemError, "poll: %s", strerror(errno));
    }
}

static ceclResult_t broken(int error, const char *doing, const char *who)
{
    return cecl_net_is_closed(error)
               ? cecl_fail(ceclRemoteError, "%s closed the connection: %s", who, strerror(error))
               : cecl_fail(ceclSystemError, "%s %s: %s", doing, who, strerror(error));
}

static ceclResult_t move(int fd, char *at, size_t bytes, short events, int64_t deadline,
                         const char *who)
{
    while (bytes > 0) {
        const ssize_t moved = events == POLLOUT ? send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                                : recv(fd, at, bytes, MSG_DONTWAIT);
        if (moved > 0) {
            at += moved;
            bytes -= (size_t)moved;
        } else if (moved == 0) {
            return cecl_fail(ceclRemoteError, "%s closed the connection", who);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            CECL_TRY(cecl_net_wait(fd, events, deadline, who));
        } else if (errno != EINTR) {
            return broken(errno, events == POLLOUT ? "sending to" : "receiving from", who);
        }
    }
    return ceclSuccess;
}

ceclResult_t cecl_net_send(int fd, const void *data, size_t bytes, int64_t deadline,
                           const char *who)
{
    return move(fd, (char *)(uintptr_t)data, bytes, POLLOUT, deadline, who);
}

ceclResult_t cecl_net_recv(int fd, void *data, size_t bytes, int64_t deadline, const char *who)
{
    return move(fd, data, bytes, POLLIN, deadline, who);
}

ceclResult_t cecl_net_random(void *data, size_t bytes)
{
    ssize_t got;
    do /* if at most 256 bytes are asked for, the kernel returns all or none */
        got = getrandom(data, bytes, 0);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)bytes ? ceclSuccess
                                 : cecl_fail(ceclSystemError, "getrandom: %s", strerror(errno));
}

int cecl_net_equal(const void *a, const void *b, size_t bytes)
{
    const unsigned char *x = a, *y = b;
    unsigned char differ = 0;
    for (size_t i = 0; i < bytes; i++)
        differ |= (unsigned char)(x[i] ^ y[i]);
    return differ == 0;
}
