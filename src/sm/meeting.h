/* A kernel that takes part in an exchange of flags: it sends them and waits for them itself, where
 * copies of flags and stream operations around it would take longer, or would stand behind other
 * copies in the queue of a copy engine.
 *
 * A leaf: words and values. Every rank has a row of words, one for each rank, which that one alone
 * writes, and which only grow (cyclically).
 *
 *     first | block 0: value `first` to all peers | each block: until all peers' words are there |
 *           the kernel's work                                                                    |
 *     last  | the last block to end: value `last` to all peers | until theirs are there | `done` |
 *
 * The waits have no clock: whoever set up the words ends them, by `ended` or by writing them. */
#ifndef CECL_SM_MEETING_H
#define CECL_SM_MEETING_H

#include <stdint.h>

enum {
    CECL_MEET_SIGNAL_FIRST = 1,
    CECL_MEET_WAIT_FIRST = 2,
    CECL_MEET_SIGNAL_LAST = 4,
    CECL_MEET_WAIT_LAST = 8,
    CECL_MEET_DONE = 16
};

struct cecl_meeting {
    uint32_t does;        /* of CECL_MEET_...; 0: nothing, and nothing else here counts */
    uint32_t first, last; /* values */
    uint32_t rank, nranks;
    const uint32_t *row;   /* here: [nranks] */
    uint32_t *word;        /* this rank's at rank 0; */
    uint64_t apart;        /* bytes from it to that at the next rank */
    const uint32_t *ended; /* a word here: once not 0, no peer is told anything or waited for */
    uint32_t *leaving;     /* a word here for kernels that never run at once; 0 before and after */
    uint32_t *done; /* DONE: becomes `done_value` when all blocks are through, the waits as well */
    uint32_t done_value;
};

#endif
