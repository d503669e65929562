/* See meeting.h. Ranks append events to one log: that they come, refuse, or give up. The kernel gives the events one
 * order, and each rank reads all events in that order. So without a lock all ranks agree which meetings are complete
 * and which have failed. A rank that stops or dies leaves no partial event. (If an event were cut, calls would end at
 * their deadlines.)
 *
 * Meetings are rare, so nothing is ever removed from the log while its communicator lives. */
#include "boot/meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "boot/rank_list.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/siphash.h"

#define NAP_MIN_NS 20000
/* the longest nap: the larger of NAP_MAX_NS and nranks * NAP_RANK_NS, so that many ranks keep few cores busy */
#define NAP_MAX_NS 1000000
#define NAP_RANK_NS 40000
#define NOBODY (-1)
#define LOGGED_BYTES 8192 /* bytes reserved in the log for each rank, enough for 4 calls */
#define READING_MS 1000   /* how long a rank that gives up still reads the log */

enum kind { COMES = 1, GIVES_UP, REFUSES };

/* What a rank appends to the log. A page has room for a whole number of events, so no event crosses a page, and the
 * kernel writes each one whole. */
struct event {
    uint64_t sum; /* hash of the rest: up to Linux 6.7 the file may grow before it has the bytes */
    int32_t kind, rank;
    int32_t result;  /* GIVES_UP, REFUSES: ceclResult_t, with `words` */
    int32_t missing; /* GIVES_UP: the member that had gone, or NOBODY */
    uint64_t lists_differ;
    struct cecl_rank_set members;
    uint64_t call; /* COMES: the number of the rank's call */
    union {
        char words[CECL_MESSAGE_BYTES];
        char part[CECL_MEETING_PART_BYTES]; /* COMES */
    };
    char rest[224];
};
_Static_assert(CECL_MEMORY_UNIT % sizeof(struct event) == 0, "no event crosses a page");

/* What the log says of a rank. */
struct cecl_meeting_seat {
    int64_t came;  /* where the log has the event COMES of its call; 0: the rank does not wait */
    uint64_t call; /* the number of its last call */
    struct cecl_rank_set members; /* the list of its last call */
};

/* This rank's call. */
struct stay {
    const struct cecl_meeting_plan *plan;
    struct cecl_meetings *meetings;
    char *parts;
    bool is_over;
    ceclResult_t result;
};

/* Allocates the log's first pages, so that a lack of memory fails all ranks here. Later, a rank that cannot write would
 * fail alone, and the others would wait for it. Succeeds without pages in sandboxes that cannot allocate ahead. */
static ceclResult_t reserve(int log, size_t start, size_t bytes)
{
    int failed;
    do
        failed = fallocate(log, FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)bytes);
    while (failed && errno == EINTR);
    return failed && errno != EOPNOTSUPP && errno != ENOSYS && errno != EPERM
               ? cecl_fail(ceclOutOfMemory, "%zu bytes of shared memory for meetings: %s", bytes,
                           strerror(errno))
               : ceclSuccess;
}

ceclResult_t cecl_meetings_open(struct cecl_meetings *meetings, int log, size_t start, int rank,
                                int nranks)
{
    const size_t bytes = (size_t)nranks * LOGGED_BYTES;
    CECL_TRY(cecl_file_check_limit("shared memory", start + bytes));
    CECL_TRY(rank == 0 ? reserve(log, start, bytes) : ceclSuccess);
    *meetings = (struct cecl_meetings){.log = log,
                                       .rank = rank,
                                       .nranks = nranks,
                                       .next = (int64_t)start,
                                       .seats = calloc((size_t)nranks, sizeof(*meetings->seats))};
    return meetings->seats ? ceclSuccess
                           : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", nranks);
}

void cecl_meetings_close(struct cecl_meetings *meetings)
{
    free(meetings->seats);
    meetings->seats = NULL;
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

/* Whether all ranks of `a` are in `b`. */
static bool are_within(const struct cecl_rank_set *a, const struct cecl_rank_set *b)
{
    struct cecl_rank_set all = *b;
    cecl_rank_set_join(&all, a);
    return equal(&all, b);
}

/* ---- the log */

static uint64_t sum_of(const struct event *event)
{
    static const uint8_t key[16];
    return cecl_siphash(key, &event->kind, sizeof(*event) - offsetof(struct event, kind));
}

static ceclResult_t say(const struct cecl_meetings *meetings, struct event *event)
{
    event->rank = meetings->rank;
    event->sum = sum_of(event);
    return cecl_file_write(meetings->log, (const char *)event, sizeof(*event));
}

/* Returns false if the event is not in the log yet. */
static bool read_event(const struct cecl_meetings *meetings, int64_t at, struct event *event)
{
    if (pread(meetings->log, event, sizeof(*event), at) != (ssize_t)sizeof(*event) ||
        event->sum != sum_of(event) || event->rank < 0 || event->rank >= meetings->nranks)
        return false;
    if (event->kind != COMES)
        event->words[CECL_MESSAGE_BYTES - 1] = '\0';
    return true;
}

/* ---- failures */

/* Records a message that names this rank's list and another rank's list. */
static ceclResult_t name_lists(const struct cecl_meeting_plan *plan, int other,
                               const struct cecl_rank_set *others)
{
    const struct cecl_meetings *meetings = plan->meetings;
    struct cecl_rank_list one = cecl_rank_list_of(others, meetings->nranks, false),
                          two = cecl_rank_list_of(&plan->members, meetings->nranks, false);
    return cecl_fail(ceclInvalidUsage,
                     "ranks differ in which ranks they exclude: %s on rank %d, %s on rank %d",
                     cecl_rank_list_words(&one), other, cecl_rank_list_words(&two), meetings->rank);
}

/* Whether this rank has read the log up to the event of its present call. Until then this rank may read events that end
 * an earlier call of its own, if that call failed before it had read them. */
static bool is_mine(const struct stay *stay)
{
    const struct cecl_meetings *meetings = stay->meetings;
    return meetings->seats[meetings->rank].call == meetings->calls;
}

/* Fails a rank's call because of event `why`. */
static void end_call(struct stay *stay, int rank, const struct event *why)
{
    stay->meetings->seats[rank].came = 0;
    if (rank != stay->meetings->rank || !is_mine(stay))
        return;
    /* a rank that timed out with another list may name ranks not on this one, so the message names both */
    const bool differ = why->lists_differ || (why->kind == GIVES_UP && why->missing == NOBODY);
    stay->is_over = true;
    stay->result = differ && !equal(&why->members, &stay->plan->members)
                       ? name_lists(stay->plan, why->rank, &why->members)
                       : cecl_fail_with((ceclResult_t)why->result, why->words);
}

/* Whether an earlier failure also ends the call that `rank` makes with this list. It does if a rank whose call failed
 * is on the list. If the failure names a missing rank, that rank must be on the list, too. Looks at the oldest failure
 * first, until one ends the call. A failure that was looked at no longer counts for `rank`.
 * why  [out] the failure */
static bool is_owed(struct stay *stay, int rank, const struct cecl_rank_set *list,
                    struct event *why)
{
    struct cecl_meetings *meetings = stay->meetings;
    const int count = meetings->nfailures;
    bool found = false;
    meetings->nfailures = 0;
    for (int i = 0; i < count; i++) {
        struct cecl_meeting_failure *failure = &meetings->failures[i];
        if (!found && cecl_rank_set_has(&failure->owed, rank)) {
            cecl_rank_set_remove(&failure->owed, rank);
            found = intersect(list, &failure->failed) && read_event(meetings, failure->at, why) &&
                    (why->missing == NOBODY || cecl_rank_set_has(list, why->missing));
            if (found)
                cecl_rank_set_add(&failure->failed, rank);
        }
        if (!equal(&failure->owed, &nobody))
            meetings->failures[meetings->nfailures++] = *failure;
    }
    return found;
}

/* Keeps a failure. If there are too many, forgets an older one whose `owed` ranks are all in the new one's `owed`, or
 * else the oldest. */
static void keep_failure(struct cecl_meetings *meetings, const struct cecl_meeting_failure *failure)
{
    if (equal(&failure->owed, &nobody))
        return;
    if (meetings->nfailures == CECL_MEETING_FAILURES) {
        struct cecl_meeting_failure *end = meetings->failures + --meetings->nfailures,
                                    *gone = meetings->failures;
        while (gone <= end && !are_within(&gone->owed, &failure->owed))
            gone++;
        gone = gone <= end ? gone : meetings->failures;
        memmove(gone, gone + 1, (size_t)(end - gone) * sizeof(*gone));
    }
    meetings->failures[meetings->nfailures++] = *failure;
}

/* Which waiting ranks fail together with a rank. SAME_LIST: ranks with the same list. WHO_LIST_IT: ranks that list the
 * rank. WHO_WAIT: those of WHO_LIST_IT, the ranks that list one of those, and so on. */
enum spread { SAME_LIST, WHO_LIST_IT, WHO_WAIT };

/* Finds the ranks whose calls end when one rank's call fails. Sets *lists to all ranks that these calls list. */
static void find_ended(const struct cecl_meetings *meetings, int rank,
                       const struct cecl_rank_set *members, enum spread spread,
                       struct cecl_rank_set *ended, struct cecl_rank_set *lists)
{
    struct cecl_rank_set it = nobody;
    bool grew = true;
    cecl_rank_set_add(&it, rank);
    *ended = it;
    *lists = *members;
    while (grew) {
        grew = false;
        for (int r = 0; r < meetings->nranks; r++) {
            const struct cecl_meeting_seat *its = &meetings->seats[r];
            if (cecl_rank_set_has(ended, r) || its->came == 0 ||
                !(spread == SAME_LIST ? equal(&its->members, members)
                                      : intersect(&its->members, spread == WHO_WAIT ? ended : &it)))
                continue;
            cecl_rank_set_add(ended, r);
            cecl_rank_set_join(lists, &its->members);
            grew = true;
        }
    }
}

/* ---- reading the log */

/* Whether all members of a list wait with exactly this list. Sets *late to the members that do not. */
static bool all_wait(const struct cecl_meetings *meetings, const struct cecl_rank_set *list,
                     struct cecl_rank_set *late)
{
    *late = nobody;
    for (int r = 0; r < meetings->nranks; r++)
        if (cecl_rank_set_has(list, r) &&
            (meetings->seats[r].came == 0 || !equal(&meetings->seats[r].members, list)))
            cecl_rank_set_add(late, r);
    return equal(late, &nobody);
}

/* Ends the calls of all members of a list, who have met. */
static void meet(struct stay *stay, const struct cecl_rank_set *list)
{
    struct cecl_meetings *meetings = stay->meetings;
    const bool is_one = cecl_rank_set_has(list, meetings->rank) && is_mine(stay);
    const size_t bytes = stay->plan->bytes;
    struct event its;
    for (int r = 0, member = 0; r < meetings->nranks; r++) {
        if (!cecl_rank_set_has(list, r))
            continue;
        if (is_one && stay->parts && read_event(meetings, meetings->seats[r].came, &its))
            memcpy(stay->parts + (size_t)member++ * bytes, its.part, bytes);
        meetings->seats[r].came = 0;
    }
    stay->is_over = stay->is_over || is_one;
}

static void hear_arrival(struct stay *stay, const struct event *event, int64_t at)
{
    struct cecl_meeting_seat *seat = &stay->meetings->seats[event->rank];
    struct cecl_rank_set late;
    struct event why;
    seat->members = event->members;
    seat->call = event->call;
    if (is_owed(stay, event->rank, &event->members, &why)) {
        end_call(stay, event->rank, &why);
        return;
    }
    seat->came = at;
    if (all_wait(stay->meetings, &event->members, &late))
        meet(stay, &event->members);
}

/* Ends the calls that fail with this event. Keeps the failure for ranks that have not come. */
static void hear_failure(struct stay *stay, const struct event *event, int64_t at)
{
    struct cecl_meetings *meetings = stay->meetings;
    const bool is_listed = cecl_rank_set_has(&event->members, event->rank);
    struct cecl_rank_set ended, lists, owed = nobody;
    struct event why;
    if (event->kind == REFUSES)
        meetings->seats[event->rank].members = event->members;
    /* the refusal only repeats a failure that other ranks have read, or the call that fails has ended already */
    if (event->kind == REFUSES ? is_owed(stay, event->rank, &event->members, &why)
                               : meetings->seats[event->rank].came == 0)
        return;
    find_ended(meetings, event->rank, &event->members,
               event->kind == REFUSES ? WHO_LIST_IT
               : event->lists_differ  ? WHO_WAIT
                                      : SAME_LIST,
               &ended, &lists);
    for (int r = 0; r < meetings->nranks; r++) {
        struct cecl_meeting_seat *seat = &meetings->seats[r];
        if (seat->came != 0 && cecl_rank_set_has(&ended, r))
            end_call(stay, r, event);
        else if (r != event->rank && seat->came == 0 &&
                 (!is_listed || cecl_rank_set_has(&lists, r)))
            cecl_rank_set_add(&owed, r);
    }
    keep_failure(meetings, &(struct cecl_meeting_failure){at, ended, owed});
}

/* Reads on until this rank's call is over, or to the end of the log. Returns whether anything was read. */
static bool read_on(struct stay *stay)
{
    struct cecl_meetings *meetings = stay->meetings;
    struct event event;
    bool has_read = false;
    while (!stay->is_over && read_event(meetings, meetings->next, &event)) {
        const int64_t at = meetings->next;
        meetings->next += (int64_t)sizeof(event);
        has_read = true;
        if (event.kind == COMES)
            hear_arrival(stay, &event, at);
        else
            hear_failure(stay, &event, at);
    }
    return has_read;
}

/* ---- waiting */

/* Sleeps before the next look, longer each time. `ns` is 0 before the first sleep. */
static void nap(const struct cecl_meetings *meetings, int64_t *ns)
{
    const int64_t share = (int64_t)meetings->nranks * NAP_RANK_NS,
                  most = share > NAP_MAX_NS ? share : NAP_MAX_NS;
    *ns = *ns == 0 ? NAP_MIN_NS : *ns < most / 2 ? 2 * *ns : most;
    nanosleep(&(struct timespec){.tv_nsec = (long)*ns}, NULL);
}

static ceclResult_t name_who_is_late(const struct cecl_meeting_plan *plan)
{
    const struct cecl_meetings *meetings = plan->meetings;
    struct cecl_rank_set late;
    (void)all_wait(meetings, &plan->members, &late);
    struct cecl_rank_list names = cecl_rank_list_of(&late, meetings->nranks, true);
    cecl_fail(ceclTimeout, "%s did not come within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
              cecl_rank_list_words(&names), plan->timeout_ms);
    for (int r = 0; r < meetings->nranks; r++) {
        const struct cecl_rank_set *its = &meetings->seats[r].members;
        if (!cecl_rank_set_has(&late, r) || equal(its, &nobody) ||
            cecl_rank_set_has(its, meetings->rank))
            continue;
        struct cecl_rank_list without_me = cecl_rank_list_of(its, meetings->nranks, false);
        return cecl_fail(ceclTimeout, "%s; rank %d last made the call without %s", cecl_message(),
                         r, cecl_rank_list_words(&without_me));
    }
    return ceclTimeout;
}

/* Returns an error if ranks wait for each other in a circle: a member with another list waits for this rank, perhaps
 * through other ranks. */
static ceclResult_t check_lists(const struct cecl_meeting_plan *plan)
{
    const struct cecl_meetings *meetings = plan->meetings;
    struct cecl_rank_set ended, lists;
    find_ended(meetings, meetings->rank, &plan->members, WHO_WAIT, &ended, &lists);
    for (int r = 0; r < meetings->nranks; r++) {
        const struct cecl_rank_set *its = &meetings->seats[r].members;
        if (r != meetings->rank && cecl_rank_set_has(&ended, r) &&
            cecl_rank_set_has(&plan->members, r) && !equal(its, &plan->members))
            return name_lists(plan, r, its);
    }
    return ceclSuccess;
}

/* Returns an error if a member has gone, or at the deadline. */
static ceclResult_t check_late(const struct cecl_meeting_plan *plan, int32_t *missing)
{
    for (int r = 0; r < plan->meetings->nranks && plan->mesh; r++)
        if (cecl_rank_set_has(&plan->members, r) &&
            cecl_mesh_check_peer(plan->mesh, r) != ceclSuccess) {
            *missing = r;
            return cecl_fail(ceclRemoteError, "%s%s", cecl_message(), plan->gone ? plan->gone : "");
        }
    return cecl_ms_left(plan->deadline) == 0 ? name_who_is_late(plan) : ceclSuccess;
}

/* ---- the calls */

ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, void *parts)
{
    struct stay stay = {.plan = plan, .meetings = plan->meetings, .parts = parts};
    struct event event = {.kind = COMES, .members = plan->members, .call = ++plan->meetings->calls};
    ceclResult_t why = ceclSuccess;
    int64_t rest = 0, end = CECL_NO_DEADLINE;
    memcpy(event.part, plan->part, plan->bytes);
    CECL_TRY(say(plan->meetings, &event));
    for (;;) {
        const bool has_read = read_on(&stay);
        if (stay.is_over)
            return stay.result;
        if (cecl_ms_left(end) == 0)
            return cecl_fail_with(why, event.words);
        if (why == ceclSuccess) {
            event = (struct event){.kind = GIVES_UP, .missing = NOBODY, .members = plan->members};
            why = has_read ? check_lists(plan) : ceclSuccess;
            event.lists_differ = why != ceclSuccess;
            if (why == ceclSuccess)
                why = check_late(plan, &event.missing);
            if (why != ceclSuccess) {
                event.result = (int32_t)why;
                cecl_keep_message(event.words);
                CECL_TRY(say(plan->meetings, &event)); /* another event may precede it in the log */
                end = cecl_deadline(READING_MS);
                continue;
            }
        }
        nap(plan->meetings, &rest);
    }
}

ceclResult_t cecl_meeting_refuse(const struct cecl_meeting_plan *plan, ceclResult_t result)
{
    const bool is_listed = cecl_rank_set_has(&plan->members, plan->meetings->rank);
    struct event event = {.kind = REFUSES,
                          .result = (int32_t)(is_listed ? result : ceclInvalidUsage),
                          .missing = NOBODY,
                          .lists_differ = !is_listed,
                          .members = plan->members};
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    (void)!cecl_fail(result, "rank %d: %.200s", plan->meetings->rank, words);
    cecl_keep_message(event.words);
    (void)!say(plan->meetings, &event);
    return cecl_fail_with(result, words);
}
