/* Writes text with the trained network. */
#ifndef CECL_FSDP_SAMPLE_H
#define CECL_FSDP_SAMPLE_H

#include "fsdp.h"
#include "text.h"

/* Continues a few bytes of the text by `count` bytes. Rank 0 prints these. Each byte needs a
 * forward pass with its gathers, so all ranks take part. */
bool sample_write(struct fsdp *f, const struct text *text, int count, uint64_t seed);

#endif
