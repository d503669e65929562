/* Makes a communicator over several hosts; see introduce.h. */
#include "api/introduce.h"

#include <stdatomic.h>
#include <string.h>

#include "api/life.h"
#include "net/net.h"
#include "util/log.h"
#include "util/settings.h"

/* Sets the asynchronous error. The thread of src/net calls this when the communicator fails. */
static void fails(void *context, ceclResult_t result, const char *words)
{
    ceclComm_t comm = context;
    char whole[CECL_MESSAGE_BYTES];
    cecl_fail(result, "%.400s; last call of rank %d: %s", words, comm->rank,
              cecl_comm_last_call(comm));
    cecl_keep_message(whole);
    cecl_comm_set_async(comm, result, result == ceclTimeout ? whole : words);
}

/* Replaces the mesh of all ranks, which was never connected, by a mesh of this rank alone. */
static ceclResult_t mesh_alone(ceclComm_t comm, int64_t deadline)
{
    const struct cecl_oob alone = {
        .nranks = 1, .timeout_ms = comm->config.init_timeout_ms, .deadline = deadline};
    struct cecl_invitation invitation;
    cecl_mesh_joined(comm->mesh);
    cecl_mesh_close(comm->mesh);
    comm->mesh = NULL;
    CECL_TRY(cecl_mesh_new(&alone, comm->config.timeout_ms, 0, &invitation, &comm->mesh));
    const ceclResult_t result =
        cecl_mesh_connect(comm->mesh, &invitation, sizeof(invitation), NULL);
    cecl_mesh_joined(comm->mesh);
    return result;
}

/* Opens the device, and a pool and a registry of this rank alone. */
static ceclResult_t open_alone(ceclComm_t comm, const struct cecl_hello *all, int64_t deadline)
{
    struct cecl_resolved *config = &comm->config;
    CECL_TRY(mesh_alone(comm, deadline));
    CECL_TRY(cecl_setup_device(comm, all, false));
    if (config->pool_bytes < 0)
        config->pool_bytes = (int64_t)cecl_setup_pool_bytes(comm, &all[comm->rank]);
    const struct cecl_pool_config pool = {
        .slice_bytes = (uint64_t)config->pool_bytes,
        .segment_bytes = config->segment_bytes < 0 ? 1 : (uint64_t)config->segment_bytes};
    CECL_TRY(cecl_pool_open(&comm->pool, comm->dev, comm->mesh, 0, 1, &pool));
    return cecl_setup_registry(comm, 0, 1);
}

/* Refuses a policy without SMs, which NCCL's kernels need, and turns CECL_CHECK off. */
static ceclResult_t check_settings(ceclComm_t comm)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (comm->config.sm_policy == CECL_SM_NEVER)
        return cecl_fail(ceclInvalidUsage,
                         "smPolicy (CECL_SM_POLICY) = CECL_SM_NEVER: ranks are on several hosts, "
                         "where NCCL carries calls, on its SMs; CECL_SM_REDUCE_ONLY expected");
    if (comm->config.check && comm->rank == 0 && !atomic_flag_test_and_set(&said))
        cecl_log(CECL_LOG_WARN, comm->rank,
                 "CECL_CHECK compares nothing on communicators over several hosts, which NCCL "
                 "carries");
    comm->config.check = 0;
    return ceclSuccess;
}

static ceclResult_t open_net(ceclComm_t comm, const uint16_t *host, int nhosts)
{
    struct cecl_net *net = comm->net = cecl_net_new(comm->nranks);
    if (!net)
        return cecl_fail(ceclOutOfMemory,
                         "no host memory, or no descriptor, for %d ranks over hosts", comm->nranks);
    memcpy(net->host, host, (size_t)comm->nranks * sizeof(*host));
    net->dev = comm->dev;
    net->rank = comm->rank;
    net->nhosts = nhosts;
    net->timeout_ms = comm->config.timeout_ms;
    net->max_sms = comm->config.max_sms;
    net->fails = fails;
    net->context = comm;
    return ceclSuccess;
}

ceclResult_t cecl_comm_by_nccl(ceclComm_t comm, struct cecl_oob *oob, const struct cecl_hello *all,
                               const uint16_t *host, int nhosts)
{
    char words[CECL_MESSAGE_BYTES];
    CECL_TRY(check_settings(comm)); /* fails on all ranks or on none: no peer waits */
    ceclResult_t local = open_alone(comm, all, oob->deadline);
    /* on the host device, CECL_NCCL_PATH must name a library that stands in for NCCL */
    if (local == ceclSuccess)
        local = comm->dev->kind == CECL_KIND_HOST && !cecl_setting_text(CECL_SET_NCCL_PATH)
                    ? cecl_net_refuse_hosts(nhosts)
                    : open_net(comm, host, nhosts);
    cecl_keep_message(words);
    ceclResult_t opened = oob->open_line ? oob->open_line(oob) : ceclSuccess;
    if (opened == ceclSuccess && oob->line.nranks == 0)
        opened = cecl_fail(ceclInvalidUsage, "ceclCommInitAll over several hosts (CECL_NODE_SIZE): "
                                             "not supported; call ceclCommInitRank for each rank");
    if (opened != ceclSuccess)
        return local != ceclSuccess ? cecl_fail_with(local, words) : opened;
    if (local != ceclSuccess) /* in their first agreement peers learn the error */
        return cecl_lifeline_agree(&oob->line, cecl_fail_with(local, words), oob->deadline, NULL);
    comm->net->line = oob->line;
    oob->line = (struct cecl_lifeline){0};
    return cecl_net_join(comm->net, oob->deadline);
}
