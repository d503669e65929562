/* The ways to join: a unique id over TCP, the caller's callbacks, and all ranks in one process. All
 * of them call cecl_comm_setup. */
#include <stdbool.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "plan/plan.h"
#include "util/clock.h"

static ceclResult_t check_nranks(int nranks)
{
    return nranks >= 1 && nranks <= CECL_MAX_RANKS
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument, "nranks %d: 1 to %d expected", nranks,
                           CECL_MAX_RANKS);
}

/* Checks what may be wrong on one rank while others wait for it. That rank still takes part, so
 * that the others learn of it. */
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

/* Adds to the message what a new try needs, because the peers already know that this join
 * failed. */
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

CECL_API ceclResult_t ceclCommInitRankConfig(ceclComm_t *comm, int nranks, ceclUniqueId id,
                                             int rank, const ceclConfig_t *config)
{
    struct cecl_resolved resolved;
    struct cecl_oob oob = {0};

    CECL_TRY(check_nranks(nranks));
    const ceclResult_t local = check_rest(comm, nranks, rank, config, &resolved);
    if (local != ceclSuccess && nranks == 1) /* no other rank waits, so the id can be used again */
        return local;
    const int64_t deadline = cecl_deadline(resolved.init_timeout_ms);
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    ceclResult_t result = cecl_tcp_join(&oob, &id, nranks, rank, resolved.init_timeout_ms);
    if (local != ceclSuccess) /* this rank's own message says more than a peer's */
        cecl_fail_with(local, words);
    if (result != ceclSuccess)
        result = local != ceclSuccess ? local : result;
    else
        result = cecl_comm_setup(&oob, &resolved, deadline, local, comm);
    if (result != ceclSuccess && oob.is_known)
        say_used_up(result);
    cecl_oob_close(&oob);
    return result;
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
    pthread_t thread;
    struct cecl_oob_group *group;
    int rank, device;
    ceclComm_t comm;
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
};

static void *join_as_member(void *argument)
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
    me->result =
        cecl_comm_setup(&oob, &resolved, cecl_deadline(resolved.init_timeout_ms), local, &me->comm);
    cecl_oob_close(&oob);
    cecl_keep_message(me->words);
    return NULL;
}

/* The result of the call: as far as this can be known, that of the member whose failure made the
 * others fail. */
static ceclResult_t verdict(const struct member *members, int count)
{
    const struct member *worst = NULL;
    for (int r = 0; r < count; r++) {
        const ceclResult_t result = members[r].result;
        const bool is_cause = result != ceclRemoteError && result != ceclTimeout;
        if (result != ceclSuccess && is_cause)
            return cecl_fail_with(result, members[r].words);
        if (result != ceclSuccess && !worst)
            worst = &members[r];
    }
    return worst ? cecl_fail_with(worst->result, worst->words) : ceclSuccess;
}

/* Runs one thread for each member, and waits for all. */
static ceclResult_t join_all(struct member *members, int nranks)
{
    int started = 0;
    ceclResult_t result = ceclSuccess;
    while (started < nranks && result == ceclSuccess) {
        const int error =
            pthread_create(&members[started].thread, NULL, join_as_member, &members[started]);
        if (error)
            result =
                cecl_fail(ceclSystemError, "pthread_create for rank %d: error %d", started, error);
        started += !error;
    }
    for (int r = started; r < nranks; r++) { /* ends the waits of the members that run */
        struct cecl_oob oob = {0};
        cecl_oob_from_group(&oob, members[r].group, r);
        cecl_oob_close(&oob);
    }
    for (int r = 0; r < started; r++)
        pthread_join(members[r].thread, NULL);
    return result != ceclSuccess ? result : verdict(members, started);
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
            ceclCommAbort(members[r].comm);
    free(members);
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}
