/* Packets with descriptors (SCM_RIGHTS). */
#include "boot/packet.h"

#include <errno.h>
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

bool cecl_packet_again(ssize_t got)
{
    return got < 0 && (errno == EINTR || errno == ECONNRESET);
}

ssize_t cecl_packet_take(int socket, struct iovec *parts, int *fds, int *nfds, int *flags)
{
    union control control;
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = CECL_PACKET_PARTS,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    *nfds = 0;
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (cecl_packet_again(got));
    if (got < 0)
        return got;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            const size_t bytes = c->cmsg_len - CMSG_LEN(0);
            /* `control` has no room for more than CECL_PACKET_FDS */
            memcpy(fds + *nfds, CMSG_DATA(c), bytes);
            *nfds += (int)(bytes / sizeof(int));
        }
    *flags = message.msg_flags;
    return got;
}
