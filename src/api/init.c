/* The ways to join: a unique id over TCP, the caller's callbacks, and all ranks in one process. All
 * of them call cecl_comm_setup. */
#include <stdbool.h>
#include <stdlib.h>

#include "api/life.h"
#include "api/waiting.h"
#include "comm/together.h"
#include "launch/group.h"
#include "plan/plan.h"
#include "util/clock.h"

static ceclResult_t check_nranks(int nranks)
{
    return nranks >= 1 && nranks <= CECL_MAX_RANKS
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument, "nranks %d: 1 to %d expected", nranks,
                           CECL_MAX_RANKS);
}

/* Checks what may be wrong on one rank alone. That rank still takes part, so that the others learn
 * of it. */
static ceclResult_t check_rest(const ceclComm_t *comm, int nranks, int rank,
                               const ceclConfig_t *config, struct cecl_resolved *resolved)
{
    CECL_TRY(cecl_config_resolve(config, resolved));
    if (!comm)
        return cecl_fail(ceclInvalidArgument, "comm: NULL");
    if (rank < 0 || rank >= nranks)
        return cecl_fail(ceclInvalidArgument, "rank %d: 0 to %d expected", rank, nranks - 1);
    return ceclSuccess;
}

/* Adds to the message what a new try needs: the peers already know that this join failed. */
static void say_used_up(ceclResult_t result)
{
    cecl_fail(result, "%s; this unique id is used up: make a new one with ceclGetUniqueId",
              cecl_message());
}

CECL_API ceclResult_t ceclGetUniqueId(ceclUniqueId *id)
{
    if (!id)
        return cecl_fail(ceclInvalidArgument, "id: NULL");
    return cecl_tcp_unique_id(id);
}

ceclResult_t cecl_join_carry_out(struct cecl_join *join)
{
    struct cecl_oob oob = {0};
    const ceclResult_t local = join->local;
    if (local != ceclSuccess && join->nranks == 1) /* no peer waits: the id can be used again */
        return cecl_fail_with(local, join->words);
    const int timeout = join->config.init_timeout_ms;
    const int64_t deadline = cecl_deadline(timeout);
    ceclResult_t result = cecl_tcp_join(&oob, &join->id, join->nranks, join->rank, timeout);
    if (local != ceclSuccess) /* prefers this rank's own message, which says more than a peer's */
        (void)!cecl_fail_with(local, join->words);
    if (result != ceclSuccess)
        result = local != ceclSuccess ? local : result;
    else
        result = cecl_comm_setup(&oob, &join->config, deadline, local, &join->comm);
    if (result != ceclSuccess && oob.is_known)
        say_used_up(result);
    cecl_oob_close(&oob);
    return result;
}

/* Settles which GPU the caller means. The join itself runs on another thread, which has no current
 * device. */
static ceclResult_t settle_gpu(struct cecl_resolved *config, int rank)
{
    struct cecl_gpu_id gpu;
    char why[CECL_MESSAGE_BYTES];
    if (config->device == CECL_DEVICE_HOST)
        return ceclSuccess;
    CECL_TRY(cecl_cuda_probe(config->cuda_device, rank, &gpu, why, sizeof(why)));
    if (gpu.ordinal >= 0)
        config->cuda_device = gpu.ordinal;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommInitRankConfig(ceclComm_t *comm, int nranks, ceclUniqueId id,
                                             int rank, const ceclConfig_t *config)
{
    struct cecl_join join = {.out = comm, .nranks = nranks, .rank = rank, .id = id};
    const bool grouped = cecl_group_is_open();
    const ceclResult_t counted = check_nranks(nranks);

    /* with a wrong number of ranks this rank cannot even meet the others */
    if (counted != ceclSuccess)
        return grouped ? cecl_group_refuse(counted) : counted;
    join.local = check_rest(comm, nranks, rank, config, &join.config);
    if (join.local == ceclSuccess && grouped)
        join.local = settle_gpu(&join.config, rank);
    if (join.local != ceclSuccess)
        cecl_keep_message(join.words);
    if (grouped)
        return cecl_waiting_join(&join);
    CECL_TRY(cecl_join_carry_out(&join));
    *comm = join.comm;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommInitRank(ceclComm_t *comm, int nranks, ceclUniqueId id, int rank)
{
    return ceclCommInitRankConfig(comm, nranks, id, rank, NULL);
}

CECL_API ceclResult_t ceclCommInitOob(ceclComm_t *comm, int nranks, int rank, const ceclOob_t *oob,
                                      const ceclConfig_t *config)
{
    struct cecl_resolved resolved;
    struct cecl_oob ours = {0};

    if (cecl_group_is_open())
        return cecl_group_refuse(cecl_fail(
            ceclInvalidUsage, "ceclCommInitOob (and ceclCommInitMpi) in a group: it uses callbacks "
                              "of the calling thread at once; call it outside the group, or "
                              "ceclCommInitRank, which may be grouped"));
    CECL_TRY(check_nranks(nranks));
    if (!oob || !oob->allGather || !oob->barrier)
        return cecl_fail(ceclInvalidArgument, "oob%s: NULL",
                         !oob              ? ""
                         : !oob->allGather ? "->allGather"
                                           : "->barrier");
    const ceclResult_t local = check_rest(comm, nranks, rank, config, &resolved);
    cecl_oob_from_callbacks(&ours, oob, nranks, rank, resolved.init_timeout_ms);
    ceclResult_t result =
        cecl_comm_setup(&ours, &resolved, cecl_deadline(resolved.init_timeout_ms), local, comm);
    cecl_oob_close(&ours);
    return result;
}

/* ---- all ranks in one process */

struct member {
    struct cecl_oob_group *group;
    int rank, device;
    ceclComm_t comm;
};

static ceclResult_t join_as_member(void *argument)
{
    struct member *me = argument;
    struct cecl_oob oob = {0};
    struct cecl_resolved resolved;
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;

    config.cudaDevice = me->device;
    cecl_oob_from_group(&oob, me->group, me->rank);
    ceclResult_t local = cecl_config_resolve(&config, &resolved);
    resolved.cuda_device =
        /* the caller's list decides; CECL_CUDA_DEVICE is for ranks that choose alone */
        me->device;
    const ceclResult_t result =
        cecl_comm_setup(&oob, &resolved, cecl_deadline(resolved.init_timeout_ms), local, &me->comm);
    cecl_oob_close(&oob);
    return result;
}

static ceclResult_t join_all(struct member *members, int nranks)
{
    struct cecl_task *tasks = calloc((size_t)nranks, sizeof(*tasks));
    if (!tasks)
        return cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", nranks);
    for (int r = 0; r < nranks; r++)
        tasks[r] = (struct cecl_task){.run = join_as_member, .argument = &members[r]};
    const ceclResult_t result = cecl_together(tasks, (uint32_t)nranks);
    free(tasks);
    return result;
}

CECL_API ceclResult_t ceclCommInitAll(ceclComm_t *comms, int ndev, const int *devlist)
{
    struct cecl_resolved resolved;
    struct cecl_oob_group *group = NULL;

    CECL_TRY(check_nranks(ndev));
    CECL_TRY(check_rest(comms, ndev, 0, NULL, &resolved));
    for (int r = 0; devlist && r < ndev; r++)
        if (devlist[r] < 0)
            return cecl_fail(ceclInvalidArgument, "devlist[%d] = %d: a CUDA ordinal expected", r,
                             devlist[r]);
    struct member *members = calloc((size_t)ndev, sizeof(*members));
    if (!members)
        return cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", ndev);

    ceclResult_t result = cecl_oob_group_create(ndev, resolved.init_timeout_ms, &group);
    if (result == ceclSuccess) {
        for (int r = 0; r < ndev; r++)
            members[r] =
                (struct member){.group = group, .rank = r, .device = devlist ? devlist[r] : r};
        result = join_all(members, ndev);
        cecl_oob_group_destroy(group);
    }
    for (int r = 0; r < ndev && result == ceclSuccess; r++)
        comms[r] = members[r].comm;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    for (int r = 0; r < ndev && result != ceclSuccess; r++)
        if (members[r].comm)
            cecl_comm_take_back(members[r].comm);
    free(members);
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}
