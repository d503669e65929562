/* Memory of the host that all ranks of a communicator map, and that their devices can use: words for flags
 * and for messages, and for each rank a part through which its blocks go in small calls of an urgent
 * communicator.
 *
 * The memory is a part of the ranks' shared memory (boot/shared.h). */
#ifndef CECL_ALLOC_HOSTED_H
#define CECL_ALLOC_HOSTED_H

#include <stddef.h>

#include "device/device.h"
#include "util/lane.h"

/* Zeroed: there is no such memory. */
struct cecl_hosted {
    struct cecl_device *dev;
    void *shared; /* the memory that was shared with the device */
    size_t bytes;
    char *words;      /* the row of rank r is at words + r * apart, and begins with flags */
    uint64_t apart;   /* bytes */
    uint64_t pairs;   /* bytes from a row's start to its words for messages (flags/pairs.h), */
    uint64_t turn;    /* to its words for captured calls (flags/turns.h), */
    uint64_t signals; /* and to its words for signals of one-sided calls (flags/signals.h) */
    /* rank r's part for blocks is at halves + 2 * r * half_bytes; half_bytes 0: there are no parts */
    char *halves;
    uint64_t half_bytes;
};

/* Words for messages in each row. */
static inline uint32_t cecl_hosted_pair_words(int nranks)
{
    return 4 * (uint32_t)nranks + 1;
}
static inline uint32_t *cecl_hosted_pairs(const struct cecl_hosted *hosted, int rank)
{
    return (uint32_t *)(void *)(hosted->words + (uint64_t)rank * hosted->apart + hosted->pairs);
}

/* Words of 64 bits that count each rank's captured calls of one kernel, in each row behind its two words for
 * captured calls. */
static inline uint32_t cecl_hosted_count_words(int nranks)
{
    return 2 * 2 * (uint32_t)nranks; /* one for each enum cecl_numbering */
}
/* The rank's two words for captured calls, at an address of 8 bytes. */
static inline uint32_t *cecl_hosted_turn(const struct cecl_hosted *hosted, int rank)
{
    return (uint32_t *)(void *)(hosted->words + (uint64_t)rank * hosted->apart + hosted->turn);
}

static inline uint64_t *cecl_hosted_counts(const struct cecl_hosted *hosted, int rank)
{
    return (uint64_t *)(void *)(cecl_hosted_turn(hosted, rank) + 2);
}

/* Words for signals of one-sided calls in each row: [CECL_SIGNALS][nranks] (flags/signals.h). */
static inline uint32_t cecl_hosted_signal_words(int nranks)
{
    return nranks > CECL_ONE_SIDED_RANKS ? 0 : CECL_SIGNALS * (uint32_t)nranks;
}
static inline uint32_t *cecl_hosted_signals(const struct cecl_hosted *hosted, int rank)
{
    return (uint32_t *)(void *)(hosted->words + (uint64_t)rank * hosted->apart + hosted->signals);
}
/* Next in each row are the arrays HANDED and TAKEN of captured messages, [CECL_HANDED][nranks] words each
 * (flags/handed.h). A captured group may have CECL_HANDED messages to a peer. */
#define CECL_HANDED 32u
static inline uint32_t cecl_hosted_handed_words(int nranks)
{
    return nranks > CECL_ONE_SIDED_RANKS ? 0 : CECL_HANDED * (uint32_t)nranks;
}

/* A rank's part: both halves. */
static inline char *cecl_hosted_part(const struct cecl_hosted *hosted, int rank)
{
    return hosted->halves + 2 * (uint64_t)rank * hosted->half_bytes;
}

/* Bytes of a half that holds `most` bytes: whole pages. */
uint64_t cecl_hosted_half(uint64_t most);
/* Bytes of shared memory that cecl_hosted_open needs. */
size_t cecl_hosted_bytes(int nranks, uint64_t half_bytes);

/* Lays `hosted` out in `memory`, which is zeroed and has cecl_hosted_bytes, and lets the device use
 * it. Local. A zeroed `hosted`, or one that failed to open, may be closed. */
ceclResult_t cecl_hosted_open(struct cecl_hosted *hosted, struct cecl_device *dev, void *memory,
                              int nranks, uint64_t half_bytes);

/* Sets words that nothing waits for: no stream or kernel, and no other rank, uses them yet. */
void cecl_hosted_begin(uint32_t *words, size_t count, uint32_t value);

/* No work that uses the memory may be pending. */
void cecl_hosted_close(struct cecl_hosted *hosted);

#endif
