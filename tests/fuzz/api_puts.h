/* One-sided calls in the fuzzer of cecl.h: puts, gets, signals and waits; some pass received
 * bytes on. */
#ifndef CECL_TESTS_FUZZ_API_PUTS_H
#define CECL_TESTS_FUZZ_API_PUTS_H

#include "model.h"

/* The fuzzer's state of each rank. */
struct api_puts {
    struct model *model;
    ceclComm_t *comms;     /* [nranks] */
    ceclStream_t *streams; /* [nranks] one stream of each rank, besides the default stream */
    const bool *shares;    /* [nranks] whether peers can open the rank's memory */
    /* Runs a function for each rank, each on its own thread. */
    void (*run_threads)(void *(*run)(void *rank));
};

/* Call this when communicators are new: they have no window. */
void api_puts_begin(void);
/* Shares a window if there is none, or sometimes replaces it. Then makes calls, and applies them
 * to the mirrors. The caller waits for all streams, and compares memory with the mirrors. */
void api_puts_step(struct input *in, const struct api_puts *ranks);
/* Makes a call with one invalid argument on `rank`. Returns its result. */
ceclResult_t api_puts_misuse(unsigned which, const struct api_puts *ranks, int rank);

#endif
