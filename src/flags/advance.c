/* How calls move the flags. On the way of every call: no allocation, no lock. */
#include "flags/flags.h"

/* The main lane last: `idle` looks at that one alone. */
void cecl_flags_begin(struct cecl_flags *flags, const struct cecl_advance *advance)
{
    for (int lane = CECL_LANES - 1; lane >= CECL_LANE_MAIN; lane--)
        atomic_store(&flags->target[lane], flags->epoch[lane] + advance->phases[lane]);
}

void cecl_flags_fill(const struct cecl_flags *flags, const struct cecl_patch *patches,
                     uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct cecl_patch *patch = &patches[i];
        const uint32_t epoch = flags->epoch[patch->lane] + patch->phase;
        switch ((enum cecl_patch_kind)patch->kind) {
        case CECL_PATCH_FLAG: *patch->at.word = cecl_flag_value(epoch); break;
        case CECL_PATCH_SOURCE:
            *patch->at.source = cecl_flags_source(flags, patch->lane, epoch);
            break;
        case CECL_PATCH_EPOCH: *patch->at.word = epoch; break;
        case CECL_PATCH_SMALL: *patch->at.word = flags->small_calls + patch->phase; break;
        }
    }
}

void cecl_flags_commit(struct cecl_flags *flags, const struct cecl_advance *advance)
{
    for (int lane = 0; lane < CECL_LANES; lane++)
        flags->epoch[lane] += advance->phases[lane];
    flags->small_calls += advance->small;
}

void cecl_flags_roll_back(struct cecl_flags *flags)
{
    for (int lane = 0; lane < CECL_LANES; lane++)
        atomic_store(&flags->target[lane], flags->epoch[lane]);
}

struct cecl_memop cecl_flags_wait_last(const struct cecl_flags *flags)
{
    return (struct cecl_memop){flags->done, flags->epoch[CECL_LANE_MAIN], CECL_MEMOP_WAIT};
}

struct cecl_memop cecl_flags_mark_end(const struct cecl_flags *flags)
{
    const uint32_t end = atomic_load(&flags->target[CECL_LANE_MAIN]);
    return (struct cecl_memop){flags->done, end, CECL_MEMOP_WRITE};
}
