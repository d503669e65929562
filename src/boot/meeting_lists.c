/* See meeting_internal.h. If meetings wait for each other's ranks in a circle, their lists differ. If a
 * rank waits for another rank whose list excludes it, that need not be an error: the other rank may come
 * to this meeting with a later call. */
#include "boot/meeting_internal.h"

/* ---- news */

/* Whether a rank that comes now must report this meeting, which failed because lists differ. It must if a rank on
 * the newcomer's list was in that meeting, and if either the meeting's list has the newcomer or that rank has made
 * no call since. Otherwise that rank has since made a call without the newcomer, and may still come to the
 * newcomer's meeting. */
static bool meets_failure(const struct cecl_meeting_plan *plan, const struct meeting *meeting)
{
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&meeting->came, r) && cecl_rank_set_has(&plan->members, r) &&
            (is_of(meeting, plan->rank) || plan->table->last_of[r] == meeting->serial))
            return true;
    return false;
}

/* Whether this rank, which comes now, must report that this meeting has failed. If the reason is not that lists
 * differ, this rank must report it if this rank is a member of that meeting, and if this rank's list excludes
 * neither the rank that found the reason nor the rank at fault. */
static bool is_news(const struct cecl_meeting_plan *plan, const struct meeting *meeting)
{
    if (meeting->state != FAILED || cecl_rank_set_has(&meeting->know, plan->rank))
        return false;
    if (meeting->lists_differ)
        return meets_failure(plan, meeting);
    return is_of(meeting, plan->rank) && cecl_rank_set_has(&plan->members, meeting->by) &&
           (meeting->missing == NOBODY || cecl_rank_set_has(&plan->members, meeting->missing));
}

const struct meeting *cecl_meeting_find_news(const struct cecl_meeting_plan *plan)
{
    const struct meeting *news = NULL;
    for (EACH_MEETING(m, plan))
        if (is_news(plan, m) && (!news || m->serial < news->serial))
            news = m;
    return news;
}

static struct cecl_rank_set failed_with(const struct cecl_meeting_plan *plan, uint64_t cause)
{
    struct cecl_rank_set failed = nobody;
    for (EACH_MEETING(m, plan))
        if (m->state == FAILED && m->cause == cause)
            unite(&failed, &m->came);
    return failed;
}

void cecl_meeting_know(const struct cecl_meeting_plan *plan, const struct meeting *news)
{
    const struct cecl_rank_set failed = failed_with(plan, news->cause);
    for (EACH_MEETING(m, plan))
        if (m->state == FAILED &&
            (m->cause == news->cause || (is_news(plan, m) && !intersect(&m->came, &failed))))
            cecl_rank_set_add(&m->know, plan->rank);
}

/* Records a message that names a rank of `meeting` and a rank of the meeting `other`, each with the ranks
 * that it excludes. The rank of `other` is one of `others`. */
static void name_lists(const struct cecl_meeting_plan *plan, const struct meeting *meeting,
                       const struct meeting *other, const struct cecl_rank_set *others)
{
    struct cecl_rank_list one = list_of(&meeting->members, plan->nranks, false),
                          two = list_of(&other->members, plan->nranks, false);
    (void)!cecl_fail(ceclInvalidUsage,
                     "ranks differ in which ranks they exclude: %s on rank %d, %s on rank %d",
                     cecl_rank_list_words(&two), first_of_both(&other->came, others),
                     cecl_rank_list_words(&one), first_of_both(&meeting->came, &meeting->came));
}

/* ---- lists that differ */

static bool waits_for(const struct meeting *meeting, const struct meeting *other)
{
    const struct cecl_rank_set late = late_ranks(meeting);
    return intersect(&late, &other->came);
}

/* Which meeting `meeting` waits for: `mine`, or one that is stuck; NULL: neither. */
static const struct meeting *find_hold(const struct cecl_meeting_plan *plan,
                                       const struct meeting *meeting, const struct meeting *mine)
{
    if (meeting != mine && waits_for(meeting, mine))
        return mine;
    for (EACH_MEETING(m, plan))
        if (m->is_stuck && waits_for(meeting, m))
            return m;
    return NULL;
}

bool cecl_meeting_is_next_try(const struct meeting *meeting, const struct meeting *news)
{
    const struct cecl_rank_set deaf = news ? without(&meeting->came, &news->know) : meeting->came;
    return equal(&deaf, &nobody);
}

/* Finds the meetings that are stuck once `mine` fails: those that wait for a rank that came to `mine` or
 * to another stuck meeting. Writes to each a message about its list. */
static void find_stuck(const struct cecl_meeting_plan *plan, const struct meeting *mine,
                       const struct meeting *news)
{
    const struct meeting *hold;
    bool found = true;
    for (EACH_MEETING(m, plan))
        m->is_stuck = false;
    while (found) {
        found = false;
        for (EACH_MEETING(m, plan)) {
            if (m == mine || !is_open(m) || m->is_stuck || cecl_meeting_is_next_try(m, news) ||
                !(hold = find_hold(plan, m, mine)))
                continue;
            const struct cecl_rank_set late = late_ranks(m);
            name_lists(plan, m, hold, &late);
            snprintf(m->words, sizeof(m->words), "%s", cecl_message());
            m->is_stuck = found = true;
        }
    }
}

/* Whether a rank's last call belongs to the round of calls that fails now, which is the round of `callers`. It
 * does in two cases. Either the call has failed, its list had one of the callers, and no caller's call failed with
 * it. Or the call has not failed, its meeting has the list of `mine`, and no caller has come to that meeting. */
static bool called_before(const struct cecl_meeting_plan *plan, int rank,
                          const struct meeting *mine, const struct cecl_rank_set *callers)
{
    for (EACH_MEETING(m, plan)) {
        if (m->serial != plan->table->last_of[rank])
            continue;
        const struct cecl_rank_set failed = failed_with(plan, m->cause);
        return m->state == FAILED
                   ? intersect(&m->members, callers) && !intersect(&failed, callers)
                   : equal(&m->members, &mine->members) && !intersect(&m->came, callers);
    }
    return false;
}

void cecl_meeting_add_round(const struct cecl_meeting_plan *plan, const struct meeting *mine,
                            const struct cecl_rank_set *callers, struct cecl_rank_set *knowing)
{
    for (int r = 0; r < plan->nranks; r++)
        if (called_before(plan, r, mine, callers))
            cecl_rank_set_add(knowing, r);
}

/* Fails `mine` for `why`, and the stuck meetings because lists differ. */
static void fail_stuck(const struct cecl_meeting_plan *plan, struct meeting *mine,
                       const struct meeting *news, struct reason why)
{
    struct cecl_rank_set callers = mine->came, knowing;
    for (EACH_MEETING(m, plan))
        if (m->is_stuck)
            unite(&callers, &m->came);
    knowing = callers;
    if (news)
        unite(&knowing, &news->know);
    cecl_meeting_add_round(plan, mine, &callers, &knowing);
    why.know = &knowing;
    fail_for(mine, &why);
    why.lists_differ = true;
    why.by = plan->rank;
    why.missing = NOBODY;
    why.result = ceclInvalidUsage;
    for (EACH_MEETING(m, plan))
        if (m->is_stuck) {
            why.words = m->words;
            fail_for(m, &why);
        }
}

ceclResult_t cecl_meeting_tell(const struct cecl_meeting_plan *plan, struct meeting *mine,
                               const struct meeting *news)
{
    char words[WORDS_BYTES];
    if (news->lists_differ && !equal(&news->members, &plan->members))
        name_lists(plan, mine, news, &plan->members);
    else
        (void)!cecl_fail_with((ceclResult_t)news->result, news->words);
    cecl_keep_message(words);
    cecl_meeting_know(plan, news);
    find_stuck(plan, mine, news);
    fail_stuck(plan, mine, news,
               (struct reason){.by = news->by,
                               .missing = news->missing,
                               .result = (ceclResult_t)news->result,
                               .cause = news->cause,
                               .lists_differ = news->lists_differ,
                               .words = words});
    return cecl_fail_with((ceclResult_t)mine->result, words);
}

/* Fails `mine` and all meetings that are stuck with it, because their lists differ. */
static void fail_for_lists(const struct cecl_meeting_plan *plan, struct meeting *mine,
                           const char *words)
{
    fail_stuck(plan, mine, NULL,
               (struct reason){.by = plan->rank,
                               .missing = NOBODY,
                               .result = ceclInvalidUsage,
                               .cause = mine->serial,
                               .lists_differ = true,
                               .words = words});
}

ceclResult_t cecl_meeting_fail_circle(const struct cecl_meeting_plan *plan, struct meeting *mine)
{
    char words[WORDS_BYTES];
    find_stuck(plan, mine, NULL);
    const struct meeting *hold = find_hold(plan, mine, mine);
    if (!hold)
        return ceclSuccess;
    const struct cecl_rank_set late = late_ranks(mine);
    name_lists(plan, mine, hold, &late);
    cecl_keep_message(words);
    fail_for_lists(plan, mine, words);
    return cecl_fail_with(ceclInvalidUsage, words);
}

void cecl_meeting_fail_who_count_on(const struct cecl_meeting_plan *plan, struct meeting *mine)
{
    find_stuck(plan, mine, NULL);
    fail_for_lists(plan, mine, "ranks differ in which ranks they exclude");
}
