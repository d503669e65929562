/* A thread's open group: the launches that ceclGroupEnd carries out. */
#ifndef CECL_LAUNCH_GROUP_H
#define CECL_LAUNCH_GROUP_H

#include "launch/make.h"

struct cecl_join;

/* The group of a thread. The thread keeps this memory for its next group. */
struct cecl_group {
    int depth;
    bool has_ranges;          /* at least one call is on a communicator with NVTX ranges */
    struct cecl_launches all; /* the launches, and the group's failure */
    uint32_t ncalls;          /* how many calls were made in the group, including refused ones */
    uint32_t failed_call;     /* the number of the first refused call; 0: none */
    const char *failed_name;  /* the function of that call */
    /* joins that wait for the group's end (api/init.c); freed then, or when the thread ends */
    struct cecl_join *joins;
    void (*free_joins)(struct cecl_join *joins);
};

/* Whether this thread is between ceclGroupStart and ceclGroupEnd. */
bool cecl_group_is_open(void);
/* If a group is open, refuses a call that cannot be in a group. `advice` ends the message: "" or "; ...". */
ceclResult_t cecl_group_check_outside(const char *name, const char *advice);
/* This thread's group, open or not; NULL without host memory. */
struct cecl_group *cecl_group_current(void);
/* Opens an empty group. */
void cecl_group_open(struct cecl_group *group);
/* Counts a call that is made in the open group. */
void cecl_group_count(void);
/* Closes the open group. Later calls of this thread are lone calls. Names the refused call, and how many calls the
 * group has, in the group's message. */
void cecl_group_close(void);

/* Describes a call and keeps it for the end of the open group. If the call is refused, the whole group is. The thread
 * must be inside the communicator. *call: as in cecl_launch_describe. */
ceclResult_t cecl_group_add(ceclComm_t comm, const struct cecl_args *args, ceclStream_t stream,
                            struct cecl_call *call);
/* Keeps an allocation for the end of the open group. Refuses `ptr` NULL, and a communicator that cannot be used. */
ceclResult_t cecl_group_allocate(ceclComm_t comm, void **ptr, size_t bytes);
/* Refuses the group because of `result`, whose message must be recorded. Returns `result`. No effect if `result` is
 * success. */
ceclResult_t cecl_group_refuse(ceclResult_t result);
/* Like cecl_group_refuse; the call that was counted last is the reason, and the message names it. `comm`: the
 * communicator to which numbers of ranks in the message belong; NULL: the message has none. */
ceclResult_t cecl_group_refuse_call(ceclComm_t comm, ceclResult_t result);
/* How many calls and allocations on `comm` wait in this thread's open group. */
uint32_t cecl_group_waiting(ceclComm_t comm);
/* Returns an error if a call or an allocation on `comm` waits there. `words` ends the message. */
ceclResult_t cecl_group_check_waiting(ceclComm_t comm, const char *words);
/* Must be called when `comm` ends. If its calls or allocations wait in the open group, takes them out and refuses the
 * group. */
void cecl_group_forget(ceclComm_t comm);

/* Enters the communicators of the group's calls. `name`: the public call that does this, for messages. If another
 * thread is inside one of these communicators, refuses the group, and takes that communicator's calls out of it. */
void cecl_group_enter(struct cecl_group *group, const char *name);
/* Drops the group's launches, and leaves their communicators. */
void cecl_group_leave(struct cecl_group *group);
/* Frees the joins, if there are any. */
void cecl_group_drop_joins(struct cecl_group *group);
/* Takes the calls on a communicator out of the group; NULL: all calls. The thread must not be inside the
 * communicator. */
void cecl_group_take_out(struct cecl_group *group, const struct ceclComm *comm);

#endif
