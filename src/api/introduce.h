/* How ranks introduce themselves to each other. Internal to src/api. */
#ifndef CECL_API_INTRODUCE_H
#define CECL_API_INTRODUCE_H

#include "boot/meeting.h"
#include "boot/mesh.h"
#include "comm/comm.h"

#define CECL_HELLO_MAGIC 0x6365636c68656c6cu
#define CECL_HELLO_TEXT_BYTES 200

/* What a rank first sends to the others. */
struct cecl_hello {
    uint64_t magic;
    int32_t version, nranks, rank;
    struct cecl_invitation invitation;
    uint64_t host; /* ranks with equal numbers can reach each other's abstract sockets */
    struct cecl_reach reach;
    int32_t few_queues; /* cecl_queues_are_few */
    int32_t status;     /* ceclResult_t of what this rank did so far; `text` has the message */
    struct cecl_resolved config;
    struct cecl_gpu_id gpu;
    uint64_t drawn; /* random; all ranks' numbers together name the communicator */
    char text[CECL_HELLO_TEXT_BYTES]; /* after success: why the GPU cannot be used, or empty */
};
_Static_assert(sizeof(struct cecl_hello) <= CECL_MEETING_PART_BYTES,
               "it is a rank's part of every oob");

/* The introduction, after which the ranks are connected. Collective over `oob`.
 *
 * local  an earlier failure of this rank, with its message recorded: it takes part all the same
 * mesh   [out] set also on failure, if it could be made
 * all    [nranks] what the ranks told; NULL where there was no memory for it, which `local` says */
ceclResult_t cecl_introduce(struct cecl_oob *oob, const struct cecl_resolved *config,
                            const struct cecl_tuning tunings[CECL_TUNING_DEVICES],
                            ceclResult_t local, struct cecl_mesh **mesh, struct cecl_hello *all);

/* Whether the ranks have GPUs that they may take; the message says why not. Equal on all ranks. */
ceclResult_t cecl_hellos_gpus_suffice(const struct cecl_hello *all, int nranks);
bool cecl_hellos_share_gpu(const struct cecl_hello *all, int nranks);
/* Ranks in this process, this one included. */
int cecl_hellos_here(const struct cecl_hello *all, int rank, int nranks);
/* Checks what ranks told of themselves. The message, which is equal on all ranks, names the odd one. */
ceclResult_t cecl_hellos_compare(const struct cecl_hello *all, int nranks);
/* nodes.c. Numbers the hosts of ranks, in the order of their first ranks, and returns how many there are.
 * host  [nranks] out */
int cecl_hellos_hosts(const struct cecl_hello *all, int nranks, uint16_t *host);
/* Whether all ranks have one CECL_NODE_SIZE, whose nodes lie within hosts; the message names the odd ones. */
ceclResult_t cecl_hellos_agree_on_nodes(const struct cecl_hello *all, int nranks);
/* Makes the layout of the ranks over nodes, which the caller frees. *nodes: NULL for a single node. */
ceclResult_t cecl_hellos_nodes(const struct cecl_hello *all, int nranks, struct cecl_nodes **nodes);
/* Whether a rank has few hardware queues. */
bool cecl_hellos_have_few_queues(const struct cecl_hello *all, int nranks);

#endif
