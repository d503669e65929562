/* Memory of the host that all ranks of a communicator map, and that their devices can use: words
 * for flags and for messages, and for each rank a part through which its blocks go in small urgent
 * calls.
 *
 * The memory itself is a part of the ranks' shared memory (boot/shared.h). */
#ifndef CECL_ALLOC_HOSTED_H
#define CECL_ALLOC_HOSTED_H

#include <stddef.h>

#include "device/device.h"

/* Memory that does not exist is all zero. */
struct cecl_hosted {
    struct cecl_device *dev;
    void *shared; /* the memory as the device was told of it */
    size_t bytes;
    char *words;    /* flags: the words of rank r is at words + r * apart */
    uint64_t apart; /* from one rank's words to the next */
    uint64_t pairs; /* from the start of a rank's words to those for messages (flags/pairs.h) */
    /* blocks: the part of rank r is at halves + 2 * r * half_bytes; half_bytes is 0 where there are
     * no blocks */
    char *halves;
    uint64_t half_bytes;
};

/* How many of a rank's words are for messages. */
static inline uint32_t cecl_hosted_pair_words(int nranks)
{
    return 4 * (uint32_t)nranks + 1;
}
static inline uint32_t *cecl_hosted_pairs(const struct cecl_hosted *hosted, int rank)
{
    return (uint32_t *)(void *)(hosted->words + (uint64_t)rank * hosted->apart + hosted->pairs);
}

/* Both halves of a rank's part. */
static inline char *cecl_hosted_part(const struct cecl_hosted *hosted, int rank)
{
    return hosted->halves + 2 * (uint64_t)rank * hosted->half_bytes;
}

/* Bytes of a half into which `most` bytes fit: whole pages. */
uint64_t cecl_hosted_half(uint64_t most);
/* Bytes of shared memory for so many ranks. */
size_t cecl_hosted_bytes(int nranks, uint64_t half_bytes);

/* Lays `hosted` out in `memory`, which is zeroed and has cecl_hosted_bytes, and lets the device use
 * it. Local. A zeroed `hosted`, or one that failed to open, may be closed. */
ceclResult_t cecl_hosted_open(struct cecl_hosted *hosted, struct cecl_device *dev, void *memory,
                              int nranks, uint64_t half_bytes);

/* No work that uses the memory may be pending. */
void cecl_hosted_close(struct cecl_hosted *hosted);

#endif
