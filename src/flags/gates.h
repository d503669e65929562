/* Gates: starts of requests that wait until the program has written a word (ceclStartOnSignal).
 *
 * The word is the program's: a kernel counts it up, perhaps while it still runs. At a gate the stream waits
 * for the word, and before and after that it writes a word for this rank's host. So the watchdog sees at
 * which gate a stream waits. Streams pass the gates of a communicator in the order in which they were made,
 * because starts have that order, too.
 *
 * In a failed communicator the words of all pending gates are set to their values, so that streams go on.
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_GATES_H
#define CECL_FLAGS_GATES_H

#include "flags/flags.h"

#define CECL_GATE_OPS 4

/* Makes a gate, and lists what a stream does at it. At most CECL_GATES gates may be pending. Call this before
 * anything is enqueued. Returns false if flags are silent; then nothing may be enqueued. */
bool cecl_gate_begin(struct cecl_flags *flags, uint32_t *word, uint32_t value,
                     struct cecl_memop ops[CECL_GATE_OPS]);
/* Undoes cecl_gate_begin for the last gate, of which nothing was enqueued. */
void cecl_gate_roll_back(struct cecl_flags *flags);

/* How many gates no stream has passed yet. */
uint32_t cecl_gates_pending(const struct cecl_flags *flags);
/* The gate at which a stream waits now; NULL: no stream waits at a gate. */
const struct cecl_gate *cecl_gate_now(const struct cecl_flags *flags);

/* -- for the watchdog -- */

/* Since when a stream has waited at its gate, in ms; 0: no stream waits at a gate. */
int64_t cecl_gates_look(struct cecl_flags *flags, int64_t now_ms);
/* Opens all pending gates. Uses the driver. Must be called repeatedly until nothing is pending. */
void cecl_gates_release(const struct cecl_flags *flags);

#endif
