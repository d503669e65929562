/* What ranks tell each other about a call, so that an error message can say how their calls differ. */
#ifndef CECL_PLAN_FACTS_H
#define CECL_PLAN_FACTS_H

#include "plan/call.h"

#define CECL_FACTS_MORE 6u

/* Facts of a call that must be equal on all its ranks. If several calls are carried out as one: how many there are, and
 * the facts of the first. */
struct cecl_facts {
    uint8_t op; /* enum cecl_op_index */
    uint8_t type, red_op, sm_policy, direction, captured;
    uint16_t max_sms;
    int32_t root;
    uint16_t ncalls;
    uint8_t in_place; /* whether in place, if ranks must agree on that; else 0 */
    uint8_t nmore;
    uint64_t count;
    /* [nmore] a shape; for a call by splits, the layout's words that are equal on all ranks; for another layout, a hash
     * of such words */
    uint64_t more[CECL_FACTS_MORE];
};
#define CECL_FACTS_WORDS (3u + CECL_FACTS_MORE)
_Static_assert(sizeof(struct cecl_facts) == CECL_FACTS_WORDS * sizeof(uint64_t),
               "facts are copied by words");

/* How many words of the facts are in use; the unused ones come last. */
static inline uint32_t cecl_facts_words(const struct cecl_facts *facts)
{
    return 3u + facts->nmore;
}

struct cecl_facts cecl_facts_of(const struct cecl_call *calls, uint32_t ncalls);

/* Returns the name of the facts' call or group. The name of a group is written to `out`. */
#define CECL_FACTS_NAME 64
const char *cecl_facts_name(const struct cecl_facts *facts, char out[CECL_FACTS_NAME]);

/* The first field in which two calls differ, and its values. */
struct cecl_facts_difference {
    const char *field;
    char one[CECL_FACTS_NAME], other[CECL_FACTS_NAME];
};
/* Returns false if no field differs. */
bool cecl_facts_differ(const struct cecl_facts *one, const struct cecl_facts *other,
                       struct cecl_facts_difference *difference);

/* The name of a datatype, for messages. `type` may be any number, because a peer may have sent it. */
const char *cecl_type_name(uint64_t type);

#endif
