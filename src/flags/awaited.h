/* The table of words for which streams of this rank wait, in memory of the host: words of messages (ceclSend and
 * ceclRecv), of signals (ceclPutSignal, ceclSignal, ceclWaitSignal), and of messages that graphs capture.
 *
 * The table has a row for each counter of such words. A row has a word for each peer, which that peer writes
 * (alloc/hosted.h). For this rank's own host, the table also says for each word: the value for which a stream waits
 * now; the value for which the latest enqueued wait waits; and when the present wait began. So the watchdog learns
 * without the driver who is late and for how long, and it ends the waits of all rows by the same code. Before a stream
 * waits for a signal or a captured message, it writes the value for which it waits. Such a write takes 1.6 us, too much
 * for every message: a stream writes only one word for a group of messages that are not captured, and the host notes
 * for what recent groups wait.
 *
 * The two ranks of a message number the messages from its sender to its receiver alike. Words hold a message's number,
 * and are compared modulo 2^32:
 *
 *     READY   the rank that came first: its stream has reached the call, so its buffer may be used
 *     MOVED   the rank that came second: its stream has moved the bytes
 *
 * The rank that posts a message first writes READY; the other rank writes MOVED. Either may be the sender, so a rank
 * has both words twice: once as a sender, once as a receiver.
 *
 * SIGNAL has CECL_SIGNALS rows, one for each signal number. A word counts the peer's signals so far, modulo 2^32.
 * Signals with equal numbers to one peer are sent in the order in which the host made the calls, on any streams: before
 * a stream sends a signal, it waits until the call with the previous signal is done (lines.c). Waits for one signal are
 * ordered in the same way. So words only grow.
 *
 * A captured message has a fixed value that no other message of the two ranks has. Its words do not count: one rank
 * sets a word to the value, and the other waits for exactly this value and resets the word:
 *
 *     the receiver        | set TAKEN: its buffer may be written |                 | wait for HANDED, reset it
 *     the sender          | wait for TAKEN, reset it             | copy | set HANDED
 *
 * From one rank to another there are CECL_HANDED pairs of TAKEN and HANDED; a message's number selects the pair. The
 * receiver sets TAKEN again only after its wait for HANDED. By then both words are reset, in whatever order graphs are
 * launched.
 *
 * Streams write the values themselves, so the values cannot be silenced when the communicator has failed (see
 * cecl_flags_silence). Threads: as flags.h says. */
#ifndef CECL_FLAGS_AWAITED_H
#define CECL_FLAGS_AWAITED_H

#include "alloc/posts.h"
#include "flags/flags.h"
#include "flags/turns.h"

/* How many host-visible words cecl_awaited_describe takes. */
size_t cecl_awaited_own_words(int nranks);
/* For cecl_flags_open and cecl_flags_close. The first function fills in the rows of these words in the table of
 * counters, and sets this rank's words to a value just below the first that a stream awaits. All ranks must have called
 * this function before any rank signals. own: host-visible words. */
ceclResult_t cecl_awaited_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted,
                                   uint32_t *own);
void cecl_awaited_forget(struct cecl_flags *flags);

/* The index of a word in the arrays of struct cecl_awaited; also the word's slot of the counter WAITS. */
static inline uint32_t cecl_awaited_at(const struct cecl_flags *flags, int row, int peer)
{
    return (uint32_t)(row * flags->nranks + peer);
}
static inline uint32_t cecl_signal_at(const struct cecl_flags *flags, int peer, int number)
{
    return (uint32_t)(number * flags->nranks + peer);
}

/* The value to which the words of captured message `number` are set: not 0, and at most 30 bits. */
static inline uint32_t cecl_handed_value(uint64_t number)
{
    return (uint32_t)(number % 0x3fffffff) + 1;
}
/* What a stream writes for this rank's host before it waits for cecl_handed_value. After the wait it writes
 * CECL_REPLAY_ENDED. */
static inline uint32_t cecl_handed_begun(uint32_t value)
{
    return value << 2 | CECL_REPLAY_BEGUN;
}

/* Raises words of a peer that are far behind. Call this for each message that this rank posts. For each message the
 * peer writes only one of READY and MOVED, so the other word may fall behind. A word that is 2^31 messages behind would
 * count as ahead, and would end a wait too early. */
void cecl_awaited_keep_near(const struct cecl_flags *flags, enum cecl_role role, int peer,
                            uint64_t number);

/* Notes that the next launch waits for the peer of message `number`. second: this rank posted last, and moves the
 * bytes. Call this before the messages are enqueued. */
void cecl_awaited_note(struct cecl_flags *flags, enum cecl_role role, bool second, int peer,
                       uint64_t number);

/* How far a word is below the value that ends all enqueued waits for it; 0: all have ended. For a signal's word: how
 * many signals are missing. */
uint32_t cecl_awaited_missing(const struct cecl_flags *flags, uint32_t index);
/* How many rows are in use. The rows of captured messages are in use only once a message was captured. */
int cecl_awaited_rows(const struct cecl_flags *flags);
/* Whether a captured message waits for a peer now. */
bool cecl_awaited_by_graphs(const struct cecl_flags *flags);

/* For the watchdog, before it calls cecl_awaited_look: finds out for which messages streams wait now. If later groups
 * have overwritten the notes of the group in progress, all enqueued messages count as awaited. */
void cecl_awaited_find_messages(struct cecl_flags *flags);
/* For the watchdog. Returns how far this word is below the value for which a stream waits now; 0: no stream waits.
 * *since: [out] when the wait last made progress, in ms: when the watchdog first saw the wait, saw the word change, or
 * saw that the peer had left. */
uint32_t cecl_awaited_look(struct cecl_flags *flags, uint32_t index, int64_t now_ms, bool has_left,
                           int64_t *since);
/* Ends all waits for words of this row and of later rows, without the driver. Must be called repeatedly while anything
 * is pending or a graph may be launched. */
void cecl_awaited_release(const struct cecl_flags *flags, int first_row);

#endif
