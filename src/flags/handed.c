/* See handed.h. */
#include "flags/handed.h"

#include <stdlib.h>

ceclResult_t cecl_handed_describe(struct cecl_flags *flags, uint32_t *handed, uint64_t apart,
                                  uint32_t *own)
{
    struct cecl_handed *words = &flags->handed;
    const size_t count = cecl_hosted_handed_words(flags->nranks);
    const uint32_t slot_bytes = (uint32_t)flags->nranks * (uint32_t)sizeof(*handed);
    words->words = (uint32_t *)(void *)((char *)handed + (uint64_t)flags->rank * apart);
    words->holds = own;
    words->since = calloc(2 * count, sizeof(*words->since));
    if (!words->since)
        return cecl_fail(ceclOutOfMemory, "no host memory for the messages of %d ranks",
                         flags->nranks);
    cecl_hosted_begin(words->words, 2 * count, 0);
    for (int taken = 0; taken < 2; taken++)
        flags->counters[CECL_COUNTER_HANDED + taken] =
            (struct cecl_counter){.words = (char *)(handed + (size_t)taken * count),
                                  .apart = apart,
                                  .replay = CECL_REPLAY_RESET,
                                  .unit = 1,
                                  .slot_bytes = slot_bytes};
    flags->counters[CECL_COUNTER_HOLDS] = (struct cecl_counter){
        .words = (char *)own, .own = true, .unit = 1, .slot_bytes = sizeof(*own)};
    return ceclSuccess;
}

/* The number of words, HANDED and TAKEN together; 0 as long as nothing was captured. */
static uint32_t count_of(const struct cecl_flags *flags)
{
    return atomic_load(&flags->handed.used) ? 2 * cecl_hosted_handed_words(flags->nranks) : 0;
}

/* The value for which a stream waits at the word with this index; 0: no stream waits. */
static uint32_t awaited_at(const struct cecl_flags *flags, uint32_t i)
{
    const uint32_t hold = cecl_word_read(&flags->handed.holds[i]), state = hold & 3;
    return state == CECL_REPLAY_BEGUN || state == CECL_REPLAY_SEEN ? hold >> 2 : 0;
}

bool cecl_handed_waits(const struct cecl_flags *flags)
{
    bool waits = false;
    for (uint32_t i = 0; i < count_of(flags) && !waits; i++)
        waits = awaited_at(flags, i) != 0;
    return waits;
}

/* Notes since when this wait has lasted. Returns whether the awaited word is still not set. Turns BEGUN
 * into SEEN, so that a later look can tell a new wait from this one. */
static bool look_at(struct cecl_flags *flags, uint32_t i, int64_t now_ms)
{
    int64_t *since = &flags->handed.since[i];
    const uint32_t awaited = awaited_at(flags, i);
    uint32_t begun = cecl_handed_begun(awaited);
    if (awaited == 0) {
        *since = 0;
        return false;
    }
    if (atomic_compare_exchange_strong((_Atomic uint32_t *)&flags->handed.holds[i], &begun,
                                       awaited << 2 | CECL_REPLAY_SEEN) ||
        *since == 0)
        *since = now_ms;
    return cecl_word_read(&flags->handed.words[i]) != awaited;
}

bool cecl_handed_look(struct cecl_flags *flags, int peer, int64_t now_ms,
                      struct cecl_handed_wait *first)
{
    const uint32_t count = count_of(flags), nranks = (uint32_t)flags->nranks;
    bool is_late = false;
    for (uint32_t i = (uint32_t)peer; i < count; i += nranks) {
        if (!look_at(flags, i, now_ms))
            continue;
        const int64_t since = flags->handed.since[i];
        const bool sends = i >= count / 2;
        if (first->peer < 0 || since < first->since)
            *first = (struct cecl_handed_wait){peer, sends, since};
        is_late = true;
    }
    return is_late;
}

void cecl_handed_release(const struct cecl_flags *flags)
{
    const uint32_t count = count_of(flags);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t awaited = awaited_at(flags, i);
        if (awaited != 0)
            flags->dev->ops->host_write(flags->dev, &flags->handed.words[i], 1, awaited);
    }
}
