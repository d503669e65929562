/* Pads: words by which kernels wait for each other. They are separate from the rows of flags. The user's
 * own kernels (ceclDeviceComm_t) and cecl's kernels use them. */
#ifndef CECL_FLAGS_PADS_H
#define CECL_FLAGS_PADS_H

#include "flags/flags.h"

/* Fills in *dc, but not the time limit of kernels' waits. The caller fills in that. */
void cecl_pads_describe(const struct cecl_flags *flags, ceclDeviceComm_t *dc);

/* Ends all waits of kernels on this rank's pads. Waits of kernels that start later end, too, so one call of
 * this function is enough. */
ceclResult_t cecl_pads_end(const struct cecl_flags *flags);

/* The word that is not 0 once the communicator has failed. */
uint32_t *cecl_pads_ended(const struct cecl_flags *flags);
/* The word in which kernels of a lane count their blocks: see struct cecl_meeting. */
uint32_t *cecl_pads_leaving(const struct cecl_flags *flags, int lane);
/* The first function returns the word in which kernels count captured calls of a kind (struct
 * cecl_counting). The second one returns a rank's row of words for captured calls, whose kernels wait for
 * each other by these words (struct cecl_meeting). */
uint32_t *cecl_pads_count(const struct cecl_flags *flags, enum cecl_numbering kind);
uint32_t *cecl_pads_row(const struct cecl_flags *flags, int holder);
/* The word in which kernels count calls by splits on the device (struct cecl_splits). */
uint32_t *cecl_pads_splits(const struct cecl_flags *flags);

/* -- for cecl_flags_open. In this order: how many bytes pads take; zeroing pads; writing the table of
 * slices, which only this rank reads, and waiting for `stream` -- */
uint64_t cecl_pads_bytes(int nranks);
ceclResult_t cecl_pads_clear(const struct cecl_flags *flags);
ceclResult_t cecl_pads_write_slices(const struct cecl_flags *flags, ceclStream_t stream);

#endif
