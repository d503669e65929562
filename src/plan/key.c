/* Descriptions as keys of kept plans: their bytes are hashed and compared. */
#include <string.h>

#include "plan/call.h"

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
    const bool own = call->op->family == CECL_FAMILY_OWN_LAYOUT;
    const struct cecl_shape *shape = &call->view.shape;
    const uint64_t words[] = {
        (uint64_t)(call->op - cecl_ops) << 8 | call->type,
        own ? 0 : call->count,
        (uint64_t)call->red_op << 32 | (uint32_t)call->root,
        (uint64_t)call->captured << 48 | (uint64_t)call->options.sm_policy << 40 |
            (uint64_t)call->options.direction << 32 | (uint64_t)call->options.max_sms << 8 |
            cecl_call_is_in_place_on_all(call),
        shape->width,
        shape->rows,
        shape->recv_pitch,
        shape->recv_stride,
        shape->send_pitch,
        shape->send_stride,
    };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        hash = mix(hash, words[i]);
    const uint32_t alike = cecl_layout_alike(call->op, call->layout_words);
    for (uint32_t i = 0; i < alike; i++)
        hash = mix(hash, call->view.layout[i]);
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

void cecl_call_keep(struct cecl_call *kept, const struct cecl_call *call, uint64_t *layout)
{
    *kept = *call;
    cecl_call_hold(kept);
    if (call->layout_words > 0)
        kept->view.layout = memcpy(layout, call->view.layout, call->layout_words * sizeof(*layout));
}
