/* An inbox: where a rank receives messages with descriptors. Each message comes by a connection of its own, which the
 * sender closes at once. So an inbox costs its rank one descriptor, and the peers none. A message waits in the kernel
 * until the receiver takes it. Messages of one sender arrive in order.
 *
 * A message counts only if it has the inbox's secret and comes from a process of the same user. Other callers are
 * turned away, and have no effect. One thread at a time uses an inbox. */
#ifndef CECL_BOOT_INBOX_H
#define CECL_BOOT_INBOX_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

#define CECL_INBOX_POLLS 2
#define CECL_INBOX_FDS 64     /* most descriptors of a message */
#define CECL_INBOX_BYTES 4096 /* most bytes of a message; every socket's buffer has room for it */

/* The name of an inbox, and the secret that each message to it must have. */
struct cecl_inbox_address {
    char name[40]; /* of an abstract Unix socket */
    uint8_t secret[16];
};

struct cecl_inbox {
    int listener;
    uint8_t secret[16];
    int caller; /* the last connection, if it has sent nothing yet; a newer one replaces it. -1: none */
    int64_t lack[2]; /* when descriptors were lacking: see cecl_net_bears */
};

/* A message's sender, number, size and descriptors. */
struct cecl_letter {
    int rank;
    uint32_t number; /* as given to cecl_inbox_send */
    size_t bytes;
    int nfds, fds[CECL_INBOX_FDS]; /* close-on-exec; the caller closes them */
};

/* Opens a socket at the abstract name `name` followed by `kind`. If `type` is SOCK_SEQPACKET, it listens. */
ceclResult_t cecl_inbox_bind(int type, const char name[40], char kind, int *fd);
/* Whether a socket has this name. */
bool cecl_inbox_is_taken(const char name[40], char kind);
/* Sends a datagram of one byte from the socket `from` to the socket at this name. Does not wait; may lose the
 * datagram. */
void cecl_inbox_ring(int from, const char name[40], char kind);

/* cecl_inbox_close also accepts an inbox whose listener is -1 (none). */
ceclResult_t cecl_inbox_open(struct cecl_inbox *inbox, const struct cecl_inbox_address *mine,
                             char kind);
void cecl_inbox_close(struct cecl_inbox *inbox);

/* Sends a message, whole or not at all, without waiting. Returns 0 or an errno. ECONNREFUSED: nobody listens. EPERM:
 * another user listens. EPIPE, ECONNRESET: the receiver turned this rank away; a second try may succeed.
 * rank    of the sender
 * number  of the message */
int cecl_inbox_send(const struct cecl_inbox_address *to, char kind, int rank, uint32_t number,
                    const void *message, size_t bytes, const int *fds, int nfds);

/* Takes the next message without waiting. Drops messages of more than `room` bytes, and messages whose sender's rank is
 * not below `nranks`. ceclInProgress: there is no message. ceclSystemError: for a second this process has had no
 * descriptor left for a connection, or for a message's descriptors, which are then lost. */
ceclResult_t cecl_inbox_take(struct cecl_inbox *inbox, int nranks, void *message, size_t room,
                             struct cecl_letter *letter);
/* Writes to `polls` [CECL_INBOX_POLLS] the descriptors that become readable for a message. Returns how many. */
int cecl_inbox_polls(const struct cecl_inbox *inbox, struct pollfd *polls);

#endif
