/* How ranks that know nothing of each other find each other ("out of band"): an all-gather of a few
 * bytes, used only while a communicator is made.
 *
 * There are three ways, each behind struct cecl_oob: the caller's callbacks (ceclOob_t, which MPI
 * uses too), threads of one process, and TCP with a unique id. */
#ifndef CECL_BOOT_OOB_H
#define CECL_BOOT_OOB_H

#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

struct cecl_oob {
    int nranks;
    int rank;
    int64_t timeout_ms; /* ms that this rank waits until it has joined, for messages */
    /* set when other ranks have heard of this rank's join, even if the join failed */
    bool is_known;
    uint64_t round; /* number of all-gathers so far, for oobs that must tell all-gathers apart */
    void *context;
    /* All-gathers; recv: [nranks * bytes] in rank order. Collective. */
    ceclResult_t (*allgather)(struct cecl_oob *oob, const void *send, void *recv, size_t bytes);
    /* Fails if it is known that a rank can no longer come. NULL: this oob never knows. Local, and
     * never waits. */
    ceclResult_t (*check)(struct cecl_oob *oob);
    /* Frees the context; NULL when there is nothing to free. A zeroed oob may be closed. */
    void (*close)(struct cecl_oob *oob);
};

static inline void cecl_oob_close(struct cecl_oob *oob)
{
    if (oob->close)
        oob->close(oob);
    *oob = (struct cecl_oob){0};
}

/* Uses the caller's callbacks, which limit their own waits. Local. */
void cecl_oob_from_callbacks(struct cecl_oob *oob, const ceclOob_t *callbacks, int nranks, int rank,
                             int64_t timeout_ms);

/* Threads of one process share a `group` of `nranks` oobs. A wait ends `timeout_ms` after the oob
 * was made, or when a member has failed or has closed its oob. */
struct cecl_oob_group;
ceclResult_t cecl_oob_group_create(int nranks, int64_t timeout_ms, struct cecl_oob_group **group);
void cecl_oob_from_group(struct cecl_oob *oob, struct cecl_oob_group *group, int rank);
void cecl_oob_group_destroy(struct cecl_oob_group *group); /* after all its oobs are closed */

/* TCP (tcp*.c). The id carries an address and a 128-bit secret. Both sides prove that they know the
 * secret; it is never sent. Every wait ends `timeout_ms` after the join began. If a join fails
 * after the root has heard of it, oob->is_known is set: the root has failed the job, and the id is
 * used up. */
ceclResult_t cecl_tcp_unique_id(ceclUniqueId *id);
ceclResult_t cecl_tcp_join(struct cecl_oob *oob, const ceclUniqueId *id, int nranks, int rank,
                           int64_t timeout_ms);

#endif
