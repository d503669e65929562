/* One-sided calls in the fuzzer of cecl.h: puts, gets, signals and waits, some of which pass on what has come. */
#ifndef CECL_TESTS_FUZZ_API_PUTS_H
#define CECL_TESTS_FUZZ_API_PUTS_H

#include "model.h"

/* What the fuzzer has of each rank. */
struct api_puts {
    struct model *model;
    ceclComm_t *comms;     /* [nranks] */
    ceclStream_t *streams; /* [nranks] one of each rank's own, beside the default one */
    const bool *shares;    /* [nranks] whether peers can open the rank's memory */
    /* Runs a function for each rank, on a thread each. */
    void (*run_threads)(void *(*run)(void *rank));
};

/* To be called when communicators are new: they have no window. */
void api_puts_begin(void);
/* Shares a window if there is none, or now and then another one, and makes calls, which must do to memory what they do
 * to the mirrors. The caller waits for all streams, and compares. */
void api_puts_step(struct input *in, const struct api_puts *ranks);
/* A call with one thing wrong, on `rank`. Returns its result. */
ceclResult_t api_puts_misuse(unsigned which, const struct api_puts *ranks, int rank);

#endif
