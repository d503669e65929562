/* Words by which ranks signal early that the buffers of a request may be written.
 *
 * A rank has slots in memory of the host. Each slot has a word for every peer, and only that peer writes
 * the word. A request has a slot at each rank. Ranks tell each other which slot that is, so they may free
 * requests in any order. A slot is used by one request at a time. The slot's value grows by one each time
 * that the request is made ready (modulo 2^32).
 *
 * Threads: as flags.h says. */
#ifndef CECL_FLAGS_EARLY_H
#define CECL_FLAGS_EARLY_H

#include "flags/flags.h"

#define CECL_EARLY_NONE UINT32_MAX /* no slot */

/* For cecl_flags_open and cecl_flags_close. All ranks must have called cecl_early_describe before any rank
 * signals. */
ceclResult_t cecl_early_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted);
void cecl_early_forget(struct cecl_flags *flags);

/* cecl_early_take takes a slot, and sets *value to the value of its words; CECL_EARLY_NONE: there is no
 * free slot. cecl_early_give gives a slot back. `value`: the value that the slot's words have then. */
uint32_t cecl_early_take(struct cecl_flags *flags, uint32_t *value);
void cecl_early_give(struct cecl_flags *flags, uint32_t slot, uint32_t value);
/* Notes that a stream will wait for this value of a slot. A later wait may be for an earlier value: the slot's request
 * was made ready again, and another request of its former session is started only now. */
void cecl_early_await(struct cecl_flags *flags, uint32_t slot, uint32_t value);

/* -- for the watchdog -- */

/* Lists the peers for whose words a stream waits or will wait. */
void cecl_early_late(const struct cecl_flags *flags, struct cecl_rank_list *late);
/* Ends all waits for these words, without the driver. Must be called repeatedly until nothing is pending. */
void cecl_early_release(const struct cecl_flags *flags);

#endif
