/* ceclCommSplit and ceclCommShrink. Both find out which ranks are members of the new communicator. Then the members
 * join as in init.c. A split's all-gather uses the parent's mesh on one host, and TCP over several hosts. A shrink's
 * all-gather uses the parent's shared memory, because the parent's mesh may be broken. */
#include <stdlib.h>
#include <string.h>

#include "api/introduce.h"
#include "api/life.h"
#include "boot/meeting.h"
#include "boot/rank_list.h"
#include "launch/exchange.h"
#include "launch/group.h"
#include "launch/launcher.h"
#include "net/net.h"
#include "util/clock.h"
#include "util/log.h"

_Static_assert(CECL_MAX_RANKS <= CECL_MEETING_RANKS, "a set of ranks can have every rank");

/* The members of a new communicator, and how they introduce themselves. */
struct members {
    ceclComm_t parent;
    int *parent_ranks; /* [count] ranks in the parent, in the order of the new ranks */
    int count, rank;   /* rank: this rank's number in the new communicator */
    char *parts;       /* room for introductions or ids, in the order of the parent's ranks */
    bool is_unmet;     /* the exchange failed; its message has the parent's rank numbers */
    struct cecl_meeting_plan meeting;
};

/* Sets all settings of a new communicator, even after an error: the time limit is needed to tell the peers. */
static ceclResult_t settle(ceclComm_t comm, const ceclConfig_t *config, struct cecl_resolved *out)
{
    const bool host = comm->dev->kind == CECL_KIND_HOST;
    const int32_t device = host ? CECL_DEVICE_HOST : CECL_DEVICE_CUDA;
    ceclResult_t result = ceclSuccess;

    *out = comm->config;
    if (config)
        result = cecl_config_resolve(config, out);
    if (result == ceclSuccess && out->device != CECL_DEVICE_AUTO && out->device != device)
        result = cecl_fail(ceclInvalidArgument,
                           "config.device (CECL_DEVICE) = %d: %d, the parent's device, or "
                           "CECL_DEVICE_AUTO expected",
                           (int)out->device, (int)device);
    out->device = device;
    out->node_size = 0; /* ranks are on the hosts that the parent knows: see parent_host */
    out->parent_host = comm->net ? comm->net->host[comm->rank] : 0;
    out->cuda_device = comm->dev->ordinal;
    return result;
}

/* Rewrites the recorded message with the parent's rank numbers, because the program has no new communicator. */
static ceclResult_t name_as_in_parent(const struct members *members, ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_words_for_parent(cecl_message(), members->parent_ranks, members->count, words);
    return cecl_fail_with(result, words);
}

static void free_members(struct members *members)
{
    free(members->parent_ranks);
    free(members->parts);
}

static ceclResult_t make_room(struct members *out, int nranks)
{
    out->parent_ranks = calloc((size_t)nranks, sizeof(int));
    out->parts = malloc((size_t)nranks * CECL_OOB_PART_BYTES);
    return out->parent_ranks && out->parts
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", nranks);
}

/* Makes the new communicator. Collective over the members. */
static ceclResult_t join(struct members *members, struct cecl_oob *oob,
                         const struct cecl_resolved *config, ceclComm_t *newcomm)
{
    ceclComm_t child = NULL;
    oob->nranks = members->count;
    oob->rank = members->rank;
    oob->timeout_ms = config->init_timeout_ms;
    ceclResult_t result = cecl_comm_setup(oob, config, ceclSuccess, &child);
    if (result == ceclSuccess) {
        child->parent_ranks = members->parent_ranks;
        members->parent_ranks = NULL;
        cecl_registrations_inherit(child, members->parent);
        cecl_host_inherit(child->dev, members->parent->dev);
        *newcomm = child;
    } else if (!members->is_unmet) {
        result = name_as_in_parent(members, result);
    }
    return result;
}

/* ---- split */

struct choice {
    struct cecl_verdict verdict;
    int32_t color, key;
};
_Static_assert(sizeof(struct choice) <= CECL_EXCHANGE_BYTES, "the launcher has room for it");

static ceclResult_t check_split(ceclComm_t comm, int color, ceclComm_t *newcomm,
                                const ceclConfig_t *config, struct cecl_resolved *resolved)
{
    CECL_TRY(settle(comm, config, resolved));
    if (!newcomm)
        return cecl_fail(
            ceclInvalidArgument,
            "newcomm: NULL; the address of a handle expected, even with CECL_SPLIT_NOCOLOR");
    if (color < 0 && color != CECL_SPLIT_NOCOLOR)
        return cecl_fail(ceclInvalidArgument,
                         "color %d: 0 or more, or CECL_SPLIT_NOCOLOR (%d) expected", color,
                         CECL_SPLIT_NOCOLOR);
    return ceclSuccess;
}

/* Whether rank `a` gets a lower number than rank `b` of the same color. */
static bool comes_before(const struct choice *all, int a, int b)
{
    return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
}

static void list_members(ceclComm_t comm, const struct choice *all, struct members *out)
{
    const int color = all[comm->rank].color;
    for (int r = 0; r < comm->nranks; r++) {
        int place = 0;
        if (all[r].color != color)
            continue;
        for (int q = 0; q < comm->nranks; q++)
            place += all[q].color == color && comes_before(all, q, r);
        out->parent_ranks[place] = r;
        out->count++;
        if (r == comm->rank)
            out->rank = place;
    }
}

/* Finds the members of this rank's color by an exchange of all ranks of the parent. local: the result of checking this
 * rank's own arguments; if it is an error, its message must be recorded. */
static ceclResult_t find_members(ceclComm_t comm, int color, int key, ceclResult_t local,
                                 struct members *out)
{
    struct choice mine = {.color = color, .key = key};
    if (local == ceclSuccess)
        local = make_room(out, comm->nranks);
    CECL_TRY(cecl_exchange(comm, "ceclCommSplit", "split", &mine.verdict, sizeof(mine), local));
    list_members(comm, comm->launcher->exchange, out);
    return ceclSuccess;
}

/* Over several hosts the members of each color join by a unique id, which the color's first member makes. */
static ceclResult_t exchange_ids(struct members *members, bool joins, ceclUniqueId *id)
{
    ceclComm_t comm = members->parent;
    struct cecl_id_offer mine = {.id = {{0}}}, *all = (void *)members->parts;
    mine.vote = cecl_vote_of(joins && members->rank == 0
                                 ? cecl_tcp_unique_id_beside(&comm->net->line, &mine.id)
                                 : ceclSuccess);
    CECL_TRY(cecl_gather(comm, "ids", &mine, all, sizeof(mine)));
    CECL_TRY(cecl_votes_count(all, sizeof(mine), comm->nranks));
    if (joins)
        *id = all[members->parent_ranks[0]].id;
    return ceclSuccess;
}

/* The all-gather of a split: all ranks of the parent exchange introductions, and each takes those of its own color. */
static ceclResult_t exchange_in_mesh(struct cecl_oob *oob, const void *send, void *recv,
                                     size_t bytes)
{
    struct members *members = oob->context;
    const ceclResult_t met = cecl_gather(members->parent, "join", send, members->parts, bytes);
    members->is_unmet = met != ceclSuccess;
    oob->deadline = cecl_deadline(oob->timeout_ms); /* anew: other colors may come late */
    for (int m = 0; m < members->count && recv && met == ceclSuccess; m++)
        memcpy((char *)recv + (size_t)m * bytes,
               members->parts + (size_t)members->parent_ranks[m] * bytes, bytes);
    return met;
}

/* The error of a join that failed with `joined`: the parent's error if the parent has failed. Members that gave up
 * because of the parent's failure may not have told the others. */
static ceclResult_t ask_parent(ceclComm_t comm, ceclResult_t joined)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    const ceclResult_t heard = cecl_comm_hear(comm);
    return heard == ceclSuccess ? cecl_fail_with(joined, words) : heard;
}

static ceclResult_t split(ceclComm_t comm, int color, int key, ceclComm_t *newcomm,
                          const ceclConfig_t *config)
{
    const bool joins = color != CECL_SPLIT_NOCOLOR;
    struct cecl_resolved resolved;
    struct members members = {.parent = comm};
    struct cecl_oob oob = {.context = &members, .allgather = exchange_in_mesh};
    const struct cecl_hello nothing = {0};
    ceclUniqueId id;

    const ceclResult_t local = check_split(comm, color, newcomm, config, &resolved);
    ceclResult_t result = find_members(comm, color, key, local, &members);
    oob.deadline = cecl_deadline(resolved.init_timeout_ms);
    if (result == ceclSuccess && comm->net) {
        result = exchange_ids(&members, joins, &id);
        cecl_oob_from_id(&oob, &id, members.count, members.rank, resolved.init_timeout_ms);
    }
    if (result == ceclSuccess && joins) {
        result = join(&members, &oob, &resolved, newcomm);
        if (result == ceclRemoteError)
            result = ask_parent(comm, result);
    } else if (result == ceclSuccess) {
        *newcomm = NULL;
        if (!comm->net)
            result = exchange_in_mesh(&oob, &nothing, NULL, sizeof(nothing));
    }
    free_members(&members);
    return result;
}

CECL_API ceclResult_t ceclCommSplit(ceclComm_t comm, int color, int key, ceclComm_t *newcomm,
                                    const ceclConfig_t *config)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    /* refused without an exchange: peers may be ranks of this thread, which cannot take part while it is here */
    CECL_TRY(cecl_group_check_outside("ceclCommSplit", ""));
    CECL_INSIDE(comm, "ceclCommSplit");
    return cecl_comm_add_cure(comm, split(comm, color, key, newcomm, config),
                              "ceclCommSplit needs a thread for each rank");
}

/* ---- shrink */

/* If the parent has failed, waits until none of its calls is pending on this rank: a call whose waits were ended still
 * copies to peers, into memory that the new communicator's calls may use next. All members know of the failure by now:
 * one that knew told the others before they met. No member returns from the shrink before all have waited and
 * joined. */
static void end_failed_calls(ceclComm_t comm, int64_t deadline)
{
    const int half = cecl_ms_left(deadline) / 2 + 1,
              ms = half < CECL_RELEASED_MS ? half : CECL_RELEASED_MS;
    if (cecl_comm_hear(comm) != ceclSuccess && !cecl_comm_end_pending(comm, cecl_deadline(ms)))
        cecl_log(CECL_LOG_WARN, comm->rank,
                 "ceclCommShrink: calls of the failed communicator did not end within %d ms after "
                 "their release, and may still write to peers' buffers",
                 ms);
}

/* The all-gather of a shrink: members meet in the parent's shared memory. */
static ceclResult_t meet(struct cecl_oob *oob, const void *send, void *recv, size_t bytes)
{
    struct members *members = oob->context;
    members->meeting.part = send;
    members->meeting.bytes = bytes;
    const ceclResult_t met = cecl_meeting_join(&members->meeting, recv);
    members->is_unmet = met != ceclSuccess;
    CECL_TRY(met);
    end_failed_calls(members->parent, oob->deadline);
    return ceclSuccess;
}

/* Fills in `all` for list_members(): color 0 for the ranks that stay; after an error, color 0 for all ranks. */
static ceclResult_t read_list(ceclComm_t comm, const int *excluded, int count, struct choice *all)
{
    struct cecl_rank_set out = {{0}};
    memset(all, 0, (size_t)comm->nranks * sizeof(*all));
    if (count < 0 || count >= comm->nranks)
        return cecl_fail(ceclInvalidArgument, "excludeCount %d: 0 to %d expected", count,
                         comm->nranks - 1);
    if (count > 0 && !excluded)
        return cecl_fail(
            ceclInvalidArgument,
            "excludeRanks: NULL, but excludeCount is %d; a list of as many ranks expected", count);
    for (int i = 0; i < count; i++) {
        if (excluded[i] < 0 || excluded[i] >= comm->nranks)
            return cecl_fail(ceclInvalidArgument, "excludeRanks[%d] = %d: 0 to %d expected", i,
                             excluded[i], comm->nranks - 1);
        if (cecl_rank_set_has(&out, excluded[i]))
            return cecl_fail(ceclInvalidArgument, "excludeRanks[%d] = %d: each rank once expected",
                             i, excluded[i]);
        cecl_rank_set_add(&out, excluded[i]);
    }
    for (int i = 0; i < count; i++)
        all[excluded[i]].color = CECL_SPLIT_NOCOLOR;
    return ceclSuccess;
}

static ceclResult_t check_shrink(ceclComm_t comm, const int *excluded, int count,
                                 ceclComm_t *newcomm, const ceclConfig_t *config,
                                 struct choice *all, struct cecl_resolved *resolved)
{
    CECL_TRY(read_list(comm, excluded, count, all));
    if (all[comm->rank].color != 0)
        return cecl_fail(
            ceclInvalidArgument,
            "excludeRanks has rank %d, which makes this call; only ranks that stay make it",
            comm->rank);
    if (!newcomm)
        return cecl_fail(ceclInvalidArgument, "newcomm: NULL; the address of a handle expected");
    return settle(comm, config, resolved);
}

static ceclResult_t shrink(ceclComm_t comm, const int *excluded, int count, ceclComm_t *newcomm,
                           const ceclConfig_t *config)
{
    struct cecl_resolved resolved = comm->config;
    struct members members = {.parent = comm,
                              .meeting = {.meetings = &comm->meetings,
                                          .mesh = comm->mesh,
                                          .gone = "; it is not excluded"}};
    struct cecl_oob oob = {.context = &members, .allgather = meet};
    struct choice *all = comm->launcher->exchange;

    if (cecl_comm_hear(comm) != ceclSuccess) /* peers learn of the failure before members meet */
        cecl_watch_release(comm);
    ceclResult_t result = check_shrink(comm, excluded, count, newcomm, config, all, &resolved);
    for (int r = 0; r < comm->nranks; r++) /* adds the members, to whom a refusal also goes */
        if (all[r].color == 0)
            cecl_rank_set_add(&members.meeting.members, r);
    if (result == ceclSuccess)
        result = make_room(&members, comm->nranks);
    if (result == ceclSuccess)
        list_members(comm, all, &members);
    members.meeting.timeout_ms = resolved.init_timeout_ms;
    members.meeting.deadline = oob.deadline = cecl_deadline(resolved.init_timeout_ms);
    result = result == ceclSuccess ? join(&members, &oob, &resolved, newcomm)
                                   : cecl_meeting_refuse(&members.meeting, result);
    free_members(&members);
    return result;
}

CECL_API ceclResult_t ceclCommShrink(ceclComm_t comm, const int *excludeRanks, int excludeCount,
                                     ceclComm_t *newcomm, const ceclConfig_t *config)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm)); /* the parent may have failed, or may be finalized */
    CECL_TRY(cecl_comm_check_own(comm, "ceclCommShrink",
                                 "the ranks that stay join anew (ceclCommInitRank)"));
    CECL_TRY(cecl_group_check_outside("ceclCommShrink", ""));
    CECL_INSIDE(comm, "ceclCommShrink");
    return cecl_comm_add_cure(comm, shrink(comm, excludeRanks, excludeCount, newcomm, config),
                              "ceclCommShrink needs a thread for each rank");
}
