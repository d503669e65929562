/* What this process holds: tests compare it before and after. */
#ifndef CECL_TEST_HELD_H
#define CECL_TEST_HELD_H

struct held {
    int descriptors, threads, mappings;
    int resident_mib; /* memory of the process that is not on loan to malloc */
    int gpu_mib;      /* memory in use on this rank's GPU, by whomever; 0 without a GPU */
};

struct held held_now(void);

/* Fails the test if this process still holds more than `before` after a while, with a little to
 * spare that does not depend on how much was done between. */
void held_no_more(const struct held *before);

#endif
