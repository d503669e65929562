/* Chooses the transport that carries a communicator's data between its nodes; see transport.h. */
#include "api/transport.h"

#include "util/clock.h"

/* Whether NCCL carries data between nodes: on GPUs, and if a program that runs on NCCL lends its own NCCL. */
static bool has_nccl_net(ceclComm_t comm)
{
    const struct cecl_net_lender *lender = cecl_net_lent();
    return comm->nodes && (comm->dev->kind == CECL_KIND_CUDA || (lender && lender->nccl));
}

/* Whether MPI carries data between nodes, through pipes. ceclCommInitMpi lends these pipes; a child
 * communicator always uses its parent's pipes if the parent has any. */
static bool has_lent_net(ceclComm_t comm)
{
    const bool is_child = comm->config.node >= 0, lent = cecl_net_lent() != NULL;
    if (!comm->nodes || has_nccl_net(comm))
        return false;
    return is_child
               ? lent
               : comm->config.net == CECL_NET_MPI || (lent && cecl_mesh_spans_hosts(comm->mesh));
}

/* Whether shared memory carries data between nodes: they are pretended nodes of one host, and the ranks run
 * on the host device. */
static bool has_local_net(ceclComm_t comm)
{
    return comm->nodes && !has_nccl_net(comm) && !cecl_mesh_spans_hosts(comm->mesh) &&
           !has_lent_net(comm);
}

size_t cecl_transport_shared_bytes(ceclComm_t comm)
{
    return has_local_net(comm) ? cecl_net_local_bytes(comm->nranks) : 0;
}

/* Collective. Either all ranks open pipes, or none does. */
static ceclResult_t open_lent_net(ceclComm_t comm)
{
    const struct cecl_net_lender *lender = cecl_net_lent();
    struct cecl_net_pipes pipes = {.context = NULL};
    ceclResult_t result = ceclSuccess;
    if (!lender)
        result = cecl_fail(ceclInvalidUsage, "CECL_NET=mpi: only ceclCommInitMpi makes a "
                                             "communicator that uses MPI between nodes");
    else if (lender->check)
        result = lender->check(lender->context);
    CECL_TRY(cecl_mesh_agree(comm->mesh, result));
    result = lender->open(lender, comm->mesh, comm->rank, comm->nranks, &pipes);
    if (result == ceclSuccess) {
        result = cecl_net_pipes_open(comm->dev, lender->name, &pipes, comm->rank, comm->nranks,
                                     &comm->engine.net);
        if (result != ceclSuccess)
            pipes.close(pipes.context);
    }
    return cecl_mesh_agree(comm->mesh, result);
}

/* Without MPI, ranks of the host device on several hosts have no transport, and launch/nodes.c refuses their
 * calls. */
static ceclResult_t open_by_kind(ceclComm_t comm)
{
    struct cecl_net **net = &comm->engine.net;
    if (has_nccl_net(comm))
        return cecl_net_nccl_open(comm->dev, comm->mesh, comm->rank, comm->nranks,
                                  (int)cecl_tuning_get(&comm->tuning, CECL_TUNE_NET_SMS),
                                  comm->config.timeout_ms, CECL_WATCH_SLACK_MS + CECL_WATCH_TICK_MS,
                                  cecl_deadline(comm->config.init_timeout_ms), net);
    if (has_lent_net(comm))
        return open_lent_net(comm);
    if (!has_local_net(comm))
        return ceclSuccess;
    return cecl_mesh_agree(
        comm->mesh, cecl_net_local_open(comm->dev, cecl_shared_at(&comm->shared, CECL_SHARED_NET),
                                        comm->rank, comm->nranks, net));
}

ceclResult_t cecl_transport_open(ceclComm_t comm)
{
    char words[CECL_NODES_WORDS];
    ceclResult_t result = ceclSuccess;
    comm->engine.nodes = comm->engine.flags.nodes = comm->nodes;
    if (comm->dev->kind == CECL_KIND_CUDA && comm->shares_process)
        result = cecl_fail(ceclInvalidUsage, "%s, with GPUs: a process for each rank expected",
                           cecl_nodes_words(comm->nodes, words));
    CECL_TRY(cecl_mesh_agree(comm->mesh, result));
    return open_by_kind(comm);
}
