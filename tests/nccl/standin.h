/* A stand-in for NCCL, on memory of the host. It notes each call with its arguments, and carries it
 * out between threads or processes, so that results can be compared. Every collective is a list of
 * transfers between pairs of ranks and a last step on the receiver. A call is complete when it returns, or
 * at the end of its group, unless its stream captures. */
#ifndef CECL_TESTS_NCCL_STANDIN_H
#define CECL_TESTS_NCCL_STANDIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"

#define STANDIN_MAX_RANKS 16
#define STANDIN_RING 16384 /* bytes under way between two ranks */

/* What one rank sends to one rank. Zeroed when the shared memory is made. */
struct channel {
    _Atomic uint64_t written;
    _Atomic uint64_t read;
    unsigned char bytes[STANDIN_RING];
};

struct shared {
    _Atomic int joined;
    _Atomic int is_aborted;
    struct channel channels[]; /* [sender * nranks + receiver] */
};

/* What is in flight on a communicator of a rank, and on those that were split from it. */
struct family {
    _Atomic int users, children;
    _Atomic int flying, split_flying;
    /* 'p' for calls on the communicator, 's' for calls on splits; a letter for several in a row */
    char story[STANDIN_STORY];
    size_t length;
};

struct ncclComm {
    char name[64]; /* of the shared memory */
    int rank;
    int nranks;
    int splits; /* so far, for the names of new communicators */
    struct shared *shared;
    bool is_non_blocking;
    struct family *family; /* its own */
    struct family *parent; /* that of the communicator from which it was split; NULL: none */
    struct job *job;       /* what it does in the background; NULL: it is ready. Under a lock */
};

struct transfer {
    struct channel *channel;
    bool sends;
    unsigned char *at;
    size_t left;
};

/* A call that was made and is not complete. */
struct op {
    struct op *next;
    ncclComm_t comm;
    cudaStream_t stream;
    struct transfer transfers[2 * STANDIN_MAX_RANKS];
    int ntransfers;
    bool has_no_peer;            /* it names a rank that the communicator does not have */
    bool waits_for_all;          /* to join */
    void (*finish)(struct op *); /* after the transfers; may be NULL */
    unsigned char *staging;      /* what was received, a block for each rank */
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
#define NOTE(...)                                                                                  \
    standin_note(__func__, (const uint64_t[]){__VA_ARGS__},                                        \
                 sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
#define WORD(pointer) ((uint64_t)(uintptr_t)(pointer))

/* standin_comm.c */
ncclResult_t standin_open(ncclComm_t *comm, ncclComm_t parent, const char *name, int nranks,
                          int rank);

/* standin_group.c. Carries `op` out now, or at the end of the group. On a non-blocking communicator it is
 * carried out by later calls of standin_look, and at the third of them at the earliest. */
struct op *standin_op(ncclComm_t comm);
void standin_send(struct op *op, int peer, const void *bytes, size_t count);
void standin_receive(struct op *op, int peer, void *bytes, size_t count);
ncclResult_t standin_enqueue(struct op *op);
/* Carries out a list of calls, and frees them. */
ncclResult_t standin_carry_out(struct op *list);
void standin_drop(struct op *list);

/* standin_stream.c. Whether the stream of these calls captures: then they belong to its graph. */
bool standin_captures(struct op *list);

/* Goes on with what `comm` does in the background. Returns ncclInProgress, or what came of it. */
ncclResult_t standin_look(ncclComm_t comm);
bool standin_is_ready(ncclComm_t comm);
void standin_give_up(ncclComm_t comm);

/* standin_record.c */
void standin_family_open(ncclComm_t comm, ncclComm_t parent);
void standin_family_close(ncclComm_t comm);
/* A call begins, or ends. */
void standin_fly(ncclComm_t comm, bool begins);
/* What a test makes of splits. */
bool standin_holds(ncclComm_t comm);
ncclResult_t standin_broken(ncclComm_t comm);

/* standin_reduce.c. Makes op->out of the blocks in op->staging. */
void standin_reduce(struct op *op);
bool standin_reduces(ncclDataType_t datatype, ncclRedOp_t redop);

#endif
