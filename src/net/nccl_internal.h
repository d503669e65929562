/* What the files of the network of GPUs share; see nccl.c. */
#ifndef CECL_NET_NCCL_INTERNAL_H
#define CECL_NET_NCCL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/net.h"

/* ---- NCCL's interface, as far as it is used */

typedef struct ncclComm *nccl_comm;
typedef int nccl_result; /* the values up to 7 are those of ceclResult_t */
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_INT8 = 0 };

struct nccl_id {
    char internal[128];
};

/* The fields of NCCL 2.17. From `size` NCCL knows which fields the caller has. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
};
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_VERSION 21700u
#define NCCL_LEAST_VERSION 21700 /* has maxCTAs */
/* From this version on, the end and the abort of NCCL's communicator wait for its graphs. An earlier NCCL
 * frees memory that a later replay uses. */
#define NCCL_CAPTURE_VERSION 22600

#define NCCL_FUNCTIONS(X)                                                                          \
    X(GetVersion, (int *version))                                                                  \
    X(GetUniqueId, (struct nccl_id * id))                                                          \
    X(CommInitRankConfig,                                                                          \
      (nccl_comm * comm, int nranks, struct nccl_id id, int rank, struct nccl_config *config))     \
    X(CommFinalize, (nccl_comm comm))                                                              \
    X(CommDestroy, (nccl_comm comm))                                                               \
    X(CommAbort, (nccl_comm comm))                                                                 \
    X(CommGetAsyncError, (nccl_comm comm, nccl_result * error))                                    \
    X(Send, (const void *at, size_t count, int type, int peer, nccl_comm comm, ceclStream_t))      \
    X(Recv, (void *at, size_t count, int type, int peer, nccl_comm comm, ceclStream_t))            \
    X(GroupStart, (void))                                                                          \
    X(GroupEnd, (void))

struct nccl_functions {
#define DECLARE(name, arguments) nccl_result(*name) arguments;
    NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
    const char *(*GetErrorString)(nccl_result result);
    const char *(*GetLastError)(nccl_comm comm);
    int version;
};

#define NOTES 256u
#define SETS (CECL_MAX_RANKS / 64)
#define POLL_NS 20000

struct nccl {
    struct cecl_net net;
    const struct nccl_functions *api;
    struct nccl_functions lent_api;
    /* what the program lends. If `lent` has no library, the program lends nothing, and NCCL's communicator is
     * cecl's own */
    ceclNcclNet_t lent;
    struct cecl_device *dev;
    struct cecl_mesh *mesh; /* until NCCL's communicator is made; then NULL */
    int rank, nranks, timeout_ms;
    int limit_ms; /* of the host's waits in an exchange: timeout_ms and the slack; 0: none */
    pthread_mutex_t lock; /* held while NCCL is called */
    nccl_comm comm;       /* NULL: aborted, or not made yet */
    nccl_comm aborted;    /* the communicator that `aborter` aborts */
    pthread_t aborter;
    bool has_aborter;
    _Atomic bool failed, has_aborted;
    _Atomic int error; /* the error of such an exchange; its message is in `words` */
    char words[CECL_MESSAGE_BYTES];
    /* written by the stream: the number of the exchange that began last, and of the one that ended last;
     * and what cecl_net_nccl_note_captured has returned, or 0 if the exchange is not captured. `own`: two words
     * for a first exchange with this rank itself */
    uint32_t *begun, *ended, *replays, *own;
    uint32_t count; /* how many exchanges were enqueued or captured; also the last one's number */
    /* sets of ranks: the peers of recent and pending exchanges, by exchange number; and the peers of captured
     * exchanges. Each replay of a captured exchange has the same number. If a captured exchange finds no
     * room for its set, it adds its peers to the last set. */
    _Atomic uint64_t peers[NOTES][SETS], captured[NOTES][SETS];
    uint32_t ncaptured;
    /* the peers of an exchange for which a thread waits until NCCL has begun it; NULL: no thread waits */
    const _Atomic uint64_t *_Atomic beginning;
};

/* nccl_library.c: finds the functions of an open library. */
ceclResult_t cecl_net_nccl_find(void *library, struct nccl_functions *api);
/* The functions of the library that a process opens once. */
ceclResult_t cecl_net_nccl_load(const struct nccl_functions **out);

/* nccl_peers.c: notes the peers of an exchange, and returns the note. A captured one gets a number above 0, which
 * exchanges with the same peers share: the calls of a communicator exchange along the same rails, so few sets
 * differ. */
const _Atomic uint64_t *cecl_net_nccl_note(struct nccl *nccl, uint32_t number,
                                           const struct cecl_net_transfer *list, uint32_t count);
uint32_t cecl_net_nccl_note_captured(struct nccl *nccl, const struct cecl_net_transfer *list,
                                     uint32_t count);
/* See struct cecl_net_ops. */
bool cecl_net_nccl_late(struct cecl_net *net, struct cecl_rank_list *late, uint32_t *moved);
bool cecl_net_nccl_begins(struct cecl_net *net, struct cecl_rank_list *late);

/* nccl_end.c: see struct cecl_net_ops */
void cecl_net_nccl_fail(struct cecl_net *net);
void cecl_net_nccl_give_up(struct cecl_net *net);
void cecl_net_nccl_finish(struct cecl_net *net);
void cecl_net_nccl_close(struct cecl_net *net);

#endif
