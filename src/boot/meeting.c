/* See meeting.h. Each rank has a row in the shared memory, which only that rank writes: its last call, and which calls
 * of all ranks are over, as far as it knows. A rank numbers its calls. So one rank can say that another's call is over,
 * even a call that the other has not made yet, and nobody takes it for a later one. Two calls meet if their lists are
 * equal, and if neither rank knows the other's call to be over.
 *
 * There is no rank that decides, and so none whose death or stop would keep the others. Any rank may find that its
 * meeting is complete or has failed. Ranks that find a failure at the same time end the same numbers. */
#include "boot/meeting_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "boot/rank_list.h"
#include "util/clock.h"

#define NAP_MIN_NS 20000
#define NAP_MAX_NS 1000000 /* or, if that is longer, NAP_RANK_NS for each rank */
#define NAP_RANK_NS 40000
#define LONG_MS 500 /* ms after which ranks that do not come may have failed elsewhere */
/* A rank that sees rows change while it finds a failure looks again, at most this often: others that call all the
 * time must not keep it from its deadline. */
#define LOOKS_MAX 100

/* Lists the ranks in a set, or those that are not in it. */
static struct cecl_rank_list list_of(const struct cecl_rank_set *set, int nranks, bool in)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < nranks; r++)
        if (cecl_rank_set_has(set, r) == in)
            cecl_rank_list_add(&list, r);
    return list;
}

/* ---- other ranks' calls */

/* Another rank's call, and what that rank and this one know of each other's calls. */
struct seen {
    struct head head;
    uint64_t ends; /* up to which number it knows this rank's calls to be over */
    uint64_t over; /* up to which number this rank knows its calls to be over */
};

static struct seen see(const struct cecl_meeting_plan *plan, int rank)
{
    struct seen seen;
    struct head mine;
    seen.ends = meeting_read(plan, rank, &seen.head, sizeof(seen.head), plan->rank);
    seen.over = meeting_read(plan, plan->rank, &mine, 0, rank);
    return seen;
}

/* Whether another rank's last call is the one of this plan. */
static bool is_same(const struct cecl_meeting_plan *plan, const struct head *its)
{
    return its->is_split == plan->is_split && equal(&its->members, &plan->members);
}

static bool is_waiting(const struct seen *seen)
{
    return seen->head.state == WAITS && seen->head.number > seen->over;
}

/* Whether a rank has come to this rank's meeting. It may have found already that the meeting is complete. */
static bool has_come(const struct cecl_meeting_plan *plan, const struct seen *seen, uint64_t mine)
{
    return is_same(plan, &seen->head) && seen->head.number > seen->over &&
           (seen->head.state == WAITS ? seen->ends < mine
                                      : seen->head.state == MET && seen->ends == mine);
}

/* Reads a member's failure. Returns whether there is one that concerns this rank's call. It does not if the rank at
 * fault is not on this rank's list, or if one of the two calls is a split and the other a shrink. */
static bool hear(const struct cecl_meeting_plan *plan, int member, struct call *its)
{
    const struct failure *failure = &its->failure;
    (void)meeting_read(plan, member, its, sizeof(*its), plan->rank);
    return failure->result != ceclSuccess && failure->is_split == plan->is_split &&
           (failure->missing == NOBODY || cecl_rank_set_has(&plan->members, failure->missing));
}

/* The first member that has ended this rank's call `number`, which this rank may not have made yet, for a reason that
 * concerns it. NOBODY: there is none; then calls up to *skip have ended for other reasons. What other ranks than members
 * know to be over does not count: a member may still hear it from them, and then this rank hears it from that member. */
static int find_teller(const struct cecl_meeting_plan *plan, uint64_t number, uint64_t *skip)
{
    struct call its;
    for (int r = 0; r < plan->nranks; r++) {
        const uint64_t ends = r == plan->rank || !cecl_rank_set_has(&plan->members, r)
                                  ? 0
                                  : meeting_read(plan, r, &its.head, 0, plan->rank);
        if (ends < number)
            continue;
        if (hear(plan, r, &its))
            return r;
        *skip = ends > *skip ? ends : *skip;
    }
    return NOBODY;
}

/* ---- failures */

/* Which waiting ranks a failure ends, besides those with this rank's list: none; those that list this rank; or also
 * those that list one of these, and so on. */
enum spread { SAME_LIST, WHO_LIST_ME, WHO_WAIT };

/* Finds the ranks whose calls end with this rank's.
 * lists  [out] the ranks that are on their lists */
static void find_ended(const struct cecl_meeting_plan *plan, enum spread spread,
                       struct cecl_rank_set *ended, struct cecl_rank_set *lists)
{
    struct cecl_rank_set me = nobody;
    bool grew = true;
    cecl_rank_set_add(&me, plan->rank);
    *ended = me;
    *lists = plan->members;
    while (grew) {
        grew = false;
        for (int r = 0; r < plan->nranks; r++) {
            if (cecl_rank_set_has(ended, r))
                continue;
            const struct seen seen = see(plan, r);
            const struct cecl_rank_set *its = &seen.head.members;
            if (!is_waiting(&seen) || seen.head.is_split != plan->is_split ||
                !(equal(its, &plan->members) ||
                  (spread != SAME_LIST && intersect(its, spread == WHO_WAIT ? ended : &me))))
                continue;
            cecl_rank_set_add(ended, r);
            unite(lists, its);
            grew = true;
        }
    }
}

/* Whether a rank has failed because lists differ, and has ended this rank's call `mine` with its own. */
static bool has_failed_by_lists(const struct cecl_meeting_plan *plan, int rank, uint64_t mine)
{
    struct call its;
    return meeting_read(plan, rank, &its, sizeof(its), plan->rank) >= mine &&
           its.head.state == FAILED && its.failure.lists_differ;
}

/* Fails this rank's call in a draft, and those that end with it, with the last message. A rank on their lists that
 * has not come fails when it comes, unless it has made the same call already, or has failed itself and ended this call
 * with its own: then it has had its error. */
static void fail(const struct cecl_meeting_plan *plan, struct draft *draft, enum spread spread,
                 struct failure why)
{
    struct cecl_rank_set ended, lists;
    find_ended(plan, spread, &ended, &lists);
    for (int r = 0; r < plan->nranks; r++) {
        const struct seen seen = see(plan, r);
        const uint64_t number = seen.head.number,
                       next = (number > seen.over ? number : seen.over) + 1;
        const bool is_told = cecl_rank_set_has(&plan->members, plan->rank)
                                 ? cecl_rank_set_has(&lists, r)
                                 : r != plan->rank;
        if (r == plan->rank)
            meeting_end_calls(draft, r, draft->call.head.number);
        else if (cecl_rank_set_has(&ended, r))
            meeting_end_calls(draft, r, number);
        else if (is_told && !is_waiting(&seen) &&
                 !(why.lists_differ && has_failed_by_lists(plan, r, draft->call.head.number)) &&
                 !(number > seen.over && is_same(plan, &seen.head)))
            meeting_end_calls(draft, r, next);
    }
    why.is_split = plan->is_split;
    why.members = plan->members;
    cecl_keep_message(why.words);
    draft->call.head.state = FAILED;
    draft->call.failure = why;
}

/* Records a message that names this rank's list and that of another rank. */
static ceclResult_t name_lists(const struct cecl_meeting_plan *plan, int other,
                               const struct cecl_rank_set *others)
{
    struct cecl_rank_list one = list_of(others, plan->nranks, false),
                          two = list_of(&plan->members, plan->nranks, false);
    return cecl_fail(ceclInvalidUsage,
                     "ranks differ in which ranks they exclude: %s on rank %d, %s on rank %d",
                     cecl_rank_list_words(&one), other, cecl_rank_list_words(&two), plan->rank);
}

/* Fails this rank's call in a draft, because another rank has ended it. Passes on what that rank knows to be over. */
static ceclResult_t fail_as_told(const struct cecl_meeting_plan *plan, struct draft *draft,
                                 int teller)
{
    struct call its;
    const bool concerns = hear(plan, teller, &its);
    struct failure *why = &its.failure;
    if (!concerns)
        *why =
            (struct failure){.result = (int32_t)cecl_fail(
                                 ceclRemoteError, "rank %d gave up the new communicator", teller),
                             .missing = NOBODY};
    else if (why->lists_differ && !equal(&why->members, &plan->members))
        (void)!name_lists(plan, teller, &why->members);
    else
        (void)!cecl_fail_with((ceclResult_t)why->result, why->words);
    for (int r = 0; r < plan->nranks; r++)
        meeting_end_calls(draft, r, meeting_read(plan, teller, &its.head, 0, r));
    why->is_split = plan->is_split;
    why->members = plan->members;
    cecl_keep_message(why->words);
    draft->call.head.state = FAILED;
    draft->call.failure = *why;
    return (ceclResult_t)why->result;
}

/* ---- waiting */

struct stay {
    int64_t since;             /* when this rank came */
    uint64_t changes;          /* those that the last look has seen */
    struct cecl_rank_set late; /* the members that have not come */
};

/* Sleeps before the next look, longer each time. Among many ranks each sleeps longer, because the looks of all of
 * them would keep few cores busy. ns: 0 before the first sleep */
static void nap(const struct cecl_meeting_plan *plan, int64_t *ns)
{
    const int64_t share = (int64_t)plan->nranks * NAP_RANK_NS,
                  most = share > NAP_MAX_NS ? share : NAP_MAX_NS;
    *ns = *ns == 0 ? NAP_MIN_NS : *ns < most / 2 ? 2 * *ns : most;
    nanosleep(&(struct timespec){.tv_nsec = (long)*ns}, NULL);
}

static ceclResult_t name_who_is_late(const struct cecl_meeting_plan *plan,
                                     const struct cecl_rank_set *late)
{
    struct cecl_rank_list names = list_of(late, plan->nranks, true);
    cecl_fail(ceclTimeout, "%s did not come within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
              cecl_rank_list_words(&names), plan->timeout_ms);
    for (int r = 0; r < plan->nranks; r++) {
        const struct seen seen = see(plan, r);
        if (!cecl_rank_set_has(late, r) || seen.head.number == 0 || seen.head.is_split ||
            cecl_rank_set_has(&seen.head.members, plan->rank))
            continue;
        struct cecl_rank_list without_me = list_of(&seen.head.members, plan->nranks, false);
        return cecl_fail(ceclTimeout, "%s; rank %d last made the call without %s", cecl_message(),
                         r, cecl_rank_list_words(&without_me));
    }
    return ceclTimeout;
}

/* Returns an error if a late member has gone, or if the time is up. */
static ceclResult_t check_late(const struct cecl_meeting_plan *plan, const struct stay *stay,
                               int32_t *missing)
{
    for (int r = 0; r < plan->nranks && plan->mesh; r++)
        if (cecl_rank_set_has(&stay->late, r) &&
            cecl_mesh_check_peer(plan->mesh, r) != ceclSuccess) {
            *missing = r;
            return cecl_fail(ceclRemoteError, "%s%s", cecl_message(), plan->gone ? plan->gone : "");
        }
    if (cecl_ms_left(plan->deadline) == 0)
        return name_who_is_late(plan, &stay->late);
    return plan->is_split && cecl_now_ms() - stay->since > LONG_MS ? cecl_mesh_news(plan->mesh)
                                                                   : ceclSuccess;
}

/* Returns an error if this rank waits for one that waits for this rank, with another list, directly or through
 * others. If a rank waits for another one whose list excludes it, that need not be an error: the other one may come
 * with a later call. */
static ceclResult_t check_lists(const struct cecl_meeting_plan *plan)
{
    struct cecl_rank_set ended, lists;
    find_ended(plan, WHO_WAIT, &ended, &lists);
    for (int r = 0; r < plan->nranks; r++) {
        const struct seen seen = see(plan, r);
        if (r != plan->rank && cecl_rank_set_has(&ended, r) &&
            cecl_rank_set_has(&plan->members, r) && !equal(&seen.head.members, &plan->members))
            return name_lists(plan, r, &seen.head.members);
    }
    return ceclSuccess;
}

/* Copies the parts of all members, and notes that their calls are over. Returns false if one of them has just made
 * its next call, or will. */
static bool take_parts(const struct cecl_meeting_plan *plan, struct draft *draft, char *parts)
{
    const uint64_t mine = draft->call.head.number;
    struct call its;
    for (int r = 0; r < plan->nranks; r++) {
        if (!cecl_rank_set_has(&plan->members, r))
            continue;
        struct seen seen = see(plan, r);
        seen.ends = meeting_read(plan, r, &its, sizeof(its), plan->rank);
        seen.head = its.head;
        if (r != plan->rank && !has_come(plan, &seen, mine))
            return false;
        if (parts)
            memcpy(parts, its.part, plan->bytes);
        parts = parts ? parts + plan->bytes : NULL;
        meeting_end_calls(draft, r, its.head.number);
    }
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&plan->members, r) && !meeting_agrees(plan, r, draft))
            return false;
    draft->call.head.state = MET;
    draft->call.failure = (struct failure){.missing = NOBODY};
    return true;
}

/* Finds the members that have not come. Returns whether one of them has ended this rank's call. */
static bool find_late(const struct cecl_meeting_plan *plan, uint64_t mine,
                      struct cecl_rank_set *late, int *teller)
{
    *late = nobody;
    *teller = NOBODY;
    for (int r = 0; r < plan->nranks; r++) {
        if (r == plan->rank || !cecl_rank_set_has(&plan->members, r))
            continue;
        const struct seen seen = see(plan, r);
        if (has_come(plan, &seen, mine))
            continue;
        cecl_rank_set_add(late, r);
        if (seen.ends >= mine && *teller == NOBODY)
            *teller = r;
    }
    return *teller != NOBODY;
}

/* Another rank has ended this rank's call. If that is for a reason which does not concern this rank, the call goes on
 * under a number that is not over. */
static ceclResult_t go_on_or_fail(const struct cecl_meeting_plan *plan, struct draft *draft,
                                  int teller)
{
    uint64_t skip = 0;
    struct call its;
    const int concerns = find_teller(plan, draft->call.head.number, &skip);
    (void)hear(plan, teller, &its);
    if (concerns != NOBODY || its.failure.result == ceclSuccess)
        return fail_as_told(plan, draft, concerns != NOBODY ? concerns : teller);
    draft->call.head.number = skip + 1;
    return ceclSuccess;
}

/* Looks once. Returns whether the draft is to be published. *result is the call's, unless the draft still waits. */
static bool look(const struct cecl_meeting_plan *plan, struct stay *stay, struct draft *draft,
                 void *parts, ceclResult_t *result)
{
    struct failure why = {.missing = NOBODY};
    const uint64_t changes = meeting_changes(plan);
    int teller;
    *result = ceclSuccess;
    if (changes != stay->changes) {
        meeting_begin(plan, draft);
        if (find_late(plan, draft->call.head.number, &stay->late, &teller)) {
            *result = go_on_or_fail(plan, draft, teller);
            return true;
        }
        if (equal(&stay->late, &nobody))
            return take_parts(plan, draft, parts);
        *result = check_lists(plan);
        stay->changes = changes;
    }
    why.lists_differ = *result != ceclSuccess;
    if (*result == ceclSuccess)
        *result = check_late(plan, stay, &why.missing);
    if (*result == ceclSuccess)
        return false;
    why.result = (int32_t)*result;
    meeting_begin(plan, draft);
    fail(plan, draft, why.lists_differ ? WHO_WAIT : SAME_LIST, why);
    return true;
}

/* Whether this rank's call is over. If so, *result is its outcome. */
static bool is_over(const struct cecl_meeting_plan *plan, struct stay *stay, void *parts,
                    ceclResult_t *result)
{
    struct draft draft;
    uint64_t changes;
    int looks = 0;
    do {
        changes = meeting_changes(plan);
        stay->changes = looks > 0 ? UINT64_MAX : stay->changes;
        if (!look(plan, stay, &draft, parts, result))
            return false;
    } while (draft.call.head.state == FAILED && meeting_changes(plan) != changes &&
             ++looks < LOOKS_MAX);
    meeting_publish(plan, &draft);
    return draft.call.head.state != WAITS;
}

/* ---- the calls */

/* Begins this rank's next call. Returns the member that has ended it already, or NOBODY. */
static int come(const struct cecl_meeting_plan *plan, struct draft *draft)
{
    meeting_begin(plan, draft);
    struct head *head = &draft->call.head;
    uint64_t skip = head->number;
    const int teller = find_teller(plan, head->number + 1, &skip);
    head->number = (teller == NOBODY ? skip : head->number) + 1;
    head->state = WAITS;
    head->is_split = plan->is_split;
    head->members = plan->members;
    if (plan->bytes > 0) /* a rank that refuses brings nothing */
        memcpy(draft->call.part, plan->part, plan->bytes);
    return teller;
}

ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, void *parts)
{
    struct draft draft;
    struct stay stay = {.since = cecl_now_ms(), .changes = UINT64_MAX};
    ceclResult_t result = ceclSuccess;
    int64_t rest = 0;
    const int teller = come(plan, &draft);
    if (teller != NOBODY)
        result = fail_as_told(plan, &draft, teller);
    meeting_publish(plan, &draft);
    if (teller != NOBODY)
        return result;
    while (!is_over(plan, &stay, parts, &result))
        nap(plan, &rest);
    return result;
}

ceclResult_t cecl_meeting_refuse(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    const bool is_listed = cecl_rank_set_has(&plan->members, plan->rank);
    const struct failure why = {.result = (int32_t)(is_listed ? result : ceclInvalidUsage),
                                .missing = NOBODY,
                                .lists_differ = !is_listed};
    struct draft draft;
    char words[CECL_MESSAGE_BYTES];
    uint64_t changes;
    int looks = 0;
    cecl_keep_message(words);
    do {
        changes = meeting_changes(plan);
        const int teller = come(plan, &draft);
        (void)!cecl_fail(result, "rank %d: %.200s", plan->rank, words);
        if (teller == NOBODY)
            fail(plan, &draft, WHO_LIST_ME, why);
        else /* the others have learned of that failure, and take this call for a part of it */
            (void)!fail_as_told(plan, &draft, teller);
    } while (meeting_changes(plan) != changes && ++looks < LOOKS_MAX);
    meeting_publish(plan, &draft);
    return cecl_fail_with(result, words);
}
