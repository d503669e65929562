/* Descriptors that tests send over a Unix socket, also more of them than the library sends. */
#ifndef CECL_TESTS_DESCRIPTORS_H
#define CECL_TESTS_DESCRIPTORS_H

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define DESCRIPTORS_MOST 100

union descriptors_room {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(DESCRIPTORS_MOST * sizeof(int))];
};

/* flags: of sendmsg, in addition to MSG_NOSIGNAL. Returns what sendmsg returns. No asserts: processes without cmocka
 * call this, too. */
static inline ssize_t send_descriptors(int socket, const void *data, size_t bytes, const int *fds,
                                       int nfds, int flags)
{
    union descriptors_room room;
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    memset(&room, 0, sizeof(room));
    if (nfds > 0) {
        message.msg_control = room.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, (size_t)nfds * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | flags);
}

#endif
