/* Words by which kernels wait for each other, besides the rows of flags: for the user's own kernels
 * (ceclDeviceComm_t), and for cecl's kernels. */
#ifndef CECL_FLAGS_PADS_H
#define CECL_FLAGS_PADS_H

#include "flags/flags.h"

/* Fills in *dc, except for the time limit of kernels' waits, which the caller fills in. */
void cecl_pads_describe(const struct cecl_flags *flags, ceclDeviceComm_t *dc);

/* Ends the waits of all kernels on this rank's pads, also of kernels that start later. Needs to be called
 * only once. */
ceclResult_t cecl_pads_end(const struct cecl_flags *flags);

/* The word that is not 0 once the communicator has failed. */
uint32_t *cecl_pads_ended(const struct cecl_flags *flags);
/* The word in which kernels of a lane count their blocks: see struct cecl_meeting. */
uint32_t *cecl_pads_leaving(const struct cecl_flags *flags, int lane);
/* The word in which kernels count captured calls of a kind (struct cecl_counting), and the row of words of
 * a rank by which the kernels of captured calls wait for each other (struct cecl_meeting). */
uint32_t *cecl_pads_count(const struct cecl_flags *flags, enum cecl_numbering kind);
uint32_t *cecl_pads_row(const struct cecl_flags *flags, int holder);

/* -- for cecl_flags_open: the bytes that pads take; zeroing them; writing the table of slices, which only
 * this rank reads, and waiting for `stream` -- */
uint64_t cecl_pads_bytes(int nranks);
ceclResult_t cecl_pads_clear(const struct cecl_flags *flags);
ceclResult_t cecl_pads_write_slices(const struct cecl_flags *flags, ceclStream_t stream);

#endif
