/* The rows of the meetings: see meeting.c. Each rank has a row in the shared memory, which only that rank writes. A row
 * has two slots, and a change of its version makes the other slot count. So others see a change whole or not at all,
 * even if the rank stops amid it. */
#ifndef CECL_BOOT_MEETING_ROWS_H
#define CECL_BOOT_MEETING_ROWS_H

#include <stdatomic.h>
#include <string.h>

#include "boot/meeting.h"

#define NOBODY (-1)

/* What a rank last called for, and how that ended. */
enum state { NONE, WAITS, MET, FAILED };

struct head {
    uint64_t number; /* of the call; some numbers are skipped */
    uint32_t state;  /* enum state */
    uint32_t is_split;
    struct cecl_rank_set members;
};

/* Why the calls have ended that a rank knows to be over. Stays until the rank meets others or fails again. */
struct failure {
    int32_t result;  /* ceclResult_t; ceclSuccess: there is none */
    int32_t missing; /* the member that had gone, or NOBODY */
    uint32_t lists_differ;
    uint32_t is_split;            /* of the call that failed */
    struct cecl_rank_set members; /* its list */
    char words[CECL_MESSAGE_BYTES];
};

/* A slot of a row: this, and then [nranks] numbers. The calls of each rank up to its number are over. */
struct call {
    struct head head;
    struct failure failure;
    char part[CECL_MEETING_PART_BYTES];
};
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

/* ---- rows */

/* Reads the first `bytes` of a rank's slot. Returns up to which number that rank knows the calls of rank `of` to be
 * over. */
uint64_t meeting_read(const struct cecl_meeting_plan *plan, int rank, void *to, size_t bytes,
                      int of);

/* How often all rows were changed. If two answers are equal, all that was read in between was true at one time. */
uint64_t meeting_changes(const struct cecl_meeting_plan *plan);

/* This rank's next slot. */
struct draft {
    struct call call;
    _Atomic uint64_t *over; /* [nranks] in the row: nobody reads them before they are published */
};

void meeting_begin(const struct cecl_meeting_plan *plan, struct draft *draft);
void meeting_publish(const struct cecl_meeting_plan *plan, const struct draft *draft);

/* Notes in a draft that the calls of a rank up to `number` are over. */
void meeting_end_calls(const struct draft *draft, int rank, uint64_t number);

/* Whether a member meets the very calls that a draft has as over. It does not if it knows of one that is over, though
 * the rank that made the call has not learned that yet. */
bool meeting_agrees(const struct cecl_meeting_plan *plan, int member, const struct draft *draft);

#endif
