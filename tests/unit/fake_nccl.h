/* A library with NCCL's interface that moves no data and logs the calls that it receives. */
#ifndef CECL_TEST_FAKE_NCCL_H
#define CECL_TEST_FAKE_NCCL_H

#include <stddef.h>

struct fake_nccl {
    int version;
    int polls;         /* for how many polls a call stays in progress; negative: for ever */
    _Atomic int state; /* the call's final state */
    int ends;          /* what ncclGroupEnd returns at once; 0: the group stays in progress */
    /* the arguments that it received */
    int nranks, blocking, max_ctas;
    size_t config_size;
    char log[512];
    /* called when a group ends */
    void (*on_group)(void *context);
    void *context;
    /* called before a poll tells of an error */
    void (*on_error)(void);
};

#endif
