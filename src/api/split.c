/* Communicators out of communicators: ceclCommSplit and ceclCommShrink. Both find out who the
 * members are. A split asks over the parent's mesh; a shrink must do without the mesh, so its
 * members meet in the parent's shared memory. Then the members join as the functions of init.c do,
 * through boxes in that memory. */
#include <stdlib.h>
#include <string.h>

#include "api/life.h"
#include "boot/boxes.h"
#include "boot/meeting.h"
#include "boot/rank_list.h"
#include "launch/check.h"
#include "launch/group.h"
#include "plan/plan.h"
#include "util/clock.h"
#include "util/log.h"

_Static_assert(CECL_MAX_RANKS <= CECL_MEETING_RANKS, "a set of ranks holds every rank");

/* The members of a new communicator. */
struct members {
    int *parent_ranks; /* [count], in the order of the new ranks */
    int count, rank;   /* rank: this rank's new one */
    uint64_t token;    /* tells this use of the parent's boxes from other uses */
};

/* Tokens of splits and of shrinks, which are never equal. */
static uint64_t token_of_split(uint64_t exchanges)
{
    return 2 * exchanges + 1;
}

static uint64_t token_of_shrink(uint64_t serial)
{
    return 2 * serial;
}

/* ---- what both have in common */

/* The settings of a new communicator. On an error all fields have values, because the time limit
 * for telling peers is one of them. */
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
    out->cuda_device = comm->dev->ordinal;
    out->trace_rank = comm->config.trace_rank >= 0 ? comm->config.trace_rank : comm->rank;
    return result;
}

/* Refuses at once, without telling peers: they may be ranks of this same thread. */
static ceclResult_t check_no_group(const char *call)
{
    return cecl_group_is_open()
               ? cecl_fail(ceclInvalidUsage,
                           "%s between ceclGroupStart and ceclGroupEnd: it cannot be in a group",
                           call)
               : ceclSuccess;
}

/* Ranks that share one thread cannot wait for each other. The message says what to do. */
static ceclResult_t name_cure(ceclComm_t comm, const char *call, ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    if (result != ceclTimeout || !comm->shares_process)
        return result;
    cecl_keep_message(words);
    return cecl_fail(result, "%.400s; %s needs a thread for each rank", words, call);
}

/* Rewrites the last message with the parent's rank numbers, because the caller has only the
 * parent. */
static ceclResult_t name_as_in_parent(const struct members *members, ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_words_for_parent(cecl_message(), members->parent_ranks, members->count, words);
    return cecl_fail_with(result, words);
}

/* Makes the new communicator. Collective over its members. Takes over members->parent_ranks. */
static ceclResult_t join(ceclComm_t parent, const struct members *members,
                         const struct cecl_resolved *config, int64_t deadline, ceclComm_t *newcomm)
{
    const struct cecl_boxes_plan plan = {.memory =
                                             cecl_shared_at(&parent->shared, CECL_SHARED_BOXES),
                                         .mesh = parent->mesh,
                                         .ranks = members->parent_ranks,
                                         .old_nranks = parent->nranks,
                                         .nranks = members->count,
                                         .rank = members->rank,
                                         .token = members->token,
                                         .timeout_ms = config->init_timeout_ms,
                                         .deadline = deadline};
    struct cecl_oob oob = {0};
    ceclComm_t child = NULL;

    cecl_oob_from_boxes(&oob, &plan);
    ceclResult_t result = cecl_comm_setup(&oob, config, deadline, ceclSuccess, &child);
    if (result != ceclSuccess) {
        result = name_as_in_parent(members, result);
        cecl_boxes_give_up(&oob);
    }
    cecl_oob_close(&oob);
    if (result != ceclSuccess) {
        free(members->parent_ranks);
        return result;
    }
    child->parent_ranks = members->parent_ranks;
    cecl_registrations_inherit(child, parent);
    *newcomm = child;
    return ceclSuccess;
}

/* ---- split */

/* What ranks tell each other in the first exchange. */
struct choice {
    int32_t is_valid; /* this rank accepts its arguments */
    int32_t color, key;
};
_Static_assert(sizeof(struct choice) <= CECL_CHECK_ROOM_BYTES, "check_room holds one of each rank");

static ceclResult_t check_split(ceclComm_t comm, int color, ceclComm_t *newcomm,
                                const ceclConfig_t *config, struct cecl_resolved *resolved)
{
    CECL_TRY(settle(comm, config, resolved));
    if (!newcomm)
        return cecl_fail(ceclInvalidArgument,
                         "newcomm: NULL; the address of a handle expected, with "
                         "CECL_SPLIT_NOCOLOR too");
    if (color < 0 && color != CECL_SPLIT_NOCOLOR)
        return cecl_fail(ceclInvalidArgument,
                         "color %d: 0 or more, or CECL_SPLIT_NOCOLOR (%d) expected", color,
                         CECL_SPLIT_NOCOLOR);
    return ceclSuccess;
}

static bool is_member(const struct choice *choice, int color)
{
    return choice->is_valid && choice->color == color;
}

/* Whether rank `a` comes before rank `b` of the same color. */
static bool comes_before(const struct choice *all, int a, int b)
{
    return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
}

/* Fills in the members of this rank's color. */
static ceclResult_t list_members(ceclComm_t comm, const struct choice *all, struct members *out)
{
    const int color = all[comm->rank].color;
    if (color == CECL_SPLIT_NOCOLOR)
        return ceclSuccess;
    out->parent_ranks = calloc((size_t)comm->nranks, sizeof(int));
    if (!out->parent_ranks)
        return cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", comm->nranks);
    for (int r = 0; r < comm->nranks; r++) {
        int place = 0;
        if (!is_member(&all[r], color))
            continue;
        for (int q = 0; q < comm->nranks; q++)
            place += is_member(&all[q], color) && comes_before(all, q, r);
        out->parent_ranks[place] = r;
        out->count++;
        if (r == comm->rank)
            out->rank = place;
    }
    return ceclSuccess;
}

static ceclResult_t exchange_choices(ceclComm_t comm, const struct choice *mine, struct choice *all)
{
    cecl_mesh_activity(comm->mesh, "ceclCommSplit");
    comm->pool.exchanges++;
    return cecl_comm_exchanged(comm,
                               cecl_mesh_allgather(comm->mesh, "split", mine, all, sizeof(*mine)));
}

static ceclResult_t agree(ceclComm_t comm, ceclResult_t mine)
{
    comm->pool.exchanges++;
    return cecl_comm_exchanged(comm, cecl_mesh_agree(comm->mesh, mine));
}

/* The second exchange. If a rank died in the second exchange, some peers may have gone on and wait
 * for this rank, so they are told. If a rank died in the first exchange, nobody goes on, and peers
 * may still be at an earlier use of the boxes. */
static ceclResult_t agree_on_members(ceclComm_t comm, ceclResult_t mine, struct members *out)
{
    const ceclResult_t result = agree(comm, mine);
    out->token = token_of_split(cecl_mesh_exchanges(comm->mesh));
    if (result != ceclSuccess)
        cecl_boxes_leave(cecl_shared_at(&comm->shared, CECL_SHARED_BOXES), comm->nranks, comm->rank,
                         out->token);
    return result;
}

/* Finds this rank's members, in two exchanges on every rank. `local`: this rank's verdict on its
 * own arguments, with its message recorded. */
static ceclResult_t find_members(ceclComm_t comm, int color, int key, ceclResult_t local,
                                 struct members *out)
{
    const struct choice mine = {.is_valid = local == ceclSuccess, .color = color, .key = key};
    struct choice *all = comm->check_room;
    char words[CECL_MESSAGE_BYTES];

    cecl_keep_message(words);
    ceclResult_t result = exchange_choices(comm, &mine, all);
    if (result == ceclSuccess) {
        result = local == ceclSuccess ? list_members(comm, all, out) : cecl_fail_with(local, words);
        result = agree_on_members(comm, result, out);
    }
    return local == ceclSuccess ? result : cecl_fail_with(local, words);
}

static ceclResult_t split(ceclComm_t comm, int color, int key, ceclComm_t *newcomm,
                          const ceclConfig_t *config)
{
    struct cecl_resolved resolved;
    struct members members = {0};

    const ceclResult_t local = check_split(comm, color, newcomm, config, &resolved);
    const ceclResult_t result = find_members(comm, color, key, local, &members);
    if (result != ceclSuccess) {
        free(members.parent_ranks);
        return result;
    }
    if (color == CECL_SPLIT_NOCOLOR) {
        *newcomm = NULL;
        return ceclSuccess;
    }
    return join(comm, &members, &resolved, cecl_deadline(resolved.init_timeout_ms), newcomm);
}

CECL_API ceclResult_t ceclCommSplit(ceclComm_t comm, int color, int key, ceclComm_t *newcomm,
                                    const ceclConfig_t *config)
{
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(check_no_group("ceclCommSplit"));
    CECL_TRY(cecl_comm_enter(comm, "ceclCommSplit"));
    const ceclResult_t result = split(comm, color, key, newcomm, config);
    cecl_comm_leave(comm);
    return name_cure(comm, "ceclCommSplit", result);
}

/* ---- shrink */

/* Takes the excluded ranks out of the set of those that stay. On an error the set is unchanged. */
static ceclResult_t read_list(ceclComm_t comm, const int *excluded, int count,
                              struct cecl_rank_set *stay)
{
    struct cecl_rank_set out = {{0}};
    if (count < 0 || count >= comm->nranks)
        return cecl_fail(ceclInvalidArgument, "excludeCount %d: 0 to %d expected", count,
                         comm->nranks - 1);
    if (count > 0 && !excluded)
        return cecl_fail(
            ceclInvalidArgument,
            "excludeRanks: NULL, and excludeCount is %d; a list of as many ranks expected", count);
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
        cecl_rank_set_remove(stay, excluded[i]);
    return ceclSuccess;
}

/* On an error `stay` has the ranks that are to learn of it: all ranks, if the list cannot be
 * read. */
static ceclResult_t check_shrink(ceclComm_t comm, const int *excluded, int count,
                                 ceclComm_t *newcomm, const ceclConfig_t *config,
                                 struct cecl_rank_set *stay, struct cecl_resolved *resolved)
{
    for (int r = 0; r < comm->nranks; r++)
        cecl_rank_set_add(stay, r);
    CECL_TRY(read_list(comm, excluded, count, stay));
    if (!cecl_rank_set_has(stay, comm->rank))
        return cecl_fail(ceclInvalidArgument,
                         "excludeRanks: holds rank %d, which makes this call; only ranks that stay "
                         "make it",
                         comm->rank);
    if (!newcomm)
        return cecl_fail(ceclInvalidArgument, "newcomm: NULL; the address of a handle expected");
    return settle(comm, config, resolved);
}

/* The members in their order. */
static ceclResult_t list_those_who_stay(ceclComm_t comm, const struct cecl_rank_set *stay,
                                        struct members *out)
{
    out->parent_ranks = calloc((size_t)comm->nranks, sizeof(int));
    if (!out->parent_ranks)
        return cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", comm->nranks);
    for (int r = 0; r < comm->nranks; r++) {
        if (r == comm->rank)
            out->rank = out->count;
        if (cecl_rank_set_has(stay, r))
            out->parent_ranks[out->count++] = r;
    }
    return ceclSuccess;
}

/* If `comm` has failed, tells peers before this rank meets them. */
static void tell_failure(ceclComm_t comm)
{
    if (cecl_comm_hear(comm) != ceclSuccess)
        cecl_watch_release(comm);
}

/* Waits until nothing of a failed communicator is pending here. A call whose waits were released
 * still copies to peers, whose memory is used next by calls of the new communicator. All members
 * have met, so if one knew of the failure, all do now. Each member joins after this wait, and none
 * returns from the shrink before all have joined. */
static void end_failed_calls(ceclComm_t comm, int64_t deadline)
{
    const int half = cecl_ms_left(deadline) / 2 + 1,
              ms = half < CECL_RELEASED_MS ? half : CECL_RELEASED_MS;
    if (cecl_comm_hear(comm) != ceclSuccess && !cecl_comm_end_pending(comm, cecl_deadline(ms)))
        cecl_log(CECL_LOG_WARN, comm->rank,
                 "ceclCommShrink: calls of the failed communicator did not end %d ms after their "
                 "release, and may still write to peers' buffers",
                 ms);
}

static ceclResult_t shrink(ceclComm_t comm, const int *excluded, int count, ceclComm_t *newcomm,
                           const ceclConfig_t *config)
{
    struct cecl_resolved resolved = comm->config;
    struct cecl_meeting_plan plan = {.memory = cecl_shared_at(&comm->shared, CECL_SHARED_MEETINGS),
                                     .mesh = comm->mesh,
                                     .rank = comm->rank,
                                     .nranks = comm->nranks};
    struct members members = {0};
    uint64_t serial = 0;

    tell_failure(comm);
    ceclResult_t local =
        check_shrink(comm, excluded, count, newcomm, config, &plan.members, &resolved);
    if (local == ceclSuccess)
        local = list_those_who_stay(comm, &plan.members, &members);
    plan.timeout_ms = resolved.init_timeout_ms;
    plan.deadline = cecl_deadline(resolved.init_timeout_ms);
    const ceclResult_t met = local == ceclSuccess ? cecl_meeting_join(&plan, &serial)
                                                  : cecl_meeting_refuse(&plan, local);
    if (met != ceclSuccess) {
        free(members.parent_ranks);
        return met;
    }
    end_failed_calls(comm, plan.deadline);
    members.token = token_of_shrink(serial);
    return join(comm, &members, &resolved, plan.deadline, newcomm);
}

CECL_API ceclResult_t ceclCommShrink(ceclComm_t comm, const int *excludeRanks, int excludeCount,
                                     ceclComm_t *newcomm, const ceclConfig_t *config)
{
    CECL_TRY(cecl_comm_check_handle(comm)); /* the parent may have failed, or be finalized */
    CECL_TRY(check_no_group("ceclCommShrink"));
    return name_cure(comm, "ceclCommShrink",
                     shrink(comm, excludeRanks, excludeCount, newcomm, config));
}
