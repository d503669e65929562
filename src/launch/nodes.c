/* Calls over several nodes; see nodes.h. */
#include "launch/nodes.h"

#include "launch/plan.h"
#include "launch/tell.h"
#include "util/alone.h"

/* Why a call needs SMs on some rank, or NULL. The answer is equal on all ranks, so all ranks refuse the call
 * alike. */
static const char *why_copied_locally(const struct cecl_nodes *nodes, const struct cecl_call *call)
{
    if (call->op->family == CECL_FAMILY_MESSAGE || call->op->family == CECL_FAMILY_BARRIER)
        return NULL;
    if (call->view.shape.width > 0)
        return "a rank packs and spreads its own strided blocks";
    for (int n = 0; n < nodes->count; n++)
        if (cecl_node_size(nodes, n) == 1)
            return "a rank that is alone in its node copies its own block";
    return NULL;
}

static ceclResult_t check_sms(const struct cecl_launch *launch, const struct cecl_call *call)
{
    ceclComm_t comm = launch->comm;
    const struct cecl_nodes *nodes = comm->nodes;
    char words[CECL_NODES_WORDS];
    if (call->options.sm_policy != CECL_SM_NEVER)
        return ceclSuccess;
    if (comm->engine.net->sms > 0)
        return cecl_fail(ceclInvalidUsage,
                         "CECL_SM_NEVER: %s over %s needs SMs: the network, %s, takes up to %d",
                         call->op->name, cecl_nodes_words(nodes, words), comm->engine.net->name,
                         comm->engine.net->sms);
    const char *why = why_copied_locally(nodes, call);
    return why ? cecl_fail(ceclInvalidUsage, "CECL_SM_NEVER: %s over %s needs an SM: %s",
                           call->op->name, cecl_nodes_words(nodes, words), why)
               : ceclSuccess;
}

/* A launch with no call that the user made has only copies within this rank, and needs no network. */
static ceclResult_t check_net(const struct cecl_launch *launch)
{
    char words[CECL_NODES_WORDS];
    if (launch->comm->engine.net || launch->ncalls == 0)
        return ceclSuccess;
    return cecl_fail(
        ceclInvalidUsage,
        "%s over %s: ranks are on several hosts, and no transport carries data between them (on "
        "GPUs NCCL does; on the host device MPI does, in communicators of ceclCommInitMpi and "
        "their children)",
        launch->calls[0].op->name, cecl_nodes_words(launch->comm->nodes, words));
}

ceclResult_t cecl_nodes_check(const struct cecl_launch *launch)
{
    const bool moves = launch->kind == CECL_LAUNCH_COLLECTIVES && launch->nfull > 0;
    if (!launch->comm->nodes)
        return ceclSuccess;
    CECL_TRY(check_net(launch));
    for (uint32_t i = 0; i < launch->ncalls; i++)
        CECL_TRY(check_sms(launch, &launch->calls[i]));
    if (!moves)
        return ceclSuccess;
    /* the lowerings refuse calls that they cannot carry out, for example with too little staging */
    const struct cecl_told told = cecl_tell_alone(launch->calls, launch->nfull);
    struct cecl_plan plan;
    CECL_TRY(cecl_plan_make(launch->comm, launch->calls, launch->nfull, &told, &plan));
    cecl_plan_free(&plan);
    return ceclSuccess;
}

ceclResult_t cecl_nodes_check_thread(const struct cecl_launch *launch)
{
    const ceclComm_t comm = launch->comm;
    const char *name = launch->calls[0].op->name;
    if (!comm->nodes || !comm->shares_process || !cecl_thread_is_alone())
        return ceclSuccess;
    if (cecl_mesh_spans_hosts(comm->mesh))
        return cecl_fail(ceclInvalidUsage,
                         "%s: a call over several hosts waits for all other ranks, but this thread "
                         "has several ranks: use a thread for each rank",
                         name);
    return launch->is_grouped
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage,
                           "%s: a call over several nodes waits for all other ranks, but this "
                           "thread has several ranks: put their calls into one group",
                           name);
}
