/* Packets with descriptors (SCM_RIGHTS). */
#include "boot/packet.h"
#include "util/fds.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Room for the descriptors of one packet. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(CECL_PACKET_FDS * sizeof(int))];
};

ssize_t cecl_packet_send(int socket, struct iovec *parts, const int *fds, int nfds)
{
    union control control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = CECL_PACKET_PARTS};
    if (nfds > 0) {
        const size_t bytes = (size_t)nfds * sizeof(int);
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(rights), fds, bytes);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* recvmsg, asked again where the kernel's answer may hide a packet:
 * - ECONNRESET is reported once, if the other end has closed without reading all that was sent to it.
 * - 0 (the other end has closed) can come before the last packet: if the other end sends it and closes while the
 *   kernel finds nothing to receive. Nothing can be sent after the close, so the second answer is final. */
static ssize_t receive(int socket, struct msghdr *message, int flags)
{
    const struct msghdr asked = *message;
    bool has_closed = false;
    for (;;) {
        *message = asked;
        const ssize_t got = recvmsg(socket, message, flags | MSG_DONTWAIT);
        if (got > 0 || (got == 0 && has_closed) ||
            (got < 0 && errno != EINTR && errno != ECONNRESET))
            return got;
        has_closed = has_closed || got == 0;
    }
}

ssize_t cecl_packet_read(int socket, void *bytes, size_t room, int flags)
{
    struct iovec part = {.iov_base = bytes, .iov_len = room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return receive(socket, &message, flags);
}

ssize_t cecl_packet_take(int socket, struct iovec *parts, int *fds, int *nfds, int *flags)
{
    union control control;
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = CECL_PACKET_PARTS,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    *nfds = 0;
    cecl_fds_begin();
    const ssize_t got = receive(socket, &message, MSG_CMSG_CLOEXEC);
    const int error = errno;
    for (struct cmsghdr *c = got < 0 ? NULL : CMSG_FIRSTHDR(&message); c;
         c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            const size_t bytes = c->cmsg_len - CMSG_LEN(0);
            /* `control` has no room for more than CECL_PACKET_FDS */
            memcpy(fds + *nfds, CMSG_DATA(c), bytes);
            for (int *end = fds + *nfds + bytes / sizeof(int); fds + *nfds < end; ++*nfds)
                cecl_fds_add(fds[*nfds]);
        }
    cecl_fds_end();
    if (got >= 0)
        *flags = message.msg_flags;
    errno = error;
    return got;
}
