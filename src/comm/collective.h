/* Collective calls between the public entry points and the engine. */
#ifndef CECL_COMM_COLLECTIVE_H
#define CECL_COMM_COLLECTIVE_H

#include "comm/check.h"
#include "comm/comm.h"
#include "sm/reduce.h"

/* One call: its arguments as given, and what follows from them. */
struct cecl_item {
    ceclOp_t op;
    const void *send;
    void *recv;
    size_t count;
    ceclDataType_t type;
    enum cecl_called called; /* which public call it is */
    /* Blocks that differ: as in struct cecl_call, in bytes; NULL: they do not. The
     * caller's, until the call returns. */
    const uint64_t *layout;
    /* Of strided blocks, checked: width 0 if they are not. The item's block, send_bytes, recv_bytes
     * and in_place are then known too. */
    struct cecl_shape shape;
    int root;                  /* of a rooted call */
    ceclRedOp_t red_op;        /* of a reduction; all but its choice is then known, too */
    struct cecl_choice choice; /* what stood when it was made */

    size_t block;      /* bytes that go to or come from one rank */
    size_t send_bytes; /* of sendbuff */
    size_t recv_bytes; /* of recvbuff */
    bool in_place;
    size_t reach; /* where ranks have layouts of their own: how far into any recvbuff they write */
};

/* Bytes of an element; 0 for what is no type. */
static inline size_t cecl_type_bytes(ceclDataType_t type)
{
    return cecl_reduction_element_bytes(type);
}

/* Checks that several calls share: a root, and a buffer that may be any memory of this device. */
ceclResult_t cecl_root_check(ceclComm_t comm, int root);
ceclResult_t cecl_buffer_check(ceclComm_t comm, const void *buffer, size_t bytes, const char *name);

/* Whether this rank can make the call, before it is made: arguments, buffers and stream. */
ceclResult_t cecl_item_check(ceclComm_t comm, struct cecl_item *item, ceclStream_t stream);

/* One public call from its arguments on: made now, or kept for the end of the group. `result`: what
 * checks of its own gave, their message recorded; peers that compare calls hear of a refusal. */
ceclResult_t cecl_collective(struct cecl_item *item, ceclComm_t comm, ceclStream_t stream,
                             ceclResult_t result);

/* Everything else that can refuse calls that are to be carried out as one; those without elements
 * come last. On success *bound is the
 * plan to issue; NULL when there is nothing to do. Collective under CECL_CHECK=1. */
ceclResult_t cecl_items_prepare(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                                ceclStream_t stream, struct cecl_bound **bound);

/* How they would be carried out; enqueues and exchanges nothing. */
ceclResult_t cecl_items_explain(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                                ceclExplanation_t *explanation);

/* apart.c. Refuses calls of a group that share memory which one of them writes. */
ceclResult_t cecl_items_check_apart(const struct cecl_item *items, uint32_t count, int nranks);

/* How it goes, in words, for as long as the bound plan is kept; NULL: nothing to do. */
const char *cecl_bound_path(const struct cecl_bound *bound);

/* Enqueues; a failure on the way fails the communicator. */
ceclResult_t cecl_items_issue(ceclComm_t comm, const struct cecl_bound *bound, ceclStream_t stream);

/* group.c. Whether this thread is between ceclGroupStart and ceclGroupEnd; the call is then kept for
 * the latter. `result`: whether it was refused, its message recorded: then the group is. */
bool cecl_group_is_open(void);
ceclResult_t cecl_group_add(ceclComm_t comm, const struct cecl_item *item, ceclStream_t stream,
                            ceclResult_t result);

#endif
