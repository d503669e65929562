/* See signals.h. */
#include "flags/signals.h"

#include <stdlib.h>

#include "flags/handed.h"

/* Words of this rank's host. Streams write into them how far waits are, also waits of captured messages. If
 * there is only one rank, the words of its signals to itself lie here, too. */
size_t cecl_signals_own_words(int nranks)
{
    const size_t words =
        (size_t)cecl_hosted_signal_words(nranks) + 2 * (size_t)cecl_hosted_handed_words(nranks);
    return nranks == 1 ? 2 * words : words;
}

ceclResult_t cecl_signals_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted,
                                   uint32_t *words)
{
    struct cecl_signals *signals = &flags->signals;
    const size_t count = cecl_hosted_signal_words(flags->nranks);
    const bool is_alone = flags->nranks == 1;
    if (count == 0 || (!is_alone && !hosted->words))
        return ceclSuccess;
    signals->reached = words;
    signals->sent = calloc(count, sizeof(*signals->sent));
    signals->taken = calloc(count, sizeof(*signals->taken));
    if (!signals->sent || !signals->taken)
        return cecl_fail(ceclOutOfMemory, "no host memory for the signals of %d ranks",
                         flags->nranks);
    for (size_t i = 0; i < count; i++) {
        signals->sent[i].value = CECL_FIRST_EPOCH;
        atomic_init(&signals->taken[i].value, CECL_FIRST_EPOCH);
    }
    uint32_t *first =
                 is_alone ? words + cecl_signals_own_words(1) / 2 : cecl_hosted_signals(hosted, 0),
             *own = is_alone ? first : cecl_hosted_signals(hosted, flags->rank);
    cecl_hosted_begin(words, count, CECL_FIRST_EPOCH);
    cecl_hosted_begin(own, count, CECL_FIRST_EPOCH);
    flags->counters[CECL_COUNTER_SIGNAL] =
        (struct cecl_counter){.words = (char *)first,
                              .apart = is_alone ? 0 : hosted->apart,
                              .unit = 1,
                              .slot_bytes = (uint32_t)flags->nranks * (uint32_t)sizeof(*words)};
    flags->counters[CECL_COUNTER_REACHED] = (struct cecl_counter){
        .words = (char *)words, .own = true, .unit = 1, .slot_bytes = sizeof(*words)};
    return cecl_handed_describe(flags, first + count, is_alone ? 0 : hosted->apart, words + count);
}

void cecl_signals_forget(struct cecl_flags *flags)
{
    free(flags->signals.sent);
    free(flags->signals.taken);
    free(flags->handed.since);
}

static uint32_t *word_of(const struct cecl_flags *flags, uint32_t index)
{
    return cecl_flags_word(flags, flags->rank, 0, CECL_COUNTER_SIGNAL) + index;
}

uint32_t cecl_signals_awaited(const struct cecl_flags *flags, int peer, int number)
{
    const uint32_t index = cecl_signal_index(flags, peer, number),
                   ahead = atomic_load(&flags->signals.taken[index].value) -
                           cecl_word_read(word_of(flags, index));
    return (int32_t)ahead > 0 ? ahead : 0;
}

/* Notes since when this wait has lasted. Returns how many signals the wait still lacks. */
static uint32_t look_at(struct cecl_flags *flags, uint32_t index, int64_t now_ms)
{
    struct cecl_signal_taken *taken = &flags->signals.taken[index];
    const uint32_t reached = cecl_word_read(&flags->signals.reached[index]),
                   word = cecl_word_read(word_of(flags, index)), missing = reached - word;
    if ((int32_t)missing <= 0) {
        taken->since = 0;
        return 0;
    }
    if (taken->since == 0 || taken->seen_word != word || taken->seen_reached != reached)
        taken->since = now_ms;
    taken->seen_word = word;
    taken->seen_reached = reached;
    return missing;
}

void cecl_signals_look(struct cecl_flags *flags, int64_t now_ms, struct cecl_signal_wait *first,
                       struct cecl_rank_list *late)
{
    *first = (struct cecl_signal_wait){.peer = -1};
    if (!atomic_load(&flags->signals.waited))
        return;
    for (int peer = 0; peer < flags->nranks; peer++) {
        bool is_late = false;
        for (int number = 0; number < CECL_SIGNALS; number++) {
            const uint32_t index = cecl_signal_index(flags, peer, number),
                           missing = look_at(flags, index, now_ms);
            const int64_t since = flags->signals.taken[index].since;
            if (missing > 0 && (first->peer < 0 || since < first->since))
                *first = (struct cecl_signal_wait){peer, number, missing, since};
            is_late = is_late || missing > 0;
        }
        if (is_late)
            cecl_rank_list_add(late, peer);
    }
}

/* Whether a word has not yet reached the value for which the latest wait waits. */
static bool is_behind(const struct cecl_flags *flags, uint32_t index)
{
    return (int32_t)(atomic_load(&flags->signals.taken[index].value) -
                     cecl_word_read(word_of(flags, index))) > 0;
}

bool cecl_signal_is_late(const struct cecl_flags *flags, int peer)
{
    bool is_late = false;
    for (int number = 0; atomic_load(&flags->signals.waited) && number < CECL_SIGNALS; number++)
        is_late = is_late || is_behind(flags, cecl_signal_index(flags, peer, number));
    return is_late;
}

void cecl_signals_release(const struct cecl_flags *flags)
{
    const uint32_t count = cecl_hosted_signal_words(flags->nranks);
    for (uint32_t i = 0; atomic_load(&flags->signals.waited) && i < count; i++)
        if (is_behind(flags, i))
            flags->dev->ops->host_write(flags->dev, word_of(flags, i), 1,
                                        atomic_load(&flags->signals.taken[i].value));
}
