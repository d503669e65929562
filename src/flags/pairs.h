/* The counters of messages (ceclSend and ceclRecv). Their words lie in memory of the host that all ranks map.
 * Streams write them there, and wait for them there.
 *
 * Each rank has four words for each peer, which only that peer writes: `ready` and `moved`, once as
 * a sender and once as a receiver. Messages from one rank to another are numbered, on both ranks alike. A
 * word holds a message's number. Numbers are compared cyclically (modulo 2^32). There are two kinds of words:
 *
 *     ready   the stream of the rank that came first has reached the call: its buffer may be used
 *     moved   the stream of the rank that came second has moved the bytes
 *
 * In each message the rank that came first writes `ready`, and the rank that came second writes `moved`.
 * These are separate words, because the same rank may come first in one message and second in the next.
 * Streams write the values themselves, so the values cannot be silenced when the communicator has failed
 * (see cecl_flags_silence). */
#ifndef CECL_FLAGS_PAIRS_H
#define CECL_FLAGS_PAIRS_H

#include "alloc/posts.h"
#include "flags/flags.h"

/* For cecl_flags_open. Fills in the table's rows for messages, and sets this rank's words to the value
 * before the first message. All ranks must have called this before any rank signals. */
ceclResult_t cecl_pairs_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted);
/* For cecl_flags_close. */
void cecl_pairs_forget(struct cecl_flags *flags);

/* Notes that the next call is a single message, so that an error can name the message if the message waits
 * too long. Call this function before the message is enqueued. */
void cecl_pair_note(struct cecl_flags *flags, enum cecl_role role, int peer);

/* Call this for each message that this rank posts. A peer writes only one of its two words in a message, so the
 * other one may become old: after 2^31 messages it would count as ahead, and would end a wait too early. So
 * from time to time this rank itself counts up words that are far behind. */
void cecl_pair_keep_near(const struct cecl_flags *flags, enum cecl_role role, int peer,
                         uint64_t number);

/* -- how far messages are, and ending waits -- */

/* Adds to `progress` what the words of messages show about the call in progress. */
void cecl_pair_progress(const struct cecl_flags *flags, struct cecl_progress *progress);
/* Whether a peer waits for a message in the other direction, and this rank makes that message only after
 * the one in progress. This happens, for example, if both ranks have posted a send first. */
bool cecl_pair_is_mutual(const struct cecl_flags *flags, const struct cecl_posts *posts,
                         const struct cecl_progress *progress);
/* Whether a stream of this rank waits for a signal of the peer, or will wait for one. */
bool cecl_pair_is_late(const struct cecl_flags *flags, int peer);
/* Ends all waits for these words, without the driver. Must be called repeatedly until nothing is
 * pending. */
void cecl_pair_release(const struct cecl_flags *flags);

#endif
