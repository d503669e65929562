/* A communicator over several hosts, whose calls NCCL makes. It has a communicator of NCCL with the same ranks, this
 * rank's line (its connection to the root, boot/oob.h), and a thread that notices failures.
 *
 * NCCL's communicator is non-blocking, so waits for NCCL can have a time limit. The communicator fails if the line
 * brings news of a failure, if NCCL has an asynchronous error, or if the time limit of a call passes. Then the thread
 * tells the other ranks, and aborts NCCL's communicator.
 *
 * Two words tell the host which call the stream has begun and which it has ended. Captured calls do not write these
 * words, because each replay would write the same numbers; so captured calls have no time limit. On the host device
 * only the stand-in of tests/nccl works; its calls have ended when they return. */
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

/* The fields of ncclConfig_t in NCCL 2.17. Later versions have more, and see by `size` that those are missing. */
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
    bool on_host; /* the stand-in of tests/nccl: works on memory of the host, without streams */
};

/* library.c. Opens the NCCL that CECL_NCCL_PATH names; else the one that the program has loaded; else the one that
 * util/find_nccl.h finds. The library stays open. After a failure the next call tries again. */
ceclResult_t cecl_net_load(const struct nccl **nccl);

/* ---- a communicator */

struct cecl_net {
    /* -- set by the caller before cecl_net_join -- */
    struct cecl_device *dev;
    int rank, nranks, nhosts;
    int timeout_ms;
    int max_sms; /* most SMs of NCCL's kernels; 0: NCCL decides */
    void (*fails)(void *context, ceclResult_t result, const char *words); /* called by the thread */
    void *context;
    struct cecl_lifeline line;
    uint16_t *host; /* [nranks] the number of each rank's host */
    /* -- set by src/net -- */
    const struct nccl *nccl;
    struct nccl_id id;    /* of NCCL's communicator */
    int64_t deadline;     /* of the join */
    char name[32];        /* "NCCL 2.28.9" */
    pthread_mutex_t lock; /* recursive; held while calls are made or NCCL is polled */
    nccl_comm comm;       /* see cecl_net_comm */
    /* when a call that is not captured begins or ends, the stream writes the call's number to *begun or *ended. `word`
     * is the buffer of a barrier's all-reduce */
    uint32_t *begun, *ended, *word, number;
    uint64_t stream_id; /* of the last call's stream */
    /* of the call that is being made: the caller's stream, and the one for NCCL. The latter is forked from the former,
     * is the same if the call is captured, and is NULL on the host device */
    ceclStream_t stream, work;
    bool is_captured;
    pthread_t thread;
    bool has_thread;
    int wake; /* an eventfd, for the thread */
    _Atomic bool failed, stop, is_held, has_ended;
    char words[CECL_MESSAGE_BYTES]; /* why the communicator has failed */
    struct cecl_clock seen;         /* since when *begun and *ended are unchanged */
    int64_t error_since; /* since when (cecl_now_ms) NCCL has reported an error; 0: it has not */
};

/* NCCL's communicator; NULL: not made yet, aborted, or ended. Atomic, because the thread that ends it may not get the
 * lock. */
static inline nccl_comm cecl_net_comm(const struct cecl_net *net)
{
    return __atomic_load_n(&net->comm, __ATOMIC_ACQUIRE);
}

/* join.c. NULL: no host memory, or no descriptor. */
struct cecl_net *cecl_net_new(int nranks);
void cecl_net_free(struct cecl_net *net);
/* Returns an error: ranks on several hosts cannot use the host device. */
ceclResult_t cecl_net_refuse_hosts(int nhosts);
/* Makes NCCL's communicator, and starts the thread. Collective over the line: all ranks succeed, or all fail. */
ceclResult_t cecl_net_join(struct cecl_net *net, int64_t deadline);
/* Waits until NCCL no longer works in the background. The error names `what`. */
ceclResult_t cecl_net_await(struct cecl_net *net, const char *what, int64_t deadline);
/* Turns an error of NCCL's function `what` into an error of cecl. */
ceclResult_t cecl_net_result(const struct cecl_net *net, const char *what, nccl_result result);

/* calls.c, map.c. The launches of a group are made in one group of NCCL, in this order; "(each)" means for each
 * communicator; `add` is for each call. Every begin that succeeds needs an end.
 *
 *     await_room (each)    begin (each)    GroupStart    add (each)    GroupEnd    unlock (each)    end (each)
 *
 * `start` is when the launches began, in ms (cecl_now_ms); they share one time limit. */
/* Refuses a call that NCCL cannot make. The message says what to use instead. `version` is NCCL's. */
ceclResult_t cecl_net_check(const struct cecl_call *call, int version);
/* Waits until fewer than PENDING_MOST calls are pending: NCCL waits inside a call while the GPU's queue is full. */
ceclResult_t cecl_net_await_room(const struct cecl_net *net, int64_t start);
ceclResult_t cecl_net_begin(struct cecl_net *net, ceclStream_t stream, bool is_captured);
/* Makes a call that has passed cecl_net_check. */
ceclResult_t cecl_net_add(const struct cecl_net *net, const struct cecl_call *call);
ceclResult_t cecl_net_end(struct cecl_net *net, int64_t start);
/* Whether no call is pending, apart from captured ones. */
bool cecl_net_is_idle(const struct cecl_net *net);

/* watch.c */
ceclResult_t cecl_net_watch(struct cecl_net *net);
/* The error of a call that has waited for `waited_ms`. */
ceclResult_t cecl_net_late(const struct cecl_net *net, int64_t waited_ms);
/* Makes the thread tell the other ranks of a failure, and abort NCCL's communicator. Called at most once. */
void cecl_net_fail(struct cecl_net *net, const char *words);
/* After an error of NCCL, at `since` (cecl_now_ms): waits NEWS_MS at most for the line's news of the rank that caused
 * the error. */
void cecl_net_await_news(const struct cecl_net *net, int64_t since);
/* Ends NCCL's communicator, the thread and the line. Returns false if NCCL's does not end in time; then all three stay.
 * is_held  graphs hold calls: NCCL's communicator stays, because it would end only after them. If the communicator has
 *          failed, all three stay, and the result is false */
bool cecl_net_shut(struct cecl_net *net, bool is_held);

#endif
