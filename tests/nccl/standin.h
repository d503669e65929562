/* A stand-in for NCCL, on host memory. It records each call with its arguments, and carries the call out between threads or
 * processes, so that tests can check results. Every collective is a list of transfers between pairs of ranks, and a last
 * step on the receiver. A call is complete when it returns, or at the end of its group, unless its stream captures. */
#ifndef CECL_TESTS_NCCL_STANDIN_H
#define CECL_TESTS_NCCL_STANDIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"

#define STANDIN_MAX_RANKS 16
#define STANDIN_RING 16384 /* bytes in flight between two ranks */

/* The channel from one rank to another. Zeroed when the shared memory is created. */
struct channel {
    _Atomic uint64_t written;
    _Atomic uint64_t read;
    unsigned char bytes[STANDIN_RING];
};

struct shared {
    _Atomic int joined;
    _Atomic int is_aborted;
    _Atomic int is_revoked;    /* only splits and shrinks may follow */
    struct channel channels[]; /* [sender * nranks + receiver] */
};

struct ncclComm {
    char name[64]; /* of the shared memory */
    int rank;
    int nranks;
    int splits; /* children so far, for the names of new communicators */
    struct shared *shared;
    bool is_non_blocking;
    /* its job in the background, under a lock; NULL: the communicator is ready */
    struct job *job;
};

struct transfer {
    struct channel *channel;
    bool sends;
    unsigned char *at;
    size_t left;
};

/* A call that is not complete. */
struct op {
    struct op *next;
    ncclComm_t comm;
    cudaStream_t stream;
    struct transfer transfers[2 * STANDIN_MAX_RANKS];
    int ntransfers;
    bool has_no_peer;            /* the call names a rank that the communicator does not have */
    bool waits_for_all;          /* the call completes when all ranks have joined */
    void (*finish)(struct op *); /* runs after the transfers; may be NULL */
    unsigned char *staging;      /* received blocks, one for each rank */
    unsigned char *out;
    size_t count; /* elements of a block */
    size_t bytes; /* of a block */
    ncclDataType_t datatype;
    ncclRedOp_t redop;
    ncclComm_t *split;
    bool splits_non_blocking;
};

/* standin_record.c */
void standin_note(const char *name, const uint64_t *words, size_t nwords);
#define NOTE(...) \
    standin_note(__func__, (const uint64_t[]){__VA_ARGS__}, \
                 sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
#define WORD(pointer) ((uint64_t)(uintptr_t)(pointer))

/* standin_comm.c */
ncclResult_t standin_open(ncclComm_t *comm, const char *name, int nranks, int rank);

/* standin_group.c. Carries out `op` now, or at the end of the group. On a non-blocking communicator, later calls of
 * standin_look carry it out, after three that do nothing. */
struct op *standin_op(ncclComm_t comm);
void standin_send(struct op *op, int peer, const void *bytes, size_t count);
void standin_receive(struct op *op, int peer, void *bytes, size_t count);
ncclResult_t standin_enqueue(struct op *op);
/* Carries out a list of calls, and frees them. */
ncclResult_t standin_carry_out(struct op *list);
void standin_drop(struct op *list);

/* standin_stream.c. Whether the stream of these calls captures; if so, they become part of its graph. */
bool standin_captures(struct op *list);

/* standin_group.c. Continues the job of `comm` in the background. Returns ncclInProgress, or the job's result. */
ncclResult_t standin_look(ncclComm_t comm);
bool standin_is_ready(ncclComm_t comm);
void standin_give_up(ncclComm_t comm);

#endif
