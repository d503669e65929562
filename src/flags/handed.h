/* Captured messages (ceclSend and ceclRecv). A graph's values are fixed, so these words are not counters: they
 * are set to a value that tells the message from all others, awaited with just this value, and reset. Each rank has two words for each message number and each peer, in memory of the host.
 *
 *     the receiver        | set TAKEN: its buffer may be written |                 | wait for HANDED, reset it
 *     the sender          | wait for TAKEN, reset it             | copy | set HANDED
 *
 * The messages of a pair take CECL_HANDED such pairs of words in turn, by their numbers. The receiver sets
 * TAKEN again only after its wait for HANDED, so both words are then reset, however many messages later that
 * is, and in whatever order graphs are launched.
 *
 * Before and after such a wait, a stream writes a word for this rank's host (enum cecl_replay_state). From
 * these words the watchdog learns which peer is late, and for how long.
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_HANDED_H
#define CECL_FLAGS_HANDED_H

#include "flags/flags.h"
#include "flags/turns.h"

/* For cecl_signals_describe. handed: rank 0's words; those of rank r lie r * apart bytes further. own:
 * this rank's host-visible words. There are [2][CECL_HANDED][nranks] of each. */
ceclResult_t cecl_handed_describe(struct cecl_flags *flags, uint32_t *handed, uint64_t apart,
                                  uint32_t *own);

/* The index of word `number`, of messages to a peer or from a peer, in each half of the arrays of struct
 * cecl_handed. */
static inline uint32_t cecl_handed_index(const struct cecl_flags *flags, int peer, int number)
{
    return (uint32_t)(number * flags->nranks + peer);
}
/* The slot of the counter HOLDS for a wait. sends: the wait of a sender, for TAKEN; otherwise that of a
 * receiver, for HANDED. */
static inline uint32_t cecl_handed_hold(const struct cecl_flags *flags, int peer, int number,
                                        bool sends)
{
    return (sends ? cecl_hosted_handed_words(flags->nranks) : 0) +
           cecl_handed_index(flags, peer, number);
}

/* What the words of message `number` are set to: not 0, and it fits into 30 bits. */
static inline uint32_t cecl_handed_value(uint64_t number)
{
    return (uint32_t)(number % 0x3fffffff) + 1;
}
/* What a stream writes for this rank's host before it waits for such a value: the value, and CECL_REPLAY_BEGUN. So the
 * watchdog knows which value ends the wait. */
static inline uint32_t cecl_handed_begun(uint32_t value)
{
    return value << 2 | CECL_REPLAY_BEGUN;
}

/* Whether a captured message waits for a peer now, according to the words that streams have written. */
bool cecl_handed_waits(const struct cecl_flags *flags);

/* -- for the watchdog -- */

/* What a captured message waits for. */
struct cecl_handed_wait {
    int peer;   /* -1: for nothing */
    bool sends; /* true: this rank waits for TAKEN, before it sends; false: it waits for HANDED */
    int64_t since; /* ms; the time when the wait was first seen */
};
/* Looks at the waits for one peer, and returns whether there is one. *first: [in, out] the wait that has
 * lasted longest so far. */
bool cecl_handed_look(struct cecl_flags *flags, int peer, int64_t now_ms,
                      struct cecl_handed_wait *first);
/* Ends all waits, without the driver. Must be called repeatedly as long as a graph may be launched. */
void cecl_handed_release(const struct cecl_flags *flags);

#endif
