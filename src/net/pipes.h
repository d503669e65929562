/* Pipes between ranks: they carry bytes out of a node on the host device, where streams are threads. pipes.c makes a
 * transport of them (net.h). There are two kinds: mailboxes in shared memory (local.c), and messages of MPI
 * (src/api/mpi). libcecl_mpi lends the pipes of MPI, because libcecl does not link MPI.
 *
 * A pipe keeps the order of the bytes that one rank puts for another. Only one thread at a time uses the
 * pipes of a rank. */
#ifndef CECL_NET_PIPES_H
#define CECL_NET_PIPES_H

#include <stdbool.h>
#include <stddef.h>

#include "util/error.h"

struct cecl_net_pipes {
    void *context;
    /* Puts at most `count` bytes for a peer, and at least `least` or none. Returns how many. Never waits.
     * `take` receives likewise. */
    size_t (*put)(void *context, int peer, const void *bytes, size_t count, size_t least);
    size_t (*take)(void *context, int peer, void *bytes, size_t count, size_t least);
    /* Whether the peer can take, without this rank's help, all bytes that were put for it. NULL: always */
    bool (*has_left)(void *context, int peer);
    /* Returns the message of an error of the pipes, or NULL. The function is NULL if the pipes have no
     * errors */
    const char *(*error)(void *context);
    void (*close)(void *context);
    /* These make pipes between some of the ranks. The new pipes stay when the old ones close or fail. Local. Both
     * functions are NULL if no such pipes can be made.
     * draw   returns a number that no other pipes have, or a negative one if none is left; only the first rank of
     *        the new pipes calls it
     * split  ranks   [nranks] numbers of ranks in the old pipes, in the new order
     *        number  from draw, equal on all of them */
    int (*draw)(void *context);
    ceclResult_t (*split)(void *context, int number, const int *ranks, int nranks,
                          struct cecl_net_pipes *pipes);
};

struct cecl_mesh;

/* Where a communicator that the calling thread makes gets its network: from the program's NCCL, from MPI, or from
 * its parent. */
struct cecl_net_lender {
    const ceclNcclNet_t *nccl; /* NULL: the network is pipes, which `open` opens */
    const char *name;
    void *context;
    /* for a parent's network: [nranks] numbers of the ranks there; otherwise NULL */
    const int *ranks;
    /* Checks whether this rank can open pipes; local. NULL: it can. Then opens the pipes between all ranks;
     * collective. */
    ceclResult_t (*check)(void *context);
    ceclResult_t (*open)(const struct cecl_net_lender *lender, struct cecl_mesh *mesh, int rank,
                         int nranks, struct cecl_net_pipes *pipes);
};
/* Lends to the calling thread. NULL: nothing, from now on. */
void cecl_net_lend(const struct cecl_net_lender *lender);
/* What the calling thread was lent, or NULL. */
const struct cecl_net_lender *cecl_net_lent(void);

#endif
