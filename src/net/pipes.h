/* Pipes between ranks: what carries bytes out of a node where streams are threads of the host. pipes.c makes a
 * transport of them (net.h). Mailboxes in shared memory are such pipes (local.c), and messages of MPI are
 * (src/api/mpi), which libcecl_mpi lends, because libcecl does not link MPI.
 *
 * A pipe keeps the order of the bytes that one rank puts for another. One thread at a time uses the pipes of
 * a rank. */
#ifndef CECL_NET_PIPES_H
#define CECL_NET_PIPES_H

#include <stdbool.h>
#include <stddef.h>

#include "util/error.h"

struct cecl_net_pipes {
    void *context;
    /* Puts at most `count` bytes for a peer, and at least `least` or none. Returns how many. Never waits. */
    size_t (*put)(void *context, int peer, const void *bytes, size_t count, size_t least);
    size_t (*take)(void *context, int peer, void *bytes, size_t count, size_t least);
    /* Whether the peer can take all that was put for it without this rank. NULL: always */
    bool (*has_left)(void *context, int peer);
    /* Words for an error of the pipes, or NULL. NULL: they have none */
    const char *(*error)(void *context);
    void (*close)(void *context);
};

/* What another library of cecl lends to the communicator that the calling thread makes. */
struct cecl_net_lender {
    void *context;
    const char *name;
    /* Whether this rank can; local. Then opens the pipes between all ranks; collective. */
    ceclResult_t (*check)(void *context);
    ceclResult_t (*open)(void *context, struct cecl_net_pipes *pipes);
};
/* NULL: no longer. */
void cecl_net_lend(const struct cecl_net_lender *lender);
/* What the calling thread was lent, or NULL. */
const struct cecl_net_lender *cecl_net_lent(void);

#endif
