/* Writing with the trained network. */
#ifndef CECL_FSDP_SAMPLE_H
#define CECL_FSDP_SAMPLE_H

#include "fsdp.h"
#include "text.h"

/* Goes on from a few bytes of the text, for `count` bytes; rank 0 prints them. Each byte takes a way
 * there, with its gathers, so all ranks take part. */
bool sample_write(struct fsdp *f, const struct text *text, int count, uint64_t seed);

#endif
