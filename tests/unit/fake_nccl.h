/* A library with NCCL's interface that moves nothing, and writes down what it is asked to do. */
#ifndef CECL_TEST_FAKE_NCCL_H
#define CECL_TEST_FAKE_NCCL_H

#include <stddef.h>

struct fake_nccl {
    int version;
    int polls; /* how often a call goes on in the background; negative: for ever */
    int state; /* what it comes to */
    int ends;  /* what a group's end returns at once; 0: it goes on */
    /* what it was given */
    int nranks, rank, blocking, max_ctas;
    size_t config_size;
    char log[512];
    /* is called as a group ends */
    void (*on_group)(void *context);
    void *context;
};

#endif
