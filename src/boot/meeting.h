/* Meetings: ranks of one host, whose mesh may be broken or not made yet, agree which of them make a new communicator.
 * Each rank calls cecl_meeting_join with a list of members. A meeting is complete when all members of a list have
 * called with that list. A meeting fails if a member refuses, dies or does not come, or if lists differ so that ranks
 * wait for each other. Each member brings a part, and gets the parts of all members when the meeting is complete. */
#ifndef CECL_BOOT_MEETING_H
#define CECL_BOOT_MEETING_H

#include <stdbool.h>

#include "boot/mesh.h"
#include "boot/rank_list.h"

#define CECL_MEETING_PART_BYTES 632u /* the most bytes of a member's part */

#define CECL_MEETING_FAILURES 8

/* A failed meeting, kept for ranks that had not come. The next call of such a rank fails for the same reason if its
 * list has a rank of `failed`. If the rank at fault is known, the list must have that rank, too. */
struct cecl_meeting_failure {
    int64_t at; /* where the log has the event of the failure */
    struct cecl_rank_set failed,
        owed; /* the ranks whose calls the failure ended, and the ranks that had not come */
};

/* A communicator's meetings, as far as one rank has read the log. */
struct cecl_meetings {
    int log; /* the log's file, which the caller owns */
    int rank, nranks;
    uint64_t calls;                  /* how many calls this rank has made */
    int64_t next;                    /* where this rank goes on reading the log */
    struct cecl_meeting_seat *seats; /* [nranks] */
    struct cecl_meeting_failure failures[CECL_MEETING_FAILURES]; /* the latest, oldest first */
    int nfailures;
};

/* log    a memory file that all ranks append to (cecl_memory_make); the caller closes it
 * start  where the log begins in the file: a multiple of CECL_MEMORY_UNIT, but not 0; equal on all ranks */
ceclResult_t cecl_meetings_open(struct cecl_meetings *meetings, int log, size_t start, int rank,
                                int nranks);
/* Zeroed meetings may be closed. */
void cecl_meetings_close(struct cecl_meetings *meetings);

struct cecl_meeting_plan {
    struct cecl_meetings *meetings;
    struct cecl_mesh *mesh; /* tells which ranks have gone; NULL: nothing tells that */
    struct cecl_rank_set members;
    const char *gone;   /* what to append to the message that a member has gone; NULL: nothing */
    int64_t timeout_ms; /* time from the call's start to the deadline; for error messages */
    int64_t deadline;
    const void *part; /* [bytes] what this rank brings; at most CECL_MEETING_PART_BYTES */
    size_t bytes;     /* bytes of a part, equal on all members */
};

/* Meets all members of the plan, which include this rank. All succeed, or all fail for the same reason. A member that
 * comes after the failure fails at once.
 * parts  [out, members * plan->bytes] in rank order; NULL: not needed */
ceclResult_t cecl_meeting_join(const struct cecl_meeting_plan *plan, void *parts);

/* Fails the meetings that wait for this rank, with `result` and the last message as the reason. Members of the plan
 * that have not come yet fail when they come. If the plan does not list this rank, the reason that peers get is that
 * lists differ. Returns `result`, with its message. Does not wait for peers. */
ceclResult_t cecl_meeting_refuse(const struct cecl_meeting_plan *plan, ceclResult_t result);

#endif
