/* Descriptions as keys of kept plans: their bytes are hashed and compared. */
#include <string.h>

#include "plan/facts.h"

_Static_assert(CECL_CALL_KEY_BYTES % sizeof(uint64_t) == 0,
               "a description is hashed by 8-byte words");

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 32);
}

uint64_t cecl_call_hash(uint64_t seed, const struct cecl_call *call)
{
    uint64_t words[CECL_CALL_KEY_BYTES / sizeof(uint64_t)], hash = seed;
    memcpy(words, call, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        hash = mix(hash, words[i]);
    for (uint32_t i = 0; i < call->layout_words; i++)
        hash = mix(hash, call->view.layout[i]);
    return hash;
}

/* Leaves out where buffers lie, and fields that may differ between ranks. */
uint32_t cecl_call_signature(const struct cecl_call *call)
{
    const struct cecl_facts facts = cecl_facts_of(call, 1);
    uint64_t words[CECL_FACTS_WORDS], hash = 0;
    memcpy(words, &facts, sizeof(words));
    for (uint32_t i = 0; i < cecl_facts_words(&facts); i++)
        hash = mix(hash, words[i]);
    return (uint32_t)(hash >> 32);
}

uint32_t cecl_calls_signature(const struct cecl_call *calls, uint32_t count)
{
    uint64_t hash = count;
    for (uint32_t i = 0; i < count; i++) {
        struct cecl_call call = calls[i];
        call.in_place = false;
        hash = mix(hash, cecl_call_signature(&call));
    }
    return (uint32_t)(hash >> 32);
}

bool cecl_call_equal(const struct cecl_call *a, const struct cecl_call *b)
{
    return memcmp(a, b, CECL_CALL_KEY_BYTES) == 0 &&
           (a->layout_words == 0 ||
            memcmp(a->view.layout, b->view.layout, a->layout_words * sizeof(*a->view.layout)) == 0);
}

void cecl_call_copy(struct cecl_call *copy, const struct cecl_call *call, uint64_t *layout)
{
    *copy = *call;
    cecl_call_hold(copy);
    if (call->layout_words > 0)
        copy->view.layout = memcpy(layout, call->view.layout, call->layout_words * sizeof(*layout));
}
