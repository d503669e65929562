/* What the files of the meetings share: the table of meetings, and the rules for lists that differ. A rank works on
 * its own copy of the table (meeting_table.c). */
#ifndef CECL_BOOT_MEETING_INTERNAL_H
#define CECL_BOOT_MEETING_INTERNAL_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "boot/meeting.h"
#include "boot/rank_list.h"

/* The table keeps the outcomes of this many meetings that no rank is in any more. In addition, each rank is in at
 * most one meeting. */
#define OUTCOMES 8
#define WORDS_BYTES CECL_MESSAGE_BYTES

#define NOBODY (-1)

enum state { OPEN, COMPLETE, FAILED };

struct meeting {
    uint64_t serial; /* counts the meetings, from 1 */
    int32_t state;   /* enum state */
    int32_t result;  /* FAILED: ceclResult_t of the reason; `words` is its message */
    int32_t by;      /* FAILED: the rank that found the reason */
    int32_t missing; /* FAILED: the member that had ended or given up, or NOBODY */
    /* FAILED: a number for the reason; several meetings may fail for the same one */
    uint64_t cause;
    bool lists_differ; /* FAILED: because lists differ */
    bool is_stuck;     /* used by fail_stuck */
    struct cecl_rank_set members;
    struct cecl_rank_set came; /* members that have come */
    /* FAILED: ranks that know of the failure, or need not know */
    struct cecl_rank_set know;
    /* members that wait for the outcome, died while waiting, or could not publish that they left */
    struct cecl_rank_set inside;
    char words[WORDS_BYTES];
};

/* Valid when zeroed. */
struct cecl_meeting_table {
    /* in a rank's own copy: the shared table's `newest` when this copy was equal to it; UINT64_MAX: it is not */
    uint64_t seen;
    uint64_t last;                        /* the last serial in use */
    uint64_t used;                        /* meetings in the list */
    uint64_t last_of[CECL_MEETING_RANKS]; /* the meeting that each rank came to last */
    struct meeting list[];                /* [used], room for [nranks + OUTCOMES] */
};

#define EACH_MEETING(m, plan)                                                                      \
    struct meeting *m = (plan)->table->list;                                                       \
    m < (plan)->table->list + (plan)->table->used;                                                 \
    m++

/* ---- sets */

static const struct cecl_rank_set nobody;

static inline bool equal(const struct cecl_rank_set *a, const struct cecl_rank_set *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static inline bool intersect(const struct cecl_rank_set *a, const struct cecl_rank_set *b)
{
    uint64_t both = 0;
    for (size_t i = 0; i < sizeof(a->words) / sizeof(a->words[0]); i++)
        both |= a->words[i] & b->words[i];
    return both != 0;
}

static inline void unite(struct cecl_rank_set *a, const struct cecl_rank_set *b)
{
    for (size_t i = 0; i < sizeof(a->words) / sizeof(a->words[0]); i++)
        a->words[i] |= b->words[i];
}

/* The ranks of one set that are not in another. */
static inline struct cecl_rank_set without(const struct cecl_rank_set *a,
                                           const struct cecl_rank_set *b)
{
    struct cecl_rank_set set;
    for (size_t i = 0; i < sizeof(a->words) / sizeof(a->words[0]); i++)
        set.words[i] = a->words[i] & ~b->words[i];
    return set;
}

/* The first rank that is in both sets. There must be one. */
static inline int first_of_both(const struct cecl_rank_set *a, const struct cecl_rank_set *b)
{
    int rank = 0;
    while (!cecl_rank_set_has(a, rank) || !cecl_rank_set_has(b, rank))
        rank++;
    return rank;
}

/* Lists the ranks in a set, or those that are not in it. */
static inline struct cecl_rank_list list_of(const struct cecl_rank_set *set, int nranks, bool in)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < nranks; r++)
        if (cecl_rank_set_has(set, r) == in)
            cecl_rank_list_add(&list, r);
    return list;
}

/* ---- the table */

static inline bool is_of(const struct meeting *meeting, int rank)
{
    return cecl_rank_set_has(&meeting->members, rank);
}

static inline bool is_open(const struct meeting *meeting)
{
    return meeting->state == OPEN;
}

/* The members that have not come. */
static inline struct cecl_rank_set late_ranks(const struct meeting *meeting)
{
    return without(&meeting->members, &meeting->came);
}

/* Why a meeting fails; the fields are those of struct meeting. */
struct reason {
    int by, missing;
    ceclResult_t result;
    uint64_t cause;
    bool lists_differ;
    const struct cecl_rank_set *know;
    const char *words;
};

/* Fails an open meeting. */
static inline void fail_for(struct meeting *meeting, const struct reason *why)
{
    meeting->result = (int32_t)why->result;
    meeting->by = why->by;
    meeting->missing = why->missing;
    meeting->cause = why->cause;
    meeting->lists_differ = why->lists_differ;
    meeting->know = *why->know;
    if (why->words != meeting->words)
        snprintf(meeting->words, sizeof(meeting->words), "%s", why->words);
    meeting->state = FAILED;
}

/* ---- the shared table (meeting_table.c) */

#define COPIES 8 /* one counts, one is written, and six stopped ranks may each keep one */

/* Valid when zeroed. The copies of the table follow, and then the parts. */
struct shared_table {
    _Atomic uint64_t newest; /* how often the table was changed * COPIES + which copy counts */
    /* the rank that writes the copy, + 1; or 0. That rank may have ended. A rank writes only a copy that is its own
     * and does not count. */
    _Atomic uint32_t writer[COPIES];
    _Atomic uint64_t words[];
};

/* Notes that this rank's copy of the table is equal to no shared table. */
void meeting_forget(const struct cecl_meeting_plan *plan);

/* Makes this rank's copy equal to the shared table. */
void meeting_read(const struct cecl_meeting_plan *plan);

/* Makes this rank's copy the shared table, unless the table has changed since this rank read it. Then, or after an
 * error, *published is false. */
ceclResult_t meeting_publish(const struct cecl_meeting_plan *plan, bool *published);

/* Stores this rank's part, before it publishes that it has come to the meeting `serial`. */
void meeting_bring(const struct cecl_meeting_plan *plan, uint64_t serial);

/* Copies the part that a rank brought to the meeting `serial`. Returns false if that rank has come to another meeting
 * since. bytes: [out, plan->bytes] */
bool meeting_take(const struct cecl_meeting_plan *plan, int rank, uint64_t serial, void *bytes);

/* Returns an error, which says that the rank is not excluded, if a rank has gone. */
ceclResult_t meeting_check_there(const struct cecl_meeting_plan *plan, int rank);

/* Sleeps before the next look, longer each time. Among many ranks each sleeps longer, because the looks of all of
 * them would keep few cores busy. ns: 0 before the first sleep */
void meeting_nap(const struct cecl_meeting_plan *plan, int64_t *ns);

/* ---- lists that differ (meeting_lists.c) */

/* The oldest failure that this rank must report when it comes to a meeting, or NULL. */
const struct meeting *cecl_meeting_find_news(const struct cecl_meeting_plan *plan);

/* Called when this rank reports a failure. Marks the meetings that failed in the same round of calls as
 * known to this rank, so that its next call does not report them. (Two meetings that one rank was in are
 * of two rounds, because that rank has made two calls.) */
void cecl_meeting_know(const struct cecl_meeting_plan *plan, const struct meeting *news);

/* Whether all ranks of a meeting already know of the failure `news` that this rank reports now. If so, they wait
 * for this rank's next call, and their meeting does not fail with this one. news: NULL if there is none. */
bool cecl_meeting_is_next_try(const struct meeting *meeting, const struct meeting *news);

/* Adds to `knowing` the ranks whose last calls belong to the round of calls that fails now, which is the round of
 * `callers`. mine: this rank's meeting, which has not failed yet. */
void cecl_meeting_add_round(const struct cecl_meeting_plan *plan, const struct meeting *mine,
                            const struct cecl_rank_set *callers, struct cecl_rank_set *knowing);

/* Fails `mine`, this rank's meeting, for the reason of the failed meeting `news`. Returns that error. */
ceclResult_t cecl_meeting_tell(const struct cecl_meeting_plan *plan, struct meeting *mine,
                               const struct meeting *news);

/* When this rank has come, meetings may wait for each other's ranks in a circle. If so, fails these
 * meetings and all meetings that wait for them, and returns the error; otherwise ceclSuccess. */
ceclResult_t cecl_meeting_fail_circle(const struct cecl_meeting_plan *plan, struct meeting *mine);

/* Called when this rank's list excludes this rank. Fails the meetings of all ranks that have this rank on
 * their lists, now or later. */
void cecl_meeting_fail_who_count_on(const struct cecl_meeting_plan *plan, struct meeting *mine);

#endif
