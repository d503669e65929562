/* For which ranks each rank waits: publishing it, and following the waits of other ranks. */
#include "comm/waits.h"

#include <stdbool.h>

#define BITS 64

static size_t row_words(int nranks)
{
    return 1 + ((size_t)nranks + BITS - 1) / BITS;
}

size_t cecl_waits_bytes(int nranks)
{
    return (size_t)nranks * row_words(nranks) * sizeof(uint64_t);
}

void cecl_waits_open(struct cecl_waits *waits, void *memory, int rank, int nranks)
{
    *waits = (struct cecl_waits){.words = memory, .rank = rank, .nranks = nranks};
}

static _Atomic uint64_t *row_of(const struct cecl_waits *waits, int rank)
{
    return &waits->words[(size_t)rank * row_words(waits->nranks)];
}

void cecl_waits_tell(const struct cecl_waits *waits, const struct cecl_rank_list *late,
                     int64_t now_ms)
{
    _Atomic uint64_t *row = row_of(waits, waits->rank);
    if (late->count == 0) {
        atomic_store(row, 0);
        return;
    }
    const int named = late->count < CECL_RANKS_NAMED ? late->count : CECL_RANKS_NAMED;
    for (int first = 0; first < waits->nranks; first += BITS) {
        uint64_t bits = 0;
        for (int i = 0; i < named; i++)
            if (late->ranks[i] / BITS == first / BITS)
                bits |= UINT64_C(1) << late->ranks[i] % BITS;
        atomic_store(&row[1 + first / BITS], bits);
    }
    atomic_store(row, (uint64_t)now_ms);
}

static bool is_waiting(const struct cecl_waits *waits, int64_t since_ms, int rank)
{
    const uint64_t told = atomic_load(row_of(waits, rank));
    return told != 0 && (int64_t)told >= since_ms;
}

static bool waits_for(const struct cecl_waits *waits, int rank, int other)
{
    return atomic_load(&row_of(waits, rank)[1 + other / BITS]) >> other % BITS & 1;
}

static bool holds(const struct cecl_rank_list *list, int rank)
{
    for (int i = 0; i < list->count && i < CECL_RANKS_NAMED; i++)
        if (list->ranks[i] == rank)
            return true;
    return false;
}

void cecl_waits_join(struct cecl_rank_list *all, const struct cecl_rank_list *late)
{
    for (int i = 0; i < late->count && i < CECL_RANKS_NAMED; i++)
        if (!holds(all, late->ranks[i]))
            cecl_rank_list_add(all, late->ranks[i]);
}

/* Adds the ranks for which `rank` waits. Returns whether there was room. */
static bool add_next(const struct cecl_waits *waits, int rank, struct cecl_rank_list *met)
{
    for (int other = 0; other < waits->nranks; other++)
        if (waits_for(waits, rank, other) && !holds(met, other)) {
            if (met->count == CECL_RANKS_NAMED)
                return false;
            cecl_rank_list_add(met, other);
        }
    return true;
}

void cecl_waits_follow(const struct cecl_waits *waits, int64_t since_ms,
                       struct cecl_rank_list *late)
{
    struct cecl_rank_list met = *late, ends = {.count = 0};
    if (late->count > CECL_RANKS_NAMED)
        return;
    for (int i = 0; i < met.count; i++) {
        const int rank = met.ranks[i];
        if (rank == waits->rank) /* `late` has the ranks for which this rank waits */
            continue;
        if (!is_waiting(waits, since_ms, rank))
            cecl_rank_list_add(&ends, rank);
        else if (!add_next(waits, rank, &met))
            return;
    }
    if (ends.count > 0)
        *late = ends;
}

struct cecl_rank_list cecl_waits_own(const struct cecl_waits *waits, int64_t since_ms)
{
    struct cecl_rank_list own = {.count = 0};
    if (is_waiting(waits, since_ms, waits->rank))
        (void)add_next(waits, waits->rank, &own);
    return own;
}
