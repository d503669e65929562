/* Ranks meet by a unique id over TCP, by the caller's callbacks, or as all ranks of one process. */
#include <stdio.h>
#include <stdlib.h>

#include "api/life.h"
#include "boot/meeting.h"
#include "comm/together.h"
#include "launch/group.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/grow.h"

/* A join: one rank's call of ceclCommInitRankConfig, or one rank's part of ceclCommInitAll. */
struct cecl_join {
    struct cecl_join *next;
    ceclComm_t *out; /* the caller's variable for the communicator */
    int nranks, rank;
    struct cecl_meetings meetings; /* for ceclCommInitAll; zeroed: ranks meet by `id` */
    ceclUniqueId id;
    struct cecl_resolved config;
    /* the result of checking the arguments; after an error this rank still joins, so that its peers learn the error */
    ceclResult_t local;
    char words[CECL_MESSAGE_BYTES]; /* the message of `local` */
    ceclComm_t comm;                /* the communicator, once it is made */
};

static ceclResult_t check_nranks(int nranks)
{
    return nranks >= 1 && nranks <= CECL_MAX_RANKS
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument, "nranks %d: 1 to %d expected", nranks,
                           CECL_MAX_RANKS);
}

/* Checks `comm`, `rank` and `config`. After an error a rank that has peers still joins, to tell them the error. */
static ceclResult_t check_rest(const ceclComm_t *comm, int nranks, int rank,
                               const ceclConfig_t *config, struct cecl_resolved *resolved)
{
    CECL_TRY(cecl_config_resolve(config, resolved));
    CECL_TRY(cecl_check_given("comm", comm));
    if (rank < 0 || rank >= nranks)
        return cecl_fail(ceclInvalidArgument, "rank %d: 0 to %d expected", rank, nranks - 1);
    return ceclSuccess;
}

CECL_API ceclResult_t ceclGetUniqueId(ceclUniqueId *id)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_check_given("id", id));
    return cecl_tcp_unique_id(id);
}

/* ---- joining by a unique id, or in ceclCommInitAll */

/* The all-gather of ceclCommInitAll. Its threads meet in a log (boot/meeting.h), as the members of a shrink do. */
static ceclResult_t ask_threads(struct cecl_oob *oob, const void *send, void *recv, size_t bytes)
{
    struct cecl_join *join = oob->context;
    struct cecl_meeting_plan plan = {.meetings = &join->meetings,
                                     .timeout_ms = oob->timeout_ms,
                                     .deadline = oob->deadline,
                                     .part = send,
                                     .bytes = bytes};
    for (int r = 0; r < oob->nranks; r++)
        cecl_rank_set_add(&plan.members, r);
    return cecl_meeting_join(&plan, recv);
}

/* Collective. Makes the communicator of a join. */
static ceclResult_t join_now(void *item)
{
    struct cecl_join *join = item;
    struct cecl_oob oob;
    const ceclResult_t local = join->local;
    if (local != ceclSuccess && join->nranks == 1) /* no peer to tell; the id stays usable */
        return cecl_fail_with(local, join->words);
    cecl_oob_from_id(&oob, &join->id, join->nranks, join->rank, join->config.init_timeout_ms);
    if (join->meetings.seats) {
        oob.context = join;
        oob.allgather = ask_threads;
    }
    if (local != ceclSuccess)
        (void)!cecl_fail_with(local, join->words);
    const ceclResult_t result = cecl_comm_setup(&oob, &join->config, local, &join->comm);
    return result == ceclSuccess || !oob.is_known /* if no peer knows the id, it stays usable */
               ? result
               : cecl_fail(result,
                           "%s; this unique id is used up: make a new one with ceclGetUniqueId",
                           cecl_message());
}

/* ---- joining in a group: joins wait for this thread's ceclGroupEnd, so that one thread can join for several ranks */

static void free_joins(struct cecl_join *join)
{
    while (join) {
        struct cecl_join *next = join->next;
        free(join);
        join = next;
    }
}

/* Keeps a join for the end of the open group. If its arguments are wrong, refuses the group. */
static ceclResult_t keep_join(const struct cecl_join *join)
{
    struct cecl_group *group = cecl_group_current();
    struct cecl_join **end = &group->joins, *kept = malloc(sizeof(*kept));
    ceclResult_t result = join->local;
    if (!kept)
        return cecl_group_refuse_call(
            NULL, cecl_fail(ceclOutOfMemory, "no host memory for a join of a group"));
    while (*end)
        end = &(*end)->next;
    *kept = *join;
    *end = kept;
    group->free_joins = free_joins;
    if (result != ceclSuccess)
        result = cecl_fail_with(result, join->words);
    return cecl_group_refuse_call(NULL, result);
}

static void refuse_all(struct cecl_join *joins, ceclResult_t refused, const char *words)
{
    for (struct cecl_join *join = joins; join; join = join->next) {
        if (join->local != ceclSuccess)
            continue;
        join->local = refused;
        snprintf(join->words, sizeof(join->words), "its group was refused: %.450s", words);
    }
}

static void *next_join(void *join)
{
    return ((struct cecl_join *)join)->next;
}

ceclResult_t cecl_joins_carry_out(struct cecl_join *joins, ceclResult_t refused, const char *words)
{
    char why[CECL_MESSAGE_BYTES];
    if (refused != ceclSuccess)
        refuse_all(joins, refused, words);
    const ceclResult_t result = cecl_together(join_now, joins, next_join);
    cecl_keep_message(why);
    for (struct cecl_join *join = joins; join; join = join->next) {
        if (result == ceclSuccess)
            *join->out = join->comm;
        else if (join->comm)
            cecl_comm_take_back(join->comm);
    }
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, why);
}

/* Finds the calling thread's current GPU, because the join may run on a thread that has none. */
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
    CECL_PUBLIC;
    struct cecl_join join = {.out = comm, .nranks = nranks, .rank = rank, .id = id};
    const bool grouped = cecl_group_is_open();
    const ceclResult_t counted = check_nranks(nranks);

    if (grouped)
        cecl_group_count();
    /* with a wrong number of ranks this rank cannot meet its peers to tell them */
    if (counted != ceclSuccess)
        return grouped ? cecl_group_refuse_call(NULL, counted) : counted;
    join.local = check_rest(comm, nranks, rank, config, &join.config);
    if (join.local == ceclSuccess && grouped)
        join.local = settle_gpu(&join.config, rank);
    if (join.local != ceclSuccess)
        cecl_keep_message(join.words);
    if (grouped)
        return keep_join(&join);
    CECL_TRY(join_now(&join));
    *comm = join.comm;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommInitRank(ceclComm_t *comm, int nranks, ceclUniqueId id, int rank)
{
    CECL_PUBLIC;
    return ceclCommInitRankConfig(comm, nranks, id, rank, NULL);
}

/* ---- the caller's callbacks */

static ceclResult_t ask_caller(struct cecl_oob *oob, const void *send, void *recv, size_t bytes)
{
    const ceclOob_t *callbacks = oob->context;
    if (!recv) /* without memory this rank cannot take part; its peers wait until their deadline */
        return ceclOutOfMemory;
    const int failed = callbacks->allGather(callbacks->context, send, recv, bytes);
    return failed ? cecl_fail(ceclSystemError, "the caller's allGather of %zu bytes returned %d",
                              bytes, failed)
                  : ceclSuccess;
}

/* Over several hosts ranks meet once more, over TCP. Rank 0 makes a unique id, and the callbacks send it to all. */
static ceclResult_t meet_by_id(struct cecl_oob *oob)
{
    struct cecl_id_offer mine = {.id = {{0}}}, *all = oob->offers;
    const char nothing = 0;
    mine.vote = cecl_vote_of(oob->rank == 0 ? cecl_tcp_unique_id(&mine.id) : ceclSuccess);
    ceclResult_t result = ask_caller(oob, &mine, all, sizeof(mine));
    if (result == ceclSuccess)
        result = cecl_votes_count(all, sizeof(mine), 1);
    if (result == ceclSuccess) {
        struct cecl_oob tcp;
        cecl_oob_from_id(&tcp, &all[0].id, oob->nranks, oob->rank, oob->timeout_ms);
        tcp.host = oob->host;
        result = tcp.allgather(&tcp, &nothing, NULL, sizeof(nothing));
        oob->line = tcp.line;
    }
    return result;
}

CECL_API ceclResult_t ceclCommInitOob(ceclComm_t *comm, int nranks, int rank, const ceclOob_t *oob,
                                      const ceclConfig_t *config)
{
    CECL_PUBLIC;
    struct cecl_resolved resolved;

    if (cecl_group_is_open()) {
        cecl_group_count();
        return cecl_group_refuse_call(
            NULL, cecl_fail(ceclInvalidUsage,
                            "it uses the callbacks at once, on the calling thread; call it outside "
                            "the group, or call ceclCommInitRank, which may be in a group"));
    }
    CECL_TRY(check_nranks(nranks));
    if (!oob || !oob->allGather)
        return cecl_fail(ceclInvalidArgument, "oob%s: NULL", oob ? "->allGather" : "");
    ceclResult_t result = check_rest(comm, nranks, rank, config, &resolved);
    CECL_OWNED struct cecl_id_offer *offers = calloc((size_t)nranks, sizeof(*offers));
    struct cecl_oob ours = {.nranks = nranks,
                            .rank = rank,
                            .timeout_ms = resolved.init_timeout_ms,
                            .deadline = cecl_deadline(resolved.init_timeout_ms),
                            .context = (void *)(uintptr_t)oob,
                            .allgather = ask_caller,
                            .open_line = meet_by_id,
                            .offers = offers};
    if (!offers && result == ceclSuccess)
        result = cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", nranks);
    return cecl_comm_setup(&ours, &resolved, result, comm);
}

/* ---- all ranks in one process */

CECL_API ceclResult_t ceclCommInitAll(ceclComm_t *comms, int ndev, const int *devlist)
{
    CECL_PUBLIC;
    struct cecl_resolved resolved;

    CECL_TRY(check_nranks(ndev));
    CECL_TRY(check_rest(comms, ndev, 0, NULL, &resolved));
    for (int r = 0; devlist && r < ndev; r++)
        if (devlist[r] < 0)
            return cecl_fail(ceclInvalidArgument, "devlist[%d] = %d: a CUDA ordinal expected", r,
                             devlist[r]);
    CECL_TRY(cecl_mesh_check_limit(ndev));
    int log = -1;
    size_t bytes = CECL_MEMORY_UNIT;
    CECL_OWNED struct cecl_join *joins = calloc((size_t)ndev, sizeof(*joins));
    ceclResult_t result = joins ? cecl_memory_make(&bytes, &log)
                                : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", ndev);
    for (int r = 0; r < ndev && result == ceclSuccess; r++) {
        joins[r] = (struct cecl_join){.next = r + 1 < ndev ? &joins[r + 1] : NULL,
                                      .out = &comms[r],
                                      .nranks = ndev,
                                      .rank = r,
                                      .config = resolved};
        /* replaces CECL_CUDA_DEVICE, which is only for ranks that join by calls of their own */
        joins[r].config.cuda_device = devlist ? devlist[r] : r;
        result = cecl_meetings_open(&joins[r].meetings, log, bytes, r, ndev);
    }
    if (result == ceclSuccess)
        result = cecl_joins_carry_out(joins, ceclSuccess, NULL);
    for (int r = 0; r < ndev && joins; r++)
        cecl_meetings_close(&joins[r].meetings);
    if (log >= 0)
        cecl_fds_close(log);
    return result;
}
