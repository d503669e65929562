/* How blocks leave the node: the table of what a transport does.
 *
 * A communicator over several nodes opens one transport. A plan's EXCHANGE hands it sends and receives of
 * this rank as one group, without order among them; exchanges of a stream run one after the other. Between
 * two ranks, the k-th send of one matches the k-th receive of the other. An exchange waits only until each of
 * its peers has begun its own exchange with this rank, and not for other exchanges of those peers.
 *
 *     open -> exchange ... exchange -> finish -> close      (close also does what finish does)
 *                   \-> fail: exchanges end at once, without moving their bytes
 *
 * There are two transports: pipes.c on the host device, through mailboxes between pretended nodes of one
 * host (local.c) or through MPI (src/api/mpi); and nccl.c on GPUs. A transport knows no plan and no
 * collective. Which thread may call what: docs/architecture.md, "Threads". */
#ifndef CECL_NET_NET_H
#define CECL_NET_NET_H

#include <stdbool.h>
#include <stddef.h>

#include "boot/mesh.h"
#include "boot/rank_list.h"
#include "call/nodes.h"
#include "device/device.h"
#include "net/pipes.h"

/* Bytes that this rank sends to a rank of another node, or receives from it. */
struct cecl_net_transfer {
    void *at;       /* memory that this rank's device reaches */
    uint64_t bytes; /* >= 1 */
    int32_t peer;
    bool sends;
};

/* What CECL_NET asks for. The numbers are the setting's values. */
enum cecl_net_wish { CECL_NET_AUTO, CECL_NET_MPI };

struct cecl_net;

struct cecl_net_ops {
    /* Enqueues an exchange. The caller may reuse the list when the function returns. If the transport must
     * connect to a peer first, it waits on the host until the peer enqueues its exchange, too, or until
     * its time limit. */
    ceclResult_t (*exchange)(struct cecl_net *net, ceclStream_t work,
                             const struct cecl_net_transfer *list, uint32_t count);
    /* Adds an exchange to what the stream captures (device/capture.h). Each launch of the graph carries it
     * out, one launch at a time. The exchange may wait on the host as `exchange` may. NULL if
     * `why_not_captured` is given. */
    ceclResult_t (*capture)(struct cecl_net *net, ceclStream_t stream,
                            const struct cecl_net_transfer *list, uint32_t count);
    /* Returns whether an exchange is running, and adds the ranks for which it waits to `late`. Adds to
     * *moved a number that changes whenever bytes move. Any thread. */
    bool (*late)(struct cecl_net *net, struct cecl_rank_list *late, uint32_t *moved);
    /* Returns whether `exchange` or `capture` waits on the host for peers, and adds them to `late`. Any thread.
     * NULL: they never wait. */
    bool (*begins)(struct cecl_net *net, struct cecl_rank_list *late);
    /* The transport's asynchronous error, with its message recorded, or ceclSuccess. Any thread. */
    ceclResult_t (*error)(struct cecl_net *net);
    /* Makes running and later exchanges end without moving any more bytes. Any thread. */
    void (*fail)(struct cecl_net *net);
    /* Frees the transport. Its exchanges must have ended, unless the transport has failed. */
    void (*close)(struct cecl_net *net);
    /* Fails the transport, and ends what it has in other libraries, within a bounded time. Exchanges may
     * be pending; the transport's memory stays. NULL: it has nothing in other libraries. */
    void (*give_up)(struct cecl_net *net);
    /* Ends what the transport has in other libraries, in order and within a bounded time. No exchange is
     * pending, and none follows. NULL: as for give_up. */
    void (*finish)(struct cecl_net *net);
    /* Lends the transport to a child of the communicator: fills in all of *lender except `ranks`. Returns false if
     * the child must find a network of its own; NULL means the same. Local. */
    bool (*lend)(struct cecl_net *net, struct cecl_net_lender *lender);
};

/* The first part of every transport. */
struct cecl_net {
    const struct cecl_net_ops *ops;
    char name[64]; /* for ceclExplain and the log, such as "NCCL 2.28.3" */
    int sms;       /* how many SMs an exchange takes at most */
    /* whether `late` names only the ranks whose bytes are missing; otherwise it names all ranks of the
     * exchange */
    bool is_exact;
    /* whether `exchange` may wait on the host for a peer to which there is no connection yet */
    bool connects;
    /* why exchanges cannot be captured, for messages of errors; equal on all ranks. NULL: they can be */
    const char *why_not_captured;
};

/* pipes.c: through pipes, which the transport owns from then on. Compares the sizes of both ends of a
 * transfer. */
ceclResult_t cecl_net_pipes_open(struct cecl_device *dev, const char *name,
                                 const struct cecl_net_pipes *pipes, int rank, int nranks,
                                 struct cecl_net **net);

/* local.c: the same between pretended nodes of one host, through mailboxes.
 *
 * memory  [cecl_net_local_bytes] zeroed, and shared by all ranks; it must outlive the transport */
size_t cecl_net_local_bytes(int nranks);
ceclResult_t cecl_net_local_open(struct cecl_device *dev, void *memory, int rank, int nranks,
                                 struct cecl_net **net);

/* nccl.c: on GPUs, through sends and receives of an NCCL communicator. It is a new one of the NCCL library that is
 * opened at run time, or a split of the one that the program lends (pipes.h). Collective over the mesh.
 *
 * sms         how many SMs an exchange takes at most; all ranks give the same number
 * timeout_ms  limit of the host's waits in an exchange; 0: none
 * slack_ms    is added to that limit, so that `late` is asked first who is late
 * deadline    of making NCCL's communicator */
ceclResult_t cecl_net_nccl_open(struct cecl_device *dev, struct cecl_mesh *mesh, int rank,
                                int nranks, int sms, int timeout_ms, int slack_ms, int64_t deadline,
                                struct cecl_net **net);

#endif
