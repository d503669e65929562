/* How calls advance counters. Every call runs this code, so it has no allocation and no lock. */
#include "flags/flags.h"

#include <string.h>

/* Notes the largest number of side phases per main phase. A call with side phases always has main phases
 * too, because every call ends on the main lane. */
static void note_side_phases(struct cecl_flags *flags, const struct cecl_advance *advance)
{
    const uint32_t main = advance->phases[CECL_LANE_MAIN], side = advance->phases[CECL_LANE_SIDE];
    if (side > 0 && side > main * atomic_load_explicit(&flags->side_a_main, memory_order_relaxed))
        atomic_store(&flags->side_a_main, main > 0 ? (side + main - 1) / main : side);
}

/* The number of calls without phases so far. */
static uint32_t unsignalled(const struct cecl_flags *flags)
{
    return flags->epoch[CECL_COUNTER_DONE] - flags->epoch[CECL_LANE_MAIN];
}

/* The watchdog may silence flags at the same time. It writes `silent`, then reads targets (cecl_flags_silence). This
 * function writes targets, then reads `silent`: if it misses `silent`, the watchdog silences this call's flags, too.
 * The main lane's target is written last: from then on the watchdog sees that a call is pending (cecl_flags_idle). */
bool cecl_flags_begin(struct cecl_flags *flags, const struct cecl_advance *advance)
{
    note_side_phases(flags, advance);
    atomic_store(&flags->unsignalled_target, unsignalled(flags) + advance->unsignalled);
    for (int lane = CECL_LANES - 1; lane >= CECL_LANE_MAIN; lane--)
        atomic_store(&flags->target[lane], flags->epoch[lane] + advance->phases[lane]);
    if (!atomic_load(&flags->silent))
        return true;
    cecl_flags_roll_back(flags);
    return false;
}

/* Cells that are words are stored atomically, because the watchdog may read them at the same time. */
void cecl_cells_fill(const struct cecl_cell *cells, uint32_t count, const uint32_t *epoch,
                     const uint64_t *given)
{
    for (uint32_t i = 0; i < count; i++) { /* cells may be NULL if there are none */
        const struct cecl_cell *cell = &cells[i];
        if (cell->is_word) {
            const uint32_t input = cell->counter == CECL_CELL_GIVEN
                                       ? (uint32_t)given[cell->k]
                                       : epoch[cell->counter] + cell->k;
            atomic_store_explicit((_Atomic uint32_t *)cell->at, input * (uint32_t)cell->scale,
                                  memory_order_relaxed);
            continue;
        }
        const uint64_t input = cell->counter == CECL_CELL_GIVEN
                                   ? given[cell->k]
                                   : ((epoch[cell->counter] + cell->k) & cell->mask),
                       value = cell->base + input * cell->scale;
        memcpy(cell->at, &value, sizeof(value));
    }
}

void cecl_flags_commit(struct cecl_flags *flags, const struct cecl_advance *advance)
{
    for (int lane = 0; lane < CECL_LANES; lane++)
        flags->epoch[lane] += advance->phases[lane];
    flags->epoch[CECL_COUNTER_SLOTS] += advance->small;
    flags->epoch[CECL_COUNTER_DONE] += cecl_advance_end(advance);
    flags->epoch[CECL_COUNTER_BEGUN] = flags->epoch[CECL_COUNTER_DONE];
}

void cecl_flags_roll_back(struct cecl_flags *flags)
{
    atomic_store(&flags->unsignalled_target, unsignalled(flags));
    for (int lane = 0; lane < CECL_LANES; lane++)
        atomic_store(&flags->target[lane], flags->epoch[lane]);
}

struct cecl_memop cecl_flags_wait_last(const struct cecl_flags *flags)
{
    return (struct cecl_memop){flags->done, flags->epoch[CECL_COUNTER_DONE], CECL_MEMOP_WAIT};
}

struct cecl_memop cecl_flags_mark_end(const struct cecl_flags *flags)
{
    return (struct cecl_memop){flags->done, cecl_flags_done_target(flags), CECL_MEMOP_WRITE};
}
