/* The words of messages; see pairs.h. */
#include "flags/pairs.h"

#include <stdlib.h>

/* Values start close to the wrap-around, as epochs do, so every program crosses it soon. The word that
 * tells of the group in progress starts with `done`, so no group is in progress. */
#define FIRST_VALUE 0xffffff00u

static uint32_t index_of(const struct cecl_pair_flags *flags, enum cecl_pair_signal signal,
                         enum cecl_role role, int peer)
{
    return ((uint32_t)signal * CECL_ROLES + (uint32_t)role) * (uint32_t)flags->nranks +
           (uint32_t)peer;
}

_Static_assert(CECL_PAIR_SIGNALS *CECL_ROLES == 4, "cecl_hosted_pair_words has room for so many");

static uint32_t words_of_peers(const struct cecl_pair_flags *flags)
{
    return CECL_PAIR_SIGNALS * CECL_ROLES * (uint32_t)flags->nranks;
}

static uint32_t read_word(const uint32_t *word)
{
    return atomic_load_explicit((const _Atomic uint32_t *)word, memory_order_acquire);
}

uint32_t cecl_pair_value(uint64_t number)
{
    return FIRST_VALUE + (uint32_t)number;
}

uint32_t *cecl_pair_word_there(const struct cecl_pair_flags *flags, enum cecl_pair_signal signal,
                               enum cecl_role role, int peer)
{
    return cecl_hosted_pairs(flags->hosted, peer) +
           index_of(flags, signal, cecl_role_other(role), flags->rank);
}

uint32_t *cecl_pair_word_here(const struct cecl_pair_flags *flags, enum cecl_pair_signal signal,
                              enum cecl_role role, int peer)
{
    return cecl_hosted_pairs(flags->hosted, flags->rank) + index_of(flags, signal, role, peer);
}

/* The last word of a row, which the rank itself writes. */
static uint32_t *word_of_begin(const struct cecl_pair_flags *flags)
{
    return cecl_hosted_pairs(flags->hosted, flags->rank) + words_of_peers(flags);
}

ceclResult_t cecl_pair_flags_open(struct cecl_pair_flags *flags, const struct cecl_hosted *hosted,
                                  int rank, int nranks)
{
    *flags = (struct cecl_pair_flags){.hosted = hosted, .rank = rank, .nranks = nranks};
    const uint32_t count = words_of_peers(flags);
    flags->awaited = calloc(count, sizeof(*flags->awaited));
    if (!flags->awaited)
        return cecl_fail(ceclOutOfMemory, "no host memory for the flags of %d ranks", nranks);
    for (uint32_t i = 0; i < count; i++)
        atomic_init(&flags->awaited[i], FIRST_VALUE);
    hosted->dev->ops->host_write(hosted->dev, cecl_hosted_pairs(hosted, rank),
                                 cecl_hosted_pair_words(nranks), FIRST_VALUE);
    return ceclSuccess;
}

void cecl_pair_flags_close(struct cecl_pair_flags *flags)
{
    free(flags->awaited);
    *flags = (struct cecl_pair_flags){0};
}

void cecl_pair_awaits(struct cecl_pair_flags *flags, enum cecl_pair_signal signal,
                      enum cecl_role role, int peer, uint32_t value)
{
    atomic_store(&flags->awaited[index_of(flags, signal, role, peer)], value);
}

struct cecl_memop cecl_pair_begin(const struct cecl_pair_flags *flags, uint32_t target)
{
    return (struct cecl_memop){word_of_begin(flags), target, CECL_MEMOP_WRITE};
}

/* A note has the target in its upper half, and in its lower half the peer and the role. No note is 0. */
#define NOTED 0x80000000u
#define SENDS 0x40000000u

static _Atomic uint64_t *note_of(struct cecl_pair_flags *flags, uint32_t target)
{
    return &flags->notes[target % CECL_PAIR_NOTES];
}

void cecl_pair_note(struct cecl_pair_flags *flags, uint32_t target, enum cecl_role role, int peer)
{
    const uint32_t what = NOTED | (role == CECL_SENDER ? SENDS : 0) | (uint32_t)peer;
    atomic_store_explicit(note_of(flags, target), (uint64_t)target << 32 | what,
                          memory_order_relaxed);
}

/* Whether a word here is behind the last value for which a stream waits. */
static bool is_behind(const struct cecl_pair_flags *flags, uint32_t index)
{
    const uint32_t awaited = atomic_load(&flags->awaited[index]);
    return (int32_t)(awaited - read_word(cecl_hosted_pairs(flags->hosted, flags->rank) + index)) >
           0;
}

bool cecl_pair_is_late(const struct cecl_pair_flags *flags, int peer)
{
    bool late = false;
    for (uint32_t i = 0; flags->awaited && i < CECL_PAIR_SIGNALS * CECL_ROLES; i++)
        late = late || is_behind(flags, i * (uint32_t)flags->nranks + (uint32_t)peer);
    return late;
}

/* The peer of the group that is in progress, if that is one message. Otherwise the peers of all groups that
 * are pending: no word says which group waits for which of them. */
static void name_peers(struct cecl_pair_flags *flags, uint32_t target,
                       struct cecl_progress *progress)
{
    const uint64_t note = atomic_load_explicit(note_of(flags, target), memory_order_relaxed);
    const bool known = note >> 32 == target && (note & NOTED) != 0;
    progress->message_peer = known ? (int)(note & (SENDS - 1)) : -1;
    progress->message_sends = (note & SENDS) != 0;
    for (int r = 0; r < flags->nranks; r++)
        if (cecl_pair_is_late(flags, r) && (!known || r == progress->message_peer))
            cecl_rank_list_add(&progress->late, r);
}

/* A group of messages is in progress if a stream has reached its begin and not its end. */
void cecl_pair_progress(struct cecl_pair_flags *flags, const struct cecl_flags *calls,
                        struct cecl_progress *progress)
{
    if (!flags->awaited)
        return;
    const uint32_t *here = cecl_hosted_pairs(flags->hosted, flags->rank);
    for (uint32_t i = 0; i < words_of_peers(flags); i++)
        progress->messages += read_word(&here[i]);
    const uint32_t target = read_word(word_of_begin(flags));
    if (cecl_flags_reached(calls, target))
        return;
    progress->started = true;
    progress->in_message = progress->late.count == 0;
    progress->message_is_last = target == cecl_flags_done_target(calls);
    if (progress->in_message)
        name_peers(flags, target, progress);
}

void cecl_pair_release(const struct cecl_pair_flags *flags)
{
    for (uint32_t i = 0; flags->awaited && i < words_of_peers(flags); i++)
        if (is_behind(flags, i))
            flags->hosted->dev->ops->host_write(flags->hosted->dev,
                                                cecl_hosted_pairs(flags->hosted, flags->rank) + i,
                                                1, atomic_load(&flags->awaited[i]));
}
