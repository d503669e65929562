/* How far one-sided calls are. They are ordered only by their streams, so each stream has a line: a word of this
 * rank's own, which counts the calls of the stream that are done.
 *
 * There are CECL_LINES lines. A line whose calls are all done is free for another stream. If more than CECL_LINES
 * streams have calls pending, two share a line: then the later call waits in its stream for the earlier ones. A stream
 * whose id cannot be found out counts as a new stream at each call.
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_LINES_H
#define CECL_FLAGS_LINES_H

#include "flags/flags.h"

/* For cecl_flags_open. words: [CECL_LINES], host-visible. */
void cecl_lines_describe(struct cecl_flags *flags, uint32_t *words);

/* Gives a call on a stream its line and number. *after: a call of that line for which this one must wait first, or
 * no call. To be called before anything of the call is enqueued; it is pending from then on. */
struct cecl_line_at cecl_line_begin(struct cecl_flags *flags, uint64_t stream,
                                    struct cecl_line_at *after);
/* Takes the latest call back, of which nothing was enqueued. */
void cecl_line_roll_back(struct cecl_flags *flags, struct cecl_line_at at);

/* The value of the line's word once a call is done. */
static inline uint32_t cecl_line_value(struct cecl_line_at at)
{
    return CECL_FIRST_EPOCH + (uint32_t)at.call;
}
/* Whether a call is done. "No call" counts as done. */
bool cecl_line_is_done(const struct cecl_flags *flags, struct cecl_line_at at);
/* How many one-sided calls were made. */
uint64_t cecl_lines_made(const struct cecl_flags *flags);
/* Whether all one-sided calls are done. */
bool cecl_lines_idle(const struct cecl_flags *flags);

#endif
