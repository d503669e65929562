/* A thread's open group: its launches, which are carried out at ceclGroupEnd. */
#ifndef CECL_LAUNCH_GROUP_H
#define CECL_LAUNCH_GROUP_H

#include "launch/make.h"

struct cecl_join;

/* The group of a thread. When the group has ended, the thread keeps this memory for its next group. */
struct cecl_group {
    int depth;
    bool has_ranges;          /* at least one call is on a communicator with NVTX ranges */
    struct cecl_launches all; /* what the group carries out */
    uint32_t ncalls;          /* how many calls were made in the group, refused ones included */
    uint32_t
        failed_call; /* the number of the refused call, until the message names it; 0: unknown */
    const char *failed_name; /* the refused call's function */
    /* joins that wait for the group's end (api/init.c); freed when the thread ends */
    struct cecl_join *joins;
    void (*free_joins)(struct cecl_join *joins);
};

/* Whether this thread is between ceclGroupStart and ceclGroupEnd. */
bool cecl_group_is_open(void);
/* Refuses a call that cannot be in a group, if one is open. `advice` ends the message: "" or "; ...". */
ceclResult_t cecl_group_check_outside(const char *name, const char *advice);
/* This thread's group, open or not; NULL without host memory. */
struct cecl_group *cecl_group_current(void);
/* Opens an empty group. */
void cecl_group_open(struct cecl_group *group);
/* Counts a call that is made in the open group. */
void cecl_group_count(void);
/* Closes the open group. Later calls of this thread are lone calls. From here on the message of a refused call says how
 * many calls the group has. */
void cecl_group_close(void);

/* Describes a call and keeps it for the end of the open group. If the call is refused, the group is refused,
 * too. The thread must be inside the communicator. *call: as in cecl_launch_describe. */
ceclResult_t cecl_group_add(ceclComm_t comm, const struct cecl_args *args, ceclStream_t stream,
                            struct cecl_call *call);
/* Keeps an allocation for the end of the open group. Refuses NULL, and communicators that are not usable. */
ceclResult_t cecl_group_allocate(ceclComm_t comm, void **ptr, size_t bytes);
/* Refuses the group because of `result`. The message must be recorded. Returns `result`. No effect if `result` is
 * success. */
ceclResult_t cecl_group_refuse(ceclResult_t result);
/* Like cecl_group_refuse, for the call that was counted last, which the message then names. `comm`: the communicator
 * whose rank numbers the message may have, or NULL. */
ceclResult_t cecl_group_refuse_call(ceclComm_t comm, ceclResult_t result);
/* How many calls and allocations on `comm` wait in this thread's open group. */
uint32_t cecl_group_waiting(ceclComm_t comm);
/* Returns an error if any wait. `words`: what the caller should do, or what happens to the calls that wait. */
ceclResult_t cecl_group_check_waiting(ceclComm_t comm, const char *words);
/* Call it when `comm` ends. Takes its calls and allocations out of the open group, and refuses the group. */
void cecl_group_forget(ceclComm_t comm);

/* Enters the communicators of the group's calls. `name`: the public call that does this, for messages. If
 * another thread is inside one of these communicators, refuses the group and takes the calls on that
 * communicator out of the group. */
void cecl_group_enter(struct cecl_group *group, const char *name);
/* Drops the launches, and leaves their communicators. */
void cecl_group_leave(struct cecl_group *group);
/* Frees the joins, if there are any. */
void cecl_group_drop_joins(struct cecl_group *group);
/* Takes the calls on a communicator out of the group; NULL: all calls. The thread must not have entered it. */
void cecl_group_take_out(struct cecl_group *group, const struct ceclComm *comm);

#endif
