/* The functions of NCCL that make communicators, end them, and group calls. Each calls NCCL's function. When NCCL has
 * made a communicator, cecl's communicator is made at once: the first collective would be too late for ranks to agree
 * whether to make it. In a group NCCL and cecl make communicators when the outermost group ends. If NCCL returns
 * ncclInProgress, both make them in the background. */
#include "nccl/family.h"
#include "nccl/group.h"
#include "nccl/process.h"
#include "util/grow.h"
#include "util/thread.h"

/* Whether NCCL itself made this call, and not the program. This is a macro, because it needs the return address of the
 * exported function. */
#define IS_NCCLS_OWN() cecl_nccl_is_own(cecl_nccl_process(), __builtin_return_address(0))

/* Begins a function. If NCCL itself has called it, only passes the call on to NCCL. */
#define BEGIN(name, arguments) \
    CECL_UNCANCELLED; \
    if (IS_NCCLS_OWN()) \
    return cecl_nccl_pass_##name arguments

/* Refuses the program's call on a communicator while cecl's communicator is still being made or finalized. */
#define REFUSE_UNREADY(name) \
    if (!IS_NCCLS_OWN() && cecl_nccl_comm_refuses(comm, #name)) \
    return CECL_NCCL_REFUSED

/* Keeps the communicators for the group's end. If a communicator has no parent, NCCL writes its handle at once, so the
 * handle is read now: before the group ends, the program may use the same variable for another handle. */
static ncclResult_t keep_all(struct cecl_nccl_group *group, const struct cecl_nccl_wish *wishes,
                             int count)
{
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < count; i++) {
        struct cecl_nccl_wish wish = wishes[i];
        if (!wish.parent)
            wish.made = *wish.comm;
        if (!CECL_HAS_ROOM(group->wishes, group->nwishes, group->wish_room))
            result = ceclSystemError;
        if (result == ceclSuccess)
            group->wishes[group->nwishes++] = wish;
        else
            cecl_nccl_meeting_close(wish.meeting);
    }
    return result;
}

/* Makes cecl's communicators later, because NCCL makes its own in the background. If NCCL has not written a child's
 * handle yet, cecl_nccl_birth_look reads it once NCCL says that the parent is ready. */
static ncclResult_t make_later(const struct cecl_nccl_wish *wishes, int count)
{
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < count; i++) {
        const struct cecl_nccl_wish *wish = &wishes[i];
        const ncclComm_t comm = cecl_nccl_wish_handle(wish);
        if (comm && result == ceclSuccess)
            result = cecl_nccl_comm_make_later(comm, count, wish->meeting);
        else if (wish->parent && result == ceclSuccess)
            result = cecl_nccl_birth_expect(wish, count);
        else
            cecl_nccl_meeting_close(wish->meeting);
    }
    return result;
}

/* Makes cecl's communicators after NCCL's call has returned `result`. Returns what the call must return to the program.
 * The meetings belong to this function from now on. */
static ncclResult_t follow(ncclResult_t result, const struct cecl_nccl_wish *wishes, int count)
{
    struct cecl_nccl_group *group = cecl_nccl_group();
    ncclResult_t ours;
    if (result != ceclSuccess && result != ceclInProgress) {
        cecl_nccl_wishes_drop(wishes, count);
        return result;
    }
    if (group->depth > 0)
        ours = keep_all(group, wishes, count);
    else if (result == ceclSuccess)
        ours = cecl_nccl_comms_make(wishes, count);
    else
        ours = make_later(wishes, count);
    return ours == ceclSuccess ? result : ours;
}

static ncclResult_t follow_one(ncclResult_t result, ncclComm_t *comm, ncclComm_t parent,
                               struct cecl_nccl_meeting *meeting)
{
    const struct cecl_nccl_wish wish = {.comm = comm, .parent = parent, .meeting = meeting};
    return follow(result, &wish, 1);
}

/* Whether NCCL still works in the background after a call that returned ncclSuccess. NCCL does so in a split, shrink or
 * grow of a non-blocking communicator: only the ncclGroupEnd inside that call returns ncclInProgress.
 * teller  the communicator whose state says whether NCCL is done */
static bool goes_on(ncclComm_t teller)
{
    const struct cecl_nccl_comm *entry = cecl_nccl_comm_find(teller);
    ncclResult_t state = ceclSuccess;
    if (cecl_nccl_group()->depth > 0)
        return false;
    /* if the entry does not say that the communicator is non-blocking, asks NCCL: there may be no entry (after
     * ncclCommRevoke), and a blocking communicator may have non-blocking children */
    return (entry && entry->is_non_blocking) ||
           (cecl_nccl_pass_ncclCommGetAsyncError(teller, &state) == ceclSuccess &&
            state == ceclInProgress);
}

/* If NCCL makes the child in the background, the program gets ncclInProgress. The program must then ask for the
 * parent's state, and in that call begin.c reads the child's handle. */
static ncclResult_t follow_child(ncclResult_t result, ncclComm_t *child, ncclComm_t parent,
                                 struct cecl_nccl_meeting *meeting)
{
    const bool is_later = result == ceclSuccess && goes_on(parent);
    return follow_one(is_later ? ceclInProgress : result, child, parent, meeting);
}

ncclResult_t ncclGroupStart(void)
{
    const ncclResult_t result = cecl_nccl_pass_ncclGroupStart();
    if (!IS_NCCLS_OWN() && result == ceclSuccess)
        cecl_nccl_group_opened(cecl_nccl_group());
    return result;
}

/* Carries out cecl's part of a group, after NCCL's part. If NCCL has returned an error, makes neither
 * communicators nor calls. If a call was refused, makes no calls. */
static ncclResult_t end_group(struct cecl_nccl_group *group, ncclResult_t result)
{
    if (!cecl_nccl_group_ended(group))
        return result;
    result = follow(result, group->wishes, group->nwishes);
    cecl_nccl_group_forget_wishes(group);
    if ((result == ceclSuccess || result == ceclInProgress) && group->refusal != ceclSuccess)
        result = group->refusal;
    if (result != ceclSuccess && result != ceclInProgress) {
        cecl_nccl_group_forget_calls(group);
        return result;
    }
    if (result != ceclSuccess)
        cecl_nccl_group_await_passed(group);
    const ncclResult_t served = cecl_nccl_group_serve(group);
    return served == ceclSuccess ? result : served;
}

ncclResult_t ncclGroupEnd(void)
{
    BEGIN(ncclGroupEnd, ());
    struct cecl_nccl_group *group = cecl_nccl_group();
    const ncclResult_t passed = group->depth == 1 ? cecl_nccl_group_decide(group) : ceclSuccess;
    const ncclResult_t result = cecl_nccl_pass_ncclGroupEnd();
    return end_group(group, passed == ceclSuccess ? result : passed);
}

/* NCCL only estimates how long the group's calls would take, so all kept calls go to NCCL, and cecl makes none. If the
 * group is nested, its calls stay in the outer group. */
ncclResult_t ncclGroupSimulateEnd(void *info)
{
    BEGIN(ncclGroupSimulateEnd, (info));
    struct cecl_nccl_group *group = cecl_nccl_group();
    const ncclResult_t refusal = group->refusal;
    ncclResult_t passed = ceclSuccess;
    if (group->depth == 1) {
        passed = cecl_nccl_group_pass(group, group->kept, group->count);
        cecl_nccl_group_forget_calls(group);
    }
    const ncclResult_t result = cecl_nccl_pass_ncclGroupSimulateEnd(info);
    return end_group(group, passed != ceclSuccess    ? passed
                            : refusal != ceclSuccess ? refusal
                                                     : result);
}

/* ---- making communicators. Each rank opens its meeting before it calls NCCL (meeting.h). ncclCommInitAll makes the
 * communicators of all ranks, so it may open the meetings after NCCL's call. */

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    BEGIN(ncclCommInitRank, (comm, nranks, id, rank));
    struct cecl_nccl_meeting *meeting = cecl_nccl_meet_by_ids(&id, 1, nranks, rank);
    const ncclResult_t result = cecl_nccl_pass_ncclCommInitRank(comm, nranks, id, rank);
    return follow_one(result, comm, NULL, meeting);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    BEGIN(ncclCommInitRankConfig, (comm, nranks, id, rank, config));
    struct cecl_nccl_meeting *meeting = cecl_nccl_meet_by_ids(&id, 1, nranks, rank);
    const ncclResult_t result =
        cecl_nccl_pass_ncclCommInitRankConfig(comm, nranks, id, rank, config);
    return follow_one(result, comm, NULL, meeting);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids,
                                      ncclUniqueId *ids, ncclConfig_t *config)
{
    BEGIN(ncclCommInitRankScalable, (comm, nranks, rank, nids, ids, config));
    struct cecl_nccl_meeting *meeting = cecl_nccl_meet_by_ids(ids, nids, nranks, rank);
    const ncclResult_t result =
        cecl_nccl_pass_ncclCommInitRankScalable(comm, nranks, rank, nids, ids, config);
    return follow_one(result, comm, NULL, meeting);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices)
{
    CECL_UNCANCELLED;
    const ncclResult_t result = cecl_nccl_pass_ncclCommInitAll(comms, count, devices);
    if (IS_NCCLS_OWN() || (result != ceclSuccess && result != ceclInProgress))
        return result;
    CECL_OWNED struct cecl_nccl_wish *wishes =
        calloc((size_t)(count > 0 ? count : 1), sizeof(*wishes));
    const uint64_t key = cecl_nccl_new_key();
    if (!wishes)
        return result;
    for (int i = 0; i < count; i++)
        wishes[i] = (struct cecl_nccl_wish){.comm = &comms[i],
                                            .meeting = cecl_nccl_meet_by_key(key, count, i)};
    return follow(result, wishes, count);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *split,
                           ncclConfig_t *config)
{
    BEGIN(ncclCommSplit, (comm, color, key, split, config));
    REFUSE_UNREADY(ncclCommSplit);
    struct cecl_nccl_meeting *meeting = cecl_nccl_meet_child(comm, CECL_NCCL_SPLIT, color, 0);
    const ncclResult_t result = cecl_nccl_pass_ncclCommSplit(comm, color, key, split, config);
    return follow_child(result, split, comm, meeting);
}

/* With NCCL_SHRINK_ABORT, NCCL first ends the parent's calls, because a rank that the shrink excludes may have died.
 * cecl's calls on the parent may also wait for that rank, so this function first aborts cecl's communicator. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *shrunk,
                            ncclConfig_t *config, int flags)
{
    BEGIN(ncclCommShrink, (comm, excluded, count, shrunk, config, flags));
    if (flags & CECL_NCCL_SHRINK_ABORT)
        cecl_nccl_comm_revoke(comm);
    REFUSE_UNREADY(ncclCommShrink);
    struct cecl_nccl_meeting *meeting = cecl_nccl_meet_child(comm, CECL_NCCL_SHRUNK, 0, 0);
    const ncclResult_t result =
        cecl_nccl_pass_ncclCommShrink(comm, excluded, count, shrunk, config, flags);
    return follow_child(result, shrunk, comm, meeting);
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
    CECL_UNCANCELLED;
    const ncclResult_t result = cecl_nccl_pass_ncclCommGetUniqueId(comm, id);
    if (!IS_NCCLS_OWN() && result == ceclSuccess)
        cecl_nccl_mark_id(comm, id);
    return result;
}

/* Asks the child whether NCCL is done, because on a new rank `comm` is NULL. NCCL writes the child's handle at once. */
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                          ncclComm_t *grown, ncclConfig_t *config)
{
    BEGIN(ncclCommGrow, (comm, nranks, id, rank, grown, config));
    REFUSE_UNREADY(ncclCommGrow);
    ncclUniqueId plain = id ? *id : (ncclUniqueId){{0}};
    const uint64_t key = cecl_nccl_unmark_id(&plain);
    struct cecl_nccl_meeting *meeting = comm
                                            ? cecl_nccl_meet_child(comm, CECL_NCCL_GROWN, 0, nranks)
                                            : cecl_nccl_meet_by_key(key, nranks, rank);
    const ncclResult_t result =
        cecl_nccl_pass_ncclCommGrow(comm, nranks, id ? &plain : NULL, rank, grown, config);
    const bool is_later = result == ceclSuccess && goes_on(*grown);
    return follow_one(is_later ? ceclInProgress : result, grown, comm, meeting);
}

/* ---- ending communicators */

/* Waits until the communicator's calls are done. If NCCL waits in the background, cecl does so, too. */
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    BEGIN(ncclCommFinalize, (comm));
    REFUSE_UNREADY(ncclCommFinalize);
    const ncclResult_t result = cecl_nccl_pass_ncclCommFinalize(comm);
    if (result == ceclInProgress)
        cecl_nccl_comm_finalize_later(comm);
    return result == ceclSuccess ? cecl_nccl_comm_finalize(comm) : result;
}

/* cecl's communicator ends first, because its calls may be on streams that NCCL uses. Errors of its calls are not
 * returned here: the failed call or ncclCommGetAsyncError has reported them. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    BEGIN(ncclCommDestroy, (comm));
    REFUSE_UNREADY(ncclCommDestroy);
    cecl_nccl_birth_forget(comm);
    cecl_nccl_family_forget(comm);
    return cecl_nccl_comm_destroy(comm) ? cecl_nccl_pass_ncclCommDestroy(comm) : ceclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    BEGIN(ncclCommAbort, (comm));
    cecl_nccl_birth_forget(comm);
    cecl_nccl_family_forget(comm);
    return cecl_nccl_comm_abort(comm) ? cecl_nccl_pass_ncclCommAbort(comm) : ceclSuccess;
}

/* No collective may follow a revoke, so cecl's communicator is aborted, and NCCL answers further calls. NCCL may refuse
 * flags other than 0; then cecl's communicator stays. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    BEGIN(ncclCommRevoke, (comm, flags));
    if (flags == 0)
        cecl_nccl_comm_revoke(comm);
    const ncclResult_t result = cecl_nccl_pass_ncclCommRevoke(comm, flags);
    if (flags != 0 && result == ceclSuccess)
        cecl_nccl_comm_revoke(comm);
    return result;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags)
{
    CECL_UNCANCELLED;
    struct cecl_nccl_comm *entry = IS_NCCLS_OWN() ? NULL : cecl_nccl_comm_find(comm);
    const struct cecl_nccl_group *group = cecl_nccl_group();
    if (entry && (winFlags & CECL_NCCL_WIN_COLL_SYMMETRIC) && atomic_load(&entry->windows) == 0)
        atomic_store(&entry->windows, group->depth > 0 ? group->number : UINT64_MAX);
    return cecl_nccl_pass_ncclCommWindowRegister(comm, buff, size, win, winFlags);
}

/* While cecl's communicator is being made, only the thread that makes it asks NCCL: the first ncclCommGetAsyncError
 * after NCCL's background work also cleans up, which two threads must not do at once. If a thread of this library was
 * still finalizing cecl's communicator when NCCL was asked, NCCL's answer may be outdated once that thread has ended.
 * So the program gets ncclInProgress, and asks again. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    CECL_UNCANCELLED;
    if (!IS_NCCLS_OWN() && error && cecl_nccl_comm_is(comm, CECL_NCCL_UNMADE)) {
        *error = ceclInProgress;
        return ceclSuccess;
    }
    const bool is_finalizing =
        !IS_NCCLS_OWN() && cecl_nccl_comm_is(comm, CECL_NCCL_SET(FINALIZING));
    const ncclResult_t result = cecl_nccl_pass_ncclCommGetAsyncError(comm, error);
    if (IS_NCCLS_OWN() || result != ceclSuccess)
        return result;
    if (*error != ceclSuccess) {
        if (*error != ceclInProgress)
            (void)!cecl_nccl_comm_error(comm); /* keeps cecl's message for ncclGetLastError */
        return result;
    }
    *error = cecl_nccl_birth_look(comm);
    if (*error == ceclSuccess)
        *error = is_finalizing ? ceclInProgress : cecl_nccl_comm_error(comm);
    return result;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    const char *of_nccl = cecl_nccl_pass_ncclGetLastError(comm);
    return IS_NCCLS_OWN() ? of_nccl : cecl_nccl_last_error(of_nccl);
}

#define FOLLOWED(name, answer) CECL_NCCL_ALIAS(name)
#include "nccl/names.h"
