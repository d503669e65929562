/* How ranks introduce themselves to each other. Internal to src/api. */
#ifndef CECL_API_INTRODUCE_H
#define CECL_API_INTRODUCE_H

#include "boot/meeting.h"
#include "boot/mesh.h"
#include "comm/comm.h"

#define CECL_HELLO_MAGIC 0x6365636c68656c6cu
#define CECL_HELLO_TEXT_BYTES 200

/* The first data that a rank sends to the others. */
struct cecl_hello {
    uint64_t magic;
    int32_t version, nranks, rank;
    struct cecl_invitation invitation;
    uint64_t host;      /* ranks with equal numbers reach each other's abstract sockets */
    int32_t few_queues; /* there are few hardware queues, so streams soon hold all of them */
    int32_t status;     /* ceclResult_t: this rank's result so far; `text` has the message */
    struct cecl_resolved config;
    struct cecl_gpu_id gpu;
    uint64_t drawn; /* random; all ranks' numbers together identify the communicator */
    char text[CECL_HELLO_TEXT_BYTES]; /* after success: why the GPU cannot be used; or empty */
};
_Static_assert(sizeof(struct cecl_hello) <= CECL_MEETING_PART_BYTES,
               "a rank's introduction fits into its part of an exchange");

/* Introduces the ranks to each other. Collective over `oob`.
 *
 * shared_bytes  the size of the memory that all ranks share (boot/mesh.h)
 * local  an earlier failure of this rank, whose message is recorded. The rank still takes part
 * mesh   [out] set even on failure, if the mesh could be made
 * all    [nranks] the introductions of all ranks; NULL if there was no memory for them; then `local` is that error */
ceclResult_t cecl_introduce(struct cecl_oob *oob, const struct cecl_resolved *config,
                            const struct cecl_tuning tunings[CECL_TUNING_DEVICES],
                            ceclResult_t local, size_t shared_bytes, struct cecl_mesh **mesh,
                            struct cecl_hello *all);

/* Whether the ranks have GPUs that they may use. If not, the message says why. Equal on all ranks. */
ceclResult_t cecl_hellos_gpus_suffice(const struct cecl_hello *all, int nranks);
bool cecl_hellos_share_gpu(const struct cecl_hello *all, int nranks);
/* Checks the introductions. The message is equal on all ranks, and names the rank that differs. */
ceclResult_t cecl_hellos_compare(const struct cecl_hello *all, int nranks);
/* Numbers the hosts, also those that CECL_NODE_SIZE pretends, in the order of their first ranks. Returns how many there
 * are. host: [out, nranks] */
int cecl_hellos_hosts(const struct cecl_hello *all, int nranks, uint16_t *host);

/* by_nccl.c. Makes a communicator over several hosts, after cecl_introduce. Collective. NCCL carries out its calls
 * (src/net). So the communicator has a device and memory of its own, but its mesh, pool and registry contain this rank
 * alone.
 *
 * host  [nranks] the number of each rank's host; `nhosts` is 2 or more */
ceclResult_t cecl_comm_by_nccl(ceclComm_t comm, struct cecl_oob *oob, const struct cecl_hello *all,
                               const uint16_t *host, int nhosts);

#endif
