/* Whether cecl served a call or passed it to NCCL, as the stand-in saw it. */
#ifndef CECL_TESTS_NCCL_SERVED_H
#define CECL_TESTS_NCCL_SERVED_H

#include "ranks.h"

/* Makes a call that always goes to NCCL. If a later call is served, this one stays the thread's last call there. */
static inline void mark(const struct rank *r)
{
    int count;
    ncclCommCount(r->comm, &count);
}

static inline bool is_served(void)
{
    return strcmp(STANDIN(standin_last)().name, "ncclCommCount") == 0;
}

/* Whether a gather is right, and is served or passed as expected. */
static inline bool gathers(const struct rank *r, bool served)
{
    int in = 100 + r->rank, out[MAX_RANKS] = {0}, count = 0;
    ncclCommCount(r->comm, &count);
    const ncclResult_t result = ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL);
    bool is = is_served() == served && count == r->nranks && (result == 0 || !served) &&
              outcome_of(r->comm, result) == 0;
    for (int i = 0; i < r->nranks; i++)
        is = is && out[i] == 100 + i;
    return is;
}

#endif
