/* The words of captured calls. Their values are fixed, so the words are set and reset.
 *
 * In memory of the host, each rank has CECL_TURNS words for each peer. Only that peer sets these words. The
 * phases of a captured call use these words in turn (ce/capture.h). The peer sets a word to 1. The rank
 * waits for 1, and its stream sets the word back to 0 before it signals its next phase to that peer. The
 * peer sets the word again only after it has seen that signal.
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

/* For cecl_flags_open. Fills in the table's rows for captured calls. flags->replay must be allocated.
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
/* A value that changes whenever a signal of a captured call arrives at this rank, and whenever this rank
 * has reset such a signal's word. */
uint32_t cecl_turns_sum(const struct cecl_flags *flags);
/* Adds to `late` the peers for which a captured call waits. Such a peer has not signalled, and has not
 * taken this rank's signal; or, in a call of one kernel, the peer is behind this rank. */
void cecl_turns_late(const struct cecl_flags *flags, struct cecl_rank_list *late);
/* Ends the waits of captured calls, without the driver. A call whose waits are ended still resets its
 * words. So call this function repeatedly, as long as a graph may be replayed. */
void cecl_turns_release(const struct cecl_flags *flags);

#endif
