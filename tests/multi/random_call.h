/* Calls that test_random.c makes: what one is, drawn alike on all ranks, and what it must leave. */
#ifndef CECL_TEST_RANDOM_CALL_H
#define CECL_TEST_RANDOM_CALL_H

#include "multi.h"

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
    ALL_REDUCE, /* sums of int32, as the next one */
    REDUCE_SCATTER,
    KINDS
};
#define RANKS 64
#define MAX_BLOCK 6000 /* bytes, about; but see random_limits */
/* Bytes that a rank's block takes at most in any buffer: rows, gaps and displacements included. */
#define MAX_ROOM (MAX_BLOCK + 1600)

/* Sizes of small calls end at these, on one device or the other: a block's bytes, of an all-reduce all
 * bytes. Calls are often drawn as large, or a bit less or more, as long as they are at most
 * random_largest, which is to be set: on the host device the last ones are no limits, but long. */
#define RANDOM_LIMITS 5
extern const size_t random_limits[RANDOM_LIMITS];
extern size_t random_largest;

/* What a call is, in elements: what each rank sends to each, and where it is there and here. */
struct random_call {
    enum kind kind;
    ceclDataType_t type;
    bool in_place; /* of rooted calls: on the root */
    bool exchange; /* of a variable all-to-all: ranks tell each other the places */
    int root;
    size_t count, size; /* elements of a block, where all are equal; bytes of one */
    size_t counts[RANKS][RANKS], sent_at[RANKS][RANKS], wanted_at[RANKS][RANKS]; /* [from][to] */
    ceclStrided_t strided; /* as the call gets it: some fields 0, where the default is meant */
    size_t rows, row; /* of a block, and bytes of one; what is not strided has one without end */
    size_t send_pitch, recv_pitch; /* elements; 0 where there is one row */
    ceclStream_t stream;
    unsigned char *send, *recv; /* allocations */
    unsigned char *in, *out;    /* sendbuff, and recvbuff */
    uint64_t seed;              /* of the input, whose byte i is multi_byte(seed, rank, i) */
};

uint64_t random_next(uint64_t *x);

/* Leaves buffers, stream and seed alone. */
void random_draw(struct random_call *c, uint64_t *x);

/* Bytes that rank `r` reads, from the first to the last; and that a recvbuff needs. */
size_t random_sent(const struct random_call *c, int r);
size_t random_received(const struct random_call *c);

/* Sets where this rank reads and where it receives, in its allocations; in place, both in recv. */
void random_set_places(struct random_call *c, size_t shift);

ceclResult_t random_make(ceclComm_t comm, const struct random_call *c, bool grouped);

/* Writes what this rank receives; `out` stands for recvbuff. */
void random_expect(const struct random_call *c, unsigned char *out);

#endif
