/* The calls that the suites fault and exhaust disturb. Each rank makes them on a communicator of all ranks, and checks
 * every element of a result that is reported as valid. Inputs differ between attempts and between ranks, so what an
 * earlier attempt left is never right by chance. */
#ifndef CECL_TESTS_WORLD_CALLS_H
#define CECL_TESTS_WORLD_CALLS_H

#include <cecl/cecl.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../try.h"
#include "census.h"

#define INTS 65536      /* ints in each buffer */
#define CALL_BLOCK 4000 /* ints of a gather's block: neither a small call nor a large one */
#define PLAYERS_MOST 4

/* What calls need to know of a rank. A suite's struct life has these members, too. */
#define PLAYER \
    struct venue *venue; \
    struct told *told[PLAYERS_MOST]; \
    ceclComm_t comm; \
    int me, n; \
    int *in, *out; /* symmetric device memory of INTS ints each */ \
    int attempt;   /* the current attempt's number */ \
    int replays;   /* how often a captured graph is launched again */ \
    /* called between the parts of a call that has several, and amid an exchange; may be NULL */ \
    void (*within)(struct life * life); \
    bool (*gives_up)(struct life * life); /* whether an exchange fails */ \
    int awaited; /* the value of venue->passed that this rank waits for */ \
    int round;   /* the number of the next exchange */ \
    struct census start

/* What a rank tells the others, in shared memory. */
struct told {
    const char *_Atomic step; /* what the rank does at present; a string constant */
    _Atomic int done;         /* the rank no longer needs the others */
    _Atomic int failed;
    double failed_at;
    char wrong[1536]; /* what the rank found wrong */
};

struct life;
struct player {
    PLAYER;
};
#define AS_PLAYER \
    union { \
        struct player player; \
        struct { \
            PLAYER; \
        }; \
    }

/* A call, or several, and the check of their result. */
struct call {
    ceclResult_t (*enqueue)(struct player *p, const struct call *call, int *in, int *out,
                            ceclStream_t stream);
    void (*check)(struct player *p, const struct call *call, const int *out); /* NULL: none */
    int count; /* ints of a block; without blocks, of the buffer */
    ceclRedOp_t op;
    bool by_kernel, pushes;                    /* options to set before the call */
    enum { NEVER, ALWAYS, BY_TURNS } captured; /* by a graph that is then launched */
    int beside; /* of wrong calls: by how much the root is wrong, or how many ints a message lacks */
};

extern const struct call call_gather, call_gather_few, call_gather_by_kernel, call_exchange,
    call_exchange_sizes, call_dispatch, call_reduce_small, call_reduce_large, call_reduce_pushed,
    call_scatter, call_scatter_pushed, call_reduce_to_one, call_broadcast, call_barrier, call_group,
    call_messages, call_messages_by_turns, call_gather_in_graph, call_messages_in_graph;
/* Wrong calls of one rank: each differs a little from a call above, and has no check. */
extern const struct call call_max_small, call_reduce_fewer, call_broadcast_of_another,
    call_shorter_messages;

/* Enqueues the call, without waiting for it. */
ceclResult_t call_make(const struct call *call, struct player *p, int *in, int *out,
                       ceclStream_t stream);
/* Checks the result. `out`: a copy of it that the host can read. */
void call_check(const struct call *call, struct player *p, const int *out);

/* The value of a rank's input at an index. */
int call_value(int rank, int attempt, int index);
void check_element(struct player *p, const int *out, int index, int wanted);

#endif
