/* The words of requests; see early.h. */
#include "flags/early.h"

#include <stdlib.h>

/* States of a slot. */
#define FREE 0
#define TAKEN 1

ceclResult_t cecl_early_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    const uint32_t slots = cecl_hosted_slots(flags->nranks);
    struct cecl_early *early = &flags->early;
    early->slots = calloc(slots, sizeof(*early->slots));
    if (!early->slots)
        return cecl_fail(ceclOutOfMemory, "no host memory for the flags of %u requests", slots);
    for (uint32_t i = 0; i < slots; i++) {
        early->slots[i].value = CECL_FIRST_EPOCH;
        atomic_init(&early->slots[i].awaited, CECL_FIRST_EPOCH);
    }
    early->count = slots;
    flags->counters[CECL_COUNTER_EARLY] =
        (struct cecl_counter){.words = (char *)cecl_hosted_early(hosted, 0),
                              .apart = hosted->apart,
                              .unit = 1,
                              .slot_bytes = (uint32_t)flags->nranks * (uint32_t)sizeof(uint32_t)};
    cecl_hosted_begin(cecl_hosted_early(hosted, flags->rank), slots * (size_t)flags->nranks,
                      CECL_FIRST_EPOCH);
    return ceclSuccess;
}

void cecl_early_forget(struct cecl_flags *flags)
{
    free(flags->early.slots);
}

uint32_t cecl_early_take(struct cecl_flags *flags, uint32_t *value)
{
    struct cecl_early *early = &flags->early;
    for (uint32_t i = 0; i < early->count; i++) {
        const uint32_t slot = (early->next + i) % early->count;
        if (early->slots[slot].state == TAKEN)
            continue;
        early->slots[slot].state = TAKEN;
        early->next = slot + 1;
        *value = early->slots[slot].value;
        return slot;
    }
    return CECL_EARLY_NONE;
}

void cecl_early_give(struct cecl_flags *flags, uint32_t slot, uint32_t value)
{
    flags->early.slots[slot].value = value;
    flags->early.slots[slot].state = FREE;
}

void cecl_early_await(struct cecl_flags *flags, uint32_t slot, uint32_t value)
{
    _Atomic uint32_t *awaited = &flags->early.slots[slot].awaited;
    if ((int32_t)(value - atomic_load(awaited)) > 0)
        atomic_store(awaited, value);
}

static uint32_t *row_of(const struct cecl_flags *flags, uint32_t slot)
{
    return cecl_hosted_early(flags->hosted, flags->rank) + (size_t)slot * (size_t)flags->nranks;
}

/* Whether the word of a peer is behind the last value for which a stream waits. */
static bool is_behind(const struct cecl_flags *flags, uint32_t slot, int peer)
{
    const uint32_t awaited = atomic_load(&flags->early.slots[slot].awaited),
                   word = atomic_load_explicit((const _Atomic uint32_t *)&row_of(flags, slot)[peer],
                                               memory_order_acquire);
    return peer != flags->rank && (int32_t)(awaited - word) > 0;
}

void cecl_early_late(const struct cecl_flags *flags, struct cecl_rank_list *late)
{
    for (int peer = 0; peer < flags->nranks; peer++) {
        bool behind = false;
        for (uint32_t slot = 0; slot < flags->early.count && !behind; slot++)
            behind = is_behind(flags, slot, peer);
        if (behind)
            cecl_rank_list_add(late, peer);
    }
}

void cecl_early_release(const struct cecl_flags *flags)
{
    for (uint32_t slot = 0; slot < flags->early.count; slot++)
        for (int peer = 0; peer < flags->nranks; peer++)
            if (is_behind(flags, slot, peer))
                flags->hosted->dev->ops->host_write(flags->hosted->dev, &row_of(flags, slot)[peer],
                                                    1,
                                                    atomic_load(&flags->early.slots[slot].awaited));
}
