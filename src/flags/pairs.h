/* Words by which the two ranks of a message (ceclSend and ceclRecv) signal to each other. They lie in
 * memory of the host that all ranks map, and streams write them and wait for them there.
 *
 * Each rank has four words for each peer, which only that peer writes: `ready` and `done`, once for
 * messages that this rank sends to the peer, and once for those that it receives. Messages from one
 * rank to another have numbers, which both count alike. A word holds the number of a message, and
 * compares cyclically:
 *
 *     ready   the rank that came first has reached its call: its buffer may be used
 *     done    the rank that came second has moved the bytes
 *
 * In each message one rank came first, so one writes `ready` and the other one writes `done`. Both
 * are words of their own, because the same rank may come first in one message and second in the next.
 *
 * Streams write the values themselves, so they cannot be taken back once the communicator has failed
 * (see cecl_flags_silence).
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_PAIRS_H
#define CECL_FLAGS_PAIRS_H

#include <stdatomic.h>

#include "alloc/hosted.h"
#include "alloc/posts.h"
#include "flags/flags.h"

enum cecl_pair_signal { CECL_PAIR_READY, CECL_PAIR_DONE, CECL_PAIR_SIGNALS };

#define CECL_PAIR_NOTES 256 /* a power of two */

/* All zero: there are none. */
struct cecl_pair_flags {
    const struct cecl_hosted *hosted;
    int rank, nranks;
    /* [CECL_PAIR_SIGNALS][CECL_ROLES][nranks] the last values for which streams of this rank wait, or
     * waited */
    _Atomic uint32_t *awaited;
    /* the message of each of the last groups that have just one, by the group's target */
    _Atomic uint64_t notes[CECL_PAIR_NOTES];
};

/* Sets this rank's words to the value before the first message. It must be done on all ranks before
 * any rank signals. */
ceclResult_t cecl_pair_flags_open(struct cecl_pair_flags *flags, const struct cecl_hosted *hosted,
                                  int rank, int nranks);
/* No work may be pending. */
void cecl_pair_flags_close(struct cecl_pair_flags *flags);

/* The word for a message in which this rank has `role`: at the peer, where this rank writes it, and
 * here, where this rank waits for it. */
uint32_t *cecl_pair_word_there(const struct cecl_pair_flags *flags, enum cecl_pair_signal signal,
                               enum cecl_role role, int peer);
uint32_t *cecl_pair_word_here(const struct cecl_pair_flags *flags, enum cecl_pair_signal signal,
                              enum cecl_role role, int peer);
/* The value of a message's number. */
uint32_t cecl_pair_value(uint64_t number);
/* Notes that a stream of this rank is about to wait for a word here. To be called before the wait is
 * enqueued. */
void cecl_pair_awaits(struct cecl_pair_flags *flags, enum cecl_pair_signal signal,
                      enum cecl_role role, int peer, uint32_t value);

/* The write by which this rank's stream says that it has reached a group of messages. `target`: the
 * value of `done` (flags.h) at the group's end. */
struct cecl_memop cecl_pair_begin(const struct cecl_pair_flags *flags, uint32_t target);
/* Notes for the watchdog that this group is one message. To be called before it is enqueued. */
void cecl_pair_note(struct cecl_pair_flags *flags, uint32_t target, enum cecl_role role, int peer);

/* -- for the watchdog -- */

/* Adds to what is known of the call in progress what the messages show. */
void cecl_pair_progress(struct cecl_pair_flags *flags, const struct cecl_flags *calls,
                        struct cecl_progress *progress);
/* Whether a stream of this rank waits for a signal of a peer, or will. */
bool cecl_pair_is_late(const struct cecl_pair_flags *flags, int peer);
/* Ends all waits for these words, without the driver. To be called again until nothing is
 * pending. */
void cecl_pair_release(const struct cecl_pair_flags *flags);

#endif
