/* Where ranks whose mesh may be broken agree on who makes a new communicator. They meet in shared
 * memory (boot/shared.h). A meeting has a list of members. It is complete when all members have come
 * with the same list. It fails for all of them when one refuses, dies or does not come, and when lists
 * differ so that ranks wait for each other. Each member brings a part, and gets those of all when the
 * meeting is complete.
 *
 * Members on several hosts meet at the first of them instead (meeting_hosts.c). That one finds lists that differ
 * only if they have the same first member; otherwise time limits end the calls. */
#ifndef CECL_BOOT_MEETING_H
#define CECL_BOOT_MEETING_H

#include <stdbool.h>

#include "boot/mesh.h"

#define CECL_MEETING_RANKS 1024      /* most ranks of a communicator */
#define CECL_MEETING_PART_BYTES 632u /* most bytes that a member brings */

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
    struct cecl_mesh *mesh; /* tells who has gone; NULL: nobody can */
    int rank, nranks;       /* of the ranks that may be members */
    struct cecl_rank_set members;
    int64_t timeout_ms; /* time from the call's start to the deadline, for messages */
    int64_t deadline;
    const void *part; /* [bytes] what this rank brings; at most CECL_MEETING_PART_BYTES */
    size_t bytes;     /* of a part, equal on all members */
};

/* Meets all members of the plan, this rank among them. All succeed, or all fail and have the reason.
 * A member that comes to a meeting which has failed fails at once.
 * parts  [out, members * plan->bytes] in rank order; NULL: they are not wanted. ceclRemoteError where a
 *        member has made its next call before this rank has read its part. */
ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, void *parts);

/* Fails the meetings that wait for this rank, with `result` and the last message as the reason. If
 * no meeting waits, the plan's members fail when they come. If this rank is not a member of its own
 * plan, the reason says that its list differs from the lists of the ranks that wait for it. Returns
 * `result`, with its message. Does not wait for peers. */
ceclResult_t cecl_meeting_refuse(const struct cecl_meeting_plan *plan, ceclResult_t result);

#endif
