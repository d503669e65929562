/* A meeting: a kernel takes part in an exchange of flags. It sends and awaits flags itself, because
 * copies of flags or stream operations around the kernel would take longer, or would queue behind
 * other copies.
 *
 * This file knows only words and values. Every rank has a row with one word for each rank. In all rows only
 * rank i writes word i, and its values only grow (modulo 2^32).
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
    /* a word on this GPU that counts blocks that have finished; 0 before and after a kernel.
     * Kernels that never run at the same time may share it */
    uint32_t *leaving;
    /* DONE: set to `done_value` when all blocks have finished, their waits included */
    uint32_t *done;
    uint32_t done_value;
};

/* For a captured call, which numbers its own runs, because a graph repeats it with the same arguments. A word
 * by which such calls meet holds 12 bits of the exchange's value, and above them 20 bits of `number`. The first
 * exchange waits for exactly this number, so no other call ends its wait. */
struct cecl_counting {
    /* a word on this GPU: the last value of the captured call that ran before. It is added to `first` and
     * `last` of the meeting, and the call sets it to its own last value */
    uint32_t *count;
    uint32_t number; /* the call's number among all that graphs captured; equal on all ranks */
    /* words in host memory, laid out as `word` and `apart` of the meeting. For watchdogs, each value
     * is also written to these words, this rank's own one included, with `number` in the upper half */
    uint64_t *told;
    uint64_t told_apart;
    uint32_t begun_value; /* the value that the meeting's `done` gets when the call begins */
};

#endif
