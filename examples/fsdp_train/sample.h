/* Writes text with the trained network. */
#ifndef CECL_FSDP_SAMPLE_H
#define CECL_FSDP_SAMPLE_H

#include "fsdp.h"
#include "text.h"

/* Continues a few bytes of the text by `count` bytes, which rank 0 prints. Each byte needs a
 * forward pass with its gathers, so all ranks take part. */
bool sample_write(struct fsdp *f, const struct text *text, int count, uint64_t seed);

#endif
