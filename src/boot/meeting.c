/* See meeting.h. The meetings are a table under a lock. If a rank dies while it holds the lock, the next
 * rank takes the lock. The outcome of a meeting stays in the table, so a member that comes late learns of
 * it. Each member reports a failure once; its next call starts a new meeting. */
#include "boot/meeting_internal.h"

#include <inttypes.h>
#include <time.h>

#include "util/clock.h"

#define LOCK_MS 5000 /* ms for which the scheduler may keep the holder of the lock from running */
#define NAP_MIN_NS 20000
#define NAP_MAX_NS 1000000 /* or, if that is longer, NAP_RANK_NS for each rank */
#define NAP_RANK_NS 20000

size_t cecl_meetings_bytes(int nranks)
{
    return sizeof(struct table) + ((size_t)nranks + OUTCOMES) * sizeof(struct meeting) +
           (size_t)nranks * sizeof(struct part);
}

/* ---- the table */

/* Fails only this meeting, which is open. The reason is the last message. */
static void fail(struct meeting *meeting, int by, int missing, ceclResult_t result)
{
    fail_for(meeting, &(struct reason){.by = by,
                                       .missing = missing,
                                       .result = result,
                                       .cause = meeting->serial,
                                       .know = &meeting->came,
                                       .words = cecl_message()});
}

/* Sleeps before the next look, longer each time. Among many ranks each sleeps longer, because the looks of all of
 * them would keep few cores busy, and the holder of the lock from running. ns: 0 before the first sleep */
static void nap(const struct cecl_meeting_plan *plan, int64_t *ns)
{
    const int64_t share = (int64_t)plan->nranks * NAP_RANK_NS,
                  most = share > NAP_MAX_NS ? share : NAP_MAX_NS;
    *ns = *ns == 0 ? NAP_MIN_NS : *ns < most / 2 ? 2 * *ns : most;
    nanosleep(&(struct timespec){.tv_nsec = (long)*ns}, NULL);
}

static ceclResult_t check_rank(const struct cecl_meeting_plan *plan, int rank)
{
    return plan->mesh ? cecl_mesh_check_peer(plan->mesh, rank, "") : ceclSuccess;
}

/* Locks the table. If the holder has died, a meeting may be half written, so all open meetings fail. */
static ceclResult_t lock(const struct cecl_meeting_plan *plan)
{
    struct table *table = table_of(plan);
    int64_t rest = 0;
    const uint32_t mine = (uint32_t)plan->rank + 1;
    /* members must still lock the table when their own deadline has passed */
    int64_t deadline = cecl_deadline(LOCK_MS);
    for (uint32_t last = 0;;) {
        uint32_t holder = 0;
        if (atomic_compare_exchange_strong(&table->holder, &holder, mine))
            return ceclSuccess;
        if (holder != last) /* many ranks take turns, and none of them has stopped */
            deadline = cecl_deadline(LOCK_MS);
        last = holder;
        const ceclResult_t there = check_rank(plan, (int)holder - 1);
        if (there != ceclSuccess && atomic_compare_exchange_strong(&table->holder, &holder, mine)) {
            for (EACH_MEETING(m, plan))
                if (m->state == OPEN)
                    fail(m, plan->rank, (int)holder - 1, there);
            return ceclSuccess;
        }
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclTimeout, "rank %d stopped inside a call for more than %d ms",
                             (int)holder - 1, LOCK_MS);
        nap(plan, &rest);
    }
}

static void unlock(const struct cecl_meeting_plan *plan)
{
    atomic_store(&table_of(plan)->holder, 0);
}

static bool is_used(const struct meeting *meeting)
{
    return !equal(&meeting->inside, &nobody);
}

/* Makes a meeting. It replaces the oldest meeting that no rank is in. If all meetings have ranks in them, it
 * replaces the oldest one. */
static struct meeting *create(const struct cecl_meeting_plan *plan)
{
    struct meeting *oldest = table_of(plan)->list;
    for (EACH_MEETING(m, plan))
        if (is_used(m) != is_used(oldest) ? is_used(oldest) : m->serial < oldest->serial)
            oldest = m;
    atomic_store(&oldest->serial, 0);
    oldest->state = OPEN;
    oldest->members = plan->members;
    oldest->came = nobody;
    oldest->inside = nobody;
    atomic_store(&oldest->serial, ++table_of(plan)->last);
    return oldest;
}

/* ---- coming */

/* The open meeting with this rank's list, or NULL. */
static struct meeting *find_same(const struct cecl_meeting_plan *plan)
{
    for (EACH_MEETING(m, plan))
        if (is_open(m) && equal(&m->members, &plan->members))
            return m;
    return NULL;
}

/* Notes that this rank has come to a meeting. */
static struct meeting *come(const struct cecl_meeting_plan *plan, struct meeting *meeting)
{
    struct part *mine = part_of(plan, plan->rank);
    mine->serial = meeting->serial;
    if (plan->bytes > 0) /* a rank that refuses brings nothing */
        memcpy(mine->bytes, plan->part, plan->bytes);
    cecl_rank_set_add(&meeting->came, plan->rank);
    table_of(plan)->last_of[plan->rank] = meeting->serial;
    return meeting;
}

/* This rank need not report earlier failures any more. */
static void forget_news(const struct cecl_meeting_plan *plan)
{
    for (EACH_MEETING(m, plan))
        if (m->state == FAILED)
            cecl_rank_set_add(&m->know, plan->rank);
}

/* Enters a meeting, or makes one. The caller holds the lock. Reports an earlier failure before it compares
 * lists, because the other members may have made their next call already, with another list. */
static ceclResult_t enter(const struct cecl_meeting_plan *plan, struct meeting **meeting)
{
    struct meeting *mine = find_same(plan);
    const struct meeting *news = mine ? NULL : cecl_meeting_find_news(plan);
    if (news)
        return cecl_meeting_tell(plan, come(plan, create(plan)), news);
    forget_news(plan);
    mine = come(plan, mine ? mine : create(plan));
    if (equal(&mine->came, &plan->members))
        mine->state = COMPLETE;
    else
        CECL_TRY(cecl_meeting_fail_circle(plan, mine));
    cecl_rank_set_add(&mine->inside, plan->rank);
    *meeting = mine;
    return ceclSuccess;
}

/* ---- waiting */

/* The meeting that `rank` came to last, if that meeting's list lacks this rank; otherwise NULL. */
static const struct meeting *find_elsewhere(const struct cecl_meeting_plan *plan, int rank)
{
    for (EACH_MEETING(m, plan))
        if (m->serial != 0 && m->serial == table_of(plan)->last_of[rank] &&
            !cecl_rank_set_has(&m->members, plan->rank))
            return m;
    return NULL;
}

static ceclResult_t name_who_is_late(const struct cecl_meeting_plan *plan,
                                     const struct meeting *meeting)
{
    const struct cecl_rank_set late = late_ranks(meeting);
    struct cecl_rank_list names = list_of(&late, plan->nranks, true);
    const struct meeting *elsewhere = NULL;
    cecl_fail(ceclTimeout, "%s did not come within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
              cecl_rank_list_words(&names), plan->timeout_ms);
    for (int r = 0; r < plan->nranks && !elsewhere; r++)
        if (cecl_rank_set_has(&late, r) && (elsewhere = find_elsewhere(plan, r))) {
            struct cecl_rank_list without_me = list_of(&elsewhere->members, plan->nranks, false);
            cecl_fail(ceclTimeout, "%s; rank %d last made the call without %s", cecl_message(), r,
                      cecl_rank_list_words(&without_me));
        }
    return ceclTimeout;
}

/* Returns an error if an open meeting can no longer become complete. */
static ceclResult_t check_missing(const struct cecl_meeting_plan *plan,
                                  const struct meeting *meeting, int *missing)
{
    *missing = NOBODY;
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&plan->members, r) && !cecl_rank_set_has(&meeting->came, r)) {
            const ceclResult_t there = check_rank(plan, r);
            if (there != ceclSuccess) {
                *missing = r;
                return cecl_fail(there, "%s; it is not excluded", cecl_message());
            }
        }
    return cecl_ms_left(plan->deadline) == 0 ? name_who_is_late(plan, meeting) : ceclSuccess;
}

/* Whether the meeting is over. If so, *result is its outcome. The caller holds the lock. */
static bool is_over(const struct cecl_meeting_plan *plan, struct meeting *meeting, uint64_t serial,
                    ceclResult_t *result)
{
    int missing;
    *result = ceclSuccess;
    if (meeting->serial != serial) {
        *result = cecl_fail(ceclRemoteError, "a later call replaced this one");
    } else if (meeting->state == OPEN) {
        *result = check_missing(plan, meeting, &missing);
        if (*result != ceclSuccess)
            fail(meeting, plan->rank, missing, *result);
    } else if (meeting->state == FAILED) {
        *result = cecl_fail_with((ceclResult_t)meeting->result, meeting->words);
    }
    return *result != ceclSuccess || meeting->state == COMPLETE;
}

/* Copies the parts of a complete meeting. If a member has already made its next call, it has failed to
 * make the communicator, and has told its peers why. */
static ceclResult_t take_parts(const struct cecl_meeting_plan *plan, uint64_t serial, char *parts)
{
    for (int r = 0; r < plan->nranks; r++) {
        const struct part *part = part_of(plan, r);
        if (!cecl_rank_set_has(&plan->members, r))
            continue;
        if (part->serial != serial)
            return cecl_fail(ceclRemoteError, "rank %d gave up the new communicator", r);
        memcpy(parts, part->bytes, plan->bytes);
        parts += plan->bytes;
    }
    return ceclSuccess;
}

ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, void *parts)
{
    struct meeting *meeting = NULL;
    uint64_t serial = 0;
    int64_t rest = 0;
    if (meeting_is_over_hosts(plan))
        return meeting_join_over_hosts(plan, parts);
    CECL_TRY(lock(plan));
    ceclResult_t result = enter(plan, &meeting);
    if (result == ceclSuccess)
        serial = meeting->serial;
    while (result == ceclSuccess && !is_over(plan, meeting, serial, &result)) {
        unlock(plan);
        nap(plan, &rest);
        CECL_TRY(lock(plan));
    }
    if (meeting && meeting->serial == serial)
        cecl_rank_set_remove(&meeting->inside, plan->rank);
    if (result == ceclSuccess && parts)
        result = take_parts(plan, serial, parts);
    unlock(plan);
    return result;
}

/* Whether a meeting waits for the call that this rank refuses. */
static bool waits_for_refusal(const struct cecl_meeting_plan *plan, const struct meeting *meeting,
                              const struct meeting *news)
{
    return is_open(meeting) && is_of(meeting, plan->rank) &&
           !cecl_meeting_is_next_try(meeting, news);
}

/* Fails this rank's meeting, and all meetings that wait for this rank, with the last message. Members that
 * come later fail when they come. If this rank should report an earlier failure, its refusal stands for the
 * report, because both are of one round of calls. */
static void fail_members(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    const struct meeting *found = cecl_meeting_find_news(plan);
    const struct meeting news = found ? *found : (struct meeting){.state = OPEN};
    struct cecl_rank_set knowing = news.know, callers;
    struct meeting *same = find_same(plan);
    if (found)
        cecl_meeting_know(plan, found);
    else
        forget_news(plan);
    if (same && cecl_meeting_is_next_try(same, &news))
        same = NULL;
    const struct meeting *mine = come(plan, same ? same : create(plan));
    callers = mine->came;
    for (EACH_MEETING(m, plan))
        if (waits_for_refusal(plan, m, &news))
            unite(&callers, &m->came);
    unite(&knowing, &callers);
    cecl_meeting_add_round(plan, mine, &callers, &knowing);
    const struct reason why = {.by = plan->rank,
                               .missing = NOBODY,
                               .result = result,
                               .cause = found ? news.cause : mine->serial,
                               .know = &knowing,
                               .words = cecl_message()};
    for (EACH_MEETING(m, plan))
        if (waits_for_refusal(plan, m, &news))
            fail_for(m, &why);
}

ceclResult_t cecl_meeting_refuse(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    if (meeting_is_over_hosts(plan) && meeting_refuse_over_hosts(plan, result))
        return cecl_fail_with(result, words);
    if (lock(plan) != ceclSuccess)
        return cecl_fail_with(result, words);
    (void)!cecl_fail(result, "rank %d: %.200s", plan->rank, words);
    if (cecl_rank_set_has(&plan->members, plan->rank))
        fail_members(plan, result);
    else
        cecl_meeting_fail_who_count_on(plan, come(plan, create(plan)));
    unlock(plan);
    return cecl_fail_with(result, words);
}
