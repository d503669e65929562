/* The words of captured calls. The values in a captured call are fixed, so these words do not count.
 *
 * Each rank has two words in memory of the host: TURN, and CALL (below). The rank's stream writes both, and all peers
 * wait for them. The phases of a captured call are signalled and awaited in order, and each phase has a bit. TURN has
 * two of these bits: one for the phase that the rank has signalled last, and one for the phase before, for which a
 * slower peer may still wait. A wait ends once the word has the bit of the awaited phase. Of three phases in a row, no
 * two have the same bit:
 *
 *     a rank waits for phase k | a peer's last signal | the word has the bits of phases
 *     it must go on waiting    | k - 1                | k - 2, k - 1
 *     it may go on             | k                    | k - 1, k
 *     it may go on             | k + 1                | k, k + 1
 *
 * The peer's last signal cannot be earlier than k - 1, because this rank has passed the wait for phase k - 1. It cannot
 * be later than k + 1, because this rank has not signalled phase k + 1.
 *
 * The last phase of every call has bit 0. Each call begins with the wait for the last phase of the call before.
 *
 * Phase 1 has no bit. At phase 1 a rank writes the call's number among the captured calls to its CALL, and waits for
 * exactly this number in the peers' CALL. So a rank whose peer has launched another graph stays at phase 1. At the last
 * phase a rank writes 0 to its CALL, so the next launch of the same call does not take this launch's number for its
 * own. A rank may write that 0 only once all peers have passed phase 1, so a call has at least three phases
 * (ce/capture.h). Phase 1 writes TURN and then CALL; the last phase writes CALL and then TURN. A GPU writes both words
 * at once.
 *
 * The upper half of TURN is for the rank's own watchdog. It is 65,536 * j / n after phase j of n, and 0 only after the
 * last phase, so it also tells whether a captured call is running. The watchdog sets SEEN in its own rank's TURN. If it
 * still finds SEEN there later, the stream has signalled no phase in between.
 *
 * A captured call that is one kernel does not use TURN and CALL: its kernel counts its runs, and waits for its peers on
 * words in device memory (sm/meeting.h). For the hosts, the kernel writes a word of 64 bits in the host memory of each
 * rank: the count, and in the upper half the call's number among the captured calls. A peer whose count is lower than
 * this rank's is behind.
 *
 * One more word, flags->replay, tells this rank's host whether a captured call is running, for calls whose signals do
 * not show that: one kernel, messages, a call of a single rank, or a call that does not both begin and end with a
 * signal. All captured calls of a communicator run one after the other, so one such word is enough for all graphs.
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_TURNS_H
#define CECL_FLAGS_TURNS_H

#include "flags/flags.h"

/* The values of flags->replay. Streams write BEGUN and ENDED. The watchdog turns BEGUN into SEEN. If the watchdog still
 * finds SEEN later, no captured call has begun or ended in between. */
enum cecl_replay_state { CECL_REPLAY_BEGUN = 1, CECL_REPLAY_ENDED, CECL_REPLAY_SEEN };

/* The least number of phases of a captured call. */
#define CECL_TURNS_LEAST 3

/* Bits of TURN: the bits of phases, and the mark that the rank's watchdog has seen the word. */
#define CECL_TURNS_PHASES 0x1du
#define CECL_TURNS_SEEN 0x8000u
/* The 10 bits from CECL_TURNS_SHIFT on hold the call's number modulo CECL_TURNS_NUMBERS. When a failed peer ends its
 * own waits, it overwrites this rank's CALL, but not these bits. So this rank still knows for which number it waits. */
#define CECL_TURNS_SHIFT 5
#define CECL_TURNS_NUMBERS 1024u

/* The bit of phase j, or 0 if j is 1; phase 0 is the last phase of the call before. */
static inline uint32_t cecl_turns_bit(uint32_t j, uint32_t n)
{
    return j == 1 ? 0 : 1u << (j % n == 0 ? 0 : 2 + (j + 1) % 3);
}
/* TURN of a rank that has signalled phase j of n of the captured call `number`. */
static inline uint32_t cecl_turns_word(uint32_t j, uint32_t n, uint32_t number)
{
    const uint32_t part =
        (uint32_t)((uint64_t)j * 65536 / n); /* 65536 for phase n, which the shift below makes 0 */
    return (part ? part : 1) << 16 | number % CECL_TURNS_NUMBERS << CECL_TURNS_SHIFT |
           cecl_turns_bit(j - 1, n) | cecl_turns_bit(j, n);
}

/* For cecl_flags_open. Fills in the rows for captured calls in the table of counters, and this rank's TURN.
 * flags->replay must be allocated.
 *
 * hosted  NULL: there are no peers */
void cecl_turns_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted);

/* The words by which ranks tell rank `holder` of captured calls that are one kernel: one word for each rank. */
_Static_assert(CECL_NUMBERINGS == 2, "cecl_hosted_count_words has so many for each rank");
static inline uint64_t *cecl_turns_counts(const struct cecl_flags *flags, int holder, int kind)
{
    return cecl_hosted_counts(flags->hosted, holder) + kind * flags->nranks;
}

/* ---- reading the words */

/* What this rank knows of rank `writer`'s latest captured call of this kind: the calls of the kind so far (a reduction
 * counts 2), and the call's number among all captured calls. */
struct cecl_turns_told {
    uint32_t count, number;
};
struct cecl_turns_told cecl_turns_told(const struct cecl_flags *flags, int kind, int writer);

static inline _Atomic uint32_t *cecl_turns_word_of(const struct cecl_flags *flags, int rank)
{
    return (_Atomic uint32_t *)cecl_flags_word(flags, rank, rank, CECL_COUNTER_TURN);
}
/* A rank's TURN, without the watchdog's mark. */
static inline uint32_t cecl_turns_of(const struct cecl_flags *flags, int rank)
{
    return atomic_load_explicit(cecl_turns_word_of(flags, rank), memory_order_acquire) &
           ~CECL_TURNS_SEEN;
}
/* A rank's CALL: the number of the captured call that it is in, from phase 1 until the last phase; 0: in none. */
static inline uint32_t cecl_turns_call_of(const struct cecl_flags *flags, int rank)
{
    return cecl_word_read(cecl_flags_word(flags, rank, rank, CECL_COUNTER_CALL));
}
/* Whether a captured call is running, according to the words that streams write. A launched graph counts only once its
 * first call has signalled its first phase, or has set `replay`. */
bool cecl_turns_run(const struct cecl_flags *flags);

/* release.c. Ends the waits of captured calls, without the driver: sets all bits of phases in the peers' TURN, and
 * writes the number of the call that runs here to their CALL. Streams of peers may write these words again, so call
 * this function repeatedly while a graph may be replayed. The function also ends waits of other ranks for these words,
 * so after a failure the peers must be notified first. If the communicator has ended in order, no peer waits for these
 * words, because every call needs all ranks. If a graph is launched here after that end (comm/replays.c), captured
 * calls of peers may go on too early. */
void cecl_turns_release(struct cecl_flags *flags);

#endif
