/* How ranks that share nothing yet hear of each other ("out of band"): one all-gather of a few bytes, by
 * which each rank introduces itself to all. What follows goes over the mesh.
 *
 * Each way is a struct cecl_oob: TCP with a unique id (tcp.c), the caller's callbacks (api/init.c), the
 * parent's mesh (api/split.c), or a meeting (both). */
#ifndef CECL_BOOT_OOB_H
#define CECL_BOOT_OOB_H

#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

#define CECL_OOB_PART_BYTES 768u /* most bytes that a rank tells the others */

/* An address of TCP, which tcp.h reads. Zeroed: none. */
struct cecl_address {
    uint64_t words[4];
};

struct cecl_oob {
    int nranks, rank;
    int64_t timeout_ms; /* ms that this rank waits until it has joined, for messages */
    int64_t deadline;   /* ends every wait (see cecl_deadline) until it has joined */
    bool is_known; /* [out] other ranks have heard of this rank's join, also if the join failed */

    void *context;
    /* All-gathers, once. Collective.
     * send  [bytes] at most CECL_OOB_PART_BYTES
     * recv  [nranks * bytes] in rank order; NULL: this rank has no memory for it, and only tells */
    ceclResult_t (*allgather)(struct cecl_oob *oob, const void *send, void *recv, size_t bytes);
    /* Finds where ranks of other hosts reach this rank. *at is left as it is, zeroed, where they cannot. NULL: they
     * cannot. Local. */
    ceclResult_t (*find_address)(const struct cecl_oob *oob, struct cecl_address *at);
    /* Fails if a rank can no longer come, as far as this is known; NULL when nothing is ever known.
     * Local, and never waits.
     * in_vain  a rank has been awaited for long, or has gone without a word: the reason may be any */
    ceclResult_t (*check)(const struct cecl_oob *oob, bool in_vain);
};

/* TCP (tcp*.c). The id carries an address and a 128-bit secret. Both sides prove that they know the
 * secret; it is never sent. oob->is_known is set when the root has heard of this rank. Unless the join
 * succeeds then, the root has failed the job, and the id cannot be used any more. */
ceclResult_t cecl_tcp_unique_id(ceclUniqueId *id);
/* A find_address: that of the interface which CECL_SOCKET_IFNAME names, without a port; none where it is not set, or
 * the interface is not up. Takes any oob. */
ceclResult_t cecl_tcp_named_address(const struct cecl_oob *oob, struct cecl_address *at);
/* Joins by `id`, which is kept. Local. */
void cecl_oob_from_id(struct cecl_oob *oob, const ceclUniqueId *id, int nranks, int rank,
                      int64_t timeout_ms);

#endif
