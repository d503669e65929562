/* See inbox.h. */
#include "boot/inbox.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "boot/net.h"
#include "util/fds.h"

#define MAGIC 0x6c746572u
#define ACCEPTS_MAX 64 /* the most connections that one call of cecl_inbox_take accepts */

/* The first bytes of each message. */
struct head {
    uint32_t magic, number;
    uint64_t rank;
    uint8_t secret[16];
};

/* Room for the descriptors of one message. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(CECL_INBOX_FDS * sizeof(int))];
};

static socklen_t address_of(const char name[40], char kind, struct sockaddr_un *address)
{
    const size_t length = strnlen(name, 40);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* the leading zero byte makes the name abstract: there is no file */
    memcpy(address->sun_path + 1, name, length);
    address->sun_path[1 + length] = kind;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 2);
}

/* Whether the process at the other end is of this user, according to the kernel. */
static bool is_same_user(int fd)
{
    struct ucred credentials = {.uid = (uid_t)-1};
    socklen_t length = sizeof(credentials);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
           credentials.uid == geteuid();
}

/* ---- sockets */

ceclResult_t cecl_inbox_bind(int type, const char name[40], char kind, int *out)
{
    struct sockaddr_un address;
    const socklen_t length = address_of(name, kind, &address);
    return cecl_net_listen(type, (struct sockaddr *)&address, length, out);
}

/* Tries to bind the name, which fails if the name is taken. (A connect would leave a caller in the listener's
 * queue.) */
bool cecl_inbox_is_taken(const char name[40], char kind)
{
    struct sockaddr_un address;
    const socklen_t length = address_of(name, kind, &address);
    const int fd = CECL_FD(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0;
    if (fd >= 0)
        cecl_fds_close(fd);
    return !is_free;
}

void cecl_inbox_ring(int from, const char name[40], char kind)
{
    struct sockaddr_un address;
    const socklen_t length = address_of(name, kind, &address);
    (void)!sendto(from, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address, length);
}

ceclResult_t cecl_inbox_open(struct cecl_inbox *inbox, const struct cecl_inbox_address *mine,
                             char kind)
{
    *inbox = (struct cecl_inbox){.listener = -1, .caller = -1};
    memcpy(inbox->secret, mine->secret, sizeof(inbox->secret));
    return cecl_inbox_bind(SOCK_SEQPACKET, mine->name, kind, &inbox->listener);
}

void cecl_inbox_close(struct cecl_inbox *inbox)
{
    cecl_net_drop(&inbox->caller, 1);
    if (inbox->listener >= 0)
        cecl_net_close(inbox->listener);
    *inbox = (struct cecl_inbox){.listener = -1, .caller = -1};
}

/* ---- sending */

static ssize_t send_with(int socket, struct iovec parts[2], const int *fds, int nfds)
{
    union control control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
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

int cecl_inbox_send(const struct cecl_inbox_address *to, char kind, int rank, uint32_t number,
                    const void *message, size_t bytes, const int *fds, int nfds)
{
    struct sockaddr_un address;
    const socklen_t length = address_of(to->name, kind, &address);
    struct head head = {.magic = MAGIC, .number = number, .rank = (uint64_t)rank};
    struct iovec parts[] = {
        {.iov_base = &head, .iov_len = sizeof(head)},
        {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes},
    };
    memcpy(head.secret, to->secret, sizeof(head.secret));
    const int fd = CECL_FD(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return errno;
    int error = connect(fd, (struct sockaddr *)&address, length) != 0 ? errno
                : !is_same_user(fd)                                   ? EPERM
                                                                      : 0;
    if (error == 0 && send_with(fd, parts, fds, nfds) < 0)
        error = errno;
    cecl_fds_close(fd);
    return error;
}

/* ---- taking */

/* Reads a message but leaves it in the socket: descriptors for which this process has no room yet can be taken later.
 * Returns what recvmsg returns; the flags are in message->msg_flags. The caller owns the received descriptors. A result
 * of 0 with descriptors is an empty message. A result of 0 without descriptors says that the other end has closed. The
 * kernel may say so before it has delivered the last message, so this function believes only the second such result. */
static ssize_t receive(int socket, struct msghdr *message, struct cecl_letter *letter)
{
    const struct msghdr asked = *message;
    ssize_t got;
    int ends = 0;
    cecl_fds_begin();
    do {
        *message = asked;
        got = recvmsg(socket, message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        ends += got == 0;
    } while ((got < 0 && errno == EINTR) || (got == 0 && message->msg_controllen == 0 && ends < 2));
    const int error = errno;
    for (struct cmsghdr *c = got < 0 ? NULL : CMSG_FIRSTHDR(message); c;
         c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            /* the control buffer has no room for more than CECL_INBOX_FDS */
            letter->nfds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(letter->fds, CMSG_DATA(c), (size_t)letter->nfds * sizeof(int));
            for (int i = 0; i < letter->nfds; i++)
                cecl_fds_add(letter->fds[i]);
        }
    cecl_fds_end();
    errno = error;
    return got;
}

enum heard { NOTHING_YET, NO_RANK, LETTER, CUT_OFF };

/* Reads what a caller has sent. */
static enum heard hear(const struct cecl_inbox *inbox, int fd, int nranks, void *message,
                       size_t room, struct cecl_letter *letter)
{
    struct head head = {0};
    union control control;
    struct iovec parts[] = {
        {.iov_base = &head, .iov_len = sizeof(head)},
        {.iov_base = message, .iov_len = room},
    };
    struct msghdr asked = {.msg_iov = parts,
                           .msg_iovlen = 2,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof(control.bytes)};
    *letter = (struct cecl_letter){0};
    if (!is_same_user(fd)) /* checked before this process receives descriptors */
        return NO_RANK;
    const ssize_t got = receive(fd, &asked, letter);
    if (got < 0)
        return cecl_net_is_closed(errno) ? NO_RANK : NOTHING_YET;
    const bool is_known = got >= (ssize_t)sizeof(head) && !(asked.msg_flags & MSG_TRUNC) &&
                          head.magic == MAGIC && head.rank < (uint64_t)nranks &&
                          cecl_net_equal(head.secret, inbox->secret, sizeof(head.secret));
    const bool is_cut_off = asked.msg_flags & MSG_CTRUNC;
    if (!is_known || is_cut_off)
        cecl_net_drop(letter->fds, letter->nfds);
    if (!is_known)
        return NO_RANK;
    letter->rank = (int)head.rank;
    letter->number = head.number;
    letter->bytes = (size_t)got - sizeof(head);
    return is_cut_off ? CUT_OFF : LETTER;
}

/* Accepts one connection more. Returns false if there is none, or if this process lacks descriptors or memory. */
static bool let_in(struct cecl_inbox *inbox, ceclResult_t *result)
{
    const int fd = CECL_FD(accept4(inbox->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = fd < 0 ? errno : 0;
    if (error == 0)
        inbox->caller = fd;
    if (!cecl_net_bears(error, inbox->lack) && cecl_net_is_scarce(error))
        *result = cecl_fail(ceclSystemError, "messages of other ranks cannot be taken: %s",
                            strerror(error));
    return error == 0 || error == EINTR || error == ECONNABORTED;
}

/* A sender makes its next connection only once its last message is sent. So a sender's messages are taken in order. */
ceclResult_t cecl_inbox_take(struct cecl_inbox *inbox, int nranks, void *message, size_t room,
                             struct cecl_letter *letter)
{
    ceclResult_t result = ceclInProgress;
    for (int accepts = 0; accepts < ACCEPTS_MAX;) {
        if (inbox->caller < 0) {
            accepts++;
            if (!let_in(inbox, &result))
                return result;
            continue;
        }
        const enum heard heard = hear(inbox, inbox->caller, nranks, message, room, letter);
        struct pollfd next = {.fd = inbox->listener, .events = POLLIN};
        if (cecl_net_bears(heard == CUT_OFF ? EMFILE : 0, inbox->lack))
            return ceclInProgress;
        if (heard != NOTHING_YET)
            cecl_net_drop(&inbox->caller, 1);
        else if (poll(&next, 1, 0) > 0)
            /* Turns away the caller, which had sent nothing when this function read; it must connect again. A message
             * that it has sent since can still be read. */
            (void)shutdown(inbox->caller, SHUT_RDWR);
        else
            return ceclInProgress;
        if (heard == LETTER)
            return ceclSuccess;
        if (heard == CUT_OFF) /* this process's own limit, not the peer's fault */
            return cecl_fail(ceclSystemError,
                             "no descriptor is left for those that rank %d sent; is the limit of "
                             "open files (ulimit -n) reached?",
                             letter->rank);
    }
    return result;
}

int cecl_inbox_polls(const struct cecl_inbox *inbox, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = inbox->listener, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = inbox->caller, .events = POLLIN};
    return CECL_INBOX_POLLS;
}
