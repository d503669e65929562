/* Bounded reading and writing on sockets, and random bytes. Sockets are non-blocking throughout. */
#ifndef CECL_BOOT_NET_H
#define CECL_BOOT_NET_H

#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

/* Sends / receives all of `bytes`, or fails: ceclTimeout at `deadline`, ceclRemoteError when the
 * other end closed. `who` is for the message. */
ceclResult_t cecl_net_send(int fd, const void *data, size_t bytes, int64_t deadline,
                           const char *who);
ceclResult_t cecl_net_recv(int fd, void *data, size_t bytes, int64_t deadline, const char *who);

/* Waits until `fd` is ready for `events` (poll's): ceclTimeout at `deadline`. */
ceclResult_t cecl_net_wait(int fd, short events, int64_t deadline, const char *who);

/* Fills with random bytes from the kernel. */
ceclResult_t cecl_net_random(void *data, size_t bytes);

/* Whether two secrets are equal, in a time that does not tell where they differ. */
int cecl_net_equal(const void *a, const void *b, size_t bytes);

#endif
