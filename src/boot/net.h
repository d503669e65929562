/* Sockets (opening them, reading and writing with a deadline) and random bytes. All sockets are non-blocking and
 * close-on-exec. */
#ifndef CECL_BOOT_NET_H
#define CECL_BOOT_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <poll.h>
#include <sys/socket.h>

#include "util/error.h"

/* What the errno of a socket call means. is_closed: the other end has closed. is_early: the call would have to wait.
 * is_scarce: this process lacks descriptors or memory, which it may get later. */
bool cecl_net_is_closed(int error);
bool cecl_net_is_early(int error);
bool cecl_net_is_scarce(int error);
/* If `error` says that descriptors or memory are lacking, rests a moment, and returns true until they have been lacking
 * for a second. Otherwise returns false. A lack that was not seen for 500 ms has ended; the next one counts as new.
 * lack  [in, out] when the lack began and when it was last seen, in ms; zeroed: there is none */
bool cecl_net_bears(int error, int64_t lack[2]);

/* Opens a socket. Returns -1 on failure, with errno set and a message recorded for ceclSystemError. */
int cecl_net_open(int family, int type);

/* Opens a socket at `address`, which listens unless `type` is SOCK_DGRAM. If its port is 0, the kernel chooses
 * a port, which is written to `address`. */
ceclResult_t cecl_net_listen(int type, struct sockaddr *address, socklen_t length, int *listener);

/* Looks at a stream without waiting. Returns 1: there is data to read; 0: the other end has closed, and
 * all of its data was read; -1: neither. */
int cecl_net_look(int fd);

/* Send or receive exactly `bytes` bytes. Returns ceclTimeout at `deadline`, ceclRemoteError if the other
 * end has closed, ceclSystemError for an error of this process. `who` names the other end in the message. */
ceclResult_t cecl_net_send(int fd, const void *data, size_t bytes, int64_t deadline,
                           const char *who);
ceclResult_t cecl_net_recv(int fd, void *data, size_t bytes, int64_t deadline, const char *who);

/* Closes `fd`, and ends its connection even if a forked child has a copy of `fd`. */
void cecl_net_close(int fd);
/* Closes each descriptor that is not -1, and sets it to -1. */
void cecl_net_drop(int *fds, int count);

/* Waits until `fd` is ready for `events` (as in poll). Returns ceclTimeout at `deadline`. */
ceclResult_t cecl_net_wait(int fd, short events, int64_t deadline, const char *who);
/* Fills `data` with random bytes from the kernel; at most 256. */
ceclResult_t cecl_net_random(void *data, size_t bytes);
/* Whether two secrets are equal. Takes the same time wherever the secrets differ. */
int cecl_net_equal(const void *a, const void *b, size_t bytes);

#endif
