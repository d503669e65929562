/* Where ranks whose mesh may be broken agree on who makes a new communicator. They meet in shared
 * memory (boot/shared.h). A meeting has a list of members. It is complete when all members have
 * come with the same list. It fails for all members when one of them refuses, dies or does not
 * come, and when lists differ so that ranks wait for each other. */
#ifndef CECL_BOOT_MEETING_H
#define CECL_BOOT_MEETING_H

#include <stdbool.h>

#include "boot/mesh.h"

#define CECL_MEETING_RANKS 1024 /* most ranks of a communicator */

struct cecl_rank_set {
    uint64_t words[CECL_MEETING_RANKS / 64];
};

static inline bool cecl_rank_set_has(const struct cecl_rank_set *set, int rank)
{
    return set->words[rank / 64] >> (rank % 64) & 1;
}

static inline void cecl_rank_set_add(struct cecl_rank_set *set, int rank)
{
    set->words[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static inline void cecl_rank_set_remove(struct cecl_rank_set *set, int rank)
{
    set->words[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
}

/* Bytes of shared memory for the meetings of a communicator. */
size_t cecl_meetings_bytes(int nranks);

struct cecl_meeting_plan {
    void *memory;           /* the meetings */
    struct cecl_mesh *mesh; /* tells which ranks have gone */
    int rank, nranks;       /* of the communicator that the mesh belongs to */
    struct cecl_rank_set members;
    int64_t timeout_ms; /* time from the call's start to the deadline, for messages */
    int64_t deadline;
};

/* Meets all members of the plan, this rank among them. All succeed, or all fail and have the
 * reason. A member that comes to a meeting which has failed fails at once.
 * serial  [out] the meeting's number in this communicator; from 1 on, equal on all members */
ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, uint64_t *serial);

/* Fails the meetings that wait for this rank, with `result` and the last message as the reason. If
 * no meeting waits, the plan's members fail when they come. If this rank is not a member of its own
 * plan, the reason says that its list differs from the lists of the ranks that wait for it. Returns
 * `result`, with its message. Does not wait for peers. */
ceclResult_t cecl_meeting_refuse(const struct cecl_meeting_plan *plan, ceclResult_t result);

#endif
