/* A meeting: a kernel takes part in an exchange of flags. It sends and awaits flags itself, because
 * copies of flags or stream operations around the kernel would take longer, or would queue behind
 * other copies.
 *
 * This file knows only words and values. Every rank has a row with one word for each rank. In every row only rank i
 * writes word i, and the word's values only grow (modulo 2^32).
 *
 *     first | block 0: value `first` to all peers | each block: until all peers' words are there |
 *           the kernel's work                                                                    |
 *     last  | the last block to end: value `last` to all peers | until theirs are there | `done` |
 *
 * The waits have no time limit. The caller ends them, through `ended` or by writing the words. */
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
    /* a set of CECL_MEET_... bits; 0: no meeting, and the other fields are ignored */
    uint32_t does;
    uint32_t first, last; /* the values of the two exchanges */
    uint32_t rank, nranks;
    const uint32_t *row; /* this rank's row: [nranks], in its own memory */
    uint32_t *word;      /* this rank's word in rank 0's row */
    uint64_t apart;      /* bytes from `word` to this rank's word in the next rank's row */
    /* a word on this GPU; once it is not 0, the kernel signals no peer and waits for none */
    const uint32_t *ended;
    /* a word on this GPU in which a kernel's blocks are counted as they finish; 0 before and after the kernel. Kernels
     * that never run at the same time may share it */
    uint32_t *leaving;
    /* CECL_MEET_DONE: gets `done_value` when all blocks have finished, including their waits */
    uint32_t *done;
    uint32_t done_value;
};

/* For a captured call, whose kernel counts its own runs, because a graph repeats it with the same arguments. A word by
 * which such calls meet holds 12 bits of the exchange's value, and above them 20 bits of `number`. The first exchange
 * waits for exactly this number, so no other captured call ends its wait. */
struct cecl_counting {
    /* a word on this GPU: the last value of the captured call that ran before this one. The kernel adds that value to
     * `first` and `last` of the meeting, and at the end sets the word to its own last value */
    uint32_t *count;
    uint32_t number; /* the call's number among all that graphs captured; equal on all ranks */
    /* for the watchdogs: words in host memory, one on each rank, laid out as `word` and `apart` of the meeting. The
     * kernel writes each value to them as well, with `number` in the upper half */
    uint64_t *told;
    uint64_t told_apart;
    uint32_t begun_value; /* the value that the meeting's `done` gets when the call begins */
};

#endif
