/* Reading and writing on sockets with a deadline, and random bytes. All sockets are
 * non-blocking. */
#ifndef CECL_BOOT_NET_H
#define CECL_BOOT_NET_H

#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

/* Send or receive exactly `bytes` bytes. ceclTimeout at `deadline`, ceclRemoteError when the other
 * end has closed. `who` names the other end in the message. */
ceclResult_t cecl_net_send(int fd, const void *data, size_t bytes, int64_t deadline,
                           const char *who);
ceclResult_t cecl_net_recv(int fd, void *data, size_t bytes, int64_t deadline, const char *who);

/* Waits until `fd` is ready for `events` (poll's). ceclTimeout at `deadline`. */
ceclResult_t cecl_net_wait(int fd, short events, int64_t deadline, const char *who);

/* Fills `data` with random bytes from the kernel. */
ceclResult_t cecl_net_random(void *data, size_t bytes);

/* Whether two secrets are equal. Its time does not depend on where they differ. */
int cecl_net_equal(const void *a, const void *b, size_t bytes);

#endif
