/* What a rank of hosts_rank.c calls over hosts, and how it fails. */
#ifndef CECL_TESTS_HOSTS_CALLS_H
#define CECL_TESTS_HOSTS_CALLS_H

#include "comm/comm.h"

struct rank {
    int nranks, rank, host;
    ceclComm_t comm;
};

/* Prints why, and ends the process. */
void fail(const char *what, ceclComm_t comm);
void must(ceclResult_t result, const char *what, ceclComm_t comm);

#define MOST 70000 /* elements of a block: more than a mailbox, and than a chunk, holds */

/* [nranks * MOST] each. Calls use the first two, which may be memory of a GPU; the host fills `in` and reads `out`,
 * and they are copied. */
struct buffers {
    int *send, *recv, *in, *out;
};

/* Copies and waits, also in a communicator that has failed. */
void copy(const struct rank *me, void *to, const void *from, size_t bytes);

struct buffers take_buffers(const struct rank *me);
/* Makes each call once, with blocks of `count` elements, and checks what it brings. A failed one returns its result. */
ceclResult_t round_of_calls(const struct rank *me, const struct buffers *b, size_t count);

/* A call by splits on the device: a row for each expert of each rank. */
struct dispatch {
    size_t sendrows, recvrows, experts, align;
    bool combines; /* ceclCombine instead of ceclDispatch */
};
/* Makes the call, and waits for it. */
ceclResult_t dispatch(const struct rank *me, const struct buffers *b, const struct dispatch *d);
/* Checks that each rank's rows have come, or that none has. */
void must_be_dispatched(const struct rank *me, const struct buffers *b, bool has_come);

#endif
