/* A running hash of each rank's calls: noting and comparing. */
#include "comm/history.h"

#include <string.h>

size_t cecl_history_bytes(int nranks)
{
    return (size_t)nranks * CECL_HISTORY_CALLS * sizeof(struct cecl_history_row);
}

void cecl_history_open(struct cecl_history *history, void *memory, int rank, int nranks)
{
    *history = (struct cecl_history){.rows = memory, .rank = rank, .nranks = nranks};
}

static struct cecl_history_row *row_of(const struct cecl_history *history, int rank, uint32_t call)
{
    return &history->rows[(size_t)rank * CECL_HISTORY_CALLS + call % CECL_HISTORY_CALLS];
}

static _Atomic uint64_t *word_of(const struct cecl_history *history, int rank, uint32_t call)
{
    return &row_of(history, rank, call)->word;
}

void cecl_history_tell(struct cecl_history *history, const struct cecl_facts *facts)
{
    const uint32_t call = atomic_load_explicit(&history->calls, memory_order_relaxed) + 1;
    struct cecl_history_row *row = row_of(history, history->rank, call);
    uint64_t words[CECL_FACTS_WORDS];
    memcpy(words, facts, sizeof(words));
    atomic_store_explicit(&row->begun, call, memory_order_relaxed);
    for (uint32_t i = 0; i < cecl_facts_words(facts);
         i++) /* release: a rank that sees one of these words also sees `begun` */
        atomic_store_explicit(&row->facts[i], words[i], memory_order_release);
}

/* Returns false if the row has the facts of another call, or may have got some of them while this function read. */
static bool read_facts(const struct cecl_history *history, int rank, uint32_t call,
                       struct cecl_facts *facts)
{
    const struct cecl_history_row *row = row_of(history, rank, call);
    uint64_t words[CECL_FACTS_WORDS];
    for (uint32_t i = 0; i < CECL_FACTS_WORDS; i++)
        words[i] = atomic_load_explicit(&row->facts[i], memory_order_acquire);
    memcpy(facts, words, sizeof(words));
    return atomic_load_explicit(&row->begun, memory_order_relaxed) == call;
}

bool cecl_history_next(const struct cecl_history *history, int rank, struct cecl_facts *mine,
                       struct cecl_facts *theirs)
{
    const uint32_t next = atomic_load_explicit(&history->calls, memory_order_relaxed) + 1;
    return read_facts(history, history->rank, next, mine) &&
           read_facts(history, rank, next, theirs);
}

void cecl_history_note(struct cecl_history *history, uint32_t signature)
{
    const uint32_t call = atomic_load_explicit(&history->calls, memory_order_relaxed) + 1;
    history->hash = (history->hash ^ signature) * 0x9e3779b1u;
    history->hash ^= history->hash >> 15;
    atomic_store_explicit(word_of(history, history->rank, call),
                          (uint64_t)call << 32 | history->hash, memory_order_release);
    atomic_store_explicit(&history->calls, call, memory_order_release);
}

bool cecl_history_is_ahead(const struct cecl_history *history, int rank)
{
    const uint32_t next = atomic_load_explicit(&history->calls, memory_order_relaxed) + 1,
                   theirs = (uint32_t)(atomic_load_explicit(word_of(history, rank, next),
                                                            memory_order_acquire) >>
                                       32);
    return theirs != 0 && (int32_t)(theirs - next) >= 0;
}

/* Whether two ranks made the same call, as far as this rank knows. */
enum verdict { UNKNOWN, EQUAL, DIFFERENT };

static enum verdict compare(const struct cecl_history *history, uint64_t theirs, uint32_t call)
{
    const uint64_t mine =
        atomic_load_explicit(word_of(history, history->rank, call), memory_order_acquire);
    if (mine >> 32 != call || theirs >> 32 != call)
        /* one of the ranks has not made this call yet, or has reused the call's row for a later call */
        return UNKNOWN;
    return mine == theirs ? EQUAL : DIFFERENT;
}

static struct cecl_history_difference difference_at(const struct cecl_history *history, int rank,
                                                    uint32_t call)
{
    struct cecl_history_difference difference = {.rank = rank, .call = call};
    difference.has_mine = read_facts(history, history->rank, call, &difference.mine);
    difference.has_facts =
        read_facts(history, rank, call, &difference.theirs) && difference.has_mine;
    return difference;
}

/* Whether `rank` and this rank made different calls; if so, *difference has the first that is known to differ. If the
 * two hashes are equal at one call, they are equal at all calls before it: the latest call that both have decides. */
static bool differs_from(const struct cecl_history *history, int rank,
                         struct cecl_history_difference *difference)
{
    const uint32_t latest = atomic_load_explicit(&history->calls, memory_order_acquire);
    enum verdict verdict = UNKNOWN;
    uint32_t first = 0;
    for (uint32_t i = 0; i < CECL_HISTORY_CALLS && i < latest && verdict != EQUAL; i++) {
        const uint64_t theirs =
            atomic_load_explicit(word_of(history, rank, latest - i), memory_order_acquire);
        verdict = compare(history, theirs, latest - i);
        if (verdict == DIFFERENT)
            first = latest - i;
    }
    if (first > 0)
        *difference = difference_at(history, rank, first);
    return first > 0;
}

bool cecl_history_differs(const struct cecl_history *history,
                          struct cecl_history_difference *difference)
{
    for (int r = 0; r < history->nranks; r++)
        if (r != history->rank && differs_from(history, r, difference))
            return true;
    return false;
}
