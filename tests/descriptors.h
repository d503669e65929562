/* Sends messages to an inbox (boot/inbox.h), also messages that the library never sends. */
#ifndef CECL_TESTS_DESCRIPTORS_H
#define CECL_TESTS_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "boot/inbox.h"

#define DESCRIPTORS_MOST 100

union descriptors_room {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(DESCRIPTORS_MOST * sizeof(int))];
};

/* Sends data with descriptors. `flags`: sendmsg's, beside MSG_NOSIGNAL. Asserts nothing: some callers lack cmocka. */
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

/* The first bytes of a message, as the library writes them. */
struct inbox_head {
    uint32_t magic, number;
    uint64_t rank;
    uint8_t secret[16];
};

static inline struct inbox_head inbox_head_of(const struct cecl_inbox_address *to, int rank,
                                              uint32_t number)
{
    struct inbox_head head = {.magic = 0x6c746572u, .number = number, .rank = (uint64_t)rank};
    memcpy(head.secret, to->secret, sizeof(head.secret));
    return head;
}

/* The address of an inbox; *length: its bytes. */
static inline struct sockaddr_un inbox_address(const char name[40], char kind, socklen_t *length)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t bytes = strnlen(name, 40);
    memcpy(address.sun_path + 1, name, bytes);
    address.sun_path[1 + bytes] = kind;
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + 2);
    return address;
}

/* Connects to an inbox, and sends nothing. -1: nobody listens there. */
static inline int inbox_call(const char name[40], char kind)
{
    socklen_t length;
    const struct sockaddr_un address = inbox_address(name, kind, &length);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return connect(fd, (const struct sockaddr *)&address, length) == 0 ? fd : -1;
}

#endif
