/* Checks that flags or a stream order any two accesses to the same byte if one of them is a write. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "verify/internal.h"

static bool before(const struct verifier *v, const struct verify_access *a,
                   const struct verify_access *b)
{
    return verify_clock(v, (int)b->actor, b->event)[a->actor] >= a->event;
}

/* Whether two accesses have an order. The copies of one batch are one event, so they have no order among them. */
static bool ordered(const struct verifier *v, const struct verify_access *a,
                    const struct verify_access *b)
{
    if (a->actor == b->actor)
        return a->event != b->event;
    return before(v, a, b) || before(v, b, a);
}

static void describe(const struct verifier *v, const struct verify_access *a, char *out,
                     size_t bytes)
{
    const struct verify_origin *origin = verify_origin(v, (int)a->actor, a->event);
    const int rank = (int)a->actor / v->nlanes;
    if (origin->step != UINT32_MAX)
        snprintf(out, bytes, "the %s of %s %d, rank %d, step %" PRIu32, a->write ? "write" : "read",
                 v->program ? "launch" : "call", origin->launch, rank, origin->step);
    else if (origin->launch < verify_nlaunches(v, rank))
        snprintf(out, bytes, "the user of rank %d before %s %d", rank,
                 v->program ? "launch" : "call", origin->launch);
    else
        snprintf(out, bytes, "the user of rank %d after the last call", rank);
}

static ceclResult_t report(const struct verifier *v, int area, int rank,
                           const struct verify_access *a, const struct verify_access *b)
{
    static const char *const names[CECL_AREA_COUNT] = {"sendbuff", "recvbuff", "staging",
                                                       "host memory"};
    char one[96], other[96];
    describe(v, a, one, sizeof(one));
    describe(v, b, other, sizeof(other));
    return VERIFY_FAULT(
        "race: %s of rank %d, bytes %" PRIu64 " to %" PRIu64 ": %s and %s have no order",
        area < v->nareas ? names[area % CECL_AREA_COUNT] : "the message", rank,
        a->low > b->low ? a->low : b->low, (a->high < b->high ? a->high : b->high) - 1, one, other);
}

static int by_low(const void *a, const void *b)
{
    const struct verify_access *one = a, *other = b;
    return (one->low > other->low) - (one->low < other->low);
}

/* Accesses are sorted by their first byte, so an access can only overlap later ones that begin before its end. */
static ceclResult_t check_area(const struct verifier *v, int area, int rank)
{
    const struct verify_accesses *all = &v->accesses[area * v->nranks + rank];
    if (all->count > 1)
        qsort(all->list, all->count, sizeof(*all->list), by_low);
    for (size_t i = 0; i < all->count; i++)
        for (size_t j = i + 1; j < all->count && all->list[j].low < all->list[i].high; j++) {
            const struct verify_access *a = &all->list[i], *b = &all->list[j];
            if ((a->write || b->write) && !ordered(v, a, b))
                return report(v, area, rank, a, b);
        }
    return ceclSuccess;
}

ceclResult_t verify_barrier(const struct verifier *v, int call, int rank)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank);
    const int actor = verify_actor(v, rank, CECL_LANE_MAIN);
    const uint32_t *clock = verify_clock(v, actor, v->actors[actor].nevents);
    bool meets = false;
    for (uint32_t part = 0; part < cecl_plan_parts(plan); part++)
        meets = meets || cecl_plan_part(plan, part)->call.op->family == CECL_FAMILY_BARRIER;
    for (int r = 0; meets && r < v->nranks; r++) {
        const uint32_t turn = v->ranks[r].turns[call];
        if (turn == 0 || clock[verify_actor(v, r, CECL_LANE_MAIN)] < turn)
            return VERIFY_FAULT("call %d: rank %d leaves the barrier before rank %d has come", call,
                                rank, r);
    }
    return ceclSuccess;
}

ceclResult_t verify_races(const struct verifier *v)
{
    for (int w = 0; w < v->nmemories; w++)
        for (int r = 0; r < v->nranks; r++)
            CECL_TRY(check_area(v, w, r));
    return ceclSuccess;
}
