/* How ranks that share nothing yet find each other ("out of band"): one all-gather of a few bytes, by which each rank
 * introduces itself to all. Everything after that goes over the mesh or, with several hosts, over lines (below).
 *
 * Each way to do this is a struct cecl_oob: TCP with a unique id (tcp.c), the caller's callbacks (api/init.c), the mesh
 * of a parent communicator (api/split.c), or a meeting (api/init.c, api/split.c). */
#ifndef CECL_BOOT_OOB_H
#define CECL_BOOT_OOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/rank_list.h"
#include "util/error.h"

#define CECL_OOB_PART_BYTES 768u /* the most bytes that a rank sends to the others at a time */

/* A rank's connection to the root, after the join. If all ranks are on one host, the connection ends at once. Otherwise
 * it stays as a line: ranks exchange a few bytes over it, and the root tells all ranks if one ends or gives up. A
 * zeroed line counts as closed; closing it does nothing. A line may be copied until a second thread uses it.
 *
 *     rank -> root   what it says (struct cecl_tcp_said): a part, a failure with its words, or goodbye
 *     root -> rank   a reply + all ranks' parts       once all ranks have sent a part
 *                    a reply with an error's message  once a rank has ended or given up
 *                    an empty reply                   once a rank has left, or the root's process may end
 *                    closes the connection            after a goodbye
 *
 * Two threads may use a line: one that exchanges, and one that waits for news. */
struct cecl_lifeline {
    int nranks;         /* 0: this rank did not join over TCP */
    int fd;             /* -1: closed */
    int64_t timeout_ms; /* the time limit of the join, for messages */
    bool root_may_end;
    _Atomic int left; /* the first rank that has left, or -1 */
    bool is_broken;   /* an exchange was cut off, so no further exchange can succeed */
    bool has_told;    /* the root has told all ranks of a failure, or this rank has asked it to */
    pthread_mutex_t lock; /* held by the thread that reads */
};

/* Closes a line without a goodbye. */
void cecl_lifeline_close(struct cecl_lifeline *line);

/* All-gathers `bytes` bytes of each rank; at most CECL_OOB_PART_BYTES. Collective.
 * recv   [nranks * bytes] in rank order
 * ended  set by another thread to end the wait for other ranks; NULL: no thread does
 * ceclTimeout at the deadline. ceclRemoteError if a rank, or the root, has ended or given up. */
ceclResult_t cecl_lifeline_gather(struct cecl_lifeline *line, const void *send, void *recv,
                                  size_t bytes, int64_t deadline, const _Atomic bool *ended);
/* Succeeds if `mine` is ceclSuccess on all ranks. Otherwise returns `mine` if that is an error, else the first failed
 * rank's result and message. Collective. */
ceclResult_t cecl_lifeline_agree(struct cecl_lifeline *line, ceclResult_t mine, int64_t deadline,
                                 const _Atomic bool *ended);

/* Waits for `ms` at most, until the root sends something or the eventfd `wake` is written. Resets `wake`. */
void cecl_lifeline_rest(struct cecl_lifeline *line, int wake, int ms);
/* Reads what the root has sent, without waiting. An error means that a rank or the root has ended or given up. */
ceclResult_t cecl_lifeline_news(struct cecl_lifeline *line);
/* Tells all ranks that this rank gives up, and why, unless the root has told them of a failure already. If another
 * thread reads from the line, waits for that thread, for a second at most. */
void cecl_lifeline_fail(struct cecl_lifeline *line, const char *words);
/* Says goodbye, so that peers do not take this rank for dead, and waits for a second at most until the root has heard
 * it. No effect if another thread reads from the line during all of that second. */
void cecl_lifeline_leave(struct cecl_lifeline *line);

/* ---- ways to meet */

/* A unique id, as the rank that made it sends it to the others. */
struct cecl_id_offer {
    struct cecl_vote vote;
    ceclUniqueId id;
};
_Static_assert(sizeof(struct cecl_id_offer) <= CECL_OOB_PART_BYTES, "an offer fits into a part");

struct cecl_oob {
    int nranks, rank;
    int64_t timeout_ms; /* how long this rank tries to join, in ms; for error messages */
    int64_t deadline;   /* ends every wait until this rank has joined; see cecl_deadline */
    bool is_known;      /* [out] other ranks know that this rank joins; set even if joining fails */

    uint64_t host; /* the number of this rank's host; other hosts have other numbers */

    void *context;
    /* All-gathers, once. Collective.
     * send  [bytes] at most CECL_OOB_PART_BYTES
     * recv  [nranks * bytes] in rank order; NULL: this rank has no memory for it, and only sends */
    ceclResult_t (*allgather)(struct cecl_oob *oob, const void *send, void *recv, size_t bytes);
    struct cecl_lifeline line; /* [out] the line of an all-gather over TCP; the caller closes it */
    /* Makes `line`, once ranks know that they are on several hosts. Collective. NULL: the all-gather makes `line`. */
    ceclResult_t (*open_line)(struct cecl_oob *oob);
    struct cecl_id_offer *offers; /* [nranks] allocated ahead: memory may be lacking later */
};

/* TCP (tcp*.c). The id holds an address and a secret. oob->is_known is set once the root knows of this rank. If the
 * join fails after that, the root fails the whole job, and the id is used up. */
ceclResult_t cecl_tcp_unique_id(ceclUniqueId *id);
/* As cecl_tcp_unique_id, but the id has this host's address on the connection to the root of `line`: other hosts can
 * reach that address. */
ceclResult_t cecl_tcp_unique_id_beside(struct cecl_lifeline *line, ceclUniqueId *id);
/* Sets up *oob for joining by `id`, and keeps the pointer. Local. */
void cecl_oob_from_id(struct cecl_oob *oob, const ceclUniqueId *id, int nranks, int rank,
                      int64_t timeout_ms);

#endif
