/* What the fuzzers of the library in NCCL's place share: communicators of ranks that are all in this process, and
 * batches of calls on them. One thread makes the calls of all ranks in groups, or each rank has a thread. After each
 * batch, every byte of all memory is compared with a plain model. */
#ifndef CECL_TESTS_FUZZ_NCCL_RANKS_H
#define CECL_TESTS_FUZZ_NCCL_RANKS_H

#include "model.h"
#include "nccl/calls.h"

#define CALLS_MOST 6
#define NCCL_RANKS 4

enum mode { ONE_GROUP, GROUP_IN_GROUP, THREADS, THREADS_WITH_GROUPS, MODES };

struct batch {
    enum mode mode;
    int ncalls;
    int in_a_row; /* how often each rank's thread makes the batch before memory is compared */
    bool passes;  /* the ranks pass a word around a ring */
    uint64_t mine[RANKS], theirs[RANKS];
    struct random_call calls[CALLS_MOST][RANKS];
};

extern struct input in;
extern struct model model;
extern struct batch batch;
extern ncclComm_t comms[RANKS];

#define OK(expr) \
    do { \
        const int result_ = (int)(expr); \
        REQUIRE(result_ == 0, "%s: %d", #expr, result_); \
    } while (0)

/* Sets the environment, with CECL_NCCL=policy, and allocates memory. */
void begin_process(const char *policy);

/* `how`: whether communicators are blocking, and whether others are begun and aborted first */
void make_comms(unsigned how);
void end_comms(void);

int call(int i, int rank);

/* `can_pass`: NCCL may have to carry the calls out, so reductions have integer types only */
void draw_batch(bool can_pass);
void make_batch(void);

/* Compares memory with the model. `what`: text of the error. */
void compare(const char *what);

#endif
