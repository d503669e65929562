/* Tells a rank which ranks' blocks lie outside recvbuff, in calls that some ranks may make in place and others not. */
#ifndef CECL_TEST_LEARN_OUTSIDE_H
#define CECL_TEST_LEARN_OUTSIDE_H

#include <string.h>

#include "plan/plan.h"

/* Sets the members of `part` that say which ranks are outside (cecl_call_is_outside); `part` then points to `words`.
 * Bit r % 64 of `in_place`: rank r is in place. No effect on other kinds of calls. */
static inline void learn_outside(struct cecl_part *part, uint64_t in_place,
                                 uint64_t words[CECL_MAX_RANKS / 64])
{
    const int n = part->call.nranks, me = part->call.rank;
    struct cecl_call call = part->call;
    bool differ = false;
    memset(words, 0, CECL_MAX_RANKS / 8);
    if (part->call.op->family != CECL_FAMILY_GATHERED)
        return;
    part->call.in_place = in_place >> me % 64 & 1;
    for (call.rank = 0; call.rank < n; call.rank++) {
        const int r = call.rank;
        call.in_place = in_place >> r % 64 & 1;
        if (part->means.late && r != me && (part->earlier >> r & 1) == 0)
            continue;
        const bool outside = cecl_call_is_outside(&call);
        words[r / 64] |= (uint64_t)outside << r % 64;
        differ = differ || outside != cecl_call_is_outside(&part->call);
    }
    part->outside = differ ? words : NULL;
    part->means.some_outside = differ && !part->means.late;
}

#endif
