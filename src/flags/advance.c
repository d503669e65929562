/* How calls move the flags. Every call runs this code, so it has no allocation and no lock. */
#include "flags/flags.h"

/* Every call with side phases has main ones, because it ends on the main lane. */
static void note_side_phases(struct cecl_flags *flags, const struct cecl_advance *advance)
{
    const uint32_t main = advance->phases[CECL_LANE_MAIN], side = advance->phases[CECL_LANE_SIDE];
    if (side > 0 && side > main * atomic_load_explicit(&flags->side_a_main, memory_order_relaxed))
        atomic_store(&flags->side_a_main, main > 0 ? (side + main - 1) / main : side);
}

/* Sets the main lane last, because `idle` does not look at the side lane. A call that begins while the
 * watchdog silences flags either finds that here, or the watchdog finds the call's target: each of the
 * two writes its own word before it reads the other's. */
bool cecl_flags_begin(struct cecl_flags *flags, const struct cecl_advance *advance)
{
    note_side_phases(flags, advance);
    atomic_store(&flags->unsignalled_target, flags->unsignalled + advance->unsignalled);
    for (int lane = CECL_LANES - 1; lane >= CECL_LANE_MAIN; lane--)
        atomic_store(&flags->target[lane], flags->epoch[lane] + advance->phases[lane]);
    if (!atomic_load(&flags->silent))
        return true;
    cecl_flags_roll_back(flags);
    return false;
}

static void fill_halves(const struct cecl_half_place *places, uint32_t count, uint8_t half)
{
    for (uint32_t i = 0; i < count; i++)
        *places[i].at = places[i].first + half * places[i].apart;
}

/* Copies what the loop reads first, because the compiler cannot know that no patch points into
 * `flags`. */
void cecl_flags_fill(const struct cecl_flags *flags, const struct cecl_patch *patches,
                     uint32_t count)
{
    const uint32_t epochs[CECL_LANES] = {flags->epoch[CECL_LANE_MAIN],
                                         flags->epoch[CECL_LANE_SIDE]};
    uint32_t *const values[CECL_LANES] = {cecl_flags_source(flags, CECL_LANE_MAIN, 0),
                                          cecl_flags_source(flags, CECL_LANE_SIDE, 0)};
    const uint32_t unsignalled = flags->unsignalled, small_calls = flags->small_calls;
    const uint8_t half = cecl_flags_half(flags);
    for (const struct cecl_patch *patch = patches; patch < patches + count; patch++) {
        const uint32_t epoch = epochs[patch->lane] + patch->phase;
        switch ((enum cecl_patch_kind)patch->kind) {
        case CECL_PATCH_FLAG: *patch->at.word = cecl_flag_value(epoch); break;
        case CECL_PATCH_SOURCE:
            *patch->at.source = values[patch->lane] + epoch % CECL_FLAG_VALUES;
            break;
        case CECL_PATCH_DONE: *patch->at.word = epoch + unsignalled; break;
        case CECL_PATCH_SMALL: *patch->at.word = small_calls + patch->phase; break;
        case CECL_PATCH_HALVES: fill_halves(patch->at.halves, patch->phase, half); break;
        }
    }
}

void cecl_flags_commit(struct cecl_flags *flags, const struct cecl_advance *advance)
{
    for (int lane = 0; lane < CECL_LANES; lane++)
        flags->epoch[lane] += advance->phases[lane];
    flags->unsignalled += advance->unsignalled;
    flags->small_calls += advance->small;
}

void cecl_flags_roll_back(struct cecl_flags *flags)
{
    atomic_store(&flags->unsignalled_target, flags->unsignalled);
    for (int lane = 0; lane < CECL_LANES; lane++)
        atomic_store(&flags->target[lane], flags->epoch[lane]);
}

struct cecl_memop cecl_flags_wait_last(const struct cecl_flags *flags)
{
    const uint32_t last = flags->epoch[CECL_LANE_MAIN] + flags->unsignalled;
    return (struct cecl_memop){flags->done, last, CECL_MEMOP_WAIT};
}

struct cecl_memop cecl_flags_mark_end(const struct cecl_flags *flags)
{
    return (struct cecl_memop){flags->done, cecl_flags_done_target(flags), CECL_MEMOP_WRITE};
}
