/* The counters of messages (ceclSend and ceclRecv). Their words lie in memory of the host that all
 * ranks map. Streams write these words, and wait for them there.
 *
 * Each rank has four words for each peer, which only that peer writes: `ready` and `moved`, once as
 * a sender and once as a receiver. Messages from one rank to another have numbers, which both ranks
 * count alike. A word holds a message's number. Numbers are compared cyclically (modulo 2^32).
 * There are two kinds of words:
 *
 *     ready   the rank that came first has reached its call: its buffer may be used
 *     moved   the rank that came second has moved the bytes
 *
 * In each message the rank that came first writes `ready`, and the other one writes `moved`. These
 * are separate words, because the same rank may come first in one message and second in the next.
 * Streams write the values themselves, so they cannot be taken back once the communicator has
 * failed (see cecl_flags_silence). */
#ifndef CECL_FLAGS_PAIRS_H
#define CECL_FLAGS_PAIRS_H

#include "alloc/posts.h"
#include "flags/flags.h"

/* Used by cecl_flags_open. Fills in the rows of the table for messages, and sets this rank's words
 * to the value before the first message. All ranks must do this before any rank signals. */
ceclResult_t cecl_pairs_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted);
/* Used by cecl_flags_close. */
void cecl_pairs_forget(struct cecl_flags *flags);

/* Notes that the next call is one message, so that it can be named if it waits too long. To be
 * called before that call is enqueued. */
void cecl_pair_note(struct cecl_flags *flags, enum cecl_role role, int peer);

/* -- how far messages are, and ending waits -- */

/* Adds to `progress` what the words of messages show of the call in progress. */
void cecl_pair_progress(const struct cecl_flags *flags, struct cecl_progress *progress);
/* Whether some peer waits for a message that this rank makes only after the one in progress, in the
 * other direction: the peer has posted a send, too, while this rank sends. */
bool cecl_pair_is_mutual(const struct cecl_flags *flags, const struct cecl_posts *posts,
                         const struct cecl_progress *progress);
/* Whether a stream of this rank waits for a signal of the peer, or is going to wait. */
bool cecl_pair_is_late(const struct cecl_flags *flags, int peer);
/* Ends all waits for these words, without the driver. Must be called repeatedly until nothing is
 * pending. */
void cecl_pair_release(const struct cecl_flags *flags);

#endif
