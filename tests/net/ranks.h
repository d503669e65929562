/* Ranks on pretended hosts, each in a process. The parent calls nothing of cecl. */
#ifndef CECL_TESTS_NET_RANKS_H
#define CECL_TESTS_NET_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include <cecl/cecl.h>

#define RANKS_MOST 8
#define ROOM (1 << 16) /* bytes of each buffer */

struct rank {
    int rank, nranks;
    ceclUniqueId id;
    struct meeting *meeting; /* memory that all ranks share */
    int rounds;              /* how many all-gathers of rank_gather have been made */
    ceclComm_t comm;         /* after the join */
    ceclStream_t stream;
    unsigned char *send, *recv; /* [ROOM] memory of ceclMemAlloc */
    unsigned char host[ROOM];
    const char *failed; /* the first check that failed; NULL: none */
    int line;
    char words[512];
};

/* What one rank does. It ends at the first check that fails. */
typedef void scenario(struct rank *r);

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            rank_fails(r, #condition, __LINE__); \
            return; \
        } \
    } while (0)
#define OK(call) CHECK((call) == ceclSuccess)
/* The call must be refused with this result and a message that contains `text`. */
#define REFUSED(call, result, text) \
    do { \
        CHECK((call) == (result)); \
        CHECK(rank_says(r, text)); \
    } while (0)

void rank_fails(struct rank *r, const char *condition, int line);
bool rank_says(struct rank *r, const char *text);

struct setup {
    int nranks;
    const char *node_size; /* CECL_NODE_SIZE; NULL: not changed */
    bool joins;            /* each rank joins, allocates and makes a stream before it runs */
    const char
        *name; /* NULL, or a variable that is set on rank `only`, or on all if `only` is negative */
    const char *value; /* NULL: it is unset */
    int only;
};

/* Runs a scenario on all ranks. Returns whether every rank has succeeded, or has killed itself (SIGKILL, SIGALRM). */
bool ranks_run(const struct setup *setup, scenario *run);

/* Copy between host memory and a buffer, and wait. */
bool rank_put(struct rank *r, void *at, const void *bytes, size_t count);
bool rank_get(struct rank *r, void *bytes, const void *at, size_t count);
/* All-gathers through shared memory, as a callback of ceclOob_t; context: the rank. */
int rank_gather(void *context, const void *send, void *recv, size_t bytes);
/* Waits until a communicator fails, within 45 s. */
ceclResult_t rank_await_failure(struct rank *r);

#define TEST_ON(setup, name) \
    static scenario name##_on_a_rank; \
    TEST(name) \
    { \
        assert_true(ranks_run(&(setup), name##_on_a_rank)); \
    } \
    static void name##_on_a_rank(struct rank *r)

#endif
