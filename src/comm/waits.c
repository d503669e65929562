/* For which ranks each rank waits: publishing it, and following the waits of other ranks. */
#include "comm/waits.h"

#include <stdbool.h>

size_t cecl_waits_bytes(int nranks)
{
    return (size_t)nranks * sizeof(struct cecl_waits_row);
}

void cecl_waits_open(struct cecl_waits *waits, void *memory, int rank, int nranks)
{
    *waits = (struct cecl_waits){.rows = memory, .rank = rank, .nranks = nranks};
}

void cecl_waits_tell(const struct cecl_waits *waits, const struct cecl_rank_list *late,
                     int64_t now_ms)
{
    struct cecl_waits_row *row = &waits->rows[waits->rank];
    for (int i = 0; i < CECL_RANKS_NAMED; i++)
        atomic_store(&row->ranks[i], i < late->count ? late->ranks[i] : -1);
    atomic_store(&row->told_ms, late->count > 0 ? now_ms : 0);
}

static bool is_waiting(const struct cecl_waits *waits, int64_t since_ms, int rank)
{
    const int64_t told = atomic_load(&waits->rows[rank].told_ms);
    return told != 0 && told >= since_ms;
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
    for (int i = 0; i < CECL_RANKS_NAMED; i++) {
        const int other = atomic_load(&waits->rows[rank].ranks[i]);
        if (other < 0 || other >= waits->nranks || holds(met, other))
            continue;
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
