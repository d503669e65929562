/* How blocks leave the node: the table of what a transport does.
 *
 * A communicator over several nodes opens one transport. A plan's EXCHANGE hands it sends and receives of
 * this rank as one group, without order among them; exchanges of a stream run one after the other. Between
 * two ranks the k-th send of one meets the k-th receive of the other. An exchange ends once each rank that it
 * is with has begun its own exchange with this rank, whatever other exchanges that rank has.
 *
 *     open -> exchange ... exchange -> finish -> close      (close does what finish would have done)
 *                   \-> fail: exchanges end at once, without their bytes
 *
 * Two transports implement it: pipes.c on the host device, by mailboxes between pretended nodes of one host
 * (local.c) or by MPI (src/api/mpi), and nccl.c on GPUs. A transport that puts into its peers' windows would
 * need one more function here: to register one.
 * A transport knows no plan and no collective. Which thread may call what: docs/architecture.md, "Threads". */
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
    /* Enqueues an exchange. The caller may reuse the list once the function returns. A transport may have to
     * connect to a peer first; then it waits on the host until the peer enqueues its exchange, too, or until
     * its time limit. */
    ceclResult_t (*exchange)(struct cecl_net *net, ceclStream_t work,
                             const struct cecl_net_transfer *list, uint32_t count);
    /* Returns whether an exchange runs, and adds the ranks that it waits for to `late`. Adds to *moved a number
     * that changes whenever bytes move. Any thread. */
    bool (*late)(struct cecl_net *net, struct cecl_rank_list *late, uint32_t *moved);
    /* The transport's asynchronous error, with its message recorded, or ceclSuccess. Any thread. */
    ceclResult_t (*error)(struct cecl_net *net);
    /* Exchanges end from now on without having moved their bytes, those that run included. Any thread. */
    void (*fail)(struct cecl_net *net);
    /* Frees the transport. Its exchanges have ended, or it has failed. */
    void (*close)(struct cecl_net *net);
    /* Fails, and ends what the transport has in other libraries, within bounds. Exchanges may be pending; the
     * transport's memory stays. NULL: it has nothing there, as for `finish`. */
    void (*give_up)(struct cecl_net *net);
    /* No exchange is pending, and none follows: ends what the transport has in other libraries, in order and
     * within bounds. */
    void (*finish)(struct cecl_net *net);
    /* Lends it to a child of the communicator: fills in *lender, except its `ranks`. Returns false where the child
     * finds a network of its own; so does NULL. Local. */
    bool (*lend)(struct cecl_net *net, struct cecl_net_lender *lender);
};

/* The first part of every transport. */
struct cecl_net {
    const struct cecl_net_ops *ops;
    char name[64]; /* for ceclExplain and the log, such as "NCCL 2.28.3" */
    int sms;       /* how many SMs an exchange takes at most */
    /* whether `late` names only the ranks whose bytes are missing; otherwise it names all of the exchange */
    bool is_exact;
    /* whether an exchange may wait on the host, for a peer to which there is no connection yet */
    bool connects;
};

/* pipes.c: by pipes, which are the transport's from then on. Sizes of both ends are compared. */
ceclResult_t cecl_net_pipes_open(struct cecl_device *dev, const char *name,
                                 const struct cecl_net_pipes *pipes, int rank, int nranks,
                                 struct cecl_net **net);

/* local.c: the same between pretended nodes of one host, by mailboxes.
 *
 * memory  of cecl_net_local_bytes, zeroed, shared by all ranks; it must outlive the transport */
size_t cecl_net_local_bytes(int nranks);
ceclResult_t cecl_net_local_open(struct cecl_device *dev, void *memory, int rank, int nranks,
                                 struct cecl_net **net);

/* nccl.c: on GPUs, by the sends and receives of NCCL, which is opened at run time, or a split of what the program
 * lends (pipes.h). Collective over the mesh.
 *
 * timeout_ms  limit of the host's waits in an exchange; 0: none
 * deadline    of making NCCL's communicator */
ceclResult_t cecl_net_nccl_open(struct cecl_device *dev, struct cecl_mesh *mesh, int rank,
                                int nranks, int timeout_ms, int64_t deadline,
                                struct cecl_net **net);

#endif
