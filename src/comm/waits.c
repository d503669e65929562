/* Publishes for which ranks this rank waits, and follows the waits of other ranks. */
#include "comm/waits.h"

size_t cecl_waits_bytes(int nranks)
{
    return (size_t)nranks * sizeof(struct cecl_waits_row);
}

void cecl_waits_open(struct cecl_waits *waits, void *memory, int rank, int nranks)
{
    *waits = (struct cecl_waits){.rows = memory, .rank = rank, .nranks = nranks};
}

void cecl_waits_tell(const struct cecl_waits *waits, const struct cecl_rank_set *late,
                     int64_t now_ms)
{
    struct cecl_waits_row *row = &waits->rows[waits->rank];
    for (int i = 0; i < CECL_RANK_WORDS; i++)
        atomic_store(&row->late[i], late->words[i]);
    atomic_store(&row->told_ms, cecl_rank_set_count(late) > 0 ? now_ms : 0);
}

struct cecl_rank_set cecl_waits_of(const struct cecl_waits *waits, int rank, int64_t since_ms)
{
    const struct cecl_waits_row *row = &waits->rows[rank];
    const int64_t told = atomic_load(&row->told_ms);
    struct cecl_rank_set late = {{0}};
    for (int i = 0; i < CECL_RANK_WORDS && told != 0 && told >= since_ms; i++)
        late.words[i] = atomic_load(&row->late[i]);
    return late;
}

void cecl_waits_follow(const struct cecl_waits *waits, int64_t since_ms, struct cecl_rank_set *late)
{
    struct cecl_rank_set met = *late, done = {{0}}, ends = {{0}};
    cecl_rank_set_add(&done, waits->rank); /* this rank's own waits are already in `late` */
    for (int rank = 0; rank < waits->nranks; rank++) {
        if (!cecl_rank_set_has(&met, rank) || cecl_rank_set_has(&done, rank))
            continue;
        const struct cecl_rank_set next = cecl_waits_of(waits, rank, since_ms);
        cecl_rank_set_add(&done, rank);
        if (cecl_rank_set_count(&next) == 0)
            cecl_rank_set_add(&ends, rank);
        cecl_rank_set_join(&met, &next);
        rank = -1; /* starts the loop again, because lower ranks may have been added to `met` */
    }
    if (cecl_rank_set_count(&ends) > 0)
        *late = ends;
}
