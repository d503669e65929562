/* Places: ranks of one host tell each other, for each call, where their buffers lie. This file
 * knows memory that all ranks of a communicator share, and nothing else: no device and no
 * collective.
 *
 * Ranks make the same calls at different times, and a caller may not wait long for a late peer. So
 * each call has one of two outcomes, on which all ranks agree:
 * - FULL: all ranks have published in time. Everybody knows the places of all ranks.
 * - LATE: somebody was too late. Ranks arrived one after the other, and each knows the places of
 *   those that came before it. So the later one of each two ranks knows the places of both.
 *
 * The shared memory is a ring of entries, one for each call:
 *
 *     arrivals, decision | record of rank 0 | record of rank 1 | ...
 *
 * A rank publishes the calls of a group together: it writes its records, then it arrives, by one
 * atomic operation on the word `arrivals`. The order of these operations is the order of the ranks.
 * The rank that comes last decides FULL, a rank whose wait is over decides LATE, and the first
 * decision stands. A group has one decision, in the entry of its last call. A rank arrives when it
 * publishes, so one thread may publish for several ranks, and then let each of them meet.
 *
 * An entry is used again once all ranks have finished its call. A rank finishes a call after it has
 * arrived and has read the records that it needs.
 *
 * A peer may write anything into the shared memory, or die. Then a rank learns wrong places, or
 * waits until its `go_on` ends the wait. No index or size is taken from the shared memory.
 *
 * docs/models/places.pml is the model of this protocol.
 * Threads: one at a time for each struct cecl_places. */
#ifndef CECL_ALLOC_PLACES_H
#define CECL_ALLOC_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

/* The order of arrival is kept for up to so many ranks, with one bit for each. With more ranks
 * nobody decides LATE: all wait for all. */
#define CECL_PLACES_ORDERED_RANKS 64

/* A rank's record of one call. The caller defines what the words mean. */
struct cecl_place_record {
    uint64_t send_window, send_offset;
    uint64_t recv_window, recv_offset;
    uint64_t version;
    uint32_t flags;
    uint32_t nper_peer; /* how many words of `per_peer` are told, at most nranks */
    uint64_t spare[2];
    uint64_t per_peer[]; /* room for nranks words */
};
_Static_assert(sizeof(struct cecl_place_record) == 64, "a record starts with eight words");

/* Bytes of a record: the distance between two in what cecl_places_publish takes. */
static inline size_t cecl_place_record_bytes(int nranks)
{
    return sizeof(struct cecl_place_record) + (size_t)nranks * sizeof(uint64_t);
}

/* A rank's view of the shared memory. */
struct cecl_places {
    char *shared;
    int rank, nranks;
    uint32_t nentries;      /* of the ring, a power of two */
    size_t entry_bytes;     /* from one entry to the next */
    size_t record_bytes;    /* from one rank's record to the next within an entry */
    uint64_t others;        /* the bits of all other ranks; 0 with more ranks than bits */
    uint64_t published;     /* number of the last call that this rank published */
    uint64_t finished;      /* number of the last call that this rank finished */
    uint64_t room_for;      /* entries are known to be free for calls up to this number */
    uint64_t most_spent_ns; /* the caller's to set: see struct cecl_places_patience */
    bool patient;           /* the caller's to set, on all ranks: nobody decides LATE */
    uint64_t spent_ns;      /* waited longer than `wait_ns`, less what was regained since */
    uint64_t waited_at;     /* the last time, ns, of which a share was regained */
    uint64_t nmet, nlate;   /* groups that this rank has met; of these, decided LATE */
};

/* Calls that a rank published together. */
struct cecl_places_group {
    uint64_t first; /* number of its first call; the next calls follow */
    uint32_t count;
    uint64_t earlier; /* bit r: rank r arrived before this rank; see cecl_places_knows */
};

enum cecl_places_outcome {
    CECL_PLACES_FULL,   /* everybody knows the places of all */
    CECL_PLACES_LATE,   /* each rank knows the places of those that came before it */
    CECL_PLACES_STOPPED /* `go_on` ended the wait: this rank has no outcome */
};

/* Asked now and then during a wait. Returns false to end the wait. */
typedef bool cecl_places_go_on(void *context);

/* Bytes of the memory that ranks share. It starts zeroed, and at a cache line. The ring takes about
 * 8 MiB, or more where 4 entries need more. */
size_t cecl_places_bytes(int nranks);
/* The same for a ring of fewer entries: so many, or what cecl_places_open chooses for 0 if that is less. */
uint32_t cecl_places_fewer(int nranks, uint32_t nentries);
size_t cecl_places_bytes_of(int nranks, uint32_t nentries);

/* Takes this rank's view of the shared memory. There is nothing to close.
 *
 * nentries  0; or a power of two for tests, no more than cecl_places_entries says for 0. Equal on
 *           all ranks. */
void cecl_places_open(struct cecl_places *places, void *shared, int rank, int nranks,
                      uint32_t nentries);

/* How many calls may be published together. */
uint32_t cecl_places_entries(const struct cecl_places *places);

/* Publishes this rank's records of its next calls, and arrives. All ranks number calls alike, and
 * publish the same calls together. Waits until all ranks, this one included, have finished the
 * calls that had these entries one round of the ring ago; usually there is no wait.
 *
 * records  [count] of cecl_place_record_bytes each; copied.
 * count    1 to cecl_places_entries.
 * group    [out] the calls' numbers, for the functions below; unset on failure.
 *
 * Returns false when `go_on` ended the wait, or `count` is out of range. Nothing is published
 * then. */
bool cecl_places_publish(struct cecl_places *places, const struct cecl_place_record *records,
                         uint32_t count, cecl_places_go_on *go_on, void *context,
                         struct cecl_places_group *group);

/* How long a rank waits for late ranks before it decides LATE: `wait_ns`, or not at all for a rank
 * that has not even published the call before this group. While `is_pending` says that this rank's GPU
 * has work, waiting costs the GPU nothing, so the wait goes on: for `pending_ns`, and no longer than
 * `most_spent_ns` in all. One CECL_PLACES_SHARE-th of the time since is regained, so such waits make
 * no program longer by more than that share, even one that is as fast as its hosts. A rank does not
 * wait for ranks whose calls this thread makes, nor for ranks that have made no call yet, because this
 * thread may make theirs. */
#define CECL_PLACES_SHARE 64u
#define CECL_PLACES_MUST_MEET (UINT64_MAX - 1)
struct cecl_places_patience {
    uint64_t wait_ns;              /* CECL_PLACES_MUST_MEET: never decides LATE */
    uint64_t pending_ns;           /* [in, out] what was waited longer than wait_ns is taken off */
    cecl_places_go_on *is_pending; /* NULL: nothing ever is */
};

/* Waits for the outcome of a group, or decides it. Groups are met in the order in which they were
 * published. With more than CECL_PLACES_ORDERED_RANKS ranks the wait has no limit.
 *
 * go_on  is asked during long waits. */
enum cecl_places_outcome cecl_places_meet(struct cecl_places *places,
                                          struct cecl_places_group *group,
                                          struct cecl_places_patience *patience,
                                          cecl_places_go_on *go_on, void *context);

/* Whether this rank knows `rank`'s places after it met a group. After LATE exactly one of two
 * ranks, the later one, knows the other's places. A rank knows its own. */
static inline bool cecl_places_knows(const struct cecl_places *places,
                                     const struct cecl_places_group *group, int rank)
{
    return places->nranks > CECL_PLACES_ORDERED_RANKS || rank == places->rank ||
           (group->earlier >> rank & 1) != 0;
}

/* The first rank from `rank` on that has not published a group which this rank has published, or -1. */
int cecl_places_missing(const struct cecl_places *places, const struct cecl_places_group *group,
                        int rank);

/* A rank's record of a call in a group that this rank has met, where cecl_places_knows. Valid until
 * cecl_places_finish. A hostile peer may change it at any time: copy a word, then check the copy. */
const struct cecl_place_record *cecl_places_of(const struct cecl_places *places, uint64_t call,
                                               int rank);

/* Notes that this rank no longer reads the records of a group. Groups are finished in the order in
 * which they were published, and after they were met. */
void cecl_places_finish(struct cecl_places *places, const struct cecl_places_group *group);

#endif
