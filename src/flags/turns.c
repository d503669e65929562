/* The words of captured calls; see turns.h. */
#include "flags/turns.h"

#include "flags/flags.h"

void cecl_turns_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    flags->counters[CECL_COUNTER_REPLAY] =
        (struct cecl_counter){.words = (char *)flags->replay, .own = true, .unit = 1};
    if (!hosted)
        return;
    flags->counters[CECL_COUNTER_TURN] =
        (struct cecl_counter){.words = (char *)cecl_hosted_turn(hosted, 0),
                              .apart = hosted->apart,
                              .own = true,
                              .replay = CECL_REPLAY_BITS,
                              .unit = 1};
    flags->counters[CECL_COUNTER_CALL] =
        (struct cecl_counter){.words = (char *)(cecl_hosted_turn(hosted, 0) + 1),
                              .apart = hosted->apart,
                              .own = true,
                              .replay = CECL_REPLAY_SAME,
                              .unit = 1};
    atomic_store((_Atomic uint32_t *)cecl_hosted_turn(hosted, flags->rank), cecl_turns_bit(0, 1));
}

struct cecl_turns_told cecl_turns_told(const struct cecl_flags *flags, int kind, int writer)
{
    const uint64_t *words = cecl_turns_counts(flags, flags->rank, kind),
                   word = atomic_load_explicit((const _Atomic uint64_t *)&words[writer],
                                               memory_order_acquire);
    return (struct cecl_turns_told){(uint32_t)word, (uint32_t)(word >> 32)};
}

/* `replay` tells of calls whose signals do not show that they run. A call with phases runs until this rank has
 * signalled the last phase. */
bool cecl_turns_run(const struct cecl_flags *flags)
{
    const uint32_t state = cecl_word_read(flags->replay);
    return state == CECL_REPLAY_BEGUN || state == CECL_REPLAY_SEEN ||
           (flags->hosted && cecl_turns_of(flags, flags->rank) >> 16 != 0);
}
