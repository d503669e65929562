/* The calls that adversaries disturb. Each rank makes them on a communicator of all ranks, and checks every element of a
 * result that is reported as valid. Inputs differ from attempt to attempt and from rank to rank, so what an earlier
 * attempt left is never right by chance. */
#ifndef CECL_TESTS_WORLD_CALLS_H
#define CECL_TESTS_WORLD_CALLS_H

#include <cecl/cecl.h>

#define INTS 65536      /* ints in each buffer */
#define CALL_BLOCK 4000 /* of a gather: too large for a small call, too small for a large one */
#define CALL_SMALL 500
#define CALL_LARGE 30000
#define PLAYERS_MOST 4

/* What calls need of a rank. A suite's struct life has these members, too. */
#define PLAYER \
    ceclComm_t comm; \
    int me, n; \
    int *in, *out; /* symmetric device memory of INTS ints each */ \
    int attempt;   /* the number of the current attempt */ \
    int replays;   /* how often a captured graph is launched again */ \
    /* called in the middle of calls of several parts; may be NULL */ \
    void (*within)(struct life * life)

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

/* A suite's own: records what is wrong, and ends the process. */
_Noreturn void life_fail(struct life *life, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A call, or several, and the check of the result. */
struct call {
    /* enqueues the call, without waiting for it */
    ceclResult_t (*make)(struct player *p, int *in, int *out, ceclStream_t stream);
    /* `out`: a copy of the result that the host can read; NULL: there is nothing to check */
    void (*check)(struct player *p, const int *out);
};

extern const struct call call_gather, call_gather_few, call_gather_by_kernel, call_exchange,
    call_exchange_sizes, call_dispatch, call_reduce_small, call_reduce_large, call_reduce_pushed,
    call_scatter, call_scatter_pushed, call_reduce_to_one, call_broadcast, call_barrier, call_group,
    call_messages, call_gather_in_graph, call_messages_in_graph;

/* What a rank sends at an index. */
int call_value(int rank, int attempt, int index);
void check_element(struct player *p, const int *out, int index, int wanted);

/* The rank that an attempt's rooted calls go to, or come from. */
int call_root(const struct player *p);

#endif
