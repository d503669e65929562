/* How ranks that share nothing yet find each other ("out of band"): one all-gather of a few bytes, by which
 * each rank introduces itself to all. Everything after that goes over the mesh.
 *
 * Each way to do this is a struct cecl_oob: TCP with a unique id (tcp.c), the caller's callbacks
 * (api/init.c), or a meeting (api/init.c, api/split.c). */
#ifndef CECL_BOOT_OOB_H
#define CECL_BOOT_OOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/rank_list.h"
#include "util/error.h"

#define CECL_OOB_PART_BYTES 768u /* most bytes that a rank tells the others at a time */

/* A rank's connection to the root, after the join. It ends at once if all ranks are on one host. For a communicator over
 * several hosts it stays, as a life line: ranks exchange a few bytes over it, and the root tells all ranks if one
 * ends or gives up. A zeroed line counts as closed, and closing it does nothing. It may be copied until a second thread
 * uses it.
 *
 *     rank -> root   what it says (struct cecl_tcp_said): a part, a failure with its words, or goodbye
 *     root -> rank   a reply + the parts of all      once all ranks have sent a part
 *                    a reply with an error's message  once a rank has ended or given up
 *                    an empty reply                   a rank has left; or the root's process may end
 *                    it closes                        after a goodbye
 *
 * Two threads may use a line: one that exchanges, and one that waits for news. */
struct cecl_lifeline {
    int nranks;         /* 0: there was no join */
    int fd;             /* -1: closed */
    int64_t timeout_ms; /* of the join, for messages */
    bool root_may_end;
    _Atomic int left;     /* the first rank that has left, or -1 */
    bool is_broken;       /* an exchange was cut off, so no further one can succeed */
    bool has_told;        /* the root has told all ranks of a failure, or was asked to */
    pthread_mutex_t lock; /* held by the thread that reads */
};

/* Closes without a goodbye. */
void cecl_lifeline_close(struct cecl_lifeline *line);

/* All-gathers `bytes` bytes of each rank, CECL_OOB_PART_BYTES at most. Collective.
 * recv   [nranks * bytes] in rank order
 * ended  another thread sets it to end the wait for other ranks; NULL: none does
 * ceclTimeout at the deadline. ceclRemoteError if a rank, or the root, has ended or given up. */
ceclResult_t cecl_lifeline_gather(struct cecl_lifeline *line, const void *send, void *recv,
                                  size_t bytes, int64_t deadline, const _Atomic bool *ended);
/* All ranks succeed, or all fail with the result and the message of the first rank that failed. Collective. */
ceclResult_t cecl_lifeline_agree(struct cecl_lifeline *line, ceclResult_t mine, int64_t deadline,
                                 const _Atomic bool *ended);

/* Waits up to `ms` until the root sends something, or until the eventfd `wake` is written, which it resets. */
void cecl_lifeline_rest(struct cecl_lifeline *line, int wake, int ms);
/* Reads what the root has sent meanwhile, without waiting. An error: a rank, or the root, has ended or given up. */
ceclResult_t cecl_lifeline_news(struct cecl_lifeline *line);
/* Tells all ranks that this one gives up, and why, unless the root has told them of a failure. Waits up to a second for
 * a thread that reads. */
void cecl_lifeline_fail(struct cecl_lifeline *line, const char *words);
/* Says goodbye, so that peers do not take this rank for dead, and waits up to a second until the root has heard
 * it. No effect if another thread reads all that time. */
void cecl_lifeline_leave(struct cecl_lifeline *line);

/* ---- ways to meet */

/* A unique id, as the rank that makes it tells the others. */
struct cecl_id_offer {
    struct cecl_vote vote;
    ceclUniqueId id;
};
_Static_assert(sizeof(struct cecl_id_offer) <= CECL_OOB_PART_BYTES, "an offer fits into a part");

struct cecl_oob {
    int nranks, rank;
    int64_t timeout_ms; /* ms that this rank waits until it has joined; for error messages */
    int64_t deadline;   /* ends every wait until this rank has joined; see cecl_deadline */
    bool is_known;      /* [out] other ranks know that this rank joins, even if joining fails */

    uint64_t host; /* of this rank; those of other hosts have other numbers */

    void *context;
    /* All-gathers, once. Collective.
     * send  [bytes] at most CECL_OOB_PART_BYTES
     * recv  [nranks * bytes] in rank order; NULL: this rank lacks memory for it, and only sends */
    ceclResult_t (*allgather)(struct cecl_oob *oob, const void *send, void *recv, size_t bytes);
    struct cecl_lifeline line; /* [out] of an all-gather over TCP; the caller closes it */
    /* Makes `line`, once ranks know that they are on several hosts. Collective. NULL: the all-gather has made it. */
    ceclResult_t (*open_line)(struct cecl_oob *oob);
    struct cecl_id_offer *
        offers; /* [nranks] for open_line, because nobody would come to an id whose ranks lack memory */
};

/* TCP (tcp*.c). The id carries an address and a secret. oob->is_known is set when the root knows of this rank. If the
 * join fails after that, the root has failed the job, and the id cannot be used any more. */
ceclResult_t cecl_tcp_unique_id(ceclUniqueId *id);
/* The same, at this host's address on the way to the root of `line`, which ranks of other hosts reach. */
ceclResult_t cecl_tcp_unique_id_beside(struct cecl_lifeline *line, ceclUniqueId *id);
/* Sets up *oob for joining by `id`, and keeps the pointer. Local. */
void cecl_oob_from_id(struct cecl_oob *oob, const ceclUniqueId *id, int nranks, int rank,
                      int64_t timeout_ms);

#endif
