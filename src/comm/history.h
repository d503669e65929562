/* Which calls each rank has made: a running hash of their signatures, in words that all ranks see. If a rank makes a
 * different call than its peers, or the same call with different arguments, its hash differs from then on. No rank
 * waits for another, because two ranks compare only calls that both have made.
 *
 * Beside the hash a rank publishes the facts of the call (plan/facts.h), so that an error message can say how two calls
 * differ.
 *
 * Where buffers lie is not in the hash, nor are sizes of blocks that may differ between ranks. While one rank is more
 * than CECL_HISTORY_CALLS calls ahead of another, the two ranks are not compared. */
#ifndef CECL_COMM_HISTORY_H
#define CECL_COMM_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/facts.h"

#define CECL_HISTORY_CALLS 64u

/* What a rank publishes about one call. When a later call reuses the row, `begun` changes first, then the facts, then
 * `word`. */
struct cecl_history_row {
    _Atomic uint64_t word;  /* the number of the call, and the hash of all calls up to it */
    _Atomic uint64_t begun; /* the number of the call to which the facts belong */
    _Atomic uint64_t facts[CECL_FACTS_WORDS];
};

struct cecl_history {
    struct cecl_history_row *rows; /* [nranks][CECL_HISTORY_CALLS] */
    int rank, nranks;
    _Atomic uint32_t calls; /* how many calls this rank has made */
    uint32_t hash;
};

/* A difference between this rank and another. */
struct cecl_history_difference {
    int rank;                 /* the other rank */
    uint32_t call;            /* the first call that is known to differ, counted from 1 */
    bool has_mine, has_facts; /* this rank's facts are known; both ranks' are */
    struct cecl_facts mine, theirs;
};

size_t cecl_history_bytes(int nranks);
/* `memory` has cecl_history_bytes bytes, is zeroed, and is shared by all ranks. */
void cecl_history_open(struct cecl_history *history, void *memory, int rank, int nranks);

/* Publishes the facts of this rank's next call. A peer that sees what this rank publishes later also sees these
 * facts. */
void cecl_history_tell(struct cecl_history *history, const struct cecl_facts *facts);
/* Publishes the call's hash, before the call is enqueued. So a peer that sees the call's effects also sees its hash. */
void cecl_history_note(struct cecl_history *history, uint32_t signature);
/* Reads the facts of this rank's next call, and of the peer's call with the same number. Returns false if either is
 * unknown. */
bool cecl_history_next(const struct cecl_history *history, int rank, struct cecl_facts *mine,
                       struct cecl_facts *theirs);

/* Whether `rank` has made more calls than this rank. */
bool cecl_history_is_ahead(const struct cecl_history *history, int rank);

/* Whether this rank and any other rank made different calls; if so, *difference says which. Any thread may call
 * this. */
bool cecl_history_differs(const struct cecl_history *history,
                          struct cecl_history_difference *difference);

#endif
