/* See meeting.h. Each rank has a row in the shared memory, which only that rank writes: its last call, its last
 * failure, and for each rank the number up to which that failure ends its calls. A rank numbers its calls. So one rank
 * can end another's call, even a call that the other has not made yet, and nobody takes it for a later one.
 *
 * A rank waits until all members wait with its list. Then it agrees: it adds up the numbers of their calls. The meeting
 * is complete once all have agreed to the same sum. No rank decides, so none whose death or stop would keep the others.
 *
 * A row has two slots, and a change of its version makes the other slot count. So others see a change whole or not at
 * all, even if the rank stops amid it. Each load is an acquire, and each store a release. So a reader of a slot that is
 * written again sees afterwards that the version has changed. */
#include "boot/meeting.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "boot/rank_list.h"
#include "util/clock.h"

#define NAP_MIN_NS 20000
#define NAP_MAX_NS 1000000 /* or, if that is longer, NAP_RANK_NS for each rank */
#define NAP_RANK_NS 40000
/* A rank that sees rows change while it looks at them looks again, at most this often: others that call all the time
 * must not keep it from its deadline. */
#define LOOKS_MAX 100
#define NOBODY (-1)
#define WORD sizeof(uint64_t)
#define LINE 8 /* words of a cache line */

/* What a rank last called for, and how far that is. */
enum state { NONE, WAITS, AGREES, MET, FAILED };

struct head {
    uint64_t number; /* of the call */
    uint64_t agreed; /* AGREES, MET: the sum of the members' numbers */
    uint64_t state;  /* enum state */
    struct cecl_rank_set members;
};

/* Stays until the rank meets others or fails again, because others may come late. */
struct failure {
    int32_t result;  /* ceclResult_t; ceclSuccess: there is none */
    int32_t missing; /* the member that had gone, or NOBODY */
    uint64_t lists_differ;
    struct cecl_rank_set members; /* the list of the call that failed */
    char words[CECL_MESSAGE_BYTES];
};

struct call {
    struct head head;
    struct failure failure;
    char part[CECL_MEETING_PART_BYTES];
};
_Static_assert(sizeof(struct head) % WORD == 0 && sizeof(struct failure) % WORD == 0 &&
                   sizeof(struct call) % WORD == 0,
               "they are copied as words");

/* A slot of a row has the first [nranks] of `over`: the calls of each rank up to that number are over. */
struct slot {
    struct call call;
    uint64_t over[CECL_MEETING_RANKS];
};

/* This rank's call. */
struct stay {
    const struct cecl_meeting_plan *plan;
    struct slot mine;                     /* as in the row */
    struct slot next;                     /* what a look makes of it */
    uint64_t changes;                     /* those that the last look has seen */
    uint64_t numbers[CECL_MEETING_RANKS]; /* of the members' calls, when this rank agreed */
    struct cecl_rank_set late;            /* the members that have not come as far as this rank */
};

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

/* Lists the ranks in a set, or those that are not in it. */
static struct cecl_rank_list list_of(const struct cecl_rank_set *set, int nranks, bool in)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < nranks; r++)
        if (cecl_rank_set_has(set, r) == in)
            cecl_rank_list_add(&list, r);
    return list;
}

/* ---- rows */

static size_t slot_words(int nranks)
{
    return sizeof(struct call) / WORD + (size_t)nranks;
}

static size_t row_words(int nranks)
{
    return (LINE + 2 * slot_words(nranks) + LINE - 1) / LINE * LINE;
}

size_t cecl_meetings_bytes(int nranks)
{
    return (size_t)nranks * row_words(nranks) * WORD;
}

/* A row begins with its version. */
static _Atomic uint64_t *row_of(const struct cecl_meeting_plan *plan, int rank)
{
    return (_Atomic uint64_t *)plan->memory + (size_t)rank * row_words(plan->nranks);
}

/* The slot that counts at this version. */
static _Atomic uint64_t *slot_of(const struct cecl_meeting_plan *plan, int rank, uint64_t version)
{
    return row_of(plan, rank) + LINE + version % 2 * slot_words(plan->nranks);
}

/* Reads the first `bytes` of a rank's slot. Returns up to which number that rank has ended the calls of rank `of`. */
static uint64_t read_slot(const struct cecl_meeting_plan *plan, int rank, void *to, size_t bytes,
                          int of)
{
    uint64_t version, word, over;
    do {
        version = atomic_load(row_of(plan, rank));
        const _Atomic uint64_t *slot = slot_of(plan, rank, version);
        for (size_t i = 0; i < bytes / WORD; i++) {
            word = atomic_load_explicit(&slot[i], memory_order_acquire);
            memcpy((char *)to + i * WORD, &word, WORD);
        }
        over = atomic_load_explicit(&slot[sizeof(struct call) / WORD + (size_t)of],
                                    memory_order_acquire);
    } while (atomic_load(row_of(plan, rank)) != version);
    return over;
}

static struct head head_of(const struct cecl_meeting_plan *plan, int rank)
{
    struct head head;
    (void)read_slot(plan, rank, &head, sizeof(head), 0);
    return head;
}

/* How often all rows were changed. If two answers are equal, all that was read in between was true at one time. */
static uint64_t count_changes(const struct cecl_meeting_plan *plan)
{
    uint64_t count = 0;
    for (int r = 0; r < plan->nranks; r++)
        count += atomic_load(row_of(plan, r));
    return count;
}

static void publish(struct stay *stay)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    const uint64_t version = atomic_load(row_of(plan, plan->rank));
    _Atomic uint64_t *slot = slot_of(plan, plan->rank, version + 1);
    uint64_t word;
    stay->mine = stay->next;
    for (size_t i = 0; i < slot_words(plan->nranks); i++) {
        memcpy(&word, (const char *)&stay->mine + i * WORD, WORD);
        atomic_store_explicit(&slot[i], word, memory_order_release);
    }
    atomic_store(row_of(plan, plan->rank), version + 1);
}

static void end_calls(struct stay *stay, int rank, uint64_t number)
{
    uint64_t *over = &stay->next.over[rank];
    *over = number > *over ? number : *over;
}

/* ---- other ranks' calls */

static bool is_waiting(const struct head *its)
{
    return its->state == WAITS || its->state == AGREES;
}

/* The same, unless this rank knows the other's call to be over. The other rank will hear that. */
static bool is_alive(const struct stay *stay, int rank, const struct head *its)
{
    return is_waiting(its) && its->number > stay->mine.over[rank];
}

static bool is_same(const struct cecl_meeting_plan *plan, const struct head *its)
{
    return equal(&its->members, &plan->members);
}

/* The first member that has ended this rank's call for a reason that concerns it, or NOBODY. A reason does not if the
 * rank at fault is not on this rank's list.
 * skip  [out] up to which number members have ended this rank's calls */
static int find_teller(const struct stay *stay, struct call *its, uint64_t *skip)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    const struct failure *failure = &its->failure;
    *skip = 0;
    for (int r = 0; r < plan->nranks; r++) {
        if (r == plan->rank || !cecl_rank_set_has(&plan->members, r))
            continue;
        const uint64_t over = read_slot(plan, r, its, 0, plan->rank);
        *skip = over > *skip ? over : *skip;
        if (over < stay->next.call.head.number)
            continue;
        (void)read_slot(plan, r, its, sizeof(*its), 0);
        if (failure->result != ceclSuccess &&
            (failure->missing == NOBODY || cecl_rank_set_has(&plan->members, failure->missing)))
            return r;
    }
    return NOBODY;
}

/* ---- failures */

/* Which waiting ranks a failure ends, besides those with this rank's list: none; those that list this rank; or also
 * those that list one of these, and so on. */
enum spread { SAME_LIST, WHO_LIST_ME, WHO_WAIT };

/* Finds the ranks whose calls end with this rank's.
 * lists  [out] the ranks that are on their lists */
static void find_ended(const struct stay *stay, enum spread spread, struct cecl_rank_set *ended,
                       struct cecl_rank_set *lists)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    struct cecl_rank_set me = nobody;
    bool grew = true;
    cecl_rank_set_add(&me, plan->rank);
    *ended = me;
    *lists = plan->members;
    while (grew) {
        grew = false;
        for (int r = 0; r < plan->nranks; r++) {
            const struct head its = head_of(plan, r);
            if (cecl_rank_set_has(ended, r) || !is_alive(stay, r, &its) ||
                !(equal(&its.members, &plan->members) ||
                  (spread != SAME_LIST &&
                   intersect(&its.members, spread == WHO_WAIT ? ended : &me))))
                continue;
            cecl_rank_set_add(ended, r);
            unite(lists, &its.members);
            grew = true;
        }
    }
}

/* Whether a rank has failed because lists differ, and has ended this rank's call with its own. */
static bool has_failed_by_lists(const struct stay *stay, int rank)
{
    struct call its;
    return read_slot(stay->plan, rank, &its, sizeof(its), stay->plan->rank) >=
               stay->next.call.head.number &&
           its.head.state == FAILED && its.failure.lists_differ;
}

/* Notes why this rank's call has failed; the last message says it. */
static void note_failure(struct stay *stay, struct failure why)
{
    why.members = stay->plan->members;
    cecl_keep_message(why.words);
    stay->next.call.failure = why;
    stay->next.call.head.state = FAILED;
    end_calls(stay, stay->plan->rank, stay->next.call.head.number);
}

/* Fails this rank's call, and those that end with it, with the last message. A rank on their lists that has not come
 * fails when it comes, unless it has made the same call already, or has failed itself and ended this call with its own:
 * then it has had its error. */
static void fail(struct stay *stay, enum spread spread, struct failure why)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    const bool is_listed = cecl_rank_set_has(&plan->members, plan->rank);
    struct cecl_rank_set ended, lists;
    find_ended(stay, spread, &ended, &lists);
    for (int r = 0; r < plan->nranks; r++) {
        const struct head its = head_of(plan, r);
        const uint64_t over = stay->next.over[r];
        if (r == plan->rank)
            continue;
        if (cecl_rank_set_has(&ended, r))
            end_calls(stay, r, its.number);
        else if ((!is_listed || cecl_rank_set_has(&lists, r)) && !is_alive(stay, r, &its) &&
                 !(why.lists_differ && has_failed_by_lists(stay, r)) &&
                 !(its.number > over && is_same(plan, &its)))
            end_calls(stay, r, (its.number > over ? its.number : over) + 1);
    }
    note_failure(stay, why);
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

/* Fails this rank's call, because another rank has ended it. Passes on which calls that rank has ended. */
static ceclResult_t fail_as_told(struct stay *stay, int teller, const struct call *its)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    const struct failure *why = &its->failure;
    struct head head;
    if (why->lists_differ && !equal(&why->members, &plan->members))
        (void)!name_lists(plan, teller, &why->members);
    else
        (void)!cecl_fail_with((ceclResult_t)why->result, why->words);
    for (int r = 0; r < plan->nranks; r++)
        end_calls(stay, r, read_slot(plan, teller, &head, 0, r));
    note_failure(stay, *why);
    return (ceclResult_t)why->result;
}

/* ---- waiting */

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
        const struct head its = head_of(plan, r);
        if (!cecl_rank_set_has(late, r) || its.number == 0 ||
            cecl_rank_set_has(&its.members, plan->rank))
            continue;
        struct cecl_rank_list without_me = list_of(&its.members, plan->nranks, false);
        return cecl_fail(ceclTimeout, "%s; rank %d last made the call without %s", cecl_message(),
                         r, cecl_rank_list_words(&without_me));
    }
    return ceclTimeout;
}

/* Returns an error if a late member has gone, or if the time is up. As long as this rank has not agreed, nobody has met,
 * so a member that has come and gone fails the meeting, too: its row may say for ever that it waits. */
static ceclResult_t check_late(const struct stay *stay, int32_t *missing)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    const bool waits = stay->next.call.head.state == WAITS;
    for (int r = 0; r < plan->nranks && plan->mesh; r++)
        if (cecl_rank_set_has(waits ? &plan->members : &stay->late, r) &&
            cecl_mesh_check_peer(plan->mesh, r) != ceclSuccess) {
            *missing = r;
            return cecl_fail(ceclRemoteError, "%s%s", cecl_message(), plan->gone ? plan->gone : "");
        }
    if (cecl_ms_left(plan->deadline) == 0)
        return name_who_is_late(plan, &stay->late);
    return ceclSuccess;
}

/* Returns an error if this rank waits for one that waits for this rank, perhaps through others, with another list. */
static ceclResult_t check_lists(const struct stay *stay)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    struct cecl_rank_set ended, lists;
    find_ended(stay, WHO_WAIT, &ended, &lists);
    for (int r = 0; r < plan->nranks; r++) {
        const struct head its = head_of(plan, r);
        if (r != plan->rank && cecl_rank_set_has(&ended, r) &&
            cecl_rank_set_has(&plan->members, r) && !equal(&its.members, &plan->members))
            return name_lists(plan, r, &its.members);
    }
    return ceclSuccess;
}

/* How far a member is with this rank's call. */
struct progress {
    bool waits, agrees;
    uint64_t number; /* of its own call */
};

static struct progress progress_of(const struct stay *stay, int rank)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    const struct head *mine = &stay->next.call.head;
    const bool is_me = rank == plan->rank;
    struct head its;
    const uint64_t over = read_slot(plan, rank, &its, sizeof(its), plan->rank);
    /* a member that has ended this rank's call without a reason has met this rank, and may have called again */
    if (mine->state == AGREES && !is_me && over >= mine->number)
        return (struct progress){.agrees = true, .number = stay->numbers[rank]};
    const bool same = is_same(plan, &its);
    return (struct progress){
        .waits = same && (is_me ? is_waiting(&its) : is_alive(stay, rank, &its)),
        .agrees = same && (its.state == AGREES || its.state == MET) && its.agreed == mine->agreed,
        .number = its.number};
}

/* Finds the members that have not come as far as this rank: it waits, or agrees. Returns the state that this rank has
 * next. */
static enum state find_late(struct stay *stay, uint64_t *sum)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    const struct head *mine = &stay->next.call.head;
    bool is_off = false;
    *sum = 0;
    stay->late = nobody;
    for (int r = 0; r < plan->nranks; r++) {
        if (!cecl_rank_set_has(&plan->members, r))
            continue;
        const struct progress its = progress_of(stay, r);
        *sum += its.number;
        is_off = is_off || (!its.waits && !its.agrees);
        if (mine->state == WAITS ? !its.waits : !its.agrees)
            cecl_rank_set_add(&stay->late, r);
    }
    /* a member has failed since, and may have come again */
    if (mine->state == AGREES && (is_off || *sum != mine->agreed))
        return WAITS;
    return !equal(&stay->late, &nobody) ? (enum state)mine->state
           : mine->state == WAITS       ? AGREES
                                        : MET;
}

/* Copies the parts of all members, and notes their calls: a member may make its next call as soon as all agree. */
static void take_parts(struct stay *stay, char *parts)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    struct call its;
    for (int r = 0; r < plan->nranks; r++) {
        if (!cecl_rank_set_has(&plan->members, r))
            continue;
        (void)read_slot(plan, r, &its, sizeof(its), 0);
        stay->numbers[r] = its.head.number;
        if (parts)
            memcpy(parts, its.part, plan->bytes);
        parts = parts ? parts + plan->bytes : NULL;
    }
}

/* The calls of all members are over. */
static void meet(struct stay *stay)
{
    for (int r = 0; r < stay->plan->nranks; r++)
        if (cecl_rank_set_has(&stay->plan->members, r))
            end_calls(stay, r, stay->numbers[r]);
    stay->next.call.failure = (struct failure){.missing = NOBODY};
}

/* Looks at the rows once, and makes `next`. Returns whether it differs. *result is the call's, once it is over. */
static bool look(struct stay *stay, char *parts, ceclResult_t *result)
{
    const struct cecl_meeting_plan *plan = stay->plan;
    struct head *head = &stay->next.call.head;
    struct failure why = {.missing = NOBODY};
    const uint64_t changes = count_changes(plan);
    struct call its;
    stay->next = stay->mine;
    *result = ceclSuccess;
    if (changes != stay->changes) {
        uint64_t sum, skip;
        const int teller = find_teller(stay, &its, &skip);
        if (teller != NOBODY) {
            *result = fail_as_told(stay, teller, &its);
            return true;
        }
        if (head->state == WAITS &&
            skip >= head->number) { /* goes on under a number that is not over */
            head->number = skip + 1;
            return true;
        }
        const enum state state = find_late(stay, &sum);
        if (state != head->state) {
            if (state == AGREES)
                take_parts(stay, parts);
            else if (state == MET)
                meet(stay);
            head->state = state;
            head->agreed = sum;
            return true;
        }
        *result = head->state == WAITS ? check_lists(stay) : ceclSuccess;
        stay->changes = changes;
    }
    why.lists_differ = *result != ceclSuccess;
    if (*result == ceclSuccess)
        *result = check_late(stay, &why.missing);
    if (*result == ceclSuccess)
        return false;
    why.result = (int32_t)*result;
    fail(stay, why.lists_differ ? WHO_WAIT : SAME_LIST, why);
    return true;
}

/* Whether this rank's call is over. If so, *result is its outcome. */
static bool is_over(struct stay *stay, char *parts, ceclResult_t *result)
{
    const struct head *next = &stay->next.call.head;
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        const uint64_t changes = count_changes(stay->plan);
        if (!look(stay, parts, result))
            return false;
        stay->changes = UINT64_MAX;
        if (count_changes(stay->plan) != changes &&
            !(next->state == FAILED && looks + 1 == LOOKS_MAX))
            continue;
        publish(stay);
        if (!is_waiting(next))
            return true;
    }
    return false;
}

/* ---- the calls */

/* Begins this rank's next call. */
static void come(struct stay *stay, const struct cecl_meeting_plan *plan)
{
    struct call *call = &stay->next.call;
    stay->plan = plan;
    for (int r = 0; r < plan->nranks; r++)
        stay->next.over[r] = read_slot(plan, plan->rank, call, sizeof(*call), r);
    call->head =
        (struct head){.number = call->head.number + 1, .state = WAITS, .members = plan->members};
    if (plan->bytes > 0) /* a rank that refuses brings nothing */
        memcpy(call->part, plan->part, plan->bytes);
    stay->mine = stay->next;
}

ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, void *parts)
{
    struct stay stay = {.changes = UINT64_MAX};
    ceclResult_t result = ceclSuccess;
    int64_t rest = 0;
    come(&stay, plan);
    publish(&stay);
    while (!is_over(&stay, parts, &result))
        nap(plan, &rest);
    return result;
}

ceclResult_t cecl_meeting_refuse(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    const bool is_listed = cecl_rank_set_has(&plan->members, plan->rank);
    const struct failure why = {.result = (int32_t)(is_listed ? result : ceclInvalidUsage),
                                .missing = NOBODY,
                                .lists_differ = !is_listed};
    struct stay stay;
    struct call its;
    uint64_t skip;
    char words[CECL_MESSAGE_BYTES];
    uint64_t changes;
    int looks = 0;
    cecl_keep_message(words);
    do {
        changes = count_changes(plan);
        come(&stay, plan);
        (void)!cecl_fail(result, "rank %d: %.200s", plan->rank, words);
        const int teller = find_teller(&stay, &its, &skip);
        if (teller == NOBODY && skip >= stay.next.call.head.number)
            stay.next.call.head.number = skip + 1;
        if (teller == NOBODY)
            fail(&stay, WHO_LIST_ME, why);
        else /* the others have learned of that failure, and take this call for a part of it */
            (void)!fail_as_told(&stay, teller, &its);
    } while (count_changes(plan) != changes && ++looks < LOOKS_MAX);
    publish(&stay);
    return cecl_fail_with(result, words);
}
