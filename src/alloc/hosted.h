/* Memory of the host that all ranks of a communicator map, and that their devices can use. It has words for flags,
 * messages, signals and captured calls. In an urgent communicator it also has a part for each rank, through which small
 * calls pass that rank's blocks.
 *
 * The memory is a part of the ranks' shared memory (boot/mesh.h). */
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
    uint64_t turn;    /* bytes from a row's start to its words for captured calls (flags/turns.h) */
    uint64_t awaited; /* bytes from a row's start to its table of awaited words (flags/awaited.h) */
    /* rank r's part for blocks is at halves + 2 * r * half_bytes; half_bytes 0: ranks have no such parts */
    char *halves;
    uint64_t half_bytes;
};

/* How many 32-bit words of a row hold the counts of captured calls that are one kernel. They lie after the row's two
 * words for captured calls. */
static inline uint32_t cecl_hosted_count_words(int nranks)
{
    return 2 * 2 * (uint32_t)nranks; /* two 64-bit counts for each rank */
}
/* The rank's two words for captured calls. Their address is a multiple of 8 bytes. */
static inline uint32_t *cecl_hosted_turn(const struct cecl_hosted *hosted, int rank)
{
    return (uint32_t *)(void *)(hosted->words + (uint64_t)rank * hosted->apart + hosted->turn);
}

static inline uint64_t *cecl_hosted_counts(const struct cecl_hosted *hosted, int rank)
{
    return (uint64_t *)(void *)(cecl_hosted_turn(hosted, rank) + 2);
}

/* The rows of a rank's table of awaited words (flags/awaited.h), in the order of their counters. Each has a word for
 * each peer. A captured group may have at most CECL_HANDED messages to a peer. */
#define CECL_HANDED 32
enum {
    CECL_ROW_READY, /* two rows: for the peer as the sender and as the receiver */
    CECL_ROW_MOVED = CECL_ROW_READY + 2,
    CECL_ROW_SIGNAL = CECL_ROW_MOVED + 2,
    CECL_ROW_HANDED = CECL_ROW_SIGNAL + CECL_SIGNALS,
    CECL_ROW_TAKEN = CECL_ROW_HANDED + CECL_HANDED,
    CECL_ROWS = CECL_ROW_TAKEN + CECL_HANDED
};
static inline uint32_t cecl_hosted_awaited_words(int nranks)
{
    return nranks > CECL_ONE_SIDED_RANKS ? 0 : CECL_ROWS * (uint32_t)nranks;
}
static inline uint32_t *cecl_hosted_awaited(const struct cecl_hosted *hosted, int rank)
{
    return (uint32_t *)(void *)(hosted->words + (uint64_t)rank * hosted->apart + hosted->awaited);
}

/* A rank's part for blocks, which has two halves. */
static inline char *cecl_hosted_part(const struct cecl_hosted *hosted, int rank)
{
    return hosted->halves + 2 * (uint64_t)rank * hosted->half_bytes;
}

/* The size of a half that holds `most` bytes: whole pages. */
uint64_t cecl_hosted_half(uint64_t most);
/* Bytes of shared memory that cecl_hosted_open needs. */
size_t cecl_hosted_bytes(int nranks, uint64_t half_bytes);

/* Lays `hosted` (zeroed; stays so on failure) out in `memory` (cecl_hosted_bytes, zeroed), and lets the device use that
 * memory. Local. A zeroed `hosted` may be closed. */
ceclResult_t cecl_hosted_open(struct cecl_hosted *hosted, struct cecl_device *dev, void *memory,
                              int nranks, uint64_t half_bytes);

/* Sets words that no stream, kernel or other rank uses yet. */
void cecl_hosted_begin(uint32_t *words, size_t count, uint32_t value);

/* No work that uses the memory may be pending. */
void cecl_hosted_close(struct cecl_hosted *hosted);

#endif
