/* The words of captured calls. Their values are fixed, so they do not count.
 *
 * In memory of the host, each rank has one word. Its stream writes the word, and all peers wait for it. The phases
 * of a captured call are signalled and awaited in order, and each phase has a bit. The word has the bits of the
 * phase that the rank has signalled last, and of the phase before, for which a slower peer may still wait. A
 * wait ends once the word has the bit of its phase. Of three phases in a row, no two have the same bit:
 *
 *     a rank waits for phase k | a peer's last signal | the word has the bits of phases
 *     it must go on waiting    | k - 1                | k - 2, k - 1
 *     it may go on             | k                    | k - 1, k
 *     it may go on             | k + 1                | k, k + 1
 *
 * No peer is further behind, because the rank has passed the wait for phase k - 1, and none is further ahead,
 * because the rank has not signalled phase k + 1.
 *
 * The last phase of each call, whichever call it is, has bit 0, and each call begins with the wait for this phase of
 * the call before. The first phase of each call has bit 1, which no last phase and no phase before a last one has. So
 * a call has three phases at least (ce/capture.h).
 *
 * The upper half of the word is for the watchdog: phase j of n is j / n of a cycle of 65,536.
 *
 * A captured call that is one kernel keeps its own call count, and waits for its peers on words in device
 * memory (sm/meeting.h). It does not use these words. Each such call also writes its number for all hosts,
 * to separate words in memory of the host. A peer whose number is lower than this rank's is behind.
 *
 * One more word tells this rank's host whether a captured call is running. All captured calls of a
 * communicator run one after the other, so one such word is enough for all graphs.
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_TURNS_H
#define CECL_FLAGS_TURNS_H

#include "flags/flags.h"

/* The values of the word for the host. Streams write BEGUN and ENDED. The watchdog turns BEGUN into SEEN:
 * if it still finds SEEN later, no captured call has begun or ended in between. */
enum cecl_replay_state { CECL_REPLAY_BEGUN = 1, CECL_REPLAY_ENDED, CECL_REPLAY_SEEN };

/* The least number of phases of a captured call. */
#define CECL_TURNS_LEAST 3

/* The bit of phase j, from 1 to n; phase 0 is the last phase of the call before. */
static inline uint32_t cecl_turns_bit(uint32_t j, uint32_t n)
{
    return 1u << (j % n == 0 ? 0 : j == 1 ? 1 : 2 + (j + 1) % 3);
}
/* The word of a rank that has signalled phase j of n. */
static inline uint32_t cecl_turns_word(uint32_t j, uint32_t n)
{
    return (uint32_t)((uint64_t)j * 65536 / n) << 16 | cecl_turns_bit(j - 1, n) |
           cecl_turns_bit(j, n);
}

/* For cecl_flags_open. Fills in the table's rows for captured calls, and this rank's word. flags->replay must be
 * allocated.
 *
 * hosted  NULL: there are no peers */
void cecl_turns_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted);

/* Describes how a captured call of one kernel waits for its peers, and how it is counted. Such a call
 * writes to flags->replay that it is running. */
struct cecl_meeting cecl_turns_meeting(const struct cecl_flags *flags);
struct cecl_counting cecl_turns_counting(const struct cecl_flags *flags, enum cecl_numbering kind);

/* -- for the watchdog and for teardown -- */

/* Whether a captured call is running, according to the word that streams write. A graph that was launched
 * but has not begun does not count. */
static inline bool cecl_turns_run(const struct cecl_flags *flags)
{
    const uint32_t state =
        atomic_load_explicit((_Atomic uint32_t *)flags->replay, memory_order_acquire);
    return state == CECL_REPLAY_BEGUN || state == CECL_REPLAY_SEEN;
}
/* Whether a captured call has begun or ended since the last look. Also true if no captured call is running. */
bool cecl_turns_go_on(const struct cecl_flags *flags);
/* A value that changes whenever a rank of this node signals a phase of a captured call. */
uint32_t cecl_turns_sum(const struct cecl_flags *flags);
/* Adds to `late` the peers that are behind this rank in captured calls. */
void cecl_turns_late(const struct cecl_flags *flags, struct cecl_rank_list *late);
/* Ends the waits of a captured call that is running, without the driver: sets all bits of the peers' words. Streams
 * of peers may write these words again. So call this function repeatedly, as long as a graph may be replayed. Peers
 * must have been notified, because this also ends their own waits for these words. */
void cecl_turns_release(const struct cecl_flags *flags);

#endif
