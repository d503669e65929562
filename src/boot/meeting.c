/* See meeting.h. The outcome of a meeting stays in the table, so a member that comes late learns of it. Each member
 * reports a failure once; its next call starts a new meeting. */
#include "boot/meeting_internal.h"

#include <inttypes.h>

#include "util/clock.h"

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

static bool is_used(const struct meeting *meeting)
{
    return !equal(&meeting->inside, &nobody);
}

/* The oldest meeting that no rank is in. If all meetings have ranks in them, the oldest one. */
static struct meeting *find_oldest(const struct cecl_meeting_plan *plan)
{
    struct meeting *oldest = plan->table->list;
    for (EACH_MEETING(m, plan))
        if (is_used(m) != is_used(oldest) ? is_used(oldest) : m->serial < oldest->serial)
            oldest = m;
    return oldest;
}

/* Makes a meeting. If the table is full, it replaces another one. */
static struct meeting *create(const struct cecl_meeting_plan *plan)
{
    struct cecl_meeting_table *table = plan->table;
    const bool is_full = table->used == (uint64_t)plan->nranks + OUTCOMES;
    struct meeting *made = is_full ? find_oldest(plan) : &table->list[table->used++];
    *made = (struct meeting){.serial = ++table->last, .state = OPEN, .members = plan->members};
    return made;
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

/* Notes that this rank has come to a meeting, and is in no other one. */
static struct meeting *come(const struct cecl_meeting_plan *plan, struct meeting *meeting)
{
    for (EACH_MEETING(m, plan))
        cecl_rank_set_remove(&m->inside, plan->rank);
    meeting_bring(plan, meeting->serial);
    cecl_rank_set_add(&meeting->came, plan->rank);
    plan->table->last_of[plan->rank] = meeting->serial;
    return meeting;
}

/* This rank need not report earlier failures any more. */
static void forget_news(const struct cecl_meeting_plan *plan)
{
    for (EACH_MEETING(m, plan))
        if (m->state == FAILED)
            cecl_rank_set_add(&m->know, plan->rank);
}

/* Enters a meeting, or makes one. Reports an earlier failure before it compares lists, because the other members may
 * have made their next call already, with another list. */
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
        if (m->serial == plan->table->last_of[rank] && !cecl_rank_set_has(&m->members, plan->rank))
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
            const ceclResult_t there = meeting_check_there(plan, r);
            if (there != ceclSuccess) {
                *missing = r;
                return there;
            }
        }
    return cecl_ms_left(plan->deadline) == 0 ? name_who_is_late(plan, meeting) : ceclSuccess;
}

/* Whether the meeting is over. If so, *result is its outcome. */
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
        if (!cecl_rank_set_has(&plan->members, r))
            continue;
        if (!meeting_take(plan, r, serial, parts))
            return cecl_fail(ceclRemoteError, "rank %d gave up the new communicator", r);
        parts += plan->bytes;
    }
    return ceclSuccess;
}

/* Enters a meeting, and publishes that. */
static ceclResult_t come_in(const struct cecl_meeting_plan *plan, struct meeting **meeting)
{
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = ceclSuccess;
    for (bool published = false; !published;) {
        meeting_read(plan);
        result = enter(plan, meeting);
        cecl_keep_message(words);
        CECL_TRY(meeting_publish(plan, &published));
    }
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}

/* Waits until the meeting is over, and leaves it. The outcome holds even if this rank cannot publish that it left. */
static ceclResult_t wait_inside(const struct cecl_meeting_plan *plan, struct meeting *meeting,
                                uint64_t serial, void *parts)
{
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = ceclSuccess;
    int64_t rest = 0;
    for (bool published = false; !published;) {
        for (meeting_read(plan); !is_over(plan, meeting, serial, &result); meeting_read(plan))
            meeting_nap(plan, &rest);
        if (meeting->serial != serial)
            return result;
        cecl_rank_set_remove(&meeting->inside, plan->rank);
        if (result == ceclSuccess && parts)
            result = take_parts(plan, serial, parts);
        cecl_keep_message(words);
        if (meeting_publish(plan, &published) != ceclSuccess)
            break;
    }
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}

ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, void *parts)
{
    struct meeting *meeting = NULL;
    meeting_forget(plan);
    CECL_TRY(come_in(plan, &meeting));
    return wait_inside(plan, meeting, meeting->serial, parts);
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
    bool published = false;
    cecl_keep_message(words);
    meeting_forget(plan);
    do {
        meeting_read(plan);
        (void)!cecl_fail(result, "rank %d: %.200s", plan->rank, words);
        if (cecl_rank_set_has(&plan->members, plan->rank))
            fail_members(plan, result);
        else
            cecl_meeting_fail_who_count_on(plan, come(plan, create(plan)));
    } while (meeting_publish(plan, &published) == ceclSuccess && !published);
    return cecl_fail_with(result, words);
}
