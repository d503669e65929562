/* Reads from the shared words how far the pending collectives are, and which peers are behind. For the watchdog, which
 * also looks at awaited words (flags/awaited.h). */
#ifndef CECL_COMM_PROGRESS_H
#define CECL_COMM_PROGRESS_H

#include "flags/turns.h"

/* How far the collective in progress is. */
struct cecl_progress {
    bool started;               /* this rank has signalled to its peers in this call */
    uint32_t flags[CECL_LANES]; /* the flags that this rank signalled last, by lane */
    struct cecl_rank_set late;  /* the peers whose flags are furthest behind this rank's flags */
    bool graphs; /* set by the worker: a launched graph has captured calls that have not ended */
};
/* Finds out the progress of the collective that runs. */
ceclResult_t cecl_flags_progress(const struct cecl_flags *flags, struct cecl_progress *progress);

/* ---- captured calls */

/* Whether a captured call here has begun or ended, or signalled a phase, since the last look. Also true if no captured
 * call is running and no peer is behind. (Even if the call has ended here, a peer may be behind; then this rank's next
 * call waits until that peer signals the last phase.) */
bool cecl_turns_go_on(const struct cecl_flags *flags);
/* A value that changes whenever a rank signals a phase of a captured call. */
uint32_t cecl_turns_sum(const struct cecl_flags *flags);
/* A peer whose stream runs another captured call than this rank's stream. */
struct cecl_turns_difference {
    int rank;
    uint32_t mine, theirs; /* the numbers of both calls */
};
/* Looks for such a peer; returns whether there is one. Call it only after cecl_turns_go_on has returned false. A
 * difference that it finds is certain: neither of the two calls can end. */
bool cecl_turns_differ(const struct cecl_flags *flags, struct cecl_turns_difference *difference);
/* Adds to `late` the peers that are behind this rank in captured calls. */
void cecl_turns_late(const struct cecl_flags *flags, struct cecl_rank_set *late);

#endif
