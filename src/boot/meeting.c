/* See meeting.h. The meetings are a table under a lock. The lock outlives a holder that dies. The
 * outcome of a meeting stays in the table, so a member that comes late learns of it; a member is
 * told of each failure once, and its next call is a new try. */
#include "boot/meeting.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "boot/rank_list.h"
#include "util/clock.h"

#define MEETINGS 8 /* kept; far more than ranks can be in at a time */
#define WORDS_BYTES 256
#define LOCK_MS 5000 /* ms that a holder of the lock may be off its processor */
#define PAUSE_MIN_NS 20000
#define PAUSE_MAX_NS 1000000

#define NOBODY (-1)

enum state { OPEN, COMPLETE, FAILED };

/* A rank may die between any two stores. So `serial` is the last that is stored of a new meeting, and
 * `state` of one that has failed. */
struct meeting {
    _Atomic uint64_t serial; /* 0: not in use */
    _Atomic int32_t state;   /* enum state */
    int32_t result;          /* FAILED: ceclResult_t, with `words` */
    int32_t by;              /* FAILED: the rank that found the reason */
    int32_t missing;         /* FAILED: the member that had ended or given up; or NOBODY */
    uint64_t cause;          /* FAILED: a number of the reason; two meetings may fail for one */
    bool lacks_list;         /* FAILED: whoever reads `words` adds its own list */
    struct cecl_rank_set members;
    struct cecl_rank_set came;   /* members that have come, or have been told of the failure */
    struct cecl_rank_set inside; /* members that wait for the outcome, or died waiting */
    char words[WORDS_BYTES];
};

/* Valid when zeroed. */
struct table {
    _Atomic uint32_t holder; /* of the lock: rank + 1, or 0 */
    uint64_t last;           /* the last serial that was given */
    struct meeting list[MEETINGS];
};

size_t cecl_meetings_bytes(void)
{
    return sizeof(struct table);
}

/* ---- sets */

static const struct cecl_rank_set nobody;

static bool equal(const struct cecl_rank_set *a, const struct cecl_rank_set *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static bool intersect(const struct cecl_rank_set *a, const struct cecl_rank_set *b)
{
    uint64_t both = 0;
    for (size_t i = 0; i < sizeof(a->words) / sizeof(a->words[0]); i++)
        both |= a->words[i] & b->words[i];
    return both != 0;
}

static void unite(struct cecl_rank_set *a, const struct cecl_rank_set *b)
{
    for (size_t i = 0; i < sizeof(a->words) / sizeof(a->words[0]); i++)
        a->words[i] |= b->words[i];
}

/* The ranks that are, or are not, in a set. */
static struct cecl_rank_list list_of(const struct cecl_rank_set *set, int nranks, bool in)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < nranks; r++)
        if (cecl_rank_set_has(set, r) == in)
            cecl_rank_list_add(&list, r);
    return list;
}

/* ---- the table */

static void nap(struct timespec *pause)
{
    nanosleep(pause, NULL);
    pause->tv_nsec = pause->tv_nsec * 2 < PAUSE_MAX_NS ? pause->tv_nsec * 2 : PAUSE_MAX_NS;
}

/* Fails an open meeting. Its reason is the last message. missing: as in struct meeting. */
static void fail(struct meeting *meeting, int by, int missing, ceclResult_t result)
{
    meeting->result = (int32_t)result;
    meeting->by = by;
    meeting->missing = missing;
    meeting->cause = meeting->serial;
    snprintf(meeting->words, sizeof(meeting->words), "%s", cecl_message());
    atomic_store(&meeting->state, FAILED);
}

/* Locks the table. A holder that died may have left a meeting half written, so all that are open
 * then fail. */
static ceclResult_t lock(const struct cecl_meeting_plan *plan)
{
    struct table *table = plan->memory;
    struct timespec pause = {.tv_nsec = PAUSE_MIN_NS};
    const uint32_t mine = (uint32_t)plan->rank + 1;
    const int64_t deadline = cecl_deadline(LOCK_MS); /* members still meet when theirs has passed */
    for (;;) {
        uint32_t holder = 0;
        if (atomic_compare_exchange_strong(&table->holder, &holder, mine))
            return ceclSuccess;
        const ceclResult_t there = cecl_mesh_check_peer(plan->mesh, (int)holder - 1, "");
        if (there != ceclSuccess && atomic_compare_exchange_strong(&table->holder, &holder, mine)) {
            for (int i = 0; i < MEETINGS; i++)
                if (table->list[i].state == OPEN)
                    fail(&table->list[i], plan->rank, (int)holder - 1, there);
            return ceclSuccess;
        }
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclTimeout, "rank %d stopped inside a call for more than %d ms",
                             (int)holder - 1, LOCK_MS);
        nap(&pause);
    }
}

static void unlock(const struct cecl_meeting_plan *plan)
{
    struct table *table = plan->memory;
    atomic_store(&table->holder, 0);
}

static bool is_used(const struct meeting *meeting)
{
    return !equal(&meeting->inside, &nobody);
}

/* Takes the place of the oldest meeting that nobody is in, or else of the oldest. */
static struct meeting *create(const struct cecl_meeting_plan *plan)
{
    struct table *table = plan->memory;
    struct meeting *oldest = &table->list[0];
    for (int i = 1; i < MEETINGS; i++) {
        struct meeting *m = &table->list[i];
        if (is_used(m) != is_used(oldest) ? is_used(oldest) : m->serial < oldest->serial)
            oldest = m;
    }
    atomic_store(&oldest->serial, 0);
    oldest->state = OPEN;
    oldest->members = plan->members;
    oldest->came = nobody;
    oldest->inside = nobody;
    oldest->lacks_list = false;
    atomic_store(&oldest->serial, ++table->last);
    return oldest;
}

/* ---- coming */

/* What a rank that comes finds. */
struct found {
    struct meeting *same;     /* open, with the same members */
    struct meeting *conflict; /* one of those that are in conflict with the rank's list */
    struct meeting *failed;   /* the first that failed and that this rank has not been told of */
};

static bool is_of(const struct meeting *meeting, int rank)
{
    return meeting->serial != 0 && cecl_rank_set_has(&meeting->members, rank);
}

/* Whether a meeting waits for this rank with other members, and a rank of this rank's list is there. */
static bool is_in_conflict(const struct cecl_meeting_plan *plan, const struct meeting *meeting)
{
    return is_of(meeting, plan->rank) && meeting->state == OPEN &&
           !equal(&meeting->members, &plan->members) && intersect(&meeting->came, &plan->members);
}

/* Whether a failure concerns a rank that comes: it is a member, it does not know yet, and it
 * excludes neither the rank that found the reason nor the one that is the reason. */
static bool is_news(const struct cecl_meeting_plan *plan, const struct meeting *meeting)
{
    return meeting->state == FAILED && !cecl_rank_set_has(&meeting->came, plan->rank) &&
           cecl_rank_set_has(&plan->members, meeting->by) &&
           (meeting->missing == NOBODY || cecl_rank_set_has(&plan->members, meeting->missing));
}

static struct found look(const struct cecl_meeting_plan *plan)
{
    struct table *table = plan->memory;
    struct found found = {0};
    for (int i = 0; i < MEETINGS; i++) {
        struct meeting *m = &table->list[i];
        if (!is_of(m, plan->rank))
            continue;
        if (m->state == OPEN && equal(&m->members, &plan->members))
            found.same = m;
        else if (is_in_conflict(plan, m))
            found.conflict = m;
        else if (is_news(plan, m) && (!found.failed || m->serial < found.failed->serial))
            found.failed = m;
    }
    return found;
}

#define ANY_CAUSE 0

/* This rank knows of the failures for one reason, or for any. */
static void know_failures(const struct cecl_meeting_plan *plan, uint64_t cause)
{
    struct table *table = plan->memory;
    for (int i = 0; i < MEETINGS; i++)
        if (table->list[i].state == FAILED && (cause == ANY_CAUSE || table->list[i].cause == cause))
            cecl_rank_set_add(&table->list[i].came, plan->rank);
}

/* Fails the meetings in conflict for the reason of `same`. */
static void fail_conflicts(const struct cecl_meeting_plan *plan, struct meeting *same)
{
    struct table *table = plan->memory;
    for (int i = 0; i < MEETINGS; i++) /* all who came to any of them have the reason */
        if (is_in_conflict(plan, &table->list[i]))
            unite(&same->came, &table->list[i].came);
    fail(same, plan->rank, NOBODY, ceclInvalidUsage);
    for (int i = 0; i < MEETINGS; i++) {
        struct meeting *m = &table->list[i];
        if (!is_in_conflict(plan, m))
            continue;
        m->came = same->came;
        fail(m, plan->rank, NOBODY, ceclInvalidUsage);
        m->cause = same->cause;
    }
}

/* Whom the ranks of a meeting exclude, and whom this one does. */
static void name_lists(const struct cecl_meeting_plan *plan, const struct meeting *meeting)
{
    struct cecl_rank_list mine = list_of(&plan->members, plan->nranks, false),
                          theirs = list_of(&meeting->members, plan->nranks, false);
    int other = 0;
    while (!cecl_rank_set_has(&meeting->came, other))
        other++;
    (void)!cecl_fail(ceclInvalidUsage,
                     "ranks differ in whom they exclude: %s on rank %d, %s on rank %d",
                     cecl_rank_list_words(&theirs), other, cecl_rank_list_words(&mine), plan->rank);
}

/* Fails the meeting of this rank's list and all in conflict with it, so that all ranks that came to
 * one of them, or still come, have the reason. */
static ceclResult_t fail_all(const struct cecl_meeting_plan *plan, const struct found *found)
{
    name_lists(plan, found->conflict);
    struct meeting *same = found->same ? found->same : create(plan);
    cecl_rank_set_add(&same->came, plan->rank);
    fail_conflicts(plan, same);
    return ceclInvalidUsage;
}

/* The reason why a meeting has failed. */
static ceclResult_t reason_of(const struct cecl_meeting_plan *plan, const struct meeting *meeting)
{
    struct cecl_rank_list mine = list_of(&plan->members, plan->nranks, false);
    const ceclResult_t result = (ceclResult_t)meeting->result;
    return meeting->lacks_list ? cecl_fail(result, "%s, %s on rank %d", meeting->words,
                                           cecl_rank_list_words(&mine), plan->rank)
                               : cecl_fail_with(result, meeting->words);
}

/* Enters a meeting, or makes one. The caller holds the lock. A failure is told before a conflict is
 * looked for: the others may be at their next try by then, with another list. */
static ceclResult_t enter(const struct cecl_meeting_plan *plan, struct meeting **meeting)
{
    struct found found = look(plan);
    if (found.failed && !found.same) {
        know_failures(plan, found.failed->cause);
        return reason_of(plan, found.failed);
    }
    if (found.conflict)
        return fail_all(plan, &found);
    know_failures(plan, ANY_CAUSE); /* those before the meeting are over */
    *meeting = found.same ? found.same : create(plan);
    cecl_rank_set_add(&(*meeting)->came, plan->rank);
    cecl_rank_set_add(&(*meeting)->inside, plan->rank);
    if (equal(&(*meeting)->came, &plan->members))
        (*meeting)->state = COMPLETE;
    return ceclSuccess;
}

/* ---- waiting */

/* The last meeting that one of these ranks came to without this rank, or NULL. */
static const struct meeting *find_elsewhere(const struct cecl_meeting_plan *plan,
                                            const struct cecl_rank_set *late)
{
    const struct table *table = plan->memory;
    const struct meeting *last = NULL;
    for (int i = 0; i < MEETINGS; i++) {
        const struct meeting *m = &table->list[i];
        if (m->serial > 0 && !cecl_rank_set_has(&m->members, plan->rank) &&
            intersect(&m->came, late) && (!last || m->serial > last->serial))
            last = m;
    }
    return last;
}

static ceclResult_t name_who_is_late(const struct cecl_meeting_plan *plan,
                                     const struct meeting *meeting)
{
    struct cecl_rank_set late = plan->members;
    for (size_t i = 0; i < sizeof(late.words) / sizeof(late.words[0]); i++)
        late.words[i] &= ~meeting->came.words[i];
    struct cecl_rank_list names = list_of(&late, plan->nranks, true);
    const struct meeting *elsewhere = find_elsewhere(plan, &late);
    cecl_fail(ceclTimeout, "%s did not come within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
              cecl_rank_list_words(&names), plan->timeout_ms);
    if (!elsewhere)
        return ceclTimeout;
    struct cecl_rank_list without = list_of(&elsewhere->members, plan->nranks, false);
    int other = 0;
    while (!cecl_rank_set_has(&elsewhere->came, other) || !cecl_rank_set_has(&late, other))
        other++;
    return cecl_fail(ceclTimeout, "%s; rank %d last made the call without %s", cecl_message(),
                     other, cecl_rank_list_words(&without));
}

/* Fails with the reason why an open meeting can no longer become complete. */
static ceclResult_t check_missing(const struct cecl_meeting_plan *plan,
                                  const struct meeting *meeting, int *missing)
{
    *missing = NOBODY;
    for (int r = 0; r < plan->nranks; r++)
        if (cecl_rank_set_has(&plan->members, r) && !cecl_rank_set_has(&meeting->came, r)) {
            const ceclResult_t there = cecl_mesh_check_peer(plan->mesh, r, "");
            if (there != ceclSuccess) {
                *missing = r;
                return cecl_fail(there, "%s; it is not excluded", cecl_message());
            }
        }
    return cecl_ms_left(plan->deadline) == 0 ? name_who_is_late(plan, meeting) : ceclSuccess;
}

/* Whether the meeting is over; *result is then its outcome. The caller holds the lock. */
static bool is_over(const struct cecl_meeting_plan *plan, struct meeting *meeting, uint64_t serial,
                    ceclResult_t *result)
{
    int missing;
    *result = ceclSuccess;
    if (meeting->serial != serial) {
        *result = cecl_fail(ceclRemoteError, "a later call took the place of this one");
    } else if (meeting->state == OPEN) {
        *result = check_missing(plan, meeting, &missing);
        if (*result != ceclSuccess)
            fail(meeting, plan->rank, missing, *result);
    } else if (meeting->state == FAILED) {
        *result = cecl_fail_with((ceclResult_t)meeting->result, meeting->words);
    }
    return *result != ceclSuccess || meeting->state == COMPLETE;
}

ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, uint64_t *serial)
{
    struct meeting *meeting = NULL;
    struct timespec pause = {.tv_nsec = PAUSE_MIN_NS};
    CECL_TRY(lock(plan));
    ceclResult_t result = enter(plan, &meeting);
    if (result == ceclSuccess)
        *serial = meeting->serial;
    while (result == ceclSuccess && !is_over(plan, meeting, *serial, &result)) {
        unlock(plan);
        nap(&pause);
        CECL_TRY(lock(plan));
    }
    if (meeting && meeting->serial == *serial)
        cecl_rank_set_remove(&meeting->inside, plan->rank);
    unlock(plan);
    return result;
}

/* This rank's list has the rank itself. So it differs from the list of all that wait for this rank, or that
 * come later and count on it, whether they are on the list or not. */
static void fail_all_who_count_on(const struct cecl_meeting_plan *plan)
{
    struct table *table = plan->memory;
    struct cecl_meeting_plan everyone = *plan;
    struct cecl_rank_list mine = list_of(&plan->members, plan->nranks, false);
    for (int r = 0; r < plan->nranks; r++)
        cecl_rank_set_add(&everyone.members, r);
    struct meeting *later = create(&everyone);
    cecl_rank_set_add(&later->came, plan->rank);
    for (int i = 0; i < MEETINGS; i++) {
        struct meeting *m = &table->list[i];
        if (m == later || m->state != OPEN || !is_of(m, plan->rank))
            continue;
        name_lists(plan, m);
        unite(&later->came, &m->came);
        m->came = later->came;
        fail(m, plan->rank, NOBODY, ceclInvalidUsage);
        m->cause = later->serial;
    }
    (void)!cecl_fail(ceclInvalidUsage, "ranks differ in whom they exclude: %s on rank %d",
                     cecl_rank_list_words(&mine), plan->rank);
    later->lacks_list = true;
    fail(later, plan->rank, NOBODY, ceclInvalidUsage);
}

/* Fails all meetings that wait for this rank. If none does, the plan's members fail when they come. */
static void fail_members(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    struct table *table = plan->memory;
    bool waits = false;
    for (int i = 0; i < MEETINGS; i++) {
        struct meeting *m = &table->list[i];
        if (m->state != OPEN || !is_of(m, plan->rank))
            continue;
        cecl_rank_set_add(&m->came, plan->rank);
        fail(m, plan->rank, NOBODY, result);
        waits = true;
    }
    if (waits)
        return;
    struct meeting *m = create(plan);
    cecl_rank_set_add(&m->came, plan->rank);
    fail(m, plan->rank, NOBODY, result);
}

ceclResult_t cecl_meeting_refuse(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    if (lock(plan) != ceclSuccess)
        return cecl_fail_with(result, words);
    (void)!cecl_fail(result, "rank %d: %.200s", plan->rank, words);
    if (cecl_rank_set_has(&plan->members, plan->rank))
        fail_members(plan, result);
    else
        fail_all_who_count_on(plan);
    unlock(plan);
    return cecl_fail_with(result, words);
}
