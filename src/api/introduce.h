/* Ranks introduce themselves to each other. Internal to src/api. */
#ifndef CECL_API_INTRODUCE_H
#define CECL_API_INTRODUCE_H

#include "boot/meeting.h"
#include "boot/mesh.h"
#include "comm/comm.h"

#define CECL_HELLO_MAGIC 0x6365636c68656c6cu
#define CECL_HELLO_TEXT_BYTES 200

/* An introduction: the first data that a rank sends to its peers. */
struct cecl_hello {
    uint64_t magic;
    int32_t version, nranks, rank;
    struct cecl_invitation invitation;
    uint64_t host;      /* the number of the rank's host: see find_host() */
    int32_t few_queues; /* see has_few_queues() in introduce.c */
    int32_t status;     /* ceclResult_t of the rank; after an error `text` has its message */
    struct cecl_resolved config;
    struct cecl_gpu_id gpu;
    uint64_t drawn; /* a random number; all ranks' numbers together give the communicator's id */
    char text[CECL_HELLO_TEXT_BYTES]; /* after success: why the rank has no usable GPU, or empty */
};
_Static_assert(sizeof(struct cecl_hello) <= CECL_MEETING_PART_BYTES,
               "a rank's introduction fits into its part of an exchange");

/* Introduces the ranks to each other. Collective over `oob`.
 *
 * shared_bytes  the size of the memory that all ranks share (boot/mesh.h)
 * local  the result so far; after an error, whose message is recorded, this rank still takes part
 * mesh   [out] this rank's mesh, also after an error; NULL if it could not be made
 * all    [nranks] room for the introductions of all ranks; may be NULL if `local` is an error */
ceclResult_t cecl_introduce(struct cecl_oob *oob, const struct cecl_resolved *config,
                            const struct cecl_tuning tunings[CECL_TUNING_DEVICES],
                            ceclResult_t local, size_t shared_bytes, struct cecl_mesh **mesh,
                            struct cecl_hello *all);

/* Returns an error if a rank has no usable GPU, or may not use the GPU of another rank. Equal on all ranks. */
ceclResult_t cecl_hellos_gpus_suffice(const struct cecl_hello *all, int nranks);
bool cecl_hellos_share_gpu(const struct cecl_hello *all, int nranks);
/* Checks that no rank has failed, and that ranks agree on versions, numbers and settings. Result and message are equal
 * on all ranks. */
ceclResult_t cecl_hellos_compare(const struct cecl_hello *all, int nranks);
/* Numbers the hosts in the order of their first ranks. With CECL_NODE_SIZE=n, every n ranks count as a host. Returns
 * the number of hosts. host: [out, nranks] each rank's host */
int cecl_hellos_hosts(const struct cecl_hello *all, int nranks, uint16_t *host);

/* by_nccl.c. Makes a communicator over several hosts, after cecl_introduce. Collective. NCCL makes its calls (src/net),
 * so its mesh, pool and registry are those of a single rank.
 *
 * host  [nranks] the number of each rank's host; `nhosts` is 2 or more */
ceclResult_t cecl_comm_by_nccl(ceclComm_t comm, struct cecl_oob *oob, const struct cecl_hello *all,
                               const uint16_t *host, int nhosts);

#endif
