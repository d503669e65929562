/* A communicator over several hosts, which NCCL carries: NCCL's communicator with the same ranks, this rank's line to
 * the root (boot/oob.h), and a thread that notices failures.
 *
 * NCCL's communicator is non-blocking, so every wait for it is bounded. A communicator fails by news over the line, by
 * NCCL's asynchronous error, or by the time limit. Then the thread tells the other ranks, and aborts NCCL's
 * communicator.
 *
 * For ordinary calls, two words tell the host which call the stream has begun and which has ended. Captured calls have
 * no such words, because each replay would write the same numbers again; so captured calls have no time limit. On the
 * host device only the stand-in of tests/nccl works; there a call has ended when it returns. */
#ifndef CECL_NET_NET_H
#define CECL_NET_NET_H

#include "boot/oob.h"
#include "device/device.h"
#include "plan/call.h"

/* ---- NCCL's interface, as far as it is used */

typedef struct ncclComm *nccl_comm;
typedef int nccl_result; /* the values up to 7 equal those of ceclResult_t */
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_UNDEF = -2147483647 - 1 };
static inline bool nccl_failed(nccl_result result)
{
    return result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS;
}
#define NCCL_LEAST_VERSION 21700 /* has maxCTAs */
#define NCCL_FP8_VERSION 22400   /* reduces fp8 */

struct nccl_id {
    char internal[128];
};

/* The fields of NCCL 2.17. `size` tells NCCL which fields the caller has. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
};
#define NCCL_CONFIG_MAGIC 0xcafebeefu

#define NCCL_TWO const void *send, void *recv, size_t count, int type
#define NCCL_ON nccl_comm comm, ceclStream_t stream
#define NCCL_FUNCTIONS(X) \
    X(GetVersion, (int *version)) \
    X(GetUniqueId, (struct nccl_id * id)) \
    X(CommInitRankConfig, \
      (nccl_comm * comm, int nranks, struct nccl_id id, int rank, struct nccl_config *config)) \
    X(CommDestroy, (nccl_comm comm)) \
    X(CommAbort, (nccl_comm comm)) \
    X(CommGetAsyncError, (nccl_comm comm, nccl_result * error)) \
    X(GroupStart, (void)) \
    X(GroupEnd, (void)) \
    X(AllGather, (NCCL_TWO, NCCL_ON)) \
    X(Broadcast, (NCCL_TWO, int root, NCCL_ON)) \
    X(AllReduce, (NCCL_TWO, int op, NCCL_ON)) \
    X(ReduceScatter, (NCCL_TWO, int op, NCCL_ON)) \
    X(Reduce, (NCCL_TWO, int op, int root, NCCL_ON)) \
    X(Send, (const void *send, size_t count, int type, int peer, NCCL_ON)) \
    X(Recv, (void *recv, size_t count, int type, int peer, NCCL_ON))

struct nccl {
#define DECLARE(name, arguments) nccl_result(*name) arguments;
    NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
    const char *(*GetErrorString)(nccl_result result);
    const char *(*GetLastError)(nccl_comm comm);
    int version;
    bool on_host; /* the stand-in of tests/nccl: works on host memory, without streams */
};

/* library.c. Opens the NCCL that CECL_NCCL_PATH names, or the one that the program has loaded, or the one that
 * util/find_nccl.h finds. The library stays open. After a failure the next call tries again. */
ceclResult_t cecl_net_load(const struct nccl **nccl);

/* ---- a communicator */

struct cecl_net {
    /* -- set by its owner before the join -- */
    struct cecl_device *dev;
    int rank, nranks, nhosts;
    int timeout_ms;
    int max_sms; /* most SMs of NCCL's kernels; 0: NCCL decides */
    void (*fails)(void *context, ceclResult_t result, const char *words); /* any thread calls it */
    void *context;
    /* -- its own -- */
    struct cecl_lifeline line; /* its owner fills it in */
    uint16_t *host;            /* [nranks] the number of each rank's host; its owner fills it in */
    const struct nccl *nccl;
    struct nccl_id id;    /* of NCCL's communicator */
    int64_t deadline;     /* of the join */
    char name[32];        /* "NCCL 2.28.9" */
    pthread_mutex_t lock; /* recursive; held while NCCL is called */
    nccl_comm comm;       /* see cecl_net_comm */
    /* the stream writes an ordinary call's number to *begun and to *ended. word: the memory that a barrier's all-reduce
     * uses */
    uint32_t *begun, *ended, *word, number;
    uint64_t stream_id; /* of the last call */
    /* the call that is being made: `stream` is the caller's. work: NCCL's stream, by stream_fork; NULL on the host
     * device */
    ceclStream_t stream, work;
    bool is_captured;
    pthread_t thread;
    bool has_thread;
    int wake; /* an eventfd, for the thread */
    _Atomic bool failed, stop, is_held, has_ended;
    char words[CECL_MESSAGE_BYTES]; /* why it has failed */
    struct cecl_clock seen;         /* of *begun and *ended */
    int64_t error_since;            /* since when NCCL reports an error; 0: it does not */
};

/* NULL: not made yet, aborted, or ended. The thread that ends the communicator may do so without the lock. */
static inline nccl_comm cecl_net_comm(const struct cecl_net *net)
{
    return __atomic_load_n(&net->comm, __ATOMIC_ACQUIRE);
}

/* join.c. NULL: no host memory, or no descriptor. */
struct cecl_net *cecl_net_new(int nranks);
void cecl_net_free(struct cecl_net *net);
/* Refuses ranks of several hosts, for the host device. */
ceclResult_t cecl_net_refuse_hosts(int nhosts);
/* Makes NCCL's communicator. Collective over the lines: all ranks succeed, or all fail. */
ceclResult_t cecl_net_join(struct cecl_net *net, int64_t deadline);
/* Waits until NCCL no longer works in the background. The error names `what`. */
ceclResult_t cecl_net_await(struct cecl_net *net, const char *what, int64_t deadline);
/* Turns an error of NCCL into one of cecl. */
ceclResult_t cecl_net_result(const struct cecl_net *net, const char *what, nccl_result result);

/* calls.c, map.c. Calls are made in this order; every begin that succeeds needs an end. All calls between GroupStart
 * and GroupEnd form one group of NCCL, even if they are calls of several communicators.
 *
 *     await_room (each)    begin (each)    GroupStart    add (each)    GroupEnd    unlock (each)    end (each)
 *
 * start: when the launch began, in ms (cecl_now_ms); all of its calls share one time limit. */
/* Refuses a call that NCCL cannot carry. The message names a call to use instead. version: NCCL's */
ceclResult_t cecl_net_check(const struct cecl_call *call, int version);
/* Waits until few calls are pending, because NCCL waits inside a call while the GPU's queue is full. */
ceclResult_t cecl_net_await_room(const struct cecl_net *net, int64_t start);
ceclResult_t cecl_net_begin(struct cecl_net *net, ceclStream_t stream, bool is_captured);
/* Makes a call that was checked. */
ceclResult_t cecl_net_add(const struct cecl_net *net, const struct cecl_call *call);
ceclResult_t cecl_net_end(struct cecl_net *net, int64_t start);
/* Whether no ordinary call is pending. */
bool cecl_net_is_idle(const struct cecl_net *net);

/* watch.c */
ceclResult_t cecl_net_watch(struct cecl_net *net);
/* The error of a call that has waited for so long. */
ceclResult_t cecl_net_late(const struct cecl_net *net, int64_t waited_ms);
/* Tells the thread that the communicator has failed: it tells the other ranks and aborts NCCL's communicator. Any
 * thread may call this, but only once. */
void cecl_net_fail(struct cecl_net *net, const char *words);
/* After an error of NCCL, at `since` (cecl_now_ms): waits a moment for news of the rank that caused it. */
void cecl_net_await_news(const struct cecl_net *net, int64_t since);
/* Ends NCCL's communicator, the thread and the line. Returns false if NCCL does not end in time; then everything stays.
 * is_held  graphs hold calls. Then NCCL's communicator stays, because it would end only after the graphs */
bool cecl_net_shut(struct cecl_net *net, bool is_held);

#endif
