/* Reading and writing on sockets with a deadline, and random bytes. */
#include "boot/net.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/clock.h"

bool cecl_net_is_closed(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ECONNREFUSED ||
           error == ECONNABORTED || error == ENOTCONN || error == ETIMEDOUT;
}

bool cecl_net_is_early(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

void cecl_net_close(int fd)
{
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

/* poll() looks at the process first. If that has ended, all that it sent is there when poll() looks
 * at `fd`. */
static ceclResult_t wait_or_end(int fd, int process, short events, int64_t deadline,
                                const char *who)
{
    for (;;) {
        struct pollfd pollers[] = {{.fd = process, .events = POLLIN}, {.fd = fd, .events = events}};
        const int ready = poll(pollers, 2, cecl_ms_left(deadline));
        if (ready > 0)
            return pollers[1].revents
                       ? ceclSuccess
                       : cecl_fail(ceclRemoteError, "the process of %s has ended", who);
        if (ready == 0)
            return cecl_fail(ceclTimeout, "no answer from %s in time", who);
        if (errno != EINTR)
            return cecl_fail(ceclSystemError, "poll: %s", strerror(errno));
    }
}

/* The error of a connection for `error`, an errno. */
static ceclResult_t broken(int error, const char *doing, const char *who)
{
    return cecl_net_is_closed(error)
               ? cecl_fail(ceclRemoteError, "%s closed the connection: %s", who, strerror(error))
               : cecl_fail(ceclSystemError, "%s %s: %s", doing, who, strerror(error));
}

ceclResult_t cecl_net_wait(int fd, short events, int64_t deadline, const char *who)
{
    return wait_or_end(fd, -1, events, deadline, who);
}

ceclResult_t cecl_net_send(int fd, const void *data, size_t bytes, int64_t deadline,
                           const char *who)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            at += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            CECL_TRY(cecl_net_wait(fd, POLLOUT, deadline, who));
        } else if (errno != EINTR) {
            return broken(errno, "sending to", who);
        }
    }
    return ceclSuccess;
}

ceclResult_t cecl_net_recv(int fd, int process, void *data, size_t bytes, int64_t deadline,
                           const char *who)
{
    char *at = data;
    while (bytes > 0) {
        const ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got == 0) {
            return cecl_fail(ceclRemoteError, "%s closed the connection", who);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            CECL_TRY(wait_or_end(fd, process, POLLIN, deadline, who));
        } else if (errno != EINTR) {
            return broken(errno, "receiving from", who);
        }
    }
    return ceclSuccess;
}

ceclResult_t cecl_net_random(void *data, size_t bytes)
{
    char *at = data;
    while (bytes > 0) {
        const ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno != EINTR)
            return cecl_fail(ceclSystemError, "getrandom: %s", strerror(errno));
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        }
    }
    return ceclSuccess;
}

int cecl_net_equal(const void *a, const void *b, size_t bytes)
{
    const unsigned char *x = a, *y = b;
    unsigned char differ = 0;
    for (size_t i = 0; i < bytes; i++)
        differ |= (unsigned char)(x[i] ^ y[i]);
    return differ == 0;
}
