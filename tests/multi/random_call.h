/* Random calls: what such a call is, how all ranks draw the same call, and
 * which result it must have. */
#ifndef CECL_TEST_RANDOM_CALL_H
#define CECL_TEST_RANDOM_CALL_H

#include "memory.h"

enum kind {
    ALL_GATHER,
    ALL_TO_ALL,
    ALL_GATHERV,
    BROADCAST,
    ALL_TO_ALLV,
    GATHER,
    SCATTER,
    ALL_GATHER_STRIDED,
    ALL_TO_ALL_STRIDED,
    ALL_REDUCE, /* of any type by any operation, as the next three */
    REDUCE_SCATTER,
    REDUCE,
    REDUCE_SCATTER_TILES, /* one tile for each rank; never in place */
    KINDS
};
#define RANKS 64
#define MAX_BLOCK 6000 /* bytes, about; see also random_largest */
/* The most bytes that a rank's block takes in any buffer, with rows, gaps and displacements. */
#define MAX_ROOM (MAX_BLOCK + 1600)

/* Bytes on each side of a recvbuff that a call must leave alone. */
#define RANDOM_GUARD 16

/* Calls often have a size at which small calls end, on one device or the other, or a bit less or
 * more. random_largest is the largest such size that is drawn, in bytes of a block, or of a whole
 * all-reduce. random_take_limits_of sets it for comm's device: on the host device the larger sizes
 * are no limits and would only take long. */
extern size_t random_largest;
void random_take_limits_of(ceclComm_t comm);
/* Bytes that any buffer of a call among all ranks needs at most, with its guards. */
size_t random_room(void);

/* A call, in elements: what each rank sends to each, and where that lies at the
 * sender and at the receiver. */
struct random_call {
    int rank, nranks; /* of its communicator; the test sets them before it draws the call */
    enum kind kind;
    ceclDataType_t type;
    ceclRedOp_t op; /* of a reduction */
    bool in_place;  /* for rooted calls: on the root */
    uint64_t
        apart; /* a bit for each rank that is not in place all the same, where ranks may differ */
    bool exchange;   /* for a variable all-to-all: ranks tell each other the places */
    bool by_request; /* made as a request and started, where it is not in a group; often twice */
    int root;
    size_t count, size; /* elements of a block, where all are equal; bytes of one element */
    size_t counts[RANKS][RANKS], sent_at[RANKS][RANKS], wanted_at[RANKS][RANKS]; /* [from][to] */
    ceclStrided_t strided; /* what is passed to the call; a field is 0 where its default is meant */
    /* rows of a block, and bytes of one; a block that is not strided is one row without end */
    size_t rows, row;
    size_t send_pitch, recv_pitch; /* elements; 0 for a single row */
    ceclStream_t stream;
    unsigned char *send, *recv; /* allocations */
    unsigned char *in, *out;    /* sendbuff and recvbuff */
    uint64_t seed;              /* byte i of the input is multi_byte(seed, rank, i) */
};

uint64_t random_next(uint64_t *x);

/* Draws a call. Leaves ranks, buffers, stream and seed unchanged. */
void random_draw(struct random_call *c, uint64_t *x);
void random_draw_of(struct random_call *c, enum kind kind, uint64_t *x);
bool random_reduces(const struct random_call *c); /* and so needs aligned buffers */

/* Bytes from the first to the last that rank `r` reads, and bytes that its recvbuff needs. */
size_t random_sent(const struct random_call *c, int r);
size_t random_received(const struct random_call *c);

/* Chooses where in its allocations this rank sends and receives. In place, both are in recv. */
void random_set_places(struct random_call *c, size_t shift);

ceclResult_t random_make(ceclComm_t comm, const struct random_call *c, bool grouped);
/* Frees the requests of calls that are not pending any more. */
void random_free_requests(void);

/* A call with what its buffers must hold in the end. */
struct random_slot {
    struct random_call call;
    size_t bytes;        /* from call.recv on: all that is compared */
    unsigned char *want; /* [bytes] what must be there in the end */
    enum memory_kind send_kind, recv_kind;
};

/* Puts a call's input, and poison into the rest of [recv, recv + bytes). Writes the expected result
 * to `want`. `host` has room for the input. */
void random_put(ceclComm_t comm, struct random_slot *s, unsigned char *host);
/* Bytes of the two allocations that random_prepare needs at least: on rank `r`, and on any rank. */
size_t random_bytes_sent(const struct random_call *c, int r);
size_t random_bytes_received(const struct random_call *c);
/* Chooses the buffers of a drawn call, at places in `send` and `recv` that are drawn from `y`, and
 * does random_put. */
void random_prepare(ceclComm_t comm, struct random_slot *s, const struct memory *send,
                    const struct memory *recv, uint64_t *y, unsigned char *host);
/* Called, if there is one, before a test fails for a wrong byte of a call's or a message's result: `got` is
 * what is there, and byte `first` of it is wrong. */
extern void (*random_wrong)(const unsigned char *got, size_t bytes, size_t first);
/* Compares every byte of [recv, recv + bytes) with `want`. `host` has room for them. random_check
 * compares what is in `host` already. */
void random_check(const struct random_slot *s, const unsigned char *host);
void random_compare(ceclComm_t comm, const struct random_slot *s, unsigned char *host);

#endif
