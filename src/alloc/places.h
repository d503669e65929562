/* Places: ranks of one host tell each other, for each call, where their buffers lie. This file knows no device and no
 * collective, only memory that all ranks of a communicator share.
 *
 * Ranks make the same calls at different times, and a caller must not wait long for a late peer. So each call has one
 * of two outcomes, on which all ranks agree:
 * - FULL: all ranks have published in time. Every rank knows the places of all ranks.
 * - LATE: some rank was too late. Each rank knows the places of the ranks that arrived before it, so the later one of
 *   any two ranks knows the places of both.
 *
 * The shared memory is a ring of entries, one for each call:
 *
 *     arrivals, decision | record of rank 0 | record of rank 1 | ...
 *
 * A rank publishes the calls of a group together: it writes its records, and then arrives, by one atomic operation on
 * the word `arrivals`. The order of these operations is the order of arrival. The rank that arrives last decides FULL;
 * a rank that gives up waiting decides LATE; the first decision counts. A group has one decision, in the entry of its
 * last call. Publishing does not wait for the outcome. So one thread may publish for several ranks, and then call
 * cecl_places_meet for each rank.
 *
 * An entry is used again once all ranks have finished its call. A rank finishes a call (cecl_places_finish) after it
 * has arrived and has read the records that it needs.
 *
 * A peer may write anything into the shared memory, or die. Then a rank reads wrong places, or waits until its `go_on`
 * ends the wait. No rank reads an index or a size from the shared memory.
 *
 * docs/models/places.pml is the model of this protocol. Threads: one at a time for each struct cecl_places. */
#ifndef CECL_ALLOC_PLACES_H
#define CECL_ALLOC_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

/* Up to this many ranks have one bit each, so the order of arrival is known. With more ranks no rank decides LATE, and
 * all ranks wait for all. */
#define CECL_PLACES_ORDERED_RANKS 64

/* A rank's record of one call. The caller defines what the words mean. */
struct cecl_place_record {
    uint64_t send_window, send_offset;
    uint64_t recv_window, recv_offset;
    uint64_t version;
    uint32_t flags;
    uint64_t spare[2];
    uint64_t per_peer[]; /* [nranks] */
};
_Static_assert(sizeof(struct cecl_place_record) == 64, "a record starts with eight words");

/* Bytes of a record. */
static inline size_t cecl_place_record_bytes(int nranks)
{
    return sizeof(struct cecl_place_record) + (size_t)nranks * sizeof(uint64_t);
}

/* A rank's view of the shared memory. */
struct cecl_places {
    char *shared;
    int rank, nranks;
    uint32_t nentries;   /* entries of the ring, a power of two */
    size_t entry_bytes;  /* bytes from one entry to the next */
    size_t record_bytes; /* bytes from one rank's record to the next within an entry */
    /* the bits of all other ranks; 0 if there are more than CECL_PLACES_ORDERED_RANKS */
    uint64_t others;
    uint64_t published;     /* number of the last call that this rank published */
    uint64_t finished;      /* number of the last call that this rank finished */
    uint64_t room_for;      /* calls up to this number have free entries */
    uint64_t most_spent_ns; /* limit of `spent_ns`; the caller sets it: see cecl_places_patience */
    uint64_t spent_ns;      /* ns spent on longer waits, minus the ns regained since */
    uint64_t latest_ns;     /* ns waited for the latest group only because the GPU had work */
    uint64_t waited_at;     /* the time, in ns, from which on regained ns are still to be counted */
    uint64_t stood_still;   /* the time, in ns, until which `behind` causes no wait */
    uint64_t nmet,
        nlate; /* how many groups this rank has met, and how many of these were decided LATE */
};

/* Calls that a rank published together. */
struct cecl_places_group {
    uint64_t first; /* number of its first call; the others have the next numbers */
    uint32_t count;
    uint64_t earlier; /* bit r: this rank knows rank r's places; see cecl_places_knows */
};

enum cecl_places_outcome {
    CECL_PLACES_FULL,   /* each rank knows the places of all */
    CECL_PLACES_LATE,   /* each rank knows the places of the ranks that arrived before it */
    CECL_PLACES_STOPPED /* `go_on` ended the wait, so this rank knows no outcome */
};

/* Called from time to time during a wait. Returns false to end the wait. */
typedef bool cecl_places_go_on(void *context);

/* Bytes of the memory that ranks share. The memory must be zeroed, and begin at a cache line. The ring takes at most 8
 * MiB, unless 4 entries take more; then it has 4 entries. */
size_t cecl_places_bytes(int nranks);

/* Sets up this rank's view of the shared memory. There is nothing to close. */
void cecl_places_open(struct cecl_places *places, void *shared, int rank, int nranks);

/* How many calls can be published together. */
uint32_t cecl_places_entries(const struct cecl_places *places);

/* Waits until the entries for this rank's next `count` calls are free; usually they are. An entry is free once all
 * ranks, including this one, have finished the call that used it before. Returns false if `go_on` ended the wait, or if
 * `count` is not 1 to cecl_places_entries. */
bool cecl_places_begin(struct cecl_places *places, uint32_t count, cecl_places_go_on *go_on,
                       void *context);
/* This rank's record of the call that comes `index` calls after the next one. The caller must fill it in before
 * cecl_places_publish, because it still has the words of an earlier call. */
struct cecl_place_record *cecl_places_own(const struct cecl_places *places, uint32_t index);
/* Publishes the records of the next `count` calls, and arrives. All ranks number calls alike, and publish the same
 * calls together.
 *
 * group  [out] the calls' numbers, for the functions below. */
void cecl_places_publish(struct cecl_places *places, uint32_t count,
                         struct cecl_places_group *group);

/* How much this rank's GPU still has to do before the group that ends with call `last`; 0: nothing. The number changes
 * whenever the GPU has done a call. */
typedef uint32_t cecl_places_behind(void *context, uint64_t last);

/* How long a rank waits for late ranks before it decides LATE. First it waits while its GPU is behind (see below), then
 * for `wait_ns`. After that, two longer waits begin at the same time, and the rank waits until both have ended:
 * - The rank waits for up to `worth_ns`, because a LATE call would cost the GPUs that time.
 * - The rank waits for up to `pending_ns` while `is_pending` returns true: while its GPU has work, the wait costs the
 *   GPU nothing. But if the GPU has run out of work by the next call, the wait did cost time; so its part beyond
 *   `worth_ns` counts CECL_PLACES_DRY times.
 * If a late rank has not even published the call before this group, the waits of `wait_ns` and `worth_ns` are skipped.
 * All longer waits together may spend `most_spent_ns`; a rank regains 1 / CECL_PLACES_SHARE of the time that passes.
 * One wait may spend all that is left. A wait that ends with FULL within `worth_ns` has saved the GPUs more time than
 * it took, so only 1 / CECL_PLACES_GAINED of its time counts. So longer waits lengthen a program by at most the
 * fraction CECL_PLACES_GAINED / CECL_PLACES_SHARE, even if its hosts limit its speed.
 *
 * The GPU is behind while it still has to do calls before the last call that all ranks have published. It needs no host
 * to finish these calls, so a wait meanwhile costs nothing and does not count as spent. But a GPU that makes no
 * progress for `behind_ns` may be waiting for this host. So for the next CECL_PLACES_SHARE times `behind_ns`, a GPU
 * that is behind is no reason to wait.
 *
 * A rank does not wait at all for a peer whose calls the calling thread makes. After the first group it also does not
 * wait for a peer that has made no call yet, because the calling thread may make that peer's calls. */
#define CECL_PLACES_SHARE 64u
#define CECL_PLACES_DRY 16u
#define CECL_PLACES_GAINED 4u
#define CECL_PLACES_MUST_MEET (UINT64_MAX - 1)
struct cecl_places_patience {
    uint64_t wait_ns;              /* CECL_PLACES_MUST_MEET: never decides LATE */
    uint64_t pending_ns;           /* [in, out] cecl_places_meet subtracts what counts as spent */
    cecl_places_go_on *is_pending; /* NULL: the GPU never has work */
    uint64_t worth_ns;             /* 0 if a LATE call costs the GPUs little */
    uint64_t behind_ns;            /* 0: a GPU that is behind causes no wait */
    cecl_places_behind *behind;    /* NULL: the GPU is never behind */
};

/* Waits for the outcome of a group, or decides the group. Call it for groups in the order in which they were published.
 * With more than CECL_PLACES_ORDERED_RANKS ranks the wait has no limit.
 *
 * go_on  is called during long waits. */
enum cecl_places_outcome cecl_places_meet(struct cecl_places *places,
                                          struct cecl_places_group *group,
                                          struct cecl_places_patience *patience,
                                          cecl_places_go_on *go_on, void *context);

/* Whether this rank, which has met the group, knows the places of `rank`. After LATE, only the later one of any two
 * ranks knows the other's places. A rank knows its own places. */
static inline bool cecl_places_knows(const struct cecl_places *places,
                                     const struct cecl_places_group *group, int rank)
{
    return places->nranks > CECL_PLACES_ORDERED_RANKS || rank == places->rank ||
           (group->earlier >> rank & 1) != 0;
}

/* Returns the first rank, at or after `rank`, that has not published this group yet; -1: there is none. The calling
 * rank must have published the group. */
int cecl_places_missing(const struct cecl_places *places, const struct cecl_places_group *group,
                        int rank);

/* A rank's record of a call in a group that this rank has met. cecl_places_knows must be true for that rank. The record
 * is valid until cecl_places_finish. A hostile peer may change the record at any time: copy a word, then check the
 * copy. */
const struct cecl_place_record *cecl_places_of(const struct cecl_places *places, uint64_t call,
                                               int rank);

/* Notes that this rank no longer reads the records of a group. Call it after cecl_places_meet, and for groups in the
 * order in which they were published. */
void cecl_places_finish(struct cecl_places *places, const struct cecl_places_group *group);

#endif
