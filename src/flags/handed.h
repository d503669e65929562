/* Signals of captured one-sided calls. A graph's values are fixed, so these words are not counters: they are
 * set and reset.
 *
 *     the peer that signals   | wait for TAKEN, reset it            | set HANDED
 *     the rank that waits     | wait for HANDED, reset it           | set TAKEN
 *
 * Each rank has both words for each signal number and each peer, in memory of the host. TAKEN is set at
 * first. A signal waits until the previous one was taken, so none is lost. An event orders the captured
 * signals of one number to one peer, and also the waits for them, in the order in which the host launched
 * their graphs.
 *
 * Before and after such a wait, a stream writes a word for this rank's host (enum cecl_replay_state). In
 * these words the watchdog sees which peer is late, and for how long.
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_HANDED_H
#define CECL_FLAGS_HANDED_H

#include "flags/flags.h"

/* For cecl_signals_describe. handed: rank 0's words; those of rank r lie r * apart bytes further. own:
 * this rank's host-visible words. There are [2][CECL_SIGNALS][nranks] of each. */
ceclResult_t cecl_handed_describe(struct cecl_flags *flags, uint32_t *handed, uint64_t apart,
                                  uint32_t *own);

/* The index of signal `number`, to a peer or from it, in the last two dimensions of the arrays of struct
 * cecl_signals. It is also the slot of the counter HOLDS for waits for HANDED; the slots for TAKEN follow. */
static inline uint32_t cecl_handed_index(const struct cecl_flags *flags, int peer, int number)
{
    return (uint32_t)(number * flags->nranks + peer);
}

/* Whether a captured call waits for a peer now, as far as streams have written it. */
bool cecl_handed_waits(const struct cecl_flags *flags);

/* -- for the watchdog -- */

/* What a captured call waits for. */
struct cecl_handed_wait {
    int peer, number; /* peer -1: nothing */
    bool sends;       /* this rank's signal waits until the peer has taken the previous one */
    int64_t since;    /* ms; the time when the wait was first seen */
};
/* Looks at all waits. *first: the one that has lasted longest. `late`: adds the peers of all. */
void cecl_handed_look(struct cecl_flags *flags, int64_t now_ms, struct cecl_handed_wait *first,
                      struct cecl_rank_list *late);
/* Ends all waits, without the driver. Must be called repeatedly as long as a graph may be launched. */
void cecl_handed_release(const struct cecl_flags *flags);

#endif
