/* Random calls: a description of a call, a generator that draws the same call on all ranks, and
 * the call's expected result. */
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
    ALL_REDUCE, /* reductions have any type and operation, as the next three */
    REDUCE_SCATTER,
    REDUCE,
    REDUCE_SCATTER_TILES, /* always out of place */
    REDUCE_SCATTER_AS,    /* to fp32; always out of place */
    KINDS,
    /* Splits on the device: not drawn by random_draw, because recvbuff must be in the communicator's
     * pool and the policy CECL_SM_ALLOW. In a group of calls it is a variable all-to-all. */
    BY_SPLITS = KINDS
};
#define RANDOM_SPLITS_RANKS 16 /* the most ranks of a call by splits */
#define RANKS 64
#define RANDOM_TILES 3 /* most tiles for a rank */
#define MAX_BLOCK 6000 /* approximate bytes of a block; see also random_largest */
/* The most bytes that a rank's block takes in any buffer, with rows, gaps and displacements. */
#define MAX_ROOM (MAX_BLOCK + 1600)

/* Guard bytes on each side of a recvbuff. */
#define RANDOM_GUARD 16

/* Calls often have a size close to a limit of small calls of either device. random_largest is the
 * largest limit that is drawn, in bytes of a block, or of a whole all-reduce.
 * random_take_limits_of sets it for comm's device: on the host device the larger sizes are no
 * limits, and would only take time. */
extern size_t random_largest;
void random_take_limits_of(ceclComm_t comm);
/* The most bytes that any buffer of a call among all ranks needs, with its guards. */
size_t random_room(void);

/* A call. For each pair of ranks, it has the number of elements sent, and their offsets at the
 * sender and at the receiver, in elements. */
struct random_call {
    int rank, nranks; /* in its communicator; the test sets them before it draws the call */
    enum kind kind;
    ceclDataType_t type;
    ceclRedOp_t op; /* operation of a reduction */
    bool in_place;  /* for rooted calls: whether the root is in place */
    /* A bit for each rank that is out of place although `in_place` is set, where ranks may
     * differ. */
    uint64_t apart;
    bool exchange; /* for a variable all-to-all: ranks exchange the places */
    bool repeats;  /* made several times, unless it is in place or in a group */
    bool dense;    /* blocks that differ lie one behind the other; the call gets no places */
    int root;
    size_t count, size; /* elements of a block, where all are equal; bytes of one element */
    size_t counts[RANKS][RANKS], sent_at[RANKS][RANKS], wanted_at[RANKS][RANKS]; /* [from][to] */
    size_t send_rows, recv_rows, row_count; /* by splits: rows of the buffers; elements of a row */
    bool splits_have_gaps;
    ceclStrided_t strided; /* the argument of the call; a field is 0 where the default is meant */
    /* Tiles for each rank, and where they begin in rank 0's sendbuff; in that of rank r, r * tile_shift elements later. */
    size_t tiles, tile_begins[RANKS * RANDOM_TILES], tile_shift;
    /* Rows of a block, and bytes of a row. A block that is not strided is one endless row. */
    size_t rows, row;
    size_t send_pitch, recv_pitch; /* elements; 0 for a single row */
    ceclStream_t stream;
    unsigned char *send, *recv; /* allocations */
    unsigned char *in, *out;    /* sendbuff and recvbuff */
    uint64_t seed;              /* byte i of the input is multi_byte(seed, rank, i) */
};

uint64_t random_next(uint64_t *x);

/* Describes a call among all ranks in which each block has `count` elements; a reduction sums them up. The caller sets
 * places. random_make makes it once, without a graph. */
void random_set(struct random_call *c, enum kind kind, ceclDataType_t type, size_t count);
/* Draws a call. Leaves ranks, buffers, stream and seed unchanged. */
void random_draw(struct random_call *c, uint64_t *x);
void random_draw_of(struct random_call *c, enum kind kind, uint64_t *x);
bool random_reduces(const struct random_call *c); /* reductions need aligned buffers */
/* Bytes of an element of the result. */
size_t random_result_size(const struct random_call *c);

/* Bytes from the first byte to the last that rank `r` reads, and bytes that its recvbuff needs. */
size_t random_sent(const struct random_call *c, int r);
size_t random_received(const struct random_call *c);

/* Sets this rank's sendbuff and recvbuff within its allocations. In place, both are in recv. */
void random_set_places(struct random_call *c, size_t shift);

ceclResult_t random_make(ceclComm_t comm, const struct random_call *c, bool grouped);

/* A call with the expected contents of its buffers. */
struct random_slot {
    struct random_call call;
    size_t bytes;        /* bytes from call.recv on that are compared */
    unsigned char *want; /* [bytes] the expected contents */
    enum memory_kind send_kind, recv_kind;
};

/* Writes a call's input, and poison into the rest of [recv, recv + bytes). Writes the expected
 * result to `want`. `host` has room for the input. */
void random_put(ceclComm_t comm, struct random_slot *s, unsigned char *host);
/* Writes the expected contents of [recv, recv + bytes) to `want`. Only the input is new since random_put. */
void random_expect(const struct random_slot *s, unsigned char *want);
/* For a call by splits that is made in a group: its recvsplits are not written. */
void random_expect_no_words(struct random_slot *s);
/* The least sizes of random_prepare's two allocations: on rank `r`, and on any rank. */
size_t random_bytes_sent(const struct random_call *c, int r);
size_t random_bytes_received(const struct random_call *c);
/* Draws the places of a call's buffers within `send` and `recv` from `y`, and calls random_put. */
void random_prepare(ceclComm_t comm, struct random_slot *s, const struct memory *send,
                    const struct memory *recv, uint64_t *y, unsigned char *host);
/* random_compare reads [recv, recv + bytes) into `host`, which has room, and compares every byte
 * with `want`. random_check compares bytes that are in `host` already. */
void random_check(const struct random_slot *s, const unsigned char *host);
void random_compare(ceclComm_t comm, const struct random_slot *s, unsigned char *host);

/* Makes `rounds` groups of `size` random calls of the kinds `first` to `last`, or calls if `size` is 1, on pool memory of
 * a communicator of all ranks, one after the other, and checks every byte of each. Ranks have their buffers at other
 * places. Half of the groups are made once more with other bytes, by plans that are kept. */
#define RANDOM_GROUP 6
#define RANDOM_MOST 24 /* calls of a group */
void random_groups(ceclComm_t comm, enum kind first, enum kind last, int size, int rounds,
                   uint64_t seed);

#endif
