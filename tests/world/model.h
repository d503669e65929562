/* What calls do, for tests under MPI and for fuzzers: a description of a call, a generator that draws the same call on
 * all ranks, the call itself, and its expected result, by plain loops. */
#ifndef CECL_TESTS_WORLD_MODEL_H
#define CECL_TESTS_WORLD_MODEL_H

#include <cecl/cecl.h>
#include <stdbool.h>

#include "bytes.h"

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
    ALL_REDUCE, /* this and the next three have any type and operation */
    REDUCE_SCATTER,
    REDUCE,
    REDUCE_SCATTER_TILES, /* always out of place */
    REDUCE_SCATTER_AS,    /* results are fp32; always out of place */
    KINDS,
    /* An all-to-all by splits on the device. random_draw does not draw it: recvbuff must be in the communicator's pool,
     * and the policy must be CECL_SM_ALLOW. In a group of calls it is made as a variable all-to-all. */
    BY_SPLITS = KINDS,
    /* Messages from the root to a rank, and barriers. random_draw does not draw them. */
    MESSAGE,
    BARRIER
};
#define RANDOM_SPLITS_RANKS 16 /* the most ranks of a call by splits */
#ifndef RANKS
#define RANKS 64
#endif
#define RANDOM_TILES 3 /* most tiles for a rank */
#define MAX_BLOCK 6000 /* about the largest block in bytes; see also random_largest */
/* The most bytes for a rank's block in any buffer, with rows, gaps and displacements. */
#define MAX_ROOM (MAX_BLOCK + 1600)

/* Limits of small calls of both devices: calls often have a size close to one. random_largest is the largest limit that
 * is drawn, in bytes of a block, or of a whole all-reduce. */
extern const size_t random_limits[];
extern size_t random_largest;

/* A call. For each pair of ranks it has the number of elements, and their offsets at the sender and the receiver. */
struct random_call {
    int rank, nranks; /* in its communicator; the test sets them before it draws the call */
    enum kind kind;
    ceclDataType_t type;
    ceclRedOp_t op; /* operation of a reduction */
    bool in_place;  /* for rooted calls: whether the root is in place */
    /* A bit for each rank that is out of place although `in_place` is set, where ranks may differ in this. */
    uint64_t apart;
    bool exchange;      /* of a variable all-to-all: ranks exchange the places */
    bool repeats;       /* made several times, unless it is in place or in a group */
    bool dense;         /* blocks of different sizes lie without gaps; the call gets no places */
    int root, peer;     /* a message goes from `root` to `peer` */
    bool as_bytes;      /* of a message: the receiver counts bytes */
    size_t count, size; /* elements of a block, where all are equal; bytes of an element */
    size_t counts[RANKS][RANKS], sent_at[RANKS][RANKS], wanted_at[RANKS][RANKS]; /* [from][to] */
    size_t send_rows, recv_rows, row_count; /* by splits: rows of the buffers; elements of a row */
    bool splits_have_gaps;
    ceclStrided_t strided; /* the argument of the call; a field is 0 where the default is meant */
    /* Tiles for each rank; where they begin in rank 0's sendbuff. In rank r's they begin r * tile_shift elements later. */
    size_t tiles, tile_begins[RANKS * RANDOM_TILES], tile_shift;
    /* Rows of a block, and bytes of a row. A block without a pitch is one long row. */
    size_t rows, row;
    size_t send_pitch, recv_pitch; /* in elements; 0 for a single row */
    ceclStream_t stream;
    unsigned char *send, *recv; /* allocations */
    unsigned char *in, *out;    /* sendbuff and recvbuff */
    uint64_t seed;              /* byte i of the input is model_byte(seed, rank, i) */
};

/* The element at which tile `i` begins in the sendbuff of rank `r`. */
size_t random_tile_at(const struct random_call *c, int r, size_t i);
uint64_t random_next(uint64_t *x);

/* Draws a call of this kind. Keeps ranks, buffers, stream and seed. */
void random_draw_of(struct random_call *c, enum kind kind, uint64_t *x);
/* Whether a rank sends the same block to every rank. */
bool random_repeats(const struct random_call *c);
bool random_reduces(const struct random_call *c); /* reductions need aligned buffers */
bool random_is_in_place(const struct random_call *c);
/* Bytes of an element of the result. */
size_t random_result_size(const struct random_call *c);

/* How many bytes of its sendbuff rank `r` may read, from the first to the last; and how many its recvbuff needs. */
size_t random_sent(const struct random_call *c, int r);
size_t random_received(const struct random_call *c);

/* Sets this rank's sendbuff and recvbuff within its allocations. In place, both are within `recv`. */
void random_set_places(struct random_call *c, size_t shift);

/* Makes the call, once (make.c). */
ceclResult_t random_call(ceclComm_t comm, const struct random_call *c, bool grouped);

/* Writes this rank's expected result to `out`, which has the layout of recvbuff. */
void random_result(const struct random_call *c, unsigned char *out);

/* A call by splits has words behind the rows of a buffer: [2][nranks], rows and places. random_words_at: where they begin.
 * random_fill_words: those that the call must write to recvsplits, or (sent) those of sendsplits for ceclCombine. */
unsigned char *random_words_at(const struct random_call *c, unsigned char *buffer, size_t rows);
size_t random_words_bytes(const struct random_call *c);
void random_fill_words(const struct random_call *c, bool sent, uint64_t *words);

#endif
