/* How far one-sided calls are. Only its stream orders a one-sided call. So each stream has a line: a word
 * of this rank that counts how many of the stream's calls are done.
 *
 * There are CECL_LINES lines. A line whose calls are all done is free for another stream. If more than
 * CECL_LINES streams have pending calls, some share a line; a call on a shared line first waits for the
 * earlier calls on that line. If a stream's id is not known, each call on it counts as a call on a new
 * stream.
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_LINES_H
#define CECL_FLAGS_LINES_H

#include "flags/flags.h"

/* For cecl_flags_open. words: [CECL_LINES], host-visible. */
void cecl_lines_describe(struct cecl_flags *flags, uint32_t *words);

/* Gives a call on a stream a line, and a number on that line. *after: an earlier call on the line, for
 * which this call must wait first; it may be "no call". Call this function before anything of the call is
 * enqueued. From then on the call is pending. */
struct cecl_line_at cecl_line_begin(struct cecl_flags *flags, uint64_t stream,
                                    struct cecl_line_at *after);
/* Undoes cecl_line_begin for the latest call, of which nothing was enqueued. */
void cecl_line_roll_back(struct cecl_flags *flags, struct cecl_line_at at);

/* The value that the line's word has when a call is done. */
static inline uint32_t cecl_line_value(struct cecl_line_at at)
{
    return CECL_FIRST_EPOCH + (uint32_t)at.call;
}
/* Whether a call is done. "No call" counts as done. */
bool cecl_line_is_done(const struct cecl_flags *flags, struct cecl_line_at at);
/* The number of one-sided calls so far. */
uint64_t cecl_lines_made(const struct cecl_flags *flags);
/* Whether all one-sided calls are done. */
bool cecl_lines_idle(const struct cecl_flags *flags);

#endif
