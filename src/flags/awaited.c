/* See awaited.h. */
#include "flags/awaited.h"

#include <stdlib.h>

_Static_assert(CECL_COUNTER_SIGNAL - CECL_COUNTER_READY == CECL_ROW_SIGNAL, "in the same order");

/* The number of words for this rank's own host: awaited->begun, then those of awaited->now. A communicator of one rank
 * also has here the words of its signals to itself. */
size_t cecl_awaited_own_words(int nranks)
{
    return 1 + (nranks == 1 ? 2 : 1) * (size_t)cecl_hosted_awaited_words(nranks);
}

/* A note has the awaited value in its upper half. The lower half has the low bits of the value that `done` has after
 * the launch, and the index of the word. */
#define NOTED_BITS 8
#define NOTED_LAUNCHES 0xffffffu
_Static_assert(CECL_ROW_SIGNAL *CECL_ONE_SIDED_RANKS <= 1 << NOTED_BITS, "indices of messages");

static uint64_t note_of(uint32_t launch, uint32_t index, uint32_t value)
{
    return (uint64_t)value << 32 | (launch & NOTED_LAUNCHES) << NOTED_BITS | index;
}

/* A wait of the group in progress; index UINT32_MAX: the note is of another group. */
struct noted {
    uint32_t value, index;
};
static struct noted read_note(const struct cecl_flags *flags, uint32_t at)
{
    const uint64_t note = atomic_load_explicit(&flags->awaited.notes[at], memory_order_relaxed);
    const uint32_t launch = (uint32_t)note >> NOTED_BITS,
                   begun = cecl_word_read(flags->awaited.begun) & NOTED_LAUNCHES;
    return (struct noted){(uint32_t)(note >> 32),
                          launch == begun ? (uint32_t)note & ((1 << NOTED_BITS) - 1) : UINT32_MAX};
}

static ceclResult_t allocate(struct cecl_flags *flags, uint32_t count)
{
    struct cecl_awaited *awaited = &flags->awaited;
    awaited->last = calloc(count, sizeof(*awaited->last));
    awaited->seen = calloc(count, sizeof(*awaited->seen));
    flags->signals = calloc((size_t)CECL_SIGNALS * (size_t)flags->nranks, sizeof(*flags->signals));
    return awaited->last && awaited->seen && flags->signals
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for the flags of %d ranks",
                           flags->nranks);
}

static void describe_counters(struct cecl_flags *flags, char *words, uint64_t apart)
{
    const uint32_t row = (uint32_t)flags->nranks * (uint32_t)sizeof(uint32_t);
    struct cecl_counter counter = {.words = words, .apart = apart, .unit = 1};
    for (int c = CECL_COUNTER_READY; c < CECL_COUNTER_SIGNAL; c++) {
        counter.awaited = flags->awaited.last + (c - CECL_COUNTER_READY) * flags->nranks;
        flags->counters[c] = counter;
        counter.words += row;
    }
    counter.awaited = NULL;
    counter.slot_bytes = row;
    flags->counters[CECL_COUNTER_SIGNAL] = counter;
    counter.replay = CECL_REPLAY_RESET;
    counter.words = words + CECL_ROW_HANDED * row;
    flags->counters[CECL_COUNTER_HANDED] = counter;
    counter.words = words + CECL_ROW_TAKEN * row;
    flags->counters[CECL_COUNTER_TAKEN] = counter;
    flags->counters[CECL_COUNTER_WAITS] =
        (struct cecl_counter){.words = (char *)flags->awaited.now,
                              .own = true,
                              .unit = 1,
                              .slot_bytes = sizeof(*flags->awaited.now)};
    flags->counters[CECL_COUNTER_BEGUN] =
        (struct cecl_counter){.words = (char *)flags->awaited.begun, .own = true, .unit = 1};
}

ceclResult_t cecl_awaited_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted,
                                   uint32_t *own)
{
    struct cecl_awaited *awaited = &flags->awaited;
    const uint32_t count = cecl_hosted_awaited_words(flags->nranks),
                   counting = cecl_awaited_at(flags, CECL_ROW_HANDED, 0);
    const bool is_alone = flags->nranks == 1;
    if (count == 0 || (!is_alone && !hosted->words))
        return ceclSuccess;
    CECL_TRY(allocate(flags, count));
    awaited->begun = own++;
    awaited->now = own;
    awaited->words = is_alone ? own + count : cecl_hosted_awaited(hosted, flags->rank);
    cecl_hosted_begin(own, count, 0);
    cecl_hosted_begin(awaited->begun, 1 + counting, CECL_FIRST_EPOCH);
    cecl_hosted_begin(awaited->words, counting, CECL_FIRST_EPOCH);
    for (uint32_t i = 0; i < count; i++)
        atomic_init(&awaited->last[i], CECL_FIRST_EPOCH);
    for (uint32_t i = 0; i < CECL_NOTES; i++)
        atomic_init(&awaited->notes[i], note_of(CECL_FIRST_EPOCH, 0, CECL_FIRST_EPOCH));
    describe_counters(flags, (char *)(is_alone ? own + count : cecl_hosted_awaited(hosted, 0)),
                      is_alone ? 0 : hosted->apart);
    return ceclSuccess;
}

void cecl_awaited_forget(struct cecl_flags *flags)
{
    free(flags->awaited.last);
    free(flags->awaited.seen);
    free(flags->signals);
}

/* Every NEAR messages, a rank raises words that are more than NEAR messages behind. Far fewer messages are pending, so
 * no stream waits for so old a value, and no peer will still write one. */
#define NEAR (UINT32_C(1) << 29)

/* If the peer writes the word at the same time, the peer's value stays. */
static void raise_word(uint32_t *word, uint32_t value)
{
    uint32_t now = cecl_word_read(word);
    if ((int32_t)(value - now) > 0)
        atomic_compare_exchange_strong((_Atomic uint32_t *)word, &now, value);
}

void cecl_awaited_keep_near(const struct cecl_flags *flags, enum cecl_role role, int peer,
                            uint64_t number)
{
    const int theirs = (int)cecl_role_other(role);
    if (number % NEAR != 0 || !flags->awaited.words)
        return;
    for (int row = theirs; row < CECL_ROW_SIGNAL; row += CECL_ROLES)
        raise_word(&flags->awaited.words[cecl_awaited_at(flags, row, peer)],
                   CECL_FIRST_EPOCH + (uint32_t)number - NEAR);
}

void cecl_awaited_note(struct cecl_flags *flags, enum cecl_role role, bool second, int peer,
                       uint64_t number)
{
    struct cecl_awaited *awaited = &flags->awaited;
    const int row = (second ? CECL_ROW_READY : CECL_ROW_MOVED) + (int)cecl_role_other(role);
    atomic_store_explicit(&awaited->notes[awaited->noted++ % CECL_NOTES],
                          note_of(flags->epoch[CECL_COUNTER_DONE] + 1,
                                  cecl_awaited_at(flags, row, peer),
                                  CECL_FIRST_EPOCH + (uint32_t)number),
                          memory_order_relaxed);
}

static void write_now(const struct cecl_flags *flags, uint32_t index, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)&flags->awaited.now[index], value,
                          memory_order_relaxed);
}

static bool is_exact(const struct cecl_flags *flags, uint32_t index)
{
    return index >= CECL_ROW_HANDED * (uint32_t)flags->nranks;
}

/* How far a word is below `value`, for which a stream waits; 0: the wait has ended. The wait of a captured message
 * needs exactly `value`, so any other value of the word counts as missing; if `value` is 0, no stream waits. */
static uint32_t lacks(const struct cecl_flags *flags, uint32_t index, uint32_t value)
{
    const uint32_t missing = value - cecl_word_read(&flags->awaited.words[index]);
    return (is_exact(flags, index) ? value != 0 : (int32_t)missing > 0) ? missing : 0;
}

/* The value for which a stream waits now or waited last. For a captured message, 0 means that no stream waits. */
static uint32_t value_now(const struct cecl_flags *flags, uint32_t index)
{
    const uint32_t now = cecl_word_read(&flags->awaited.now[index]), state = now & 3;
    if (!is_exact(flags, index))
        return now;
    return state == CECL_REPLAY_BEGUN || state == CECL_REPLAY_SEEN ? now >> 2 : 0;
}

/* A group of messages is in progress if a stream has reached its start but not its end. */
void cecl_awaited_find_messages(struct cecl_flags *flags)
{
    struct cecl_awaited *awaited = &flags->awaited;
    const uint32_t end = awaited->words ? cecl_awaited_at(flags, CECL_ROW_SIGNAL, 0) : 0,
                   begun = end > 0 ? cecl_word_read(awaited->begun) : 0;
    const bool runs = end > 0 && !cecl_flags_reached(flags, begun);
    bool is_noted = false;
    for (uint32_t i = 0; i < end; i++)
        write_now(flags, i, cecl_word_read(&awaited->words[i]));
    for (uint32_t n = 0; n < CECL_NOTES && runs; n++) {
        const struct noted note = read_note(flags, n);
        if (note.index == UINT32_MAX)
            continue;
        is_noted = true;
        if (lacks(flags, note.index, note.value) >
            lacks(flags, note.index, value_now(flags, note.index)))
            write_now(flags, note.index, note.value);
    }
    for (uint32_t i = 0; i < end && runs && !is_noted; i++)
        write_now(flags, i, atomic_load(&awaited->last[i]));
}

/* The value that ends all enqueued waits for a word. For a captured message: the value that ends the wait that has
 * begun, or 0. */
static uint32_t value_last(const struct cecl_flags *flags, uint32_t index)
{
    return is_exact(flags, index) ? value_now(flags, index)
                                  : atomic_load(&flags->awaited.last[index]);
}

uint32_t cecl_awaited_missing(const struct cecl_flags *flags, uint32_t index)
{
    return flags->awaited.words ? lacks(flags, index, value_last(flags, index)) : 0;
}

int cecl_awaited_rows(const struct cecl_flags *flags)
{
    if (!flags->awaited.words)
        return 0;
    return atomic_load(&flags->awaited.is_captured) ? CECL_ROWS : CECL_ROW_HANDED;
}

bool cecl_awaited_by_graphs(const struct cecl_flags *flags)
{
    const uint32_t end = cecl_awaited_at(flags, cecl_awaited_rows(flags), 0);
    bool waits = false;
    for (uint32_t i = cecl_awaited_at(flags, CECL_ROW_HANDED, 0); i < end && !waits; i++)
        waits = value_now(flags, i) != 0;
    return waits;
}

/* Marks a wait for a captured message as seen. Returns true if the wait has begun since the watchdog's last look. The
 * awaited value does not tell this, because each launch of a graph waits for the same value. */
static bool has_begun(const struct cecl_flags *flags, uint32_t index, uint32_t value)
{
    uint32_t begun = cecl_handed_begun(value);
    return is_exact(flags, index) &&
           atomic_compare_exchange_strong((_Atomic uint32_t *)&flags->awaited.now[index], &begun,
                                          value << 2 | CECL_REPLAY_SEEN);
}

uint32_t cecl_awaited_look(struct cecl_flags *flags, uint32_t index, int64_t now_ms, bool has_left,
                           int64_t *since)
{
    struct cecl_clock *clock = &flags->awaited.seen[index];
    const uint32_t value = value_now(flags, index), missing = lacks(flags, index, value);
    if (missing == 0 || has_begun(flags, index, value))
        clock->since = 0;
    if (missing > 0)
        *since = cecl_clock_since(
            clock, ((uint64_t)value << 32 | missing) ^ (uint64_t)has_left << 63, now_ms);
    return missing;
}

void cecl_awaited_release(const struct cecl_flags *flags, int first_row)
{
    const uint32_t end = cecl_awaited_at(flags, cecl_awaited_rows(flags), 0);
    for (uint32_t i = cecl_awaited_at(flags, first_row, 0); i < end; i++) {
        const uint32_t value = value_last(flags, i);
        if (lacks(flags, i, value) > 0)
            flags->dev->ops->host_write(flags->dev, &flags->awaited.words[i], 1, value);
    }
}
