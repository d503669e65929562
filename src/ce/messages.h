/* The plan of a group of messages (ceclSend and ceclRecv). lower_messages.c draws it. */
#ifndef CECL_CE_MESSAGES_H
#define CECL_CE_MESSAGES_H

#include "alloc/posts.h"
#include "plan/plan.h"

/* A message of a group, as this rank sees it after posting it. */
struct cecl_message {
    int32_t peer;
    uint8_t role; /* enum cecl_role: what this rank does */
    bool second;  /* the peer came first, so this rank moves the bytes */
    /* a graph captures the whole group; then the sender is `second`. The six values from given[first_given] on are
     * three pairs {slot, value}. This rank's word WAITS takes the first pair when a wait begins, and the second pair
     * when the wait ends. The words HANDED and TAKEN take the third pair (flags/awaited.h) */
    bool captured;
    uint32_t first_given;
    uint64_t bytes; /* 0: nothing is copied */
    uint64_t number;
    uint64_t group; /* if `second`: the number of the peer's group, or a captured group's ticket */
};
#define CECL_MESSAGE_GIVEN 6u /* how many values are given for a captured message */

/* Makes the plan of a group in `plan`, which must be an initialized plan. Message i is part i of the plan. Pure.
 * Allocates only if no earlier group in `plan` had as many steps and copies. No message may have this rank itself as
 * its peer. Messages with the same role and peer must be in the order of their numbers.
 *
 * order  [count] room for the messages that this rank moves, lane by lane */
ceclResult_t cecl_lower_messages(const struct cecl_message *messages, uint32_t count,
                                 uint32_t *order, struct cecl_plan *plan);

#endif
