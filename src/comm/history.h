/* What calls each rank has made: a running hash of their signatures, in words that all ranks of the
 * host see. A rank that makes another call than its peers, or the same with other arguments, has
 * another hash from then on. Nobody waits: ranks compare what both have reached, after the fact.
 *
 * It does not see where buffers lie, blocks that each rank sizes for itself, and calls by which one
 * rank is more than CECL_HISTORY_CALLS ahead of another, until they come closer. */
#ifndef CECL_COMM_HISTORY_H
#define CECL_COMM_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CECL_HISTORY_CALLS 64u

struct cecl_history {
    /* [nranks][CECL_HISTORY_CALLS] the number of a call, and the hash of all calls up to it */
    _Atomic uint64_t *words;
    int rank, nranks;
    _Atomic uint32_t calls; /* of this rank so far */
    uint32_t hash;
    _Atomic(const char *) names[CECL_HISTORY_CALLS]; /* of this rank's last calls */
};

/* A difference between this rank and another. */
struct cecl_history_difference {
    int rank;         /* the other */
    uint32_t call;    /* the first call that is known to differ, counted from 1 */
    const char *name; /* this rank's name of it */
};

size_t cecl_history_bytes(int nranks);
/* `memory` is of cecl_history_bytes, shared by all ranks and zeroed. */
void cecl_history_open(struct cecl_history *history, void *memory, int rank, int nranks);

/* Notes a call, before it is enqueued. So a peer that saw the call's effects also sees the note. */
void cecl_history_note(struct cecl_history *history, uint32_t signature, const char *name);

/* Whether another rank has made more calls than this one. */
bool cecl_history_is_ahead(const struct cecl_history *history, int rank);

/* Whether this rank and another made different calls. Threads: any. */
bool cecl_history_differs(const struct cecl_history *history,
                          struct cecl_history_difference *difference);

#endif
