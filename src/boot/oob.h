/* How ranks that share nothing yet find each other ("out of band"): one all-gather of a few bytes, by which
 * each rank introduces itself to all. Everything after that goes over the mesh.
 *
 * Each way to do this is a struct cecl_oob: TCP with a unique id (tcp.c), the caller's callbacks
 * (api/init.c), or a meeting (api/init.c, api/split.c). */
#ifndef CECL_BOOT_OOB_H
#define CECL_BOOT_OOB_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/lifeline.h"
#include "util/error.h"

/* A unique id, as the rank that makes it tells the others. */
struct cecl_id_offer {
    int32_t result;
    ceclUniqueId id;
    char words[CECL_MESSAGE_BYTES];
};
_Static_assert(sizeof(struct cecl_id_offer) <= CECL_OOB_PART_BYTES, "an offer fits into a part");

struct cecl_oob {
    int nranks, rank;
    int64_t timeout_ms; /* ms that this rank waits until it has joined; for error messages */
    int64_t deadline;   /* ends every wait until this rank has joined; see cecl_deadline */
    bool is_known;      /* [out] other ranks know that this rank joins, even if joining fails */

    void *context;
    /* All-gathers, once. Collective.
     * send  [bytes] at most CECL_OOB_PART_BYTES
     * recv  [nranks * bytes] in rank order; NULL: this rank lacks memory for it, and only sends */
    ceclResult_t (*allgather)(struct cecl_oob *oob, const void *send, void *recv, size_t bytes);
    struct cecl_lifeline
        *line; /* [out] the connection of an all-gather over TCP, which the caller closes */
    /* Makes `line`, once ranks know that they are on several hosts. Collective. NULL: the all-gather has made it. */
    ceclResult_t (*open_line)(struct cecl_oob *oob);
    struct cecl_id_offer *
        offers; /* [nranks] for open_line, because nobody would come to an id whose ranks lack memory */
};

/* TCP (tcp*.c). The id carries an address and a 128-bit secret. Both sides prove that they know the
 * secret; it is never sent. oob->is_known is set when the root knows of this rank. If the join fails after
 * that, the root has failed the job, and the id cannot be used any more. */
ceclResult_t cecl_tcp_unique_id(ceclUniqueId *id);
/* The same, at this host's address on the way to the root of `line`, which ranks of other hosts reach. */
ceclResult_t cecl_tcp_unique_id_beside(struct cecl_lifeline *line, ceclUniqueId *id);
/* Sets up *oob for joining by `id`, and keeps the pointer. Local. */
void cecl_oob_from_id(struct cecl_oob *oob, const ceclUniqueId *id, int nranks, int rank,
                      int64_t timeout_ms);

#endif
