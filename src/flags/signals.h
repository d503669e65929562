/* The signals of one-sided calls (ceclPutSignal, ceclSignal, ceclWaitSignal).
 *
 * In memory of the host, each rank has CECL_SIGNALS words for each peer. Only that peer writes these words.
 * A word counts the signals of one number that the peer has sent, modulo 2^32. Signals of one number to one
 * peer are sent in the order in which the host made the calls, also on different streams: each signal first
 * waits until the call that sent the previous signal is done (lines.h). Waits for these signals are ordered
 * in the same way. So words only grow.
 *
 * When a stream reaches a wait, it writes a word for this rank's host: the value for which it waits. In these
 * words the watchdog sees which peer is late, and for how long.
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_SIGNALS_H
#define CECL_FLAGS_SIGNALS_H

#include "flags/flags.h"

/* How many host-visible words cecl_signals_describe takes. */
size_t cecl_signals_own_words(int nranks);
/* For cecl_flags_open and cecl_flags_close. All ranks must have called cecl_signals_describe before any
 * rank signals. */
ceclResult_t cecl_signals_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted,
                                   uint32_t *words);
void cecl_signals_forget(struct cecl_flags *flags);

/* The index of signal `number`, to a peer or from a peer, in the arrays of struct cecl_signals. The counter
 * REACHED has its slots in the same order. */
static inline uint32_t cecl_signal_index(const struct cecl_flags *flags, int peer, int number)
{
    return (uint32_t)(number * flags->nranks + peer);
}

/* How many signals of this number are still to come from the peer for the waits that are enqueued. */
uint32_t cecl_signals_awaited(const struct cecl_flags *flags, int peer, int number);

/* -- for the watchdog -- */

/* A wait that a stream has reached, and for which signals are missing. */
struct cecl_signal_wait {
    int peer, number;
    uint32_t missing; /* signals */
    int64_t since;    /* ms; the time when the wait was first seen, or when the last signal came */
};
/* Looks at all waits. *first: the wait that has lasted longest; its peer is -1 if there is no wait. Adds
 * the peers of all waits to `late`. */
void cecl_signals_look(struct cecl_flags *flags, int64_t now_ms, struct cecl_signal_wait *first,
                       struct cecl_rank_list *late);
/* Whether a stream waits for a signal of the peer, or will wait for one. */
bool cecl_signal_is_late(const struct cecl_flags *flags, int peer);
/* Ends all waits, without the driver. Must be called repeatedly until nothing is pending. */
void cecl_signals_release(const struct cecl_flags *flags);

#endif
