/* Resources that this process holds, for tests that compare them before and after. */
#ifndef CECL_TEST_HELD_H
#define CECL_TEST_HELD_H

struct held {
    int descriptors, threads, mappings;
    int resident_mib; /* resident memory, after malloc has returned its free memory */
    int gpu_mib;      /* memory in use on this rank's GPU by all processes; 0 without a GPU */
};

struct held held_now(void);

/* Fails the test if after some seconds this process holds more than `before` plus a small constant. */
void held_no_more(const struct held *before);

/* Set-up and tear-down of a test that leaves nothing behind. Each first makes and ends a communicator, which completes
 * one-time setup. */
int held_before(void **state);
int held_after(void **state);

#endif
